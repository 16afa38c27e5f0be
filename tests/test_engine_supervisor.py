"""A real child process that is killed, stopped, stuck, never ready or orphaned."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engine_rig import (
    CHILD,
    answer,
    clause,
    hang,
    process_engine,
    results,
    running,
    speech_spec,
    text_of,
    think,
    thinker_spec,
    until,
)
from voice_agent.clock import NS_PER_S, MonotonicClock
from voice_agent.engine.messages import Speak
from voice_agent.engine.restarts import FIRST_DELAY_S, LONGEST_DELAY_S, RESTARTS, WINDOW_S, RestartBudget
from voice_agent.engine.starting import Recipe, Started
from voice_agent.engine.supervisor import ENDING_S, RECOVER_S, EngineProcess
from voice_agent.errors import EngineDied, EngineError, EngineStartFailed

pytestmark = pytest.mark.process

EXIT_ONCE_READY = """
import socket, sys
from voice_agent.engine.messages import Ready, encode
frame = encode(Ready({}))
socket.socket(fileno=int(sys.argv[1])).sendall(len(frame).to_bytes(4, "little") + frame)
"""


class HurriedClock(MonotonicClock):
    """The machine's clock, whose sleeps are a hundred times shorter."""

    async def sleep_until(self, instant_ns: int) -> None:
        now_ns = self.now_ns()
        await super().sleep_until(now_ns + (instant_ns - now_ns) // 100)


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# --- death and restart ------------------------------------------------------------------------------------------


async def test_killed_in_mid_reply_raises_engine_died_within_a_second_and_a_restart_serves_again() -> None:
    begun_s = time.monotonic()
    async with running(speech_spec()) as engine:
        start_s = time.monotonic() - begun_s
        epoch, pid = engine.next_epoch(), engine.pid
        assert pid is not None and engine.reasons() == [] and engine.describe["voices"] == ["low", "high"]
        async with engine.submit(Speak("reply", epoch, "low")) as stream:
            stream.push(clause("reply", epoch, "slow " * 50))
            await anext(aiter(stream))
            os.kill(pid, signal.SIGKILL)
            killed_s = time.monotonic()
            with pytest.raises(EngineDied) as died:
                await results(stream)
        assert time.monotonic() - killed_s < 1.0 and died.value.retryable
        assert engine.in_flight() == []
        await until(lambda: engine.state == "backoff")
        await until(lambda: any("SIGKILL" in reason for reason in engine.reasons()))
        await until(lambda: engine.state == "ready")
        restarted_s = (
            time.monotonic() - killed_s
        )  # a back-off and a start, as long as this machine takes for one
        assert restarted_s < 1.25 * FIRST_DELAY_S + 2 * start_s + 1.0
        assert engine.pid != pid and engine.next_epoch() > epoch
        async with engine.submit(Speak("again", epoch + 9, "low")) as stream:
            stream.push(clause("again", epoch + 9, "one"))
            await anext(aiter(stream))


async def test_a_second_attempt_on_an_engine_that_stays_away_has_ended_a_second_after_the_kill(
    tmp_path: Path,
) -> None:
    away = tmp_path / "away"
    late = f"import pathlib, runpy, time; time.sleep(60 * pathlib.Path({str(away)!r}).exists())"
    command = (sys.executable, "-c", f"{late}; runpy.run_path({CHILD[-1]!r}, run_name='__main__')")
    engine = EngineProcess("thinker", thinker_spec(), MonotonicClock(), command=command)
    await engine.start()
    away.touch()
    try:
        async with engine.submit(think(engine, "r", "forever")) as stream:
            await anext(aiter(stream))
            assert engine.pid is not None
            os.kill(engine.pid, signal.SIGKILL)
            killed_s = time.monotonic()
            with pytest.raises(EngineDied):
                await results(stream)
        with pytest.raises(EngineDied, match="not up"):
            await answer(engine, think(engine, "r", "say back"))
        assert time.monotonic() - killed_s < 1.0
        assert ENDING_S + RECOVER_S < 1.0  # were it to take its whole time to tell why it ended
    finally:
        await engine.close()


async def test_a_process_that_gives_no_sign_of_life_is_replaced() -> None:
    async with running(thinker_spec(ping_s=0.05, silent_s=0.4, terminate_s=0.1)) as engine:
        pid = await hang(engine)
        assert await asyncio.to_thread(_wait_gone, pid, 2.0)
        await until(lambda: engine.state == "ready")
        assert text_of(await answer(engine, think(engine, "r", "say back"))) == "back "


async def test_a_step_that_does_not_move_is_ended_while_a_long_answer_that_does_is_not() -> None:
    async with running(thinker_spec(ping_s=0.05, stuck_step_s=0.3, terminate_s=0.1)) as engine:
        async with engine.submit(think(engine, "r", "forever", max_output_tokens=200)) as stream:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await asyncio.sleep(10)
            assert text_of(await results(stream))
        async with engine.submit(think(engine, "r", "stall")) as stream:
            with pytest.raises(EngineDied):
                async with asyncio.timeout(2):
                    await results(stream)
        assert "has not moved" in engine.reasons()[0]


async def test_a_process_that_dies_again_and_again_ends_in_a_crash_loop() -> None:
    engine = EngineProcess(
        "dying", thinker_spec(silent_s=600.0), HurriedClock(), command=(sys.executable, "-c", EXIT_ONCE_READY)
    )
    await engine.start()
    try:
        await until(lambda: engine.state == "crash_loop")
        assert "crash_loop" in engine.reasons()[0] and "exited with code 0" in engine.reasons()[0]
        with pytest.raises(EngineDied):
            await answer(engine, think(engine, "r", "say x"))
    finally:
        await engine.close()


async def test_whatever_its_supervisor_stumbles_over_a_restart_leads_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def stumble(self: Recipe) -> Started:
        raise RuntimeError("nobody thought of this")

    async with running(thinker_spec()) as engine:
        with monkeypatch.context() as broken:
            broken.setattr(Recipe, "start", stumble)
            assert engine.pid is not None
            os.kill(engine.pid, signal.SIGKILL)
            await until(lambda: engine.state == "crash_loop")
        assert "engine restart" in engine.reasons()[0]
        engine.restart()
        await until(lambda: engine.state == "ready")
        assert text_of(await answer(engine, think(engine, "r", "say back"))) == "back "


async def test_a_first_start_whose_supervisor_stumbles_fails_and_leaves_no_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def stumble(self: Recipe) -> Started:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(Recipe, "start", stumble)
    tasks = len(asyncio.all_tasks())
    engine = process_engine(thinker_spec())
    with pytest.raises(EngineStartFailed, match="given up while it started"):
        await engine.start()
    assert engine.state == "closed" and len(asyncio.all_tasks()) == tasks


def test_the_restart_budget_doubles_up_to_half_a_minute_and_is_spent_after_five() -> None:
    budget = RestartBudget(jitter=lambda: 0.5)
    delays = [budget.after_death(second * NS_PER_S) for second in range(RESTARTS + 1)]
    assert delays == [FIRST_DELAY_S * 2**n for n in range(RESTARTS)] + [None]
    assert budget.spent == RESTARTS
    later_ns = int((WINDOW_S + 100) * NS_PER_S)
    assert budget.after_death(later_ns) == FIRST_DELAY_S


@pytest.mark.parametrize("jitter", [0.0, 1.0])
def test_the_restart_delay_stays_within_its_bounds(jitter: float) -> None:
    budget = RestartBudget(jitter=lambda: jitter)
    delays = [delay for _ in range(RESTARTS) if (delay := budget.after_death(0)) is not None]
    assert min(delays) >= FIRST_DELAY_S * 0.75 and max(delays) <= LONGEST_DELAY_S * 1.25


async def test_what_an_engine_last_complained_of_is_the_reason_of_its_end() -> None:
    async with running(thinker_spec()) as engine:
        with pytest.raises(EngineDied, match="exited with code 70: a worker thread died$"):
            await answer(engine, think(engine, "r", "break"))
        await until(lambda: any("a worker thread died" in reason for reason in engine.reasons()))


# --- the start --------------------------------------------------------------------------------------------------


async def test_a_start_that_fails_says_what_to_do() -> None:
    engine = process_engine(thinker_spec(folder="missing"), "thinker")
    with pytest.raises(EngineStartFailed, match=r"thinker engine: model.bin is missing: run") as failed:
        await engine.start()
    assert failed.value.code == "weights_error" and engine.state == "closed" and engine.pid is None


async def test_a_library_that_is_not_installed_is_told_without_a_stack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = process_engine(thinker_spec(folder="bare"), "thinker")
    with pytest.raises(EngineStartFailed, match="the module torch is not installed: .venv/bin/pip install"):
        await engine.start()
    assert "cannot start" in caplog.text and "Traceback" not in caplog.text and "File " not in caplog.text


async def test_a_start_that_crashes_shows_the_last_lines() -> None:
    engine = EngineProcess(
        "talker",
        speech_spec(),
        MonotonicClock(),
        command=(sys.executable, "-c", "print('a library\\'s last words'); raise SystemExit(9)"),
    )
    with pytest.raises(EngineStartFailed, match=r"(?s)exited with code 9.*a library's last words"):
        await engine.start()


async def test_a_start_without_descriptors_left_is_a_failed_start() -> None:
    engine = process_engine(speech_spec(), "talker")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (3, hard)
    )  # the three every process has are open: no new one fits
    try:
        with pytest.raises(EngineStartFailed, match="Too many open files"):
            await engine.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("command", "limits", "text"),
    [
        (("/no/such/program",), {}, "cannot be started"),
        (
            (sys.executable, "-c", "import time; time.sleep(60)"),
            {"start_s": 0.3, "terminate_s": 0.2},
            "not ready within",
        ),
        (
            (
                sys.executable,
                "-c",
                "import socket,sys; socket.socket(fileno=int(sys.argv[1])).sendall(b'\\1\\0\\0\\0x')",
            ),
            {},
            "no message",
        ),
    ],
)
async def test_whatever_keeps_an_engine_from_starting_is_named(
    command: tuple[str, ...], limits: dict[str, Any], text: str
) -> None:
    engine = EngineProcess("speech", speech_spec(**limits), MonotonicClock(), command=command)
    with pytest.raises(EngineStartFailed, match=text):
        await engine.start()


