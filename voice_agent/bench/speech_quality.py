"""`voice-agent bench speech --quality`: latency first against quality first, at several chunk sizes.

For each: first audio, real-time factor (time to render over time that it sounds), chunks, and how far the sound is from
one rendered in one go (log mel, dB). Beside it the same codes by a codec that remembers nothing between chunks, with
and without the context that the published wrapper decodes again; and first audio by what a reply begins with (a preset
voice, an instruction, a clone). Runs the engine of slots in this process: torch, no server.
"""

import argparse
import json
import queue
import sys
import tempfile
import time
import wave
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from voice_agent.bench.full_context import PUBLISHED_CONTEXT, cut_anew, distance_db, full_context, widened
from voice_agent.bench.machine import commit, machine
from voice_agent.bench.sentences import texts
from voice_agent.clock import MonotonicClock
from voice_agent.engine.messages import (
    Failed,
    Finished,
    FromEngine,
    Speak,
    SpeakEnd,
    SpeakText,
    SpeechChunk,
    SpokenWord,
)
from voice_agent.engine.runtime import EngineSpec, TalkerOptions
from voice_agent.engine.slot_speech import SlotSpeech
from voice_agent.engine.slot_stream import CyclePolicy
from voice_agent.errors import ConfigError, WeightsError
from voice_agent.models.qwen3_tts.config import RATE_HZ
from voice_agent.models.qwen3_tts.device import Sizes
from voice_agent.models.qwen3_tts.serving import Serving, serve

SIZES = Sizes(
    slots=1,
    length=512,
    rows=(1,),
    render_frames=(1, 2, 4, 8, 16),
    render_rows=(1,),
    urgent_frames=(1, 2, 4),
    prefill_rows=(16, 32, 64),
)
CLIP_S = 3.0
CLIP_TEXT = "What is said in a clip of three seconds, more or less."
LONGEST_WAIT_S = 60.0
Tensor = torch.Tensor


@dataclass(frozen=True)
class Way:
    """A mode with a chunk size in frames."""

    mode: str  # "latency first" or "quality first"
    chunk: int

    @property
    def policy(self) -> CyclePolicy:
        """The engine's, with this chunk size."""
        return CyclePolicy(slots=1, bulk_frames=self.chunk, quality_frames=self.chunk)


@dataclass
class Spoken:
    """One reply as it came, and its codes."""

    first_ms: float
    whole_ms: float
    chunks: int
    sound: Tensor  # [T] in -1..1
    codes: Tensor  # [n, 16]


@dataclass
class Found:
    """What a way gave, all replies."""

    first_ms: list[float] = field(default_factory=list[float])
    factors: list[float] = field(default_factory=list[float])
    chunks: list[float] = field(default_factory=list[float])
    distances_db: list[float] = field(default_factory=list[float])

    def report(self) -> dict[str, float | None]:
        """Medians; None where it was not spoken."""
        parts = {
            "first_audio_ms": (self.first_ms, 2),
            "real_time_factor": (self.factors, 4),
            "chunks": (self.chunks, 0),
            "distance_db": (self.distances_db, 4),
        }
        return {
            name: round(median(values), digits) if values else None
            for name, (values, digits) in parts.items()
        }


def run(options: argparse.Namespace, command: str) -> int:
    """Measure; prints the table. Exit status 0, 2 if the command or the weights are wrong."""
    frames, ring = options.frames, SIZES.ring
    if not 1 <= frames <= ring or not all(1 <= chunk <= max(SIZES.render_frames) for chunk in options.chunks):
        print(
            f"bench speech --quality: --frames should be 1 to {ring}, --chunks 1 to {max(SIZES.render_frames)}",
            file=sys.stderr,
        )
        return 2
    try:
        report = _report(options)
    except (ConfigError, WeightsError) as error:
        print(f"bench speech --quality: {error}", file=sys.stderr)
        return 2
    report["command"] = command
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    print(table(report))
    return 0


def _report(options: argparse.Namespace) -> dict[str, Any]:
    began_s = time.monotonic()
    extra: dict[str, Any] = {} if options.folder else {"random": True, "size": options.size}
    with tempfile.TemporaryDirectory() as folder:
        clones = _clones(Path(folder) / "clip.wav") if not options.folder else {}
        extra |= {"clones": clones} | ({"fused_codec": False} if options.plain_codec else {})
        talker = TalkerOptions("qwen3-tts", options.folder, extra=extra)
        serving = serve(talker, lambda stage: print("loading", stage, file=sys.stderr, flush=True), SIZES)
    exact, spec = widened(serving.device.model.codec), EngineSpec("speech", talker=talker)
    loaded_s = time.monotonic() - began_s
    ways, apart = dict[Way, Found](), dict[tuple[int, int], Found]()
    for chunk in options.chunks:
        for way in (Way("latency first", chunk), Way("quality first", chunk)):
            engine = _Engine(serving, spec, way)
            found = ways[way] = Found()
            for spoken in [engine.say(text, options.frames) for text in _texts(options.replies)][1:]:
                right = full_context(exact, spoken.codes)
                _add(found, spoken, right)
                for context in (0, PUBLISHED_CONTEXT):
                    again = cut_anew(exact, spoken.codes, chunk, context)
                    apart.setdefault((chunk, context), Found()).distances_db.append(distance_db(again, right))
    return {
        "ways": [{"mode": way.mode, "chunk": way.chunk, **found.report()} for way, found in ways.items()],
        "forgetful": [
            {"chunk": chunk, "context": context, "distance_db": found.report()["distance_db"]}
            for (chunk, context), found in apart.items()
        ],
        "beginnings": _beginnings(
            _Engine(serving, spec, Way("latency first", options.chunks[0])), serving, options.replies
        ),
        "frames": options.frames,
        "replies": options.replies,
        "loaded_s": round(loaded_s, 1),
        "device": str(serving.device.device),
        "codec": serving.device.codec,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "dtype": str(serving.device.model.talker.norm.dtype).removeprefix("torch."),
        "weights": options.folder or f"random {options.size}",
        "machine": machine(),
        "commit": commit(),
    }


