"""`bench speech` against a real server whose timing is scripted: each figure must come out as it was put in."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn

from voice_agent.bench import speech_report
from voice_agent.bench.listener import Heard
from voice_agent.bench.load import Job
from voice_agent.bench.speech import main
from voice_agent.bench.speech_load import Gpu, Reply, in_flight
from voice_agent.bench.speech_picture import picture
from voice_agent.bench.speech_report import Limits, PointRun, cost, point, price_told, table, told
from voice_agent.bench.speech_servers import RATE_HZ
from voice_agent.clock import NS_PER_MS

Step = float | bytes | str  # wait so many ms; send; or how it ends: "busy", "drop", "text"


def sound(ms: float, level: int = 8_000) -> bytes:
    t = np.arange(int(RATE_HZ * ms / 1000))
    return (level * np.sin(2 * np.pi * 440 * t / RATE_HZ)).astype("<i2").tobytes()


@dataclass
class ScriptedSpeech:
    """A speech route that plays its scripts in turn, one per request; remembers what it was asked."""

    scripts: list[list[Step]]
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    connections: set[Any] = field(default_factory=set[Any])

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.connections.add(tuple(scope["client"]))
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        script = self.scripts[len(self.asked) % len(self.scripts)]
        self.asked.append(json.loads(body))
        await self._play(script, send)

    async def _play(self, script: list[Step], send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        status = 503 if "busy" in script else 200
        kind = b"text/html" if "text" in script else b"audio/pcm"
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        for step in script:
            if isinstance(step, bytes):
                await send({"type": "http.response.body", "body": step, "more_body": True})
            elif isinstance(step, float):
                await asyncio.sleep(step / 1000)
            elif step == "drop":
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@asynccontextmanager
async def serving(*scripts: list[Step]) -> AsyncGenerator[ScriptedSpeech]:
    app = ScriptedSpeech(list(scripts))
    async with running(app) as app.url:
        yield app


@asynccontextmanager
async def running(app: Any) -> AsyncGenerator[str]:
    """Its address while it runs."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="critical", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve([listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listening.close()


async def bench(url: str, folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """A short run; its exit status and the report it wrote."""
    file = folder / "report.json"
    short = ["--seconds", "1", "--warm-up", "0", "--seeds", "0", "--pause", "0"]
    argv = ["--url", url, "--json", str(file), *short, *more]
    status = await asyncio.to_thread(main, argv)
    return status, json.loads(file.read_text())


def undisturbed(reply_p50: float | None, wanted_ms: float) -> bool:
    """Whether the machine was quiet enough for a figure to be within 25 ms above what was put in."""
    return reply_p50 is not None and wanted_ms - 1 <= reply_p50 <= wanted_ms + 25


@pytest.mark.loopback
async def test_first_sound_audible_sound_stalls_and_ends_come_out_as_they_were_put_in(tmp_path: Path) -> None:
    script: list[Step] = [60.0, sound(30, 10) + sound(70), 250.0, sound(100)]
    for _ in range(3):
        async with serving(script) as app:
            status, report = await bench(app.url, tmp_path, "--rps", "12")
        [p] = report["points"]
        assert status == 0 and p["answered"] == p["due"] == len(app.asked) > 4
        assert p["underrun_share"] == 1 and p["underrun_share_over_20_ms"] == 1
        assert p["playable_ms"]["p50"] >= 59 and p["end_to_end_ms"]["p50"] >= 309
        assert p["audible_ms"]["p50"] - p["playable_ms"]["p50"] == pytest.approx(30, abs=11)
        assert p["quiet_ms"]["p95"] == pytest.approx(30, abs=11)
        assert p["longest_stall_ms"] >= 145
        assert p["verdict"]["no_underrun"] is False and not p["verdict"]["passes"] and report["cost"] is None
        calm = undisturbed(p["playable_ms"]["p50"], 60) and undisturbed(p["end_to_end_ms"]["p50"], 310)
        if calm and p["longest_stall_ms"] < 200:
            return
    pytest.fail("three tries, none of them undisturbed")


@pytest.mark.loopback
async def test_lost_requests_are_counted_in_every_percentile(tmp_path: Path) -> None:
    good: list[Step] = [sound(100)]
    scripts: list[list[Step]] = [
        good,
        ["busy"],
        [sound(50), "drop"],
        ["text", b"<html>"],
        [sound(300, 5)],
        [3_000.0],
    ]
    async with serving(*scripts) as app:
        status, report = await bench(app.url, tmp_path, "--rps", "40", "--timeout", "1.5")
    [p] = report["points"]
    assert status == 1
    assert p["due"] == len(app.asked) and p["answered"] == pytest.approx(p["due"] / 6, abs=1)
    reasons = " | ".join(p["failures"])
    for reason in (
        "status 503",
        "BadAnswer",
        "content type text/html",
        "nothing audible",
        "no whole answer in 1.5 s",
    ):
        assert reason in reasons
    assert sum(p["failures"].values()) == p["due"] - p["answered"]
    assert p["audible_ms"]["p50"] is None and p["audible_ms"]["n"] == p["due"]
    assert p["verdict"]["capacity"] is False and p["verdict"]["audible"] is False


@pytest.mark.loopback
async def test_a_good_server_passes_what_can_be_measured_and_has_a_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speech_report, "MOST_LATE_MS", 1_000)  # tests share their cores with others
    async with serving([sound(200), sound(200)]) as app:
        svg = tmp_path / "curve.svg"
        status, report = await bench(
            app.url, tmp_path, "--rps", "5", "15", "--limit-ms", "500", "--picture", str(svg), "--warm-up", "0.4",
            "--seeds", "0", "1", "--server", "nari", "--force-lengths", "--extra", "seed=7", "--api-key", "sk-secret",
        )  # fmt: skip
    assert status == 0
    slow, fast = report["points"]
    assert (slow["load"], fast["load"], fast["seeds"]) == (5, 15, 2)
    assert fast["verdict"]["intelligible"] is None and "parity" in fast["verdict"]["intelligible_note"]
    price = 3 * 1e6 / (15 * 3600 * fast["mean_characters"])
    assert fast["verdict"]["passes"] and report["cost"]["dollars_per_million_characters"] == pytest.approx(
        price, rel=0.01
    )
    assert svg.read_text().count("<circle") == 2
    assert all(16 <= body["max_new_tokens"] <= 140 and body["seed"] == 7 for body in app.asked)
    assert fast["due"] + slow["due"] < len(app.asked)  # the warm-up was asked for and does not count
    assert len(app.connections) < len(app.asked)  # connections are used again
    assert "sk-secret" not in json.dumps(report)