async def test_an_unknown_family_is_refused_with_the_known_ones() -> None:
    spec = speech_spec()
    assert spec.talker is not None
    bad = type(spec)(kind="speech", talker=type(spec.talker)("siren", "x"))
    with pytest.raises(EngineStartFailed, match=r"no model family 'siren'; there are .*piper"):
        await process_engine(bad).start()


async def test_a_cancelled_start_leaves_nothing_behind() -> None:
    before = set(psutil.Process().children())
    start = asyncio.create_task(process_engine(thinker_spec()).start())
    await asyncio.sleep(0.1)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert set(psutil.Process().children()) <= before


async def test_progress_is_told_while_it_loads() -> None:
    stages: list[str] = []
    engine = EngineProcess("t", thinker_spec(), MonotonicClock(), on_loading=stages.append, command=CHILD)
    await engine.start()
    await engine.close()
    assert stages == ["recognizer (scripted)", "language model (scripted)"]


# --- the end ----------------------------------------------------------------------------------------------------


async def test_close_ends_the_process_and_the_requests_and_leaves_no_task_or_descriptor() -> None:
    descriptors = psutil.Process().num_fds()
    tasks = len(asyncio.all_tasks())
    engine = process_engine(thinker_spec())
    await engine.start()
    pid = engine.pid
    assert pid is not None
    async with engine.submit(think(engine, "r", "forever")) as stream:
        await anext(aiter(stream))
        await engine.close()
        with pytest.raises(EngineDied):
            await results(stream)
    await engine.close()
    assert gone(pid) and engine.state == "closed" and engine.reasons()
    await asyncio.sleep(0.05)
    assert len(asyncio.all_tasks()) == tasks and psutil.Process().num_fds() <= descriptors


