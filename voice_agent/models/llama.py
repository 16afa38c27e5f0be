"""Any chat model in GGUF form on llama.cpp, in this process, streamed and stopped within a token.

llama.cpp's own server code does the template, the cache of the last prompt and whole UTF-8 characters. It insists on a
listener: it gets a Unix socket in a private folder with a key of its own, so nothing on the host or the network can
reach the model; only token counts go through it. Calls are read by llama.cpp where it knows the model's way,
else by ToolCallReader. Prints to stderr: the parent process deals with that. Does not know: sessions, speech.
"""

import contextlib
import http.client
import json
import os
import secrets
import shutil
import socket
import tempfile
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import xllamacpp

from voice_agent.engine.host_memory import memory_left
from voice_agent.engine.messages import Think
from voice_agent.engine.runtime import ThinkerEnd, ThinkerOptions, ToolCallParts
from voice_agent.errors import EngineError, WeightsError
from voice_agent.family_options import LlamaOptions, read_options
from voice_agent.models.gguf_file import MAGIC
from voice_agent.models.llama_failure import Load, why_not
from voice_agent.models.llama_weights import faster
from voice_agent.models.tool_calls import call_schema, offered_tools, reader_for

_llama = cast(Any, xllamacpp)  # a binary module without types
_HOME, _SOCKET = "voice-agent-llama-", "llm.sock"
ANSWER_S = 30.0


def load(folder: Path, options: ThinkerOptions) -> "Llama":
    """Load the one .gguf in a folder (the first part of a split one); raises WeightsError.

    `round_weights` (see llama_weights) is for the CPU only.
    """
    model, chosen = find_model(folder), read_options(LlamaOptions, options.extra)
    if chosen.round_weights and not chosen.gpu_layers:
        model = faster(model)
    return Llama(model, options, chosen)


def find_model(folder: Path) -> Path:
    """The model file of a folder; raises WeightsError unless it is clear which."""
    found = sorted(folder.glob("*.gguf"))
    parts = [path for path in found if "-of-" in path.stem]
    if not found or (len(found) > 1 and len(parts) != len(found)):
        raise WeightsError(f"{folder} holds {len(found)} .gguf files, one model is needed")
    with found[0].open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise WeightsError(f"{found[0].name} is not a GGUF file")
    return found[0]