@pytest.mark.loopback
async def test_a_closed_loop_counts_sound_per_second_and_quality_jobs_run_beside(tmp_path: Path) -> None:
    async with serving([20.0, sound(500)]) as app:
        _, report = await bench(app.url, tmp_path, "--streams", "4", "--quality-jobs", "2")
    [p] = report["points"]
    fast = [body for body in app.asked if body["latency_first"]]
    assert p["loop"] == "closed" and p["due"] == len(fast) > 20
    assert p["audio_s_per_s"] == pytest.approx(0.5 * p["answered"], rel=0.02)
    assert p["in_flight"]["peak"] == 4 and p["in_flight"]["mean"] > 2
    assert (
        p["quality_first"]["answered"] == pytest.approx(len(app.asked) - len(fast), abs=2)
        and report["cost"] is None
    )


def test_a_server_that_is_down_and_wrong_options_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    assert main(["--url", f"http://127.0.0.1:{free}"]) == 2
    assert "no server at" in capsys.readouterr().err
    for argv, said in (
        (["--extra", "seed"], "NAME=JSON"),
        (["--extra", "seed={"], "not JSON"),
        (["--server", "mstar", "--force-lengths"], "--length-field"),
    ):
        assert main(argv) == 2
        assert said in capsys.readouterr().err


def reply(sent_ms: float, over_ms: float, audible_ms: float | None = 20.0, stall_ms: float = 0.0) -> Reply:
    heard = Heard(audible_ms, audible_ms, over_ms - sent_ms, 0.0, [stall_ms] if stall_ms else [], 1_000.0)
    return Reply(
        Job(sent_ms / 1000, "x" * 50, 52), int(sent_ms * NS_PER_MS), int(over_ms * NS_PER_MS), 0.0, heard
    )


def run_of(*replies: Reply, random_weights: bool = True) -> PointRun:
    return PointRun(
        10, closed=False, seconds=1.0, warm_up_s=0.0, replies=[list(replies)], random_weights=random_weights
    )


def test_requests_in_flight_are_a_mean_and_a_peak_of_the_measured_time() -> None:
    replies = [reply(0, 100), reply(50, 150), reply(400, 2_000)]
    assert in_flight(replies, 0, 200 * NS_PER_MS) == (1.0, 2)
    assert in_flight(replies, 1_000 * NS_PER_MS, 1_100 * NS_PER_MS) == (1.0, 0)


def test_a_backlog_that_grows_and_a_client_that_was_late_are_no_capacity() -> None:
    steady = point(run_of(*(reply(10 * n, 10 * n + 50) for n in range(100))), Limits())
    growing = point(run_of(*(reply(10 * n, 3_000) for n in range(100))), Limits())
    assert (
        steady["verdict"]["capacity"] and not growing["verdict"]["capacity"] and growing["in_flight"]["grows"]
    )
    late = run_of(*(reply(10 * n, 10 * n + 50) for n in range(100)))
    for slow in late.replies[0][:5]:
        slow.late_ms = 9.0
    found = point(late, Limits())["verdict"]
    assert not found["client_kept_up"] and not found["capacity"]


