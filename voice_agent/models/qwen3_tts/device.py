"""Talker, Code Predictor and codec over slots, as launches on streams: what the launch thread drives.

On a GPU every size is a captured graph, frames and codec run on streams of their own, answers come into pinned memory
behind an event; the host never waits. On a CPU the same calls run at once. Knows no request and no deadline.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from voice_agent.models.qwen3_tts.arena import Arena, Start, new_arena
from voice_agent.models.qwen3_tts.codec_slots import CodecRows, new_codec_rows, render
from voice_agent.models.qwen3_tts.config import SAMPLES_PER_FRAME
from voice_agent.models.qwen3_tts.frame import FrameWeights, Rows, frame_weights, make_frame, new_rows
from voice_agent.models.qwen3_tts.frame_parts import Ops
from voice_agent.models.qwen3_tts.graphs import Captured
from voice_agent.models.qwen3_tts.model import Model
from voice_agent.models.qwen3_tts.openings import Opening, Openings, PrefillRows, new_prefill_rows, prefill
from voice_agent.models.qwen3_tts.prompt import Manner

logger = logging.getLogger(__name__)

_TRIAL = ((2, (2, 1)), (3, (1, 3)), (4, (4, 2)), (4, (3, 4)))  # frames of a launch, real ones of its two rows
_MOST_DISTANCE = 0.05  # measured in bfloat16: 0.02 between the two, most of it the plain one's rounding
_MEASURED = 5  # replays a size; the median counts
URGENT, EVERYDAY, LEISURELY = -3, -1, 0  # CUDA stream priorities: first sounds, frames, later chunks


@dataclass(frozen=True)
class Sizes:
    """What is laid out and captured. `ring` leaves room for a chunk in the codec beside all frames a slot may hold."""

    slots: int = 128
    length: int = 1_536  # rows of text and frames a slot holds: two minutes
    ring: int = 96
    rows: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    render_frames: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16)
    render_rows: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    urgent_frames: tuple[int, ...] = (1, 2, 3, 4)
    prefill_rows: tuple[int, ...] = (
        16,
        32,
        64,
        128,
        256,
        512,
    )  # of a reply's own: an instruction, a clip's end
    fused_codec: bool = False  # Triton kernels if they prove right: a tenth of the launches; needs a GPU


@dataclass(eq=False)
class Launch:
    """Something on its way; `answer` may be read once `done`."""

    what: Any
    answer: Tensor
    began: Any = None
    ended: Any = None

    def done(self) -> bool:
        """Whether the device is through with it."""
        return self.ended is None or self.ended.query()

    def took_ms(self) -> float:
        """From when its stream came to it."""
        return 0.0 if self.ended is None else self.began.elapsed_time(self.ended)


@dataclass(eq=False)
class _Lane:
    """A stream and the graphs on it."""

    stream: Any
    pool: Any = None
    graphs: dict[Any, tuple[Captured, Any]] = field(default_factory=dict[Any, tuple[Captured, Any]])


class SpeechDevice:
    """Slots on one device; one thread may call it."""

    def __init__(self, model: Model, ops: Sequence[Ops], sizes: Sizes, role: Sequence[int] = ()) -> None:
        self.model = model
        self.sizes = sizes
        self._ops = ops
        self._fused: Any = None
        self.chosen: dict[int, list[float]] = {}  # ms of each set of operations, by batch
        self.device = model.talker.norm.device
        with torch.inference_mode():
            self._weights: FrameWeights = frame_weights(model, sizes.length)
            self.arena: Arena = new_arena(
                model.talker.config, sizes.slots, sizes.length, sizes.ring, model.talker.norm
            )
            self._states = model.codec.new_state(sizes.slots + 1)
            self.openings = Openings(model, self.arena, list(role))
        self._prefills: dict[int, tuple[Captured, PrefillRows]] = {}
        self._frames, self._urgent, self._later = (
            self._lane(priority) for priority in (EVERYDAY, URGENT, LEISURELY)
        )
        self.samples_per_frame = model.codec.config.samples_per_frame or SAMPLES_PER_FRAME

    # --- before serving -----------------------------------------------------------------------------------------

    def prepare_voices(self, manners: Mapping[str, Manner], languages: Sequence[str]) -> None:
        """Prefill every voice in every language once; before `capture`."""
        self.openings.prepare(manners, languages)

    @torch.inference_mode()
    def capture(self, tell: Callable[[str], None]) -> None:
        """Warm and capture every size; afterwards nothing is compiled, chosen or allocated."""
        tell("frame graphs")
        for batch in self.sizes.rows:
            self._capture_fastest(batch)
        for count in self._prefill_sizes():
            self._capture(self._frames, ("prefill", count), self._prefill_work(count))
            self._prefills[count] = self._frames.graphs.pop(("prefill", count))
        tell("VoiceBox graphs")
        for lane, lengths in (
            (self._urgent, self.sizes.urgent_frames),
            (self._later, self.sizes.render_frames),
        ):
            step = self._codec_step(max(lengths) * max(self.sizes.render_rows))
            for frames in sorted(lengths, reverse=True):
                for batch in sorted(self.sizes.render_rows, reverse=True):
                    self._capture(lane, (frames, batch), self._render_work(step, frames, batch))
        for clip in self.openings.clips().values():
            clip.memory.extend(self._hear(clip.codes))
        self._reset_spare()

    @property
    def codec(self) -> str:
        """Which codec serves, once captured."""
        return "fused" if self._fused is not None else "plain"

    @torch.inference_mode()
    def measure(self) -> tuple[dict[int, float], dict[tuple[int, int], float], dict[int, float]]:
        """Median ms of every frame graph, every codec graph and every prefill, alone on the device."""
        frames = {size: self._median(self._frames, made) for size, made in self._frames.graphs.items()}
        renders = {size: self._median(self._later, made) for size, made in self._later.graphs.items()}
        prefills = {size: self._median(self._frames, made) for size, made in self._prefills.items()}
        self._reset_spare()
        return frames, renders, prefills

    # --- serving ------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def enter(self, slot: int, opening: Opening, tokens: list[int], seed: int, temperature: float) -> None:
        """A slot begins a reply: prefix, state and the text so far, ahead of its prefill and its first frame graph."""
        prefix, clip, text = opening.prefix, opening.clip, [*opening.known, *tokens]
        with self._on(self._frames):
            if prefix:
                self.arena.kv[:, slot, :, : prefix.rows].copy_(prefix.kv)
            if clip:
                at = (opening.before - 1) % self.arena.ring
                self.arena.codes[slot, at].copy_(self._up(clip.codes[-1]), non_blocking=True)
                for held, kept in zip(self._codec_memory(), clip.memory, strict=True):
                    held[slot].copy_(kept)
            self._text(slot, 0, text)
            start = Start(opening.length, len(text), seed, temperature, before=opening.before)
            self.arena.state[slot].copy_(self._up(start.words()), non_blocking=True)

    @torch.inference_mode()
    def prefill(self, what: Any, bucket: int, slot: int, opening: Opening, tokens: list[int]) -> Launch:
        """A reply's own rows into its slot, once it has entered; `tokens` is its text so far (see Opening.rows)."""
        graph, buffers = self._prefills[bucket]
        rows = opening.rows(tokens, self._weights.inputs.pad)
        with self._on(self._frames):
            buffers.rows.fill_(-1)
            buffers.rows[: len(rows)].copy_(self._up(rows), non_blocking=True)
            buffers.place.copy_(self._up([slot, opening.copied]), non_blocking=True)
            return self._launch(graph, what, buffers.place)

    @torch.inference_mode()
    def keep(self, slot: int, opening: Opening) -> None:
        """Remember what was prefilled, for the next reply that begins so."""
        with self._on(self._frames):
            self.openings.keep(opening, slot)

    @torch.inference_mode()
    def append(self, slot: int, known: int, tokens: list[int]) -> None:
        """More text of a reply that has `known` tokens already."""
        with self._on(self._frames):
            self._text(slot, known, tokens)
            self.arena.state[slot, 2:3].copy_(self._up([known + len(tokens)]), non_blocking=True)

    @torch.inference_mode()
    def make_frames(self, what: Any, bucket: int, slots: list[int]) -> Launch:
        """One replay of the frame graph; the answer is each row's first code, -1 for a broken row."""
        graph, rows = self._frames.graphs[bucket]
        padded = slots + [self.arena.spare] * (bucket - len(slots))
        with self._on(self._frames):
            rows.slots.copy_(self._up(padded), non_blocking=True)
            return self._launch(graph, what, rows.result)

    @torch.inference_mode()
    def render(self, what: Any, bucket: tuple[int, int], rows: list[list[int]], *, urgent: bool) -> Launch:
        """One replay of a codec graph over (slot, first frame, frames, new) rows; the answer is int16 [B, T * 1920]."""
        lane = self._urgent if urgent and bucket in self._urgent.graphs else self._later
        graph, buffers = lane.graphs[bucket]
        padded = rows + [[self.arena.spare, 0, 1, 1]] * (bucket[1] - len(rows))
        with self._on(lane):
            buffers.rows.copy_(self._up(padded), non_blocking=True)
            return self._launch(graph, what, buffers.sound)

    # --- inside -------------------------------------------------------------------------------------------------

    def _text(self, slot: int, at: int, tokens: list[int]) -> None:
        tokens = tokens[: self.arena.text.shape[1] - at]
        if tokens:
            self.arena.text[slot, at : at + len(tokens)].copy_(self._up(tokens), non_blocking=True)

    def _up(self, values: list[Any]) -> Tensor:
        """Where a copy to the device may start from without waiting."""
        return torch.tensor(values, dtype=torch.int32, pin_memory=self.device.type == "cuda")

    def _launch(self, graph: Captured, what: Any, answer: Tensor) -> Launch:
        if self.device.type != "cuda":
            graph.replay()
            return Launch(what, answer.clone())
        launch = Launch(what, torch.empty(answer.shape, dtype=answer.dtype, pin_memory=True))
        launch.began, launch.ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        launch.began.record()
        graph.replay()
        launch.answer.copy_(answer, non_blocking=True)
        launch.ended.record()
        return launch

    def _lane(self, priority: int) -> _Lane:
        if self.device.type != "cuda":
            return _Lane(None)
        return _Lane(torch.cuda.Stream(priority=priority), torch.cuda.graph_pool_handle())

    def _on(self, lane: _Lane) -> Any:
        return torch.cuda.stream(lane.stream)  # None is allowed and changes nothing

    def _capture_fastest(self, batch: int) -> None:
        """Which operations suit a batch depends on the device: capture all that are offered, keep the fastest."""
        tried: list[tuple[float, int, tuple[Captured, Any]]] = []
        for number, ops in enumerate(self._ops):
            self._capture(self._frames, batch, self._frame_work(ops, batch))
            ms = self._median(self._frames, self._frames.graphs[batch]) if len(self._ops) > 1 else 0.0
            tried.append((ms, number, self._frames.graphs[batch]))
        best = min(tried, key=lambda one: one[:2])
        self._frames.graphs[batch] = best[2]
        self.chosen[batch] = [round(ms, 3) for ms, _, _ in tried]

    def _frame_work(self, ops: Ops, batch: int) -> tuple[Callable[[], None], Rows]:
        rows = new_rows(self._weights, batch, self.arena.spare)
        return lambda: make_frame(ops, self._weights, self.arena, rows), rows

    def _prefill_sizes(self) -> list[int]:
        """Sizes that a slot has room for; none where no reply has rows of its own."""
        room = self.arena.length - self.openings.most_copied
        return [count for count in self.sizes.prefill_rows if self.openings.prefills and count <= room]

    def _prefill_work(self, count: int) -> tuple[Callable[[], None], PrefillRows]:
        buffers = new_prefill_rows(self.arena, count)
        inputs, talker, longest = self._weights.inputs, self.model.talker, count + self.openings.most_copied
        return lambda: prefill(talker, inputs, self.arena, buffers, longest), buffers

    def _codec_memory(self) -> list[Tensor]:
        """All that the codec in use keeps of streams, a row a slot."""
        if self._fused is not None:
            return [self._fused.kv, *self._fused.histories]
        return [self._states.frames, self._states.kv, self._states.columns]

    def _hear(self, codes: list[list[int]]) -> list[Tensor]:
        """The codec's state once a clip was decoded, in the spare slot and in pieces."""
        spare, ring, most = self.arena.spare, self.arena.ring, max(self.sizes.render_frames)
        bucket = most, min(self.sizes.render_rows)
        for first in range(0, len(codes), most):
            part = codes[first : first + most]
            for at, frame in enumerate(part, first):
                self.arena.codes[spare, at % ring] = torch.tensor(frame, dtype=torch.int32)
            self._settle()
            self.render(None, bucket, [[spare, first, len(part), int(first == 0)]], urgent=False)
            self._settle()
        return [held[spare].clone() for held in self._codec_memory()]

    def _codec_step(self, most: int) -> Callable[[CodecRows, int], None]:
        """The codec for launches of up to so many frames in all, with its states."""
        codec = self.model.codec
        plain = partial(render, codec, self._states, self.arena)
        if not self.sizes.fused_codec:
            return plain
        try:
            return self._fused_step(most, plain)
        except Exception as error:  # noqa: BLE001 - whatever a compiler or a device says: the plain one can do it too
            logger.warning("the fused codec does not run here (%s): the plain one serves", error)
        self.sizes = replace(self.sizes, fused_codec=False)  # for every lane: states are not shared
        return plain

    def _fused_step(
        self, most: int, plain: Callable[[CodecRows, int], None]
    ) -> Callable[[CodecRows, int], None]:
        """The codec by Triton kernels, tried against the plain one the first time; raises if it is not as right."""
        from voice_agent.models.qwen3_tts.codec_fused import FusedCodec, FusedLane

        if self._fused is not None:
            return FusedLane(self._fused, self.arena, most).step
        codec = FusedCodec(self.model.codec, self.sizes.slots)
        tried = max(frames * len(valid) for frames, valid in _TRIAL)
        step = FusedLane(codec, self.arena, max(most, tried)).step
        distance = self._distance(step, plain)
        if not distance < _MOST_DISTANCE:
            raise ValueError(f"off by {distance:.3f}")
        self._fused = codec
        return step

    def _distance(
        self, one: Callable[[CodecRows, int], None], other: Callable[[CodecRows, int], None]
    ) -> float:
        """How far two codecs' sounds are apart, relative, over ragged chunks of random codes; before slots are used."""
        self.arena.codes.random_(0, self.model.codec.config.codebook_size)
        first, parts = [0, 0], list[tuple[Tensor, Tensor]]()
        for frames, valid in _TRIAL:
            made = [new_codec_rows(self.model.codec, frames, 2, self.arena.spare) for _ in range(2)]
            rows = [[slot, first[slot], valid[slot], int(first[slot] == 0)] for slot in (0, 1)]
            for step, buffers in zip((one, other), made, strict=True):
                buffers.rows.copy_(torch.tensor(rows, dtype=torch.int32))
                step(buffers, frames)
            for slot in (0, 1):
                count = valid[slot] * self.samples_per_frame
                parts.append((made[0].sound[slot, :count].float(), made[1].sound[slot, :count].float()))
                first[slot] += valid[slot]
        ours, theirs = (torch.cat(side) for side in zip(*parts, strict=True))
        return float((ours - theirs).norm() / theirs.norm())

    def _render_work(
        self, step: Callable[[CodecRows, int], None], frames: int, batch: int
    ) -> tuple[Callable[[], None], CodecRows]:
        buffers = new_codec_rows(self.model.codec, frames, batch, self.arena.spare)
        return lambda: step(buffers, frames), buffers

    def _capture(self, lane: _Lane, size: Any, made: tuple[Callable[[], None], Any]) -> None:
        work, buffers = made
        lane.graphs[size] = Captured(work, self.device, lane.pool, lane.stream), buffers

    def _median(self, lane: _Lane, made: tuple[Captured, Any]) -> float:
        graph, buffers = made
        answer = _answer(buffers)
        if self.device.type != "cuda":
            return 1.0
        spans: list[float] = []
        with self._on(lane):
            graph.replay()
            for _ in range(_MEASURED):
                launch = self._launch(graph, None, answer)
                lane.stream.synchronize()
                spans.append(launch.took_ms())
        return sorted(spans)[_MEASURED // 2]

    def _reset_spare(self) -> None:
        self.arena.state[self.arena.spare] = torch.tensor(Start(0, 0, 0).words(), dtype=torch.int32)
        self._settle()

    def _settle(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def _answer(buffers: Any) -> Tensor:
    """What the host reads of a launch."""
    match buffers:
        case Rows():
            return buffers.result
        case PrefillRows():
            return buffers.place
        case _:
            return buffers.sound
