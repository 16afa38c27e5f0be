"""A Thinker engine's own child entry that can also drive its vLLM bare: the very same AsyncLLM, without our path.

A request whose id begins with "bare" is no request for the engine: its messages are the prompts of a wave. They become
tokens beforehand, all are pushed into vLLM at the same moment, and what was measured comes back as one piece of text.
With "bare-texts" they become texts beforehand, and vLLM's own renderer encodes them while the clock runs. One whose id
begins with "hoard" goes to vLLM's worker (thinker_hoard). Everything else is the engine as it is.
"""

import asyncio
import functools
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

from voice_agent.bench import memory_lid
from voice_agent.bench.thinker_crash import HOARD
from voice_agent.clock import NS_PER_S, Clock, MonotonicClock, ms_between
from voice_agent.engine import child
from voice_agent.engine.messages import Failed, Finished, FromEngine, TextDelta, Think, ToEngine
from voice_agent.engine.runtime import EngineSpec
from voice_agent.models import vllm_versions
from voice_agent.models.vllm_thinker import VllmThinker

BARE = "bare"
BARE_TEXTS = "bare-texts"

Prompt = Callable[[], Awaitable[Any]]


class BareEngine:
    """The engine, and the bare waves."""

    def __init__(self, engine: child.Engine, model: VllmThinker, send: Callable[[FromEngine], None]) -> None:
        self._engine = engine
        self._model = model
        self._send = send
        self._clock = MonotonicClock()
        self._wave: asyncio.Task[None] | None = None
        self.handle_others = engine.handle
        self.warm_up, self.work = engine.warm_up, engine.work
        self.in_flight, self.busy_ms = engine.in_flight, engine.busy_ms

    @property
    def describe(self) -> dict[str, Any]:
        """The engine's own."""
        return self._engine.describe

    def handle(self, message: ToEngine) -> None:
        """Begin a bare wave, or let the engine do it."""
        if isinstance(message, Think) and message.request_id.startswith(BARE):
            self._wave = asyncio.get_running_loop().create_task(self._run_or_tell(message))
        elif isinstance(message, Think) and message.request_id.startswith(HOARD):
            self._wave = asyncio.get_running_loop().create_task(self._hoard(message))
        else:
            self.handle_others(message)

    async def _run_or_tell(self, wave: Think) -> None:
        try:
            await self._run(wave)
        except Exception as error:  # noqa: BLE001 - whatever it is, the bench waits for an end
            self._send(Failed(wave.request_id, wave.epoch, "bare", f"{type(error).__name__}: {error}"))

    async def _run(self, wave: Think) -> None:
        as_texts = wave.request_id.startswith(BARE_TEXTS)
        prompts = [(self._text if as_texts else self._tokens)(message) for message in wave.messages]
        begin_ns = self._clock.now_ns()
        measured = await asyncio.gather(
            *(self._one(f"{wave.request_id}/{n}", wave, prompt, begin_ns) for n, prompt in enumerate(prompts))
        )
        seconds = (self._clock.now_ns() - begin_ns) / NS_PER_S
        asked_ms, first_ms, tokens = zip(*measured, strict=True)
        result = {"asked_ms": asked_ms, "first_ms": first_ms, "tokens": sum(tokens), "seconds": seconds}
        self._send(TextDelta(wave.request_id, wave.epoch, json.dumps(result)))
        self._send(Finished(wave.request_id, wave.epoch))

    def _tokens(self, message: dict[str, Any]) -> Prompt:
        ready = vllm_versions.prompt(self._model.prompt.tokens([message], []), {})

        async def prompt() -> Any:
            return ready

        return prompt

    def _text(self, message: dict[str, Any]) -> Prompt:
        text, _ = self._model.prompt.text([message], [])
        return functools.partial(vllm_versions.rendered, self._model.engine, text)

    async def _hoard(self, order: Think) -> None:
        """Tell the worker; it may end with all that is around it before this does."""
        memory = order.request_id.partition("-")[2]
        taken = await self._model.engine.collective_rpc("hoard", args=(memory,))
        self._send(TextDelta(order.request_id, order.epoch, json.dumps(taken)))
        self._send(Finished(order.request_id, order.epoch))

    async def _one(
        self, unique_id: str, wave: Think, prompt: Prompt, begin_ns: int
    ) -> tuple[float, float, int]:
        """One answer straight from vLLM: ms from the wave's begin to its call and first token, and its tokens."""
        asked_ms, first_ms, tokens = ms_between(begin_ns, self._clock.now_ns()), 0.0, 0
        params = vllm_versions.sampling(wave, schema=None, ignore_eos=True, rows=None)
        async for output in self._model.engine.generate(await prompt(), params, unique_id):
            first_ms = first_ms or ms_between(begin_ns, self._clock.now_ns())
            tokens += len(output.outputs[0].token_ids)
        return asked_ms, first_ms, tokens


def load(spec: EngineSpec, send: Callable[[FromEngine], None], clock: Clock) -> child.Engine:
    """As the engine's own, with bare waves beside."""
    engine = _load(spec, send, clock)
    return BareEngine(engine, cast(VllmThinker, cast(Any, engine).thinker), send)


_load = child.load

if __name__ == "__main__":
    memory_lid.join()
    child.load = load
    child.main(sys.argv[1:])
