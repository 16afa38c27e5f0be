"""The Thinker on vLLM against transformers: the same greedy tokens, the same hidden rows (`make test-vllm`)."""
# pyright: reportMissingImports=false

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm")
transformers = pytest.importorskip("transformers")
import torch  # noqa: E402

from tests.vllm_folders import nearest_choice, write_model  # noqa: E402
from voice_agent.bench.plugin_metadata import with_plugin  # noqa: E402
from voice_agent.bench.thinker_models import prompt  # noqa: E402
from voice_agent.engine.cuda_ipc import device_pool  # noqa: E402
from voice_agent.engine.messages import RowsRef, Think  # noqa: E402
from voice_agent.engine.row_pile import names_in  # noqa: E402
from voice_agent.engine.runtime import ThinkerEnd, ThinkerOptions  # noqa: E402
from voice_agent.errors import EngineError  # noqa: E402
from voice_agent.models.vllm_rows import pool_shape  # noqa: E402
from voice_agent.models.vllm_thinker import VllmThinker, load  # noqa: E402

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

ANSWER_TOKENS = 24
LENGTHS = (7, 40, 130)
ON_GPU = torch.cuda.is_available()
NEAR_TIE = 0.1  # between two logits: one with 0.024 was decided by the order of a GPU's sums
CLOSE = 1e-2 if ON_GPU else 2e-3  # of rows: a GPU's kernels for float32 round what they multiply to 10 bits