@pytest.mark.parametrize(
    ("run", "missed"),
    [
        (run_of(reply(0, 50, 51.0)), "fails: audible"),
        (run_of(reply(0, 50, stall_ms=0.2)), "fails: no underrun"),
        (run_of(reply(0, 50)), "passes (intelligible: not measurable)"),
        (run_of(reply(0, 50), random_weights=False), "open (intelligible: not measured)"),
        (run_of(reply(0, 50, 51.0), random_weights=False), "fails: audible"),
    ],
)
def test_a_verdict_names_what_was_missed(run: PointRun, missed: str) -> None:
    assert told(point(run, Limits())["verdict"]) == missed
    assert missed in table([point(run, Limits())])


def test_intelligible_is_the_fourth_and_underruns_may_be_allowed() -> None:
    run = run_of(reply(0, 50, stall_ms=3))
    run.word_error_rate = 0.2
    assert told(point(run, Limits(underruns=1.0))["verdict"]) == "fails: intelligible"
    assert told(point(run, Limits(underruns=1.0, word_errors=0.2))["verdict"]) == "passes"
    run.word_error_rate = 0.01
    assert told(point(run, Limits(underruns=1.0))["verdict"]) == "passes"


def test_a_point_passes_only_with_all_four_unless_its_weights_are_random() -> None:
    found = point(run_of(reply(0, 50), random_weights=False), Limits())
    assert not found["verdict"]["passes"] and "--transcribe" in found["verdict"]["intelligible_note"]
    assert cost([found], 3.0) is None
    found = point(run_of(reply(0, 50)), Limits())
    assert found["verdict"]["passes"] and "parity" in found["verdict"]["intelligible_note"]


def test_stages_are_means_over_all_seeds_and_none_where_nothing_was_told() -> None:
    run = run_of(reply(0, 50))
    assert point(run, Limits())["stages"] is None
    run.work = [
        {"frames": 3, "frame_rows": 9, "frame_ms": 10.0, "renders": 2, "render_frames": 6, "render_ms": 3.0},
        {"frames": 1, "frame_rows": 3, "frame_ms": 6.0},
    ]
    assert point(run, Limits())["stages"] == {
        "frame_ms": 4.0, "frame_rows": 3.0, "render_ms": 1.5, "render_frames": 3.0
    }  # fmt: skip


def test_the_cost_is_taken_at_the_highest_load_that_passes() -> None:
    low, high = point(run_of(reply(0, 50)), Limits()), point(run_of(reply(0, 50, 99.0)), Limits())
    high["load"] = 40
    assert cost([low, high], 3.0) == {
        "load": 10,
        "dollars_per_hour": 3.0,
        "dollars_per_million_characters": round(3e6 / (10 * 3600 * 50), 4),
    }
    assert cost([high], 3.0) is None


def test_the_cost_is_told_with_how_far_it_is_from_what_it_should_be() -> None:
    cheap = {"load": 40.0, "dollars_per_million_characters": 0.25}
    assert price_told(cheap) == "$0.25 at 40/s, 8.0 times below $2"
    assert price_told(cheap | {"dollars_per_million_characters": 3.0}) == "$3.0 at 40/s, 1.5 times above $2"
    assert price_told(None) == "no point passes"


def test_a_picture_breaks_its_line_at_a_lost_percentile_and_needs_a_point() -> None:
    low, high = point(run_of(reply(0, 50)), Limits()), point(run_of(reply(0, 50, None)), Limits())
    high["load"] = 20
    drawn = picture([low, high], 50, "a < b")
    assert "a &lt; b" in drawn and "<polyline" not in drawn and "p95 lost" in drawn
    with pytest.raises(ValueError, match="no picture"):
        picture([], 50, "")


def test_a_report_that_was_written_is_drawn_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, svg = tmp_path / "report.json", tmp_path / "curve.svg"
    report.write_text(json.dumps({"points": [point(run_of(reply(0, 50)), Limits())], "note": "one H200"}))
    assert main(["--draw", str(report), "--picture", str(svg)]) == 0
    assert "one H200" in svg.read_text() and svg.read_text().count("<circle") == 1
    report.write_text('{"points": [], "note": ""}')
    for name in (str(report), "none"):
        assert main(["--draw", name, "--picture", str(svg)]) == 2
        assert "no report" in capsys.readouterr().err


def test_the_gpu_is_read_line_by_line_and_what_is_no_number_is_passed_over() -> None:
    gpu = Gpu(0)
    for line in ("87, 12345, NVIDIA H200\n", "[N/A], 12400, NVIDIA H200\n", "nonsense\n"):
        gpu.read(line)
    assert (gpu.busy, gpu.memory_mib, gpu.name) == ([87.0], [12345.0, 12400.0], "NVIDIA H200")
