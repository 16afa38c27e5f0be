"""What the published implementation and ours are both asked: replies, and logits to sample from."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from tests import qwen3_tts_small as small

IM_START, IM_END, ASSISTANT, NEWLINE = 190, 191, 77, 10
ROLE = [IM_START, ASSISTANT, NEWLINE]
TAIL = [IM_END, NEWLINE, *ROLE]


@dataclass(frozen=True)
class Case:
    """One reply: token ids of its text (no tokenizer takes part) and how it is spoken."""

    name: str
    text: list[int]
    voice: str | None = "ryan"
    language: str = "english"
    instruction: list[int] = field(default_factory=list[int])
    whole_text: bool = False
    clone: bool = False
    reference_text: list[int] = field(default_factory=list[int])
    reference_frames: int = 0
    most_frames: int = 9

    def template(self) -> list[int]:
        return [*ROLE, *self.text, *TAIL]

    def reference_template(self) -> list[int]:
        return [*ROLE, *self.reference_text, IM_END, NEWLINE]

    @property
    def reference_codes(self) -> list[list[int]]:
        shape = (self.reference_frames, 16)
        return torch.randint(small.CODES, shape, generator=torch.Generator().manual_seed(8)).tolist()


SHORT, LONG = [20, 21, 22], [30 + step for step in range(24)]
CASES = [
    Case("english", SHORT),
    Case("longer than the frames", LONG),
    Case("one token", [50]),
    Case("korean voice", [60, 61, 62, 63, 64], voice="sohee", language="korean"),
    Case("auto", SHORT, language="auto"),
    Case("dialect", SHORT, voice="eric", language="chinese"),
    Case("dialect by itself", SHORT, voice="eric", language="auto"),
    Case("dialect speaker in english", SHORT, voice="eric"),
    Case("no voice", SHORT, voice=None),
    Case("instruction", SHORT, instruction=[IM_START, 80, NEWLINE, 81, 82, 83, IM_END, NEWLINE]),
    Case("whole text", LONG, whole_text=True),
    Case("whole text and instruction", SHORT, "sohee", "korean", [IM_START, 80, 81, IM_END], whole_text=True),
    Case("speaker vector", SHORT, voice=None, clone=True),
    Case("short clip", LONG, None, clone=True, reference_text=[90, 91, 92], reference_frames=4),
    Case("long clip", SHORT, None, clone=True, reference_text=[90, 91, 92], reference_frames=20),
    Case(
        "clip and whole text",
        SHORT,
        None,
        whole_text=True,
        clone=True,
        reference_text=[93],
        reference_frames=5,
    ),
]

SAMPLER_CASES = {  # temperature, top_k, top_p, penalty
    "published": (0.9, 50, 1.0, 1.05),
    "narrow": (0.6, 5, 0.8, 1.3),
    "nucleus": (1.3, 60, 0.5, 1.0),
}


def sampler_inputs(name: str) -> tuple[Tensor, Tensor]:
    """Logits [4, vocab] and the codes chosen before [4, n]; n is 1 (the end code is forbidden) or 6."""
    generator = torch.Generator().manual_seed(len(name))
    logits = 2 * torch.randn((4, small.TALKER.vocab_size), generator=generator)
    logits[:, small.TALKER.codec_eos_token_id] = 3.0
    count = 1 if name == "narrow" else 6
    return logits, torch.randint(small.CODES, (4, count), generator=generator)
