"""Models without weights for tests of everything that is not about a model: they do what their options say.

The recognizer gives a fixed text, the Thinker writes a given one with delays, stalls and calls, the Talker says each
word as its own tone (tones.py), so that a test can tell which words were heard. Runs inside the engine processes like
any other family.
"""

import json
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np

from voice_agent.audio import MODEL_RATE_HZ, Samples
from voice_agent.engine.messages import HeardWord, RowsRef, SpokenWord, Think
from voice_agent.engine.row_store import RowStore
from voice_agent.engine.runtime import (
    FrameWord,
    Latents,
    RecognizerOptions,
    TalkerOptions,
    ThinkerEnd,
    ThinkerOptions,
    ToolCallParts,
)
from voice_agent.errors import EngineError
from voice_agent.family_options import AnswerScript, EarScript, VoiceScript, read_options
from voice_agent.models import tones

_POLL_S = 0.005  # how soon a sleeping Thinker sees that it was stopped


def load(
    folder: Path, options: RecognizerOptions | ThinkerOptions | TalkerOptions
) -> "ScriptedRecognizer | ScriptedThinker | ToneTalker":
    """The model that the options' type asks for; there is nothing to read from the folder."""
    match options:
        case RecognizerOptions():
            return ScriptedRecognizer(read_options(EarScript, options.extra))
        case ThinkerOptions():
            return ScriptedThinker(read_options(AnswerScript, options.extra), options.context_tokens)
        case TalkerOptions():
            script = read_options(VoiceScript, options.extra)
            return RowTalker(script) if script.hidden else ToneTalker(script)


class ScriptedRecognizer:
    """Hears what its script says, and nothing in digital silence."""

    def __init__(self, script: EarScript) -> None:
        self._script = script
        self.languages = tuple(script.languages)

    def transcribe(self, samples: Samples, language: str | None) -> tuple[str, str]:
        """The script's text."""
        time.sleep(self._script.delay_ms / 1000)
        language = language or self._script.language
        if not np.any(samples):
            return "", language
        duration_ms = 1000 * len(samples) / MODEL_RATE_HZ
        fitting = (text for longest_ms, text in self._script.by_duration if duration_ms <= longest_ms)
        return next(fitting, self._script.text), language

    def align(self, samples: Samples, text: str, language: str) -> list[HeardWord]:
        """The words, all of one length."""
        words = text.split()
        each_s = len(samples) / MODEL_RATE_HZ / max(1, len(words))
        return [HeardWord(word, n * each_s, (n + 1) * each_s) for n, word in enumerate(words)]

    def count_tokens(self, text: str) -> int:
        """A token a word."""
        return len(text.split())


class ScriptedThinker:
    """Writes what its script says; a token is a word."""

    def __init__(self, script: AnswerScript, context_tokens: int) -> None:
        self._script = script
        self.context_tokens = context_tokens

    def count_tokens(self, messages: list[dict[str, Any]]) -> int:
        """Words of the contents, and four for each message's frame."""
        return sum(4 + len(str(message.get("content") or "").split()) for message in messages)

    def stream(self, request: Think, emit: Callable[[str], bool]) -> ThinkerEnd:
        """Write the script's text; when it stalls or sleeps, it still stops within milliseconds."""
        if self._script.tool_call and request.tools and request.messages[-1].get("role") != "tool":
            return self._call(emit)
        pieces = self._pieces(request)
        written = 0
        while self._script.endless or written < len(pieces):
            stalled = written == self._script.stall_after
            wait_ms = float("inf") if stalled else self._script.piece_ms if written else self._script.first_ms
            if _stopped_while_waiting(wait_ms, emit) or emit(pieces[written % len(pieces)]):
                return ThinkerEnd("aborted", self._usage(request, written))
            written += 1
            if written >= request.max_output_tokens:
                return ThinkerEnd("length", self._usage(request, written))
        return ThinkerEnd("stop", self._usage(request, written))

    def _call(self, emit: Callable[[str], bool]) -> ThinkerEnd:
        if _stopped_while_waiting(self._script.first_ms, emit):
            return ThinkerEnd("aborted")
        call = cast(dict[str, Any], self._script.tool_call)
        arguments = json.dumps(call.get("arguments", {}), ensure_ascii=False)
        return ThinkerEnd(
            "tool_calls", {}, [ToolCallParts(f"call_{secrets.token_hex(8)}", str(call["name"]), arguments)]
        )

    def _pieces(self, request: Think) -> list[str]:
        turns = sum(message.get("role") == "user" for message in request.messages)
        text = self._script.texts[(max(1, turns) - 1) % len(self._script.texts)]
        return re.findall(r"\s*\S+", text) or [""]

    def _usage(self, request: Think, written: int) -> dict[str, int]:
        return {"prompt_tokens": self.count_tokens(request.messages), "completion_tokens": written}


