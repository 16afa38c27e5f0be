"""What stands before a reply's own words: a voice, an instruction, or a clip that the reply goes on from.

Rows that depend on the voice and language alone are prefilled at start and copied into a slot. An instruction's rows
are prefilled in the slot, in one go, and kept for the next reply with it. After a clip the frames of the clip count as
spoken: the reply's first words stand under its last frames, so those rows wait for the text. Knows no request.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from voice_agent.errors import EngineError
from voice_agent.models.qwen3_tts.arena import Arena
from voice_agent.models.qwen3_tts.config import GROUPS
from voice_agent.models.qwen3_tts.frame_parts import Inputs
from voice_agent.models.qwen3_tts.model import Model
from voice_agent.models.qwen3_tts.prompt import Clone, Manner, Prompt, Spoken, build_prompt, embed
from voice_agent.models.qwen3_tts.talker import Talker

KEPT, KEPT_ROWS = (
    16,
    128,
)  # instructions that are remembered, and how long one may be: 235 MB of the 1.7B model
_NONE = -1  # no token, no code


@dataclass(frozen=True)
class Prefix:
    """Keys and values of a prompt's first rows, [layers, 2, rows, heads, dim]."""

    kv: Tensor
    rows: int


@dataclass(frozen=True)
class Clip:
    """What a cloned voice has said already; `memory` is the codec's state behind it, a tensor for each of a slot's."""

    text: list[int]
    codes: list[list[int]]  # [n][16]
    memory: list[Tensor] = field(default_factory=list[Tensor])


@dataclass(eq=False)
class Opening:
    """One reply's beginning. `own` rows (text token and 16 codes each, -1 for none) are prefilled in its slot."""

    prefix: Prefix | None
    own: list[list[int]] = field(default_factory=list[list[int]])
    clip: Clip | None = None
    key: Hashable = None  # of an instruction's prefix
    held: bool = False  # its prefix must stay where it is

    @property
    def before(self) -> int:
        """Frames that count as spoken."""
        return len(self.clip.codes) if self.clip else 0

    @property
    def known(self) -> list[int]:
        """Text tokens before the reply's own."""
        return self.clip.text if self.clip else []

    @property
    def prefill_rows(self) -> int:
        """Rows that are to be prefilled in its slot."""
        return max(0, self.before - len(self.known)) if self.clip else len(self.own)

    @property
    def text_lead(self) -> int:
        """How many of the reply's text tokens its prefill takes; below 0 so many of the clip's are still to come."""
        return self.before - len(self.known)

    @property
    def copied(self) -> int:
        """Rows that lie ready."""
        return self.prefix.rows if self.prefix else 0

    @property
    def length(self) -> int:
        """Rows before the first frame's."""
        return self.copied + self.prefill_rows

    def rows(self, tokens: Sequence[int], pad: int) -> list[list[int]]:
        """The rows to prefill, for a reply whose text so far is `tokens` (all of it, or more than `text_lead`)."""
        if not self.clip:
            return self.own
        text, codes = [*self.clip.text, *tokens], self.clip.codes
        at = range(len(self.clip.text), len(codes))
        return [[text[n] if n < len(text) else pad, *codes[n - 1]] for n in at]


class KeptPrefixes:
    """The last used instructions' prefixes, in memory taken once.

    Full: the one that was unused longest goes. With all in use, or one that is too long, nothing is kept.
    """

    def __init__(self, arena: Arena, entries: int = KEPT, rows: int = KEPT_ROWS) -> None:
        layers, _, _, length, heads, dim = arena.kv.shape
        self._rows = min(rows, length)
        self._kv = arena.kv.new_zeros((entries, layers, 2, self._rows, heads, dim))
        self._free = list(range(entries))
        self._held: OrderedDict[Hashable, tuple[int, int]] = (
            OrderedDict()
        )  # key to entry and rows, newest last
        self._users: dict[Hashable, int] = {}

    def take(self, key: Hashable) -> Prefix | None:
        """The prefix, which stays until `release`; None if it is not kept."""
        if key not in self._held:
            return None
        self._held.move_to_end(key)
        self._users[key] = self._users.get(key, 0) + 1
        entry, rows = self._held[key]
        return Prefix(self._kv[entry, :, :, :rows], rows)

    def release(self, key: Hashable) -> None:
        """One reply less needs it."""
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key]

    def keep(self, key: Hashable, slot_kv: Tensor, rows: int) -> None:
        """Copy the first rows of a slot's keys and values [layers, 2, length, heads, dim]."""
        if key in self._held or rows > self._rows:
            return
        if not self._free:
            unused = next((held for held in self._held if held not in self._users), None)
            if unused is None:
                return
            self._free.append(self._held.pop(unused)[0])
        entry = self._free.pop()
        self._kv[entry, :, :, :rows].copy_(slot_kv[:, :, :rows])
        self._held[key] = entry, rows