async def test_a_request_that_is_too_large_fails_alone() -> None:
    async with running(thinker_spec()) as engine:
        with pytest.raises(EngineError) as error:
            await answer(engine, think(engine, "r", "say " + "x" * (9 << 20)))
        assert error.value.code == "request_too_large" and engine.in_flight() == []
        assert "9.4 MB, of which 8.4 MB" in str(error.value) and "shorter messages" in str(error.value)
        assert text_of(await answer(engine, think(engine, "r", "say fine"))) == "fine "


def test_engines_whose_server_was_killed_end_within_two_seconds_even_one_whose_loop_hangs() -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", ORPHANING, str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    with server, server.stdout:
        busy, hanging = (int(server.stdout.readline()) for _ in range(2))
        os.kill(hanging, signal.SIGSTOP)
        assert not gone(busy) and not gone(hanging)
        server.kill()
        server.wait()
    assert _wait_gone(busy, 2.0) and _wait_gone(hanging, 2.0)


ORPHANING = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from tests.engine_rig import process_engine, think, thinker_spec

async def main():
    engines = process_engine(thinker_spec()), process_engine(thinker_spec())
    await asyncio.gather(*(engine.start() for engine in engines))
    async with engines[0].submit(think(engines[0], "r", "stall")):
        for engine in engines:
            print(engine.pid, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def _wait_gone(pid: int, seconds: float) -> bool:
    end_s = time.monotonic() + seconds
    while not gone(pid) and time.monotonic() < end_s:
        time.sleep(0.02)
    return gone(pid)


def test_a_child_imports_no_server_and_no_media() -> None:
    heavy = {
        "aiortc",
        "av",
        "starlette",
        "uvicorn",
        "websockets",
        "httpx",
        "onnxruntime",
        "ctranslate2",
        "torch",
    }
    code = (
        "import sys; from voice_agent.engine import child, thinker_process, speech_process;"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not heavy & set(loaded.split())