class ToneTalker:
    """Says each word as its tone: latents are the clause's tones and where each begins."""

    rate_hz = tones.RATE_HZ
    samples_per_frame = tones.SAMPLES_PER_FRAME
    voices = ("tone",)
    languages = ("en", "ko")

    def __init__(self, script: VoiceScript) -> None:
        self._script = script

    def encode(self, words: list[SpokenWord], voice: str, speed: float, seed: int) -> Latents:
        """One clause to tones, with exact word times; words without letters get an empty range."""
        time.sleep(self._script.encode_ms / 1000)
        if self._script.fails_on and any(self._script.fails_on in word.text for word in words):
            raise EngineError("the script says that this clause fails", code="clause_failed")
        placed, timed, at = list[tuple[int, tones.Tone]](), list[FrameWord](), 0
        for word in words:
            tone = tones.tone_of(word.text, speed)
            timed.append(FrameWord(word.start_char, word.end_char, at, at + tone.frames))
            if tone.frames:
                placed.append((at, tone))
                at += tone.frames + tones.GAP_FRAMES
        return Latents(at, placed, timed)

    def decode(self, latents: Latents, first_frame: int, frames: int) -> Samples:
        """Sound of a window; windows join without a seam."""
        if first_frame < 0 or frames < 0 or first_frame + frames > latents.frames:
            raise ValueError(f"window {first_frame}+{frames} is outside of {latents.frames} frames")
        time.sleep(self._script.frame_ms * frames / 1000)
        begin, count = first_frame * tones.SAMPLES_PER_FRAME, frames * tones.SAMPLES_PER_FRAME
        sound = np.zeros(count)
        for at, tone in cast(list[tuple[int, tones.Tone]], latents.data):
            if at < first_frame + frames and at + tone.frames > first_frame:
                sound += tones.render(tone, begin - at * tones.SAMPLES_PER_FRAME, count)
        return sound.astype(np.int16)


class RowTalker(ToneTalker):
    """The same, for a Thinker's hidden rows: it says nothing without them."""

    def __init__(self, script: VoiceScript) -> None:
        super().__init__(script)
        self._store = RowStore(script.hidden_pool, script.hidden_via)
        self._rows = 0

    def read(self, rows: RowsRef) -> None:
        """See RowReader."""
        self._rows = len(self._store.read(rows))

    def encode(self, words: list[SpokenWord], voice: str, speed: float, seed: int) -> Latents:
        """As ToneTalker's; warm-up comes before there is any row."""
        rows, self._rows = self._rows, -1
        if rows < 0:
            raise EngineError("a clause came without hidden rows", code="rows_missing")
        return super().encode(words, voice, speed, seed)


def _stopped_while_waiting(wait_ms: float, emit: Callable[[str], bool]) -> bool:
    """Sleep in small steps and ask between them."""
    until = time.monotonic() + wait_ms / 1000
    while (left := until - time.monotonic()) > 0:
        if emit(""):
            return True
        time.sleep(min(_POLL_S, left))
    return False