class Llama:
    """One model with one conversation in its cache; call `stream` from one thread."""

    def __init__(self, model: Path, options: ThinkerOptions, chosen: LlamaOptions) -> None:
        self.context_tokens = options.context_tokens
        _remove_left_homes()
        home = tempfile.mkdtemp(prefix=_HOME)  # mode 0700; short, since a socket's path has 107 bytes
        self._close = weakref.finalize(self, shutil.rmtree, home, ignore_errors=True)
        key, address = secrets.token_urlsafe(24), os.path.join(home, _SOCKET)
        loading = Load(model, options.context_tokens, memory_left())
        try:
            self._server = _llama.Server(_parameters(model, options, chosen, (address, key)))
        except (RuntimeError, ValueError, MemoryError) as error:
            self._close()
            raise WeightsError(f"{model.name} cannot be loaded: {why_not(loading, error)}") from error
        self._address = address
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        if chosen.instructions:
            self._read_ahead(chosen.instructions)

    def count_tokens(self, messages: list[dict[str, Any]]) -> int:
        """Prompt tokens of a conversation, template included; raises EngineError if the template refuses it."""
        try:
            prompt = self._ask("/apply-template", {"messages": messages})["prompt"]
        except EngineError as error:
            if error.retryable:
                raise
            raise EngineError(str(error), code="invalid_request") from error  # whatever status it gave it
        tokens = self._ask("/tokenize", {"content": prompt, "add_special": True, "parse_special": True})[
            "tokens"
        ]
        return len(tokens)

    def stream(self, request: Think, emit: Callable[[str], bool]) -> ThinkerEnd:
        """Answer through `emit`, called once per token (with "" while a call is being written); True stops at once.

        Raises EngineError: context_length_exceeded, or what llama.cpp found wrong with the request.
        """
        answer = _Answer(request, emit)
        try:
            self._server.handle_chat_completions(_body(request), answer.take)
        except (ValueError, RuntimeError) as error:  # of its reading the conversation, before any token
            raise EngineError(f"llama.cpp: {error}", code="invalid_request") from error
        return answer.end()

    def _read_ahead(self, instructions: str) -> None:
        messages = [{"role": "system", "content": instructions}, {"role": "user", "content": "Hello."}]
        self.stream(Think("", 0, messages, max_output_tokens=1), lambda _: False)

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            status, answer = self._posted(path, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise EngineError(f"llama.cpp does not answer {path}: {error!r}", retryable=True) from error
        if status >= 400:
            raise _refusal(answer.get("error", {}))
        return answer

    def _posted(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """One request over a connection of its own; its status and JSON."""
        with (
            socket.socket(socket.AF_UNIX) as line,
            contextlib.closing(http.client.HTTPConnection("llama")) as asked,
        ):
            line.settimeout(ANSWER_S)
            line.connect(self._address)
            asked.sock = line
            asked.request("POST", path, json.dumps(body), self._headers)
            reply = asked.getresponse()
            return reply.status, json.loads(reply.read())


class _Answer:
    """Puts the chunks of one answer together."""

    def __init__(self, request: Think, emit: Callable[[str], bool]) -> None:
        self._emit = emit
        self._reader = reader_for(request)
        self._calls: dict[int, dict[str, str]] = {}
        self._reason = ""
        self._tokens = 0
        self._usage: dict[str, int] = {}
        self._error: EngineError | None = None

    def take(self, chunk: dict[str, Any]) -> bool:
        """llama.cpp's callback: True stops the model after this token."""
        if "error" in chunk:
            self._error = _refusal(chunk["error"])
            return True
        if usage := chunk.get("usage"):
            self._usage = {
                "prompt_tokens": int(usage["prompt_tokens"]),
                "completion_tokens": int(usage["completion_tokens"]),
                "cached_tokens": int(usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)),
            }
        return any(self._take_choice(choice) for choice in chunk.get("choices", []))

    def end(self) -> ThinkerEnd:
        """How it ended; raises what went wrong."""
        if self._error:
            raise self._error
        rest = self._reader.finish() if self._reader else ""
        if rest and self._reason != "aborted" and self._emit(rest):
            self._reason = "aborted"
        calls = [ToolCallParts(c["id"], c["name"], c["arguments"]) for c in self._calls.values()]
        calls += self._reader.calls if self._reader else []
        usage = self._usage or {
            "completion_tokens": self._tokens
        }  # a stopped answer has no last chunk to tell
        if self._reason == "aborted":
            return ThinkerEnd("aborted", usage)
        return ThinkerEnd("tool_calls" if calls else self._reason or "stop", usage, calls)

    def _take_choice(self, choice: dict[str, Any]) -> bool:
        self._reason = choice.get("finish_reason") or self._reason
        self._tokens += 1
        delta: dict[str, Any] = choice.get("delta") or {}
        for part in delta.get("tool_calls") or []:
            self._take_call(part)
        text: str = delta.get("content") or ""
        if self._reader:
            text = self._reader.feed(text)
        if self._emit(text):
            self._reason = "aborted"
            return True
        return self._reader is not None and self._reader.complete

    def _take_call(self, part: dict[str, Any]) -> None:
        """A piece of a call llama.cpp found itself: the id and name come first, the arguments bit by bit."""
        call = self._calls.setdefault(int(part.get("index", 0)), {"id": "", "name": "", "arguments": ""})
        function: dict[str, Any] = part.get("function") or {}
        call["id"] = call["id"] or part.get("id") or f"call_{secrets.token_hex(8)}"
        call["name"] += function.get("name") or ""
        call["arguments"] += function.get("arguments") or ""


def _remove_left_homes() -> None:
    """Remove the socket folders of processes that were killed: nobody listens there any more."""
    for home in Path(tempfile.gettempdir()).glob(f"{_HOME}*"):
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                if time.time() - (home / _SOCKET).stat().st_mtime > 60:  # a young one may be about to listen
                    probe.connect(str(home / _SOCKET))
        except ConnectionRefusedError:
            shutil.rmtree(home, ignore_errors=True)
        except OSError:
            continue


def _body(request: Think) -> dict[str, Any]:
    """The request in llama.cpp's form."""
    body: dict[str, Any] = {
        "messages": request.messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_prompt": True,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_tokens": request.max_output_tokens,
    }
    if request.seed is not None:
        body["seed"] = request.seed & 0xFFFF_FFFF  # llama.cpp's seeds have 32 bits
    if tools := offered_tools(request):
        body["tools"] = tools
        if schema := call_schema(request):
            body["json_schema"] = schema
    return body


def _refusal(error: dict[str, Any]) -> EngineError:
    """llama.cpp's error as ours."""
    if error.get("type") == "exceed_context_size_error":
        text = f"the conversation has {error.get('n_prompt_tokens')} tokens, the context holds {error.get('n_ctx')}"
        return EngineError(text, code="context_length_exceeded")
    code = "invalid_request" if error.get("code") == 400 else None
    return EngineError(f"llama.cpp: {error.get('message') or json.dumps(error)}", code=code)


def _parameters(model: Path, options: ThinkerOptions, chosen: LlamaOptions, listener: tuple[str, str]) -> Any:
    """One slot, a private listener (address, key) with nothing behind it but tokens, no caches that grow."""
    parameters, (address, key) = _llama.CommonParams(), listener
    parameters.model.path = str(model)
    parameters.n_ctx = options.context_tokens
    parameters.n_parallel = 1
    parameters.n_gpu_layers = chosen.gpu_layers
    # words come one by one on half the cores, while a voice speaks on another; its threads wait for each other after
    # every operation, so one that has to share its core costs more than it brings
    parameters.cpuparams.n_threads = max(1, options.threads // 2)
    parameters.cpuparams_batch.n_threads = options.threads
    for pool in (parameters.cpuparams, parameters.cpuparams_batch):
        pool.poll = chosen.poll
    # context and layers are given: half of a load's time went to measuring them
    parameters.fit_params = False
    parameters.warmup = False  # whoever loads it lets it read its instructions
    parameters.use_jinja = True
    parameters.cache_prompt = True
    parameters.cache_ram_mib = 0
    parameters.n_ctx_checkpoints = 0
    parameters.hostnames = [address]
    parameters.api_keys = [key]
    parameters.endpoint_slots = False
    parameters.endpoint_props = False
    parameters.endpoint_metrics = False
    parameters.ui = False
    parameters.n_threads_http = 1
    parameters.verbosity = 1
    return parameters
