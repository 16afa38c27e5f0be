"""Models for the engine's tests, loaded as the `scripted` family by tests/engine_child.py.

The recognizer tells how much it heard; the Thinker does what the last user message says; the Talker says each word as
20 frames of constant samples whose value is the word's `start_char` + 1, so that a test knows whose sound it holds.
"""

import ctypes
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from voice_agent.audio import Samples
from voice_agent.engine.messages import HeardWord, SpokenWord, Think
from voice_agent.engine.runtime import (
    FrameWord,
    Latents,
    RecognizerOptions,
    TalkerOptions,
    ThinkerEnd,
    ThinkerOptions,
    ToolCallParts,
)
from voice_agent.errors import EngineError, UnsupportedLanguage, WeightsError

RATE_HZ = 8_000
SAMPLES_PER_FRAME = 80  # 10 ms
FRAMES_PER_WORD = 20  # 200 ms
BORN_WITH = dict(os.environ)  # as this module's import found it


class Ears:
    """Says how many samples it heard; takes 0.2 s over exactly one sample."""

    languages = ()

    def transcribe(self, samples: Samples, language: str | None) -> tuple[str, str]:
        if len(samples) == 1:
            time.sleep(0.2)
        return f"{len(samples)} samples", language or "en"

    def align(self, samples: Samples, text: str, language: str) -> list[HeardWord]:
        return [HeardWord(text, 0.0, len(samples) / 16_000)]

    def count_tokens(self, text: str) -> int:
        return len(text.split())


class Script:
    """Commands in the last user message: say, forever, stall, tool, raise, hoard, devour, crash, family..."""

    def __init__(self, context_tokens: int) -> None:
        self.context_tokens = context_tokens
        self._own = ThreadPoolExecutor(1)  # as an LLM has threads of its own, from its load on
        self._own.submit(int).result()

    def count_tokens(self, messages: list[dict[str, Any]]) -> int:
        return sum(1 + len(str(message.get("content", "")).split()) for message in messages)

    def stream(self, request: Think, emit: Callable[[str], bool]) -> ThinkerEnd:
        command, *words = str(request.messages[-1]["content"]).split()
        match command:
            case "forever":
                while not emit("on "):
                    time.sleep(0.001)
                return ThinkerEnd("aborted")
            case "flood":
                while not emit("on "):
                    pass
                return ThinkerEnd("aborted")
            case "stall" | "hoard" | "devour" | "break" | "crash":
                misbehave(command)
            case "tool":
                return ThinkerEnd("tool_calls", tool_calls=[ToolCallParts("call_1", words[0], '{"a":1}')])
            case "raise":
                raise RuntimeError("the secret transcript")
            case "refuse":
                raise EngineError("cannot now", code="cannot", retryable=True)
            case _:
                pass
        said = 0
        for word in self._words(command, words, request):
            said += 1
            if emit(f"{word} "):
                return ThinkerEnd("aborted")
        return ThinkerEnd("stop", {"output_tokens": said})

    def _words(self, command: str, words: list[str], request: Think) -> Iterator[str]:
        """What is said: the command's own words, or what it asks about."""
        match command:
            case "environment":
                yield from (BORN_WITH.get(name, "unset") for name in words)
            case "family":
                yield str(subprocess.Popen(["sleep", "600"]).pid)
            case "prompt":
                yield from (str(message["content"]).split()[0] for message in request.messages)
            case "niceness":  # of its own thread, before the first piece and before the second
                for _ in range(2):
                    yield str(self._own.submit(os.getpriority, os.PRIO_PROCESS, 0).result())
            case _:
                yield from words


def misbehave(how: str) -> None:
    """What no model should do: stand still, want too much memory, take all of it, crash, end its thread."""
    match how:
        case "stall":
            time.sleep(60)
        case "hoard":
            bytearray(1 << 60)
        case "devour":
            eaten = list[bytes]()
            while True:
                eaten.append(b"1" * (16 << 20))
        case "crash":
            ctypes.string_at(0)
        case _:
            raise KeyboardInterrupt


class Tones:
    """Words that do more than sound: `...` has none, `boom` raises, `slow` takes 20 ms a window, `moon` is foreign."""

    rate_hz = RATE_HZ
    samples_per_frame = SAMPLES_PER_FRAME
    voices = ("low", "high")
    languages = ("en", "ko")

    def encode(self, words: list[SpokenWord], voice: str, speed: float, seed: int) -> Latents:
        if any(word.text == "boom" for word in words):
            raise RuntimeError("boom")
        if any(word.text == "moon" for word in words):
            raise UnsupportedLanguage("no words for this")
        audible = [word for word in words if word.text != "..."]
        per_word = round(FRAMES_PER_WORD / speed)
        places = [
            FrameWord(word.start_char, word.end_char, i * per_word, (i + 1) * per_word)
            for i, word in enumerate(audible)
        ]
        values = [word.start_char + 1 for word in audible for _ in range(per_word)]
        slow = any(word.text == "slow" for word in words)
        return Latents(len(values), (values, slow), places)

    def decode(self, latents: Latents, first_frame: int, frames: int) -> Samples:
        values, slow = latents.data
        if slow:
            time.sleep(0.02)
        window = np.array(values[first_frame : first_frame + frames], dtype=np.int16)
        return np.repeat(window, SAMPLES_PER_FRAME)


def load(folder: Path, options: RecognizerOptions | ThinkerOptions | TalkerOptions) -> Ears | Script | Tones:
    """The family's entry; a folder named missing has no weights, for one named bare a library is missing."""
    if folder.name == "bare":
        raise ModuleNotFoundError("No module named 'torch'", name="torch")
    if folder.name == "missing":
        raise WeightsError("model.bin is missing: run `voice-agent models pull`")
    if isinstance(options, RecognizerOptions):
        return Ears()
    return Script(options.context_tokens) if isinstance(options, ThinkerOptions) else Tones()
