"""Any chat model that vLLM can run, as a Thinker: many requests at once, batched by vLLM's own scheduler.

`load` blocks until vLLM is up (its engine core is a process of its own, a child of this one). Requests are pushed in as
they come, and wait inside vLLM when there are more than `max_num_seqs`. vLLM's detokenizer keeps back what may be half
a character. Does not know: sessions, speech, who reads the hidden rows. What differs between vLLM's releases is in
`vllm_versions`.
"""

import asyncio
import itertools
import logging
import secrets
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from voice_agent.engine.context import text_chars
from voice_agent.engine.messages import RowsRef, Think
from voice_agent.engine.runtime import ThinkerEnd, ThinkerOptions
from voice_agent.errors import EngineDied, EngineError
from voice_agent.family_options import VllmOptions, read_options
from voice_agent.models import vllm_versions
from voice_agent.models.chat_prompt import ChatPrompt
from voice_agent.models.prompt_tokens import PromptTokens
from voice_agent.models.tool_calls import ToolCallReader, call_schema, offered_tools, reader_for
from voice_agent.models.vllm_first_step import FirstStep
from voice_agent.models.vllm_rows import HiddenRows, ReplyRows

logger = logging.getLogger(__name__)

_WARM_UP_TOOL = {"type": "function", "function": {"name": "nod", "parameters": {"type": "object"}}}
WATCH_S = 0.1  # how soon a dead engine core is noticed when nobody asks it anything


def load(folder: Path, options: ThinkerOptions) -> "VllmThinker":
    """Start vLLM on a Hugging Face folder, or a name if there is no such folder. Raises ConfigError, WeightsError."""
    chosen = read_options(VllmOptions, options.extra)
    rows = None
    if chosen.hidden:
        rows = HiddenRows.planned(chosen.hidden, chosen.hidden_pool, chosen.hidden_via)
    args = vllm_versions.engine_args(str(folder), options.context_tokens, chosen, rows)
    return VllmThinker(vllm_versions.Core(args), options.context_tokens, chosen, rows)


