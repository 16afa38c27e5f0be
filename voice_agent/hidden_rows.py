"""The pool for a Talker that reads the Thinker's states: made by the server, handed to both engines, and planned for.

The Talker's options say what it wants (`hidden`); then the Thinker is asked for it at every reply. One GPU for both:
device memory by CUDA IPC, tried once; else the host's.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from voice_agent.config import Config
from voice_agent.engine.cuda_ipc import Via, device_pool
from voice_agent.engine.cuda_probe import why_not
from voice_agent.engine.runtime import EngineSpec
from voice_agent.engine.shared_memory import SharedMemoryPool
from voice_agent.errors import ConfigError
from voice_agent.models.vllm_rows import HiddenRows, pool_shape

SLOTS = 32  # steps that the Talker may be behind before the Thinker waits for it
_VALUE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass
class HiddenPool:
    """The pool and how it is used; owned by the server."""

    memory: SharedMemoryPool
    hidden: str
    via: Via

    @property
    def device_bytes(self) -> int:
        """What the Thinker takes of its GPU for it."""
        return self.memory.shape.slots * self.memory.shape.slot_bytes if self.via == "device" else 0

    def applied(self, spec: EngineSpec) -> EngineSpec:
        """The spec of an engine that writes or reads it."""
        options: dict[str, Any] = {
            "hidden": self.hidden,
            "hidden_pool": self.memory.address,
            "hidden_via": self.via,
        }
        if spec.thinker:
            return replace(spec, thinker=replace(spec.thinker, extra={**spec.thinker.extra, **options}))
        assert spec.talker, "an engine thinks or speaks"
        return replace(spec, talker=replace(spec.talker, extra={**spec.talker.extra, **options}))

    def close(self) -> None:
        """Unmap it."""
        self.memory.close()


def hidden_pool(
    config: Config, tell: Callable[[str], None], probe: Callable[[int, int], str] = why_not
) -> HiddenPool | None:
    """The pool that the configuration's Talker wants, or None. Raises ConfigError, SharedMemoryError."""
    hidden = config.talker.options.get("hidden", "")
    if not hidden:
        return None
    if config.thinker.family != "vllm":
        raise ConfigError("talker.options.hidden: only a Thinker of the family vllm hands over its states")
    options = config.thinker.options
    width, value_bytes = _row(Path(config.thinker.model).expanduser(), str(options.get("dtype", "auto")))
    rows = int(options.get("max_num_seqs", 64))  # a step of decodes is one block
    shape = pool_shape(hidden, width, value_bytes, slots=SLOTS, rows=rows)
    via = _via(config, tell, probe)
    pool = HiddenPool(device_pool(shape), hidden, via)
    HiddenRows.planned(hidden, pool.memory.address, via)  # is the word right?
    tell(
        f"hidden rows ({hidden}) from Thinker to Talker: {SLOTS} slots of {shape.slot_bytes / 1e6:.1f} MB, {via}"
    )
    return pool


def _via(config: Config, tell: Callable[[str], None], probe: Callable[[int, int], str]) -> Via:
    thinker, speech = config.engines.thinker.devices[:1], config.engines.speech.devices[:1]
    if not thinker or thinker != speech:
        return "host"
    if reason := probe(thinker[0], speech[0]):
        tell(f"no CUDA IPC on GPU {thinker[0]}, hidden rows go through host memory: {reason}")
        return "host"
    return "device"


def _row(folder: Path, dtype: str) -> tuple[int, int]:
    """Width of a row and bytes of a value, by the model's own config.json."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            "talker.options.hidden: thinker.model should be a folder here, for its config.json tells how wide a row is"
        ) from error
    config = config.get("thinker_config", config)
    text = config.get("text_config", config)
    told = (
        dtype if dtype != "auto" else str(text.get("dtype") or text.get("torch_dtype") or config.get("dtype"))
    )
    if told not in _VALUE_BYTES or "hidden_size" not in text:
        raise ConfigError(
            f"talker.options.hidden: {folder}/config.json tells no hidden size or dtype known here ({told})"
        )
    return int(text["hidden_size"]), _VALUE_BYTES[told]