class Openings:
    """All beginnings that a device knows. One thread; launches go on the caller's current stream."""

    def __init__(self, model: Model, arena: Arena, role: list[int]) -> None:
        self._model, self._arena, self._role = model, arena, role
        self._prefixes: dict[tuple[str, str], Prefix] = {}
        self._clips: dict[str, Clip] = {}
        self._presets: list[str] = []
        config = model.config
        follows = config.tts_model_type == "custom_voice" and config.tts_model_size != "0b6"
        self._kept = KeptPrefixes(arena) if follows else None

    @property
    def instructed(self) -> tuple[str, ...]:
        """Voices that follow instructions: the presets, of a model that was trained to."""
        return tuple(self._presets) if self._kept else ()

    @property
    def most_copied(self) -> int:
        """Rows of the longest prefix that further rows are prefilled behind."""
        return max((self._prefixes[key].rows for key in self._prefixes if key[0] in self._clips), default=0)

    @property
    def prefills(self) -> bool:
        """Whether any reply has rows of its own."""
        return bool(self.instructed or self._clips)

    @torch.inference_mode()
    def prepare(self, manners: Mapping[str, Manner], languages: Sequence[str]) -> None:
        """Prefill every voice in every language; a manner names a preset voice or holds a clone."""
        for name, manner in manners.items():
            clone = manner.clone
            if not clone:
                self._presets.append(name)
            if clone and clone.codes is not None:
                self._clips[name] = Clip(clone.text, clone.codes.tolist())
            for language in languages:
                prompt = build_prompt(
                    self._model.config, Spoken(self._role, [0]), Manner(manner.voice, language, clone=clone)
                )
                self._prefixes[(name, language)] = self._prefilled(prompt, clone)

    def _prefilled(self, prompt: Prompt, clone: Clone | None) -> Prefix:
        """The rows that no text changes: all but the last, or as far as the clip's own text reaches."""
        count = len(prompt.rows) - 1
        if clone and clone.codes is not None and prompt.reference_row is not None:
            count = prompt.reference_row - 1 + min(len(clone.text), len(clone.codes))
        arena, talker = self._arena, self._model.talker
        if count >= arena.length:
            raise EngineError(
                f"a clip of {count} rows does not fit a slot of {arena.length}", code="clip_too_long"
            )
        rows = embed(talker, self._model.code_predictor, prompt)[:count]
        spare = torch.tensor([arena.spare], device=rows.device)
        talker.prefill(rows[None], arena.kv, spare, torch.zeros_like(spare), count)
        return Prefix(arena.kv[:, arena.spare, :, :count].clone(), count)

    def clips(self) -> Mapping[str, Clip]:
        """Clips by voice; their `memory` is filled by who has a codec."""
        return self._clips

    def open(self, voice: str, language: str, instruction: Sequence[int] = ()) -> Opening:
        """A reply's beginning, without an instruction that the voice cannot follow; give it back with `close`."""
        if not instruction or self._kept is None or voice not in self._presets:
            return Opening(self._prefixes[(voice, language)], clip=self._clips.get(voice))
        key = voice, language, tuple(instruction)
        prefix = self._kept.take(key)
        if prefix:
            return Opening(prefix, key=key, held=True)
        manner = Manner(voice, language, list(instruction))
        prompt = build_prompt(self._model.config, Spoken(self._role, [0]), manner)
        return Opening(None, [_numbers(row.text, row.code) for row in prompt.rows[:-1]], key=key)

    def close(self, opening: Opening) -> None:
        """The reply is over; asking twice is allowed."""
        if opening.held and self._kept:
            opening.held = False
            self._kept.release(opening.key)

    def keep(self, opening: Opening, slot: int) -> None:
        """Remember what was prefilled in a slot, if it is an instruction's."""
        if self._kept and opening.key is not None and not opening.prefix:
            self._kept.keep(opening.key, self._arena.kv[:, slot], opening.length)


@dataclass(frozen=True)
class PrefillRows:
    """The buffers of one prefill size: one reply's rows, padded at the end by rows of nothing."""

    place: Tensor  # [2] int32: slot, first row
    rows: Tensor  # [T, 17] int32


def new_prefill_rows(arena: Arena, count: int) -> PrefillRows:
    """Buffers of so many rows, all padding, in the spare slot."""
    place = torch.tensor([arena.spare, 0], dtype=torch.int32, device=arena.kv.device)
    return PrefillRows(
        place, torch.full((count, 1 + GROUPS), _NONE, dtype=torch.int32, device=arena.kv.device)
    )


@torch.inference_mode()
def prefill(talker: Talker, inputs: Inputs, arena: Arena, buffers: PrefillRows, longest: int) -> None:
    """Keys and values of the rows into their slot; what padding leaves behind them is overwritten before it is read."""
    slot, first = buffers.place.long().split(1)
    texts, codes = buffers.rows[:, 0].long(), buffers.rows[:, 1:].long()
    there = (codes >= 0).to(inputs.code_table.dtype)[..., None]
    codes = codes.clamp(min=0)
    rows = inputs.text_table[texts.clamp(min=0)] * (texts >= 0)[:, None]
    rows = rows + inputs.code_table[codes[:, 0]] * there[:, 0]
    groups = torch.arange(GROUPS - 1, device=codes.device)
    rows = rows + (inputs.more_tables[groups, codes[:, 1:]] * there[:, 1:]).sum(1)
    talker.prefill(rows[None], arena.kv, slot, first, longest)


def _numbers(text: int | None, code: int | None) -> list[int]:
    more = [_NONE] * (GROUPS - 1)
    return [_NONE if text is None else text, _NONE if code is None else code, *more]
