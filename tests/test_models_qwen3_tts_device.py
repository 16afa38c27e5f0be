"""Which codec a device serves with: the fused one after its trial, else the plain one, and it says which."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.qwen3_tts_small import small_model  # noqa: E402
from voice_agent.models.qwen3_tts.codec_slots import CodecRows, render  # noqa: E402
from voice_agent.models.qwen3_tts.device import Sizes, SpeechDevice  # noqa: E402
from voice_agent.models.qwen3_tts.plain_ops import PlainOps  # noqa: E402

FUSED = "voice_agent.models.qwen3_tts.codec_fused"
SIZES = Sizes(2, 32, 16, (1,), (1, 2), (1, 2), (1,), fused_codec=True)


class Lane:
    """Stands for a FusedLane: the plain codec's sound times a factor."""

    def __init__(self, codec: Any, arena: Any, most: int) -> None:  # noqa: ARG002
        self._codec, self._arena = codec, arena

    def step(self, buffers: CodecRows, frames: int) -> None:
        render(self._codec.codec, self._codec.states, self._arena, buffers, frames)
        buffers.sound.copy_((buffers.sound * self._codec.gain).to(torch.int16))


def fused(gain: float) -> SimpleNamespace:
    def codec(plain: Any, slots: int) -> SimpleNamespace:
        return SimpleNamespace(codec=plain, states=plain.new_state(slots + 1), gain=gain)

    return SimpleNamespace(FusedCodec=codec, FusedLane=Lane)


@pytest.mark.parametrize(
    ("module", "serves", "says"),
    [
        (fused(1.0), "fused", ""),
        (fused(0.9), "plain", "off by 0.100"),
        (None, "plain", "does not run here"),  # no Triton
    ],
    ids=["right", "wrong", "missing"],
)
def test_the_fused_codec_serves_if_it_proves_right_here_else_the_plain_one_does(
    module: Any, serves: str, says: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, FUSED, module)
    device = SpeechDevice(small_model(), (PlainOps(),), SIZES)
    device.capture(lambda stage: None)
    assert device.codec == serves
    assert says in caplog.text and bool(caplog.text) == bool(says)
    for urgent in (True, False):
        launch = device.render(None, (2, 1), [[0, 0, 2, 1]], urgent=urgent)
        assert int(launch.answer.abs().max()) > 100