class VllmThinker:
    """One model on one vLLM engine. Event loop only, but for `count_tokens`."""

    def __init__(
        self,
        core: vllm_versions.Core,
        context_tokens: int,
        options: VllmOptions,
        rows: HiddenRows | None,
    ) -> None:
        self.context_tokens = context_tokens
        self._core = core
        self.engine = engine = core.engine  # vLLM's AsyncLLM
        self._options = options
        self._refusals = vllm_versions.refusals()
        self._dead_error = vllm_versions.engine_dead_error()
        self.prompt = ChatPrompt(vllm_versions.tokenizer_of(engine), vllm_versions.processor_of(engine))
        self._answering = 0  # requests that vLLM has
        self._first_step = FirstStep(vllm_versions.scheduling(engine), lambda: self._answering > 0)
        self._tokens = (
            PromptTokens(self.prompt.fast, self._first_step) if self.prompt.fast is not None else None
        )
        # no key of an engine that died comes again: rows of its last replies may still be about
        self._keys = itertools.count(secrets.randbits(32) << 24) if rows else None

    def count_tokens(self, messages: list[dict[str, Any]]) -> int:
        """Prompt tokens of a conversation, template included; raises EngineError if the template refuses it."""
        return len(self.prompt.tokens(messages, []))

    async def warm_up(self, text: str) -> None:
        """First answers: what vLLM does only once, a free one and a demanded call, it does now."""
        messages = [{"role": "system", "content": text}, {"role": "user", "content": "Hello."}]
        if self._tokens:
            await self._tokens.warm_up()
        free = Think("warm-up", 0, messages, max_output_tokens=2)
        await self.answer(free, lambda _text, _rows: False)
        if self.prompt.can_be_guided:
            guided = msgspec.structs.replace(free, epoch=1, tools=[_WARM_UP_TOOL], tool_choice="required")
            try:
                await self.answer(guided, lambda _text, _rows: False)
            except EngineError as error:
                if error.code != "invalid_request":  # that is a template which knows no tools
                    raise

    async def answer(self, request: Think, emit: Callable[[str, RowsRef | None], bool]) -> ThinkerEnd:
        """See ConcurrentThinkerModel. Raises EngineError: context_length_exceeded, invalid_request."""
        if call_schema(request) and not self.prompt.can_be_guided:
            raise EngineError(
                "a call cannot be demanded of a model with this tokenizer", code="invalid_request"
            )
        prompt = await self._prompt(request)
        if not request.hidden:
            return await self._answer(request, prompt, emit, None)
        if self._keys is None:
            raise EngineError("this engine hands over no hidden states", code="invalid_request")
        rows = ReplyRows(next(self._keys), whole=request.hidden == "all")
        return await self._answer(request, prompt, emit, rows)

    async def _prompt(self, request: Think) -> dict[str, Any]:
        media: dict[str, list[Any]] = {}

        def render() -> str:
            text, found = self.prompt.text(request.messages, offered_tools(request))
            self.prompt.take(found)
            media.update(found)
            return text

        if self._tokens:
            tokens = await self._tokens.of(text_chars(request.messages), render)
        else:
            tokens = self.prompt.encode(render())
        return vllm_versions.prompt(tokens, media)

    async def died(self) -> str:
        """Wait until the engine core is gone, which vLLM itself tells only those who ask."""
        while not self.engine.errored:  # noqa: ASYNC110 - there is nothing of vLLM's to wait for
            await asyncio.sleep(WATCH_S)
        await asyncio.sleep(WATCH_S)  # the requests in flight tell of it first
        return self._core.how_it_ended()

    async def _answer(
        self,
        request: Think,
        prompt: dict[str, Any],
        emit: Callable[[str, RowsRef | None], bool],
        rows: ReplyRows | None,
    ) -> ThinkerEnd:
        answer = _Answer(reader_for(request), emit, rows)
        params = vllm_versions.sampling(
            request,
            schema=call_schema(request),
            ignore_eos=self._options.ignore_eos,
            rows=rows,
        )
        unique_id = f"{request.request_id}/{request.epoch}"  # two attempts may overlap for a moment
        self._answering += 1
        try:
            async with aclosing(self.engine.generate(prompt, params, unique_id)) as outputs:
                async for output in outputs:
                    over = answer.take(output)
                    if answer.outputs == 1:
                        self._first_step.answered(
                            answer.usage["prompt_tokens"], answer.usage["cached_tokens"]
                        )
                    if over:
                        break
        except self._refusals as error:
            code = "context_length_exceeded" if "length" in str(error) else "invalid_request"
            raise EngineError(f"vLLM refuses the request: {error}", code=code) from error
        except self._dead_error as error:
            raise EngineDied(self._core.how_it_ended(), retryable=True) from error
        finally:
            self._answering -= 1
        return answer.end()


class _Answer:
    """Puts the `outputs` of one answer together."""

    def __init__(
        self,
        reader: ToolCallReader | None,
        emit: Callable[[str, RowsRef | None], bool],
        rows: ReplyRows | None,
    ) -> None:
        self._reader = reader
        self._emit = emit
        self._rows = rows
        self.outputs = 0
        self.usage = {"prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0}
        self._reason = "aborted"

    def take(self, output: Any) -> bool:
        """One of vLLM's outputs, which is what is new since the last; True stops it."""
        part, prompt_tokens = output.outputs[0], len(output.prompt_token_ids or ())
        self.outputs += 1
        self.usage["prompt_tokens"] = prompt_tokens
        self.usage["completion_tokens"] += len(part.token_ids)
        self.usage["cached_tokens"] = output.num_cached_tokens or 0
        if part.finish_reason is not None:
            self._reason = "length" if part.finish_reason == "length" else "stop"
        text = self._reader.feed(part.text) if self._reader else part.text
        rows = self._rows.grown(len(part.token_ids), prompt_tokens) if self._rows else None
        stopped = self._emit(text, rows)
        if self._reader is not None and self._reader.complete:
            self._reason = "stop"
            return True
        return stopped and not output.finished

    def end(self) -> ThinkerEnd:
        """How it ended."""
        rest = self._reader.finish() if self._reader else ""
        if rest and self._reason != "aborted":
            self._emit(rest, None)
        calls = self._reader.calls if self._reader and self._reason != "aborted" else []
        return ThinkerEnd("tool_calls" if calls else self._reason, self.usage, list(calls))
