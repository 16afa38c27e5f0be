"""A voice made ready to serve: random weights paced by their text, folders, and names that no hub gives."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from voice_agent.engine.runtime import TalkerOptions  # noqa: E402
from voice_agent.engine.slot_speech import _policy  # noqa: E402  # pyright: ignore[reportPrivateUsage]
from voice_agent.engine.slot_stream import CyclePolicy, SlotStream, SpeechRequest  # noqa: E402
from voice_agent.models.qwen3_tts import serving  # noqa: E402

NAME = "Somebody/A-Voice"
LOOK = (
    "import sys\n"
    "from voice_agent.errors import WeightsError\n"
    "from voice_agent.models.qwen3_tts.serving import _folder\n"
    "try: print(_folder(sys.argv[1]))\n"
    "except WeightsError as error: print('refused:', error)"
)


def looked_up(name: str, cache: Path) -> str:
    """What a process of its own makes of a name, which may not reach any hub."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache)}
    command = [sys.executable, "-c", LOOK, name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


@pytest.mark.process
def test_a_voice_is_a_folder_or_a_hubs_name(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    assert looked_up(str(tmp_path), tmp_path) == str(tmp_path)
    refused = looked_up(NAME, tmp_path)
    assert refused.startswith(f"refused: talker.model: {NAME!r} is no folder and cannot be fetched")
    kept = tmp_path / "models--Somebody--A-Voice"
    commit = "0" * 40
    (kept / "snapshots" / commit).mkdir(parents=True)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(commit)
    assert looked_up(NAME, tmp_path) == str(kept / "snapshots" / commit)


def test_random_weights_speak_as_long_as_their_text_takes() -> None:
    policy = _policy(16, 4)
    assert (policy.slots, policy.frames_per_text_row, policy.spare_frames) == (16, 4, 0)
    stream = SlotStream(SpeechRequest(("reply", 1)), policy, 0)
    stream.text_rows, stream.text_ended = 30, True
    assert stream.most_frames() == 120
    assert _policy(16, None) == CyclePolicy(slots=16)


@pytest.mark.slow
def test_the_option_reaches_the_engine() -> None:
    extra = {"random": True, "size": "tiny", "slots": 2, "length": 64, "frames_per_token": 4}
    made = serving.serve(TalkerOptions("qwen3-tts", "", extra=extra), lambda stage: None)
    assert made.frames_per_token == 4 and made.voices
