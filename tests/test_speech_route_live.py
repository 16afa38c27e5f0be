"""Our own speech route with the engine of slots behind it: a random tiny model on the CPU, served as a user would.

`bench speech` drives it with forced lengths, cloned voices are listed and speak, instructions are followed.
"""

import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.live_server import LiveServer, config_file, live_server  # noqa: E402
from tests.test_models_qwen3_tts_clips import write  # noqa: E402
from voice_agent.bench.speech import main  # noqa: E402

pytestmark = [pytest.mark.process]
CONFIG = """
profile = "scripted"
[talker]
family = "qwen3-tts"
options = {{ random = true, size = "tiny", slots = 4, length = 256 }}
{clones}
"""
CLONES = """
[talker.clones]
anna = {{ file = "{file}", text = "Hello there, my friend." }}
bert = {{ file = "{file}" }}
"""


def ask(server: LiveServer, path: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{server.url}{path}", data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def speech(**more: Any) -> dict[str, Any]:
    return {"model": "tts-1", "input": "A few words.", "response_format": "pcm", "max_new_tokens": 10, **more}


@pytest.fixture(scope="module")
def preset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(
        "--config", str(config_file(tmp_path_factory.mktemp("preset"), CONFIG.format(clones="")))
    ) as server:
        yield server


SHORT = "--rps 2 --seconds 2 --warm-up 0 --seeds 0 --pause 1.2 --limit-ms 9999".split()


def test_the_bench_drives_the_server_with_forced_lengths(preset: LiveServer, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    assert main(["--url", preset.url, "--force-lengths", "--json", str(file), *SHORT]) == 0
    [p] = json.loads(file.read_text())["points"]
    assert p["answered"] == p["due"] > 1
    assert 16 * 0.08 * p["due"] <= p["audio_s_per_s"] * 2 <= 140 * 0.08 * p["due"]
    assert {"frame_ms", "frame_rows", "render_ms", "render_frames"} <= set(p["stages"])
    assert 1 <= p["stages"]["frame_rows"] <= 4  # times are the device's own: 0 on a CPU


@pytest.mark.weights
@pytest.mark.parametrize("lengths", ["--force-lengths", "--extra=max_new_tokens=16"])
def test_words_of_random_weights_are_not_measurable(
    preset: LiveServer, tmp_path: Path, lengths: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"
    assert main(["--url", preset.url, "--transcribe", "1", "--json", str(file), lengths, *SHORT]) == 0
    [p] = json.loads(file.read_text())["points"]
    assert p["word_error_rate"] is None and p["replies_recognized"] == 0
    assert p["verdict"]["intelligible"] is None
    assert "test_models_qwen3_tts_parity" in p["verdict"]["intelligible_note"]
    assert "not measurable: random weights" in capsys.readouterr().err


def test_a_length_is_exact_and_instructions_change_what_is_said(preset: LiveServer) -> None:
    voices = json.loads(ask(preset, "/v1/audio/voices")[1])["data"]
    assert {"ryan", "sohee"} <= {voice["id"] for voice in voices} and all(
        voice["instructions"] for voice in voices
    )
    plain, told, again = (
        ask(preset, "/v1/audio/speech", speech(instructions=text))
        for text in ("", "Whisper softly.", "Whisper softly.")
    )
    assert [status for status, _ in (plain, told, again)] == [200, 200, 200]
    sounds = [np.frombuffer(sound, "<i2").astype(int) for _, sound in (plain, told, again)]
    assert len(sounds[0]) == len(sounds[1]) == 10 * 1_920
    assert np.abs(sounds[1] - sounds[2]).max() <= 2  # chunks are cut as time allows: rounding
    assert np.abs(sounds[1] - sounds[0]).max() > 1_000
    status, refusal = ask(preset, "/v1/audio/speech", speech(instructions="word " * 400))
    assert status == 400 and json.loads(refusal)["error"]["code"] == "invalid_instructions"


def test_a_speed_changes_the_length(preset: LiveServer) -> None:
    for speed, samples in ((2, 9_600), (0.5, 38_400)):
        status, sound = ask(preset, "/v1/audio/speech", speech(speed=speed))
        assert status == 200 and len(sound) // 2 == pytest.approx(samples, abs=400), speed


def test_seed_and_temperature_are_a_requests_own(preset: LiveServer) -> None:
    def said(**more: Any) -> np.ndarray:
        status, sound = ask(preset, "/v1/audio/speech", speech(**more))
        assert status == 200, sound
        return np.frombuffer(sound, "<i2").astype(int)

    first, again, other = said(seed=5), said(seed=5), said(seed=6)
    assert np.abs(first - again).max() <= 2 and np.abs(first - other).max() > 1_000
    greedy = [said(seed=seed, temperature=0) for seed in (5, 6)]
    assert np.abs(greedy[0] - greedy[1]).max() <= 2 and np.abs(greedy[0] - first).max() > 1_000
    status, refusal = ask(preset, "/v1/audio/speech", speech(temperature=3))
    assert status == 400 and json.loads(refusal)["error"]["param"] == "temperature"


def test_cloned_voices_are_listed_and_speak(tmp_path: Path) -> None:
    clones = CLONES.format(file=write(tmp_path / "clip.wav", 16_000, seconds=2.0))
    with live_server("--config", str(config_file(tmp_path, CONFIG.format(clones=clones)))) as server:
        voices = json.loads(ask(server, "/v1/audio/voices")[1])["data"]
        assert [voice["id"] for voice in voices][-2:] == ["anna", "bert"]
        assert [voice["instructions"] for voice in voices] == [True] * (len(voices) - 2) + [False] * 2
        sounds = [ask(server, "/v1/audio/speech", speech(voice=name)) for name in ("anna", "bert", "ryan")]
        assert [(status, len(sound)) for status, sound in sounds] == [(200, 38_400)] * 3
        waves = [np.frombuffer(sound, "<i2").astype(int) for _, sound in sounds]
        assert all(np.abs(one - other).max() > 1_000 for one, other in itertools.pairwise(waves))


def test_a_voice_that_ends_by_itself_takes_no_length(tmp_path: Path) -> None:
    with live_server("--config", str(config_file(tmp_path, 'profile = "scripted"\n'))) as server:
        status, refusal = ask(server, "/v1/audio/speech", speech())
        assert status == 400 and json.loads(refusal)["error"]["param"] == "max_new_tokens"