class Reader:
    """The pool and its reading side, on a thread as a Talker's: every row by its reply's key and number."""

    def __init__(self, hidden_size: int) -> None:
        shape = pool_shape("last+embedding", hidden_size, 4, slots=4, rows=16)  # small: reused soon
        self.pool = device_pool(shape)  # for a sink on a GPU, too, whose rows come through the host here
        self.rows: dict[tuple[int, int], np.ndarray] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def of(self, ref: RowsRef) -> np.ndarray:
        return np.stack([self.rows[ref.key, number] for number in range(ref.end_row)])

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self.pool.close()

    def _run(self) -> None:
        reader, size = self.pool.reader(), self.pool.shape.row_bytes
        while not self._ended.is_set():
            lease = reader.take(0.05)
            if lease is None:
                continue
            values = np.frombuffer(bytes(lease.buffer), np.float32).reshape(-1, size // 4)
            for (key, number), row in zip(names_in(lease.notes).tolist(), values, strict=True):
                self.rows[key, number] = row
            lease.release()
        reader.close()


class Rig:
    """A vLLM engine and transformers' model over the same folder, and a loop that both kinds of test share."""

    def __init__(self, folder: Path, family: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.reference = write_model(folder, family)
        self.reader = Reader(self.reference.lm_head.in_features)
        options: dict[str, Any] = {
            "dtype": "float32",
            "max_num_seqs": 4,
            "enforce_eager": True,
            "hidden": "last+embedding",
            "hidden_pool": self.reader.pool.address,
            "hidden_via": "host",
            "engine_args": {"seed": 0, "max_num_batched_tokens": 64},  # long prompts come in parts
        }
        if ON_GPU:  # a small part of the card: several of these may run beside each other
            options |= {"gpu_memory_utilization": 0.1, "kv_cache_bytes": 1 << 30}
        if family == "qwen2.5-omni":  # text in: what it needs to hear and see is not loaded
            options["engine_args"]["language_model_only"] = True
        self.model: VllmThinker = load(
            folder, ThinkerOptions("vllm", str(folder), context_tokens=512, extra=options)
        )
        self.run(self.model.warm_up("Be brief."))

    def run(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, 300))

    def close(self) -> None:
        self.model.engine.shutdown()
        self.reader.close()
        self.loop.run_until_complete(asyncio.sleep(0.1))
        self.loop.close()

    def clear(self, length: int, seed: int) -> tuple[int, list[int], list[int]]:
        """The first prompt from a seed on whose answer hangs on no near-tie: the seed, its tokens and the answer's."""
        for each in range(seed, seed + 50):
            tokens = self.model.prompt.tokens(asked(length, each).messages, [])
            if answer := self.expected(tokens):
                return each, tokens, answer
        pytest.fail("near-ties in all of them")

    def expected(self, tokens: list[int]) -> list[int] | None:
        """transformers' greedy continuation; None where two tokens are too near for a choice."""
        with torch.inference_mode():
            found = self.reference.generate(
                torch.tensor([tokens]),
                do_sample=False,
                max_new_tokens=ANSWER_TOKENS,
                pad_token_id=0,
                output_logits=True,
                return_dict_in_generate=True,
            )
        if nearest_choice(found.logits) < NEAR_TIE:
            return None
        return found.sequences[0, len(tokens) :].tolist()

    def states(self, tokens: list[int]) -> np.ndarray:
        """transformers' last hidden state (after the final norm) beside the input's embedding: [T, 2 H]."""
        ids = torch.tensor([tokens])
        with torch.inference_mode():
            inner = self.reference.model
            rows = torch.cat([inner(ids).last_hidden_state, inner.embed_tokens(ids)], -1)
        return rows[0].numpy()


@pytest.fixture(scope="module", params=["qwen3", "qwen2", "llama", "qwen2.5-omni"])
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    if request.param == "qwen2.5-omni":
        pytest.importorskip("torchvision", reason="a model that could see is imported with it")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.update(with_plugin())
    sys.path.extend(path for path in os.environ["PYTHONPATH"].split(os.pathsep) if path not in sys.path)
    rig = Rig(tmp_path_factory.mktemp("model"), request.param)
    yield rig
    rig.close()


class Heard:
    """What an answer emitted."""

    def __init__(self, stop_after: int = 10_000) -> None:
        self.text = ""
        self.rows: list[RowsRef] = []
        self._left = stop_after

    def __call__(self, text: str, rows: RowsRef | None) -> bool:
        self.text += text
        self.rows += [rows] if rows else []
        self._left -= 1
        return self._left <= 0


def asked(length: int, seed: int = 0, **more: Any) -> Think:
    messages = [{"role": "user", "content": prompt(length, seed)}]
    return Think(f"reply-{length}-{seed}", 1, messages, max_output_tokens=ANSWER_TOKENS, **more)


async def answered(rig: Rig, request: Think, heard: Heard) -> ThinkerEnd:
    return await rig.model.answer(request, heard)


def test_greedy_answers_are_transformers_own(rig: Rig) -> None:
    clear = [rig.clear(length, 0) for length in LENGTHS]

    async def all_at_once() -> list[Heard]:
        heard = [Heard() for _ in clear]
        thinks = [asked(n, seed) for n, (seed, *_) in zip(LENGTHS, clear, strict=True)]
        await asyncio.gather(*(answered(rig, *each) for each in zip(thinks, heard, strict=True)))
        return heard

    for (_, _, expected), heard in zip(clear, rig.run(all_at_once()), strict=True):
        assert heard.text == rig.model.engine.get_tokenizer().decode(expected, skip_special_tokens=True)


@pytest.mark.parametrize("whole", [False, True])
def test_hidden_rows_are_transformers_own(rig: Rig, whole: bool) -> None:
    clear = [rig.clear(length, 100) for length in LENGTHS]

    async def both() -> list[tuple[RowsRef, np.ndarray]]:
        heard = [Heard() for _ in clear]
        kind = "all" if whole else "reply"
        thinks = [asked(n, seed, hidden=kind) for n, (seed, *_) in zip(LENGTHS, clear, strict=True)]
        await asyncio.gather(
            *(answered(rig, *each) for each in zip(thinks, heard, strict=True)),
            answered(rig, asked(50, 2), Heard()),  # one beside them that wants none
        )
        await asyncio.sleep(0.2)  # the reader's thread
        return [(each.rows[-1], rig.reader.of(each.rows[-1])) for each in heard]

    for (_, tokens, answer), (last, rows) in zip(clear, rig.run(both()), strict=True):
        states = rig.states(tokens + answer[:-1])
        expected = states if whole else states[len(tokens) - 1 :]
        assert last.end_row == len(expected)
        np.testing.assert_allclose(rows, expected, rtol=CLOSE, atol=CLOSE)


def test_more_requests_than_the_cap_wait_in_vllm_and_all_are_answered(rig: Rig) -> None:
    async def many() -> list[ThinkerEnd]:
        heard = [Heard() for _ in range(11)]
        return await asyncio.gather(*(answered(rig, asked(20, n), each) for n, each in enumerate(heard)))

    ends = rig.run(many())
    assert [end.reason for end in ends] == ["length"] * 11
    assert all(end.usage["completion_tokens"] == ANSWER_TOKENS for end in ends)
    counted = rig.model.count_tokens(asked(20, 3).messages)
    assert ends[3].usage["prompt_tokens"] == counted


def test_a_cancelled_answer_is_gone_from_vllm_at_once(rig: Rig) -> None:
    async def cancelled() -> int:
        begun = asyncio.Event()

        def emit(text: str, rows: RowsRef | None) -> bool:
            begun.set()
            return False

        endless = Think("endless", 1, asked(20).messages, max_output_tokens=400)
        tasks = [asyncio.create_task(rig.model.answer(endless, emit)) for _ in range(4)]  # the whole cap
        await begun.wait()
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        await answered(rig, asked(20, 9), Heard())  # would wait for a seat behind 400 tokens
        return len(rig.model.engine.output_processor.request_states)

    assert rig.run(cancelled()) == 0


def test_emit_stops_an_answer(rig: Rig) -> None:
    end = rig.run(answered(rig, asked(20), Heard(stop_after=3)))
    assert end.reason == "aborted"
    assert 3 <= end.usage["completion_tokens"] < ANSWER_TOKENS


def test_the_next_turn_reuses_what_the_last_one_computed(rig: Rig) -> None:
    first = asked(200, 5)
    rig.run(answered(rig, first, Heard()))
    history = [*first.messages, {"role": "assistant", "content": "yes"}, {"role": "user", "content": " more"}]
    end = rig.run(answered(rig, Think("second", 1, history, max_output_tokens=2), Heard()))
    assert end.usage["cached_tokens"] >= 128


def test_a_conversation_over_the_context_is_refused_by_name(rig: Rig) -> None:
    with pytest.raises(EngineError) as refused:
        rig.run(answered(rig, asked(600), Heard()))
    assert refused.value.code == "context_length_exceeded"


NAME = "öffne_文_🚪"  # many bytes each: a token here is one byte of them


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


@pytest.mark.parametrize(
    ("choice", "names"), [("required", {NAME, "close"}), (NAME, {NAME}), ("close", {"close"})]
)
def test_a_demanded_call_is_made_whatever_the_model_would_say_and_keeps_its_letters(
    rig: Rig, choice: str, names: set[str]
) -> None:
    side = {"enum": ["left", "right"]}
    tools = [tool(NAME, side=side, wide={"type": "boolean"}), tool("close", side=side)]
    messages = asked(20).messages
    request = Think("call", 1, messages, tools=tools, tool_choice=choice, max_output_tokens=200)
    heard = Heard()
    end = rig.run(answered(rig, request, heard))
    assert end.reason == "tool_calls"
    assert len(end.tool_calls) == 1
    assert end.tool_calls[0].name in names
    arguments = json.loads(end.tool_calls[0].arguments)
    assert arguments["side"] in {"left", "right"}
    assert set(arguments) == ({"side", "wide"} if end.tool_calls[0].name == NAME else {"side"})
    assert heard.text == ""


def test_a_schema_that_cannot_be_demanded_is_refused_and_the_engine_lives(rig: Rig) -> None:
    broken = tool("f", x={"type": "string", "pattern": "("})
    request = Think("bad", 1, asked(20).messages, tools=[broken], tool_choice="required")
    with pytest.raises(EngineError) as refused:
        rig.run(answered(rig, request, Heard()))
    assert refused.value.code == "invalid_request"
    assert rig.run(answered(rig, asked(20), Heard())).reason == "length"


def test_a_sound_for_a_model_that_reads_only_is_refused(rig: Rig) -> None:
    part = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "pcm16"}}
    with pytest.raises(EngineError, match="takes text alone") as refused:
        rig.run(answered(rig, Think("ears", 1, [{"role": "user", "content": [part]}]), Heard()))
    assert refused.value.code == "invalid_request"
