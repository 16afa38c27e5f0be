"""Hidden rows through what serves: vLLM's worker, the pool, clauses, a Talker that reads (`make test-vllm`)."""
# pyright: reportMissingImports=false

import asyncio
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm")
from tests.vllm_folders import VOCABULARY, write_model  # noqa: E402
from voice_agent.audio import PcmChunk  # noqa: E402
from voice_agent.bench.plugin_metadata import with_plugin  # noqa: E402
from voice_agent.bench.thinker_models import write_tokenizer  # noqa: E402
from voice_agent.clock import MonotonicClock  # noqa: E402
from voice_agent.config_sources import load_config  # noqa: E402
from voice_agent.engine.messages import Speak, Think, ToolCall  # noqa: E402
from voice_agent.engines import cascade_of, running_engines, start_engines, store_of  # noqa: E402
from voice_agent.errors import EngineError
from voice_agent.speech.ask import Ask  # noqa: E402

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


class Heard:
    """A sink that counts."""

    def __init__(self) -> None:
        self.written, self.samples = "", 0

    def text(self, delta: str) -> None:
        self.written += delta

    async def sound(self, pcm: PcmChunk) -> None:
        self.samples += len(pcm.samples)

    def tool_call(self, call: ToolCall) -> None:
        raise AssertionError(call)

    def unspoken(self, start_char: int, end_char: int, language: str) -> None:
        raise AssertionError(language)

    def stamp(self, stage: str) -> None:
        pass

    def may_start_over(self) -> bool:
        return False

    def breaks_off(self, error: EngineError) -> None:
        raise error


async def test_every_clause_reaches_the_talker_with_the_states_it_was_written_from(tmp_path: Path) -> None:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.update(with_plugin())
    sys.path.extend(path for path in os.environ["PYTHONPATH"].split(os.pathsep) if path not in sys.path)
    write_model(tmp_path / "model", "qwen3")
    write_tokenizer(tmp_path / "model", VOCABULARY, spoken=True)  # letters without a space are not spoken
    options = {"dtype": "float32", "max_num_seqs": 4, "enforce_eager": True, "ignore_eos": True}
    config = load_config(
        environment={},
        flags={
            "recognizer": {"family": "scripted", "model": ""},
            "thinker": {
                "family": "vllm",
                "model": str(tmp_path / "model"),
                "context_tokens": 512,
                "options": options,
            },
            "talker": {"family": "scripted", "model": "", "options": {"hidden": "last+embedding"}},
            "models": {"cache": str(tmp_path)},
        },
    )
    lines, clock = list[str](), MonotonicClock()
    async with running_engines(config, store_of(config), clock, lines.append) as engines:
        await start_engines(engines, config)
        assert any("hidden rows (last+embedding)" in line for line in lines)
        cascade, heard = cascade_of(engines, config, clock), [Heard() for _ in range(3)]
        messages = [{"role": "user", "content": "go on"}]
        asks = [
            Ask(name, Think(name, 0, messages, max_output_tokens=60), Speak(name, 0, ""))
            for name in ("r0", "r1", "r2")
        ]
        answers = await asyncio.gather(
            *(cascade.run(ask, sink) for ask, sink in zip(asks, heard, strict=True))
        )
    assert [answer.reason for answer in answers] == ["length"] * 3
    assert all(sink.written and sink.samples for sink in heard)  # a clause without rows would have failed