def _clones(path: Path) -> dict[str, dict[str, str]]:
    """Two cloned voices of a clip made here: by its vector alone, and going on from it."""
    at = np.arange(int(CLIP_S * RATE_HZ)) / RATE_HZ
    tone = 6_000 * np.sin(2 * np.pi * 140 * at) * (1 + np.sin(9 * at)) / 2
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(tone.astype("<i2").tobytes())
    return {"clone by vector": {"file": str(path)}, "clone by clip": {"file": str(path), "text": CLIP_TEXT}}


def _beginnings(engine: "_Engine", serving: Serving, replies: int) -> dict[str, float]:
    """Median first audio by what a reply begins with."""
    preset, told = serving.voices[0], dict[str, list[float]]()
    for number, text in enumerate(_texts(replies)):
        manner = f"Speak as on day {number} of a long and rainy week, slowly and with a smile."
        asked = {"preset voice": (preset, "")}
        if preset in serving.instructed:
            asked |= {"new instruction": (preset, manner), "kept instruction": (preset, manner)}
        asked |= {name: (name, "") for name in serving.voices if name.startswith("clone by")}
        for name, (voice, instructions) in asked.items():
            told.setdefault(name, []).append(engine.say(text, 2, voice, instructions).first_ms)
    return {name: round(median(values[1:]), 2) for name, values in told.items()}


def _texts(replies: int) -> list[str]:
    """One more than is counted: the first reply warms up."""
    return [text for text, _ in zip(texts(0), range(replies + 1), strict=False)]


def _add(found: Found, spoken: Spoken, right: Tensor) -> None:
    right = (right * 32767).round().clamp(-32768, 32767) / 32767  # the same steps as the sound that came
    behind_cut = right[len(right) - len(spoken.sound) :].to("cpu")  # leading silence is cut from what came
    found.first_ms.append(spoken.first_ms)
    found.factors.append(spoken.whole_ms / (1000 * len(right) / RATE_HZ))
    found.chunks.append(spoken.chunks)
    found.distances_db.append(distance_db(spoken.sound, behind_cut))


class _Engine:
    """The engine of slots with one way's policy; one reply at a time, in slot 0."""

    def __init__(self, serving: Serving, spec: EngineSpec, way: Way) -> None:
        self._serving, self._way, self._number = serving, way, 0
        self._results: queue.SimpleQueue[FromEngine] = queue.SimpleQueue()
        self._engine = SlotSpeech(serving, spec, self._results.put, MonotonicClock(), way.policy)

    def say(self, text: str, frames: int, voice: str = "", instructions: str = "") -> Spoken:
        """Speak; raises ConfigError if the engine could not."""
        self._number += 1
        name, began_s = f"r{self._number}", time.perf_counter()
        quick = self._way.mode == "latency first"
        speak = Speak(name, 1, voice, quick, seed=self._number, most_frames=frames, instructions=instructions)
        self._engine.handle(speak)
        self._engine.handle(SpeakText(name, 1, [SpokenWord(text, 0, len(text))], "en"))
        self._engine.handle(SpeakEnd(name, 1))
        times_ms, pieces = list[float](), list[bytes]()
        while not isinstance(result := self._results.get(timeout=LONGEST_WAIT_S), Finished):
            if isinstance(result, Failed):
                raise ConfigError(f"the engine spoke nothing: {result.message}")
            if isinstance(result, SpeechChunk) and result.pcm:
                times_ms.append(1e3 * (time.perf_counter() - began_s))
                pieces.append(result.pcm)
        device = self._serving.device
        samples = np.frombuffer(b"".join(pieces), "<i2").astype(np.float32) / 32767
        codes = device.arena.codes[0, : result.usage["frames"]].long()  # a clone's frames lie elsewhere
        return Spoken(times_ms[0], times_ms[-1], len(pieces), torch.from_numpy(samples), codes)


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [
        f"{'':24}{'chunk':>6}{'first audio':>13}{'real-time factor':>18}{'chunks':>8}{'from full context':>19}"
    ]
    for way in report["ways"]:
        lines.append(
            f"{way['mode']:24}{way['chunk']:6}{way['first_audio_ms']:10.1f} ms{way['real_time_factor']:18.4f}"
            f"{way['chunks']:8.0f}{way['distance_db']:16.3f} dB"
        )
    for cut in report["forgetful"]:
        name = f"no memory, {cut['context']} before" if cut["context"] else "no memory"
        lines.append(f"{name:24}{cut['chunk']:6}{'':10}   {'':18}{'':8}{cut['distance_db']:16.3f} dB")
    lines += ["", f"{'first audio':24}"]
    lines += [f"{name:24}{ms:16.1f} ms" for name, ms in report["beginnings"].items()]
    where = report["gpu"] or report["machine"]["cpu"]
    lines += [
        f"\n{report['weights']}, {report['dtype']}, {report['codec']} codec",
        f"{report['frames']} frames, median of {report['replies']} replies",
        f"alone on {where}; loaded in {report['loaded_s']} s",
        f"commit  {report['commit'] or 'unknown'}",
        f"command {report['command']}",
    ]
    return "\n".join(lines)
