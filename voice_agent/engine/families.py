"""Which module loads which model family: the explicit table, used in a child only.

A family's module has `load(folder, options)` and gives the model that the options' type asks for.
"""

import importlib
from pathlib import Path
from typing import Any

from voice_agent.engine.runtime import (
    ConcurrentThinkerModel,
    RecognizerModel,
    RecognizerOptions,
    TalkerModel,
    TalkerOptions,
    ThinkerModel,
    ThinkerOptions,
)
from voice_agent.errors import ConfigError

_FAMILIES = {
    "whisper": "voice_agent.models.whisper",
    "llama": "voice_agent.models.llama",
    "vllm": "voice_agent.models.vllm_thinker",
    "piper": "voice_agent.models.piper",
    "kokoro": "voice_agent.models.kokoro",
    "scripted": "voice_agent.models.scripted",
}


def load_recognizer(options: RecognizerOptions) -> RecognizerModel:
    """Import the family and load its weights; blocks for seconds. Raises WeightsError, ConfigError, ImportError."""
    return _load(options)


def load_thinker(options: ThinkerOptions) -> ThinkerModel | ConcurrentThinkerModel:
    """As load_recognizer."""
    return _load(options)


def load_talker(options: TalkerOptions) -> TalkerModel:
    """As load_recognizer."""
    return _load(options)


def _load(options: RecognizerOptions | ThinkerOptions | TalkerOptions) -> Any:
    module = _FAMILIES.get(options.family)
    if module is None:
        raise ConfigError(f"no model family {options.family!r}; there are {', '.join(sorted(_FAMILIES))}")
    return importlib.import_module(module).load(Path(options.folder), options)
