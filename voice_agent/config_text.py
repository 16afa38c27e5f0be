"""The configuration as a person reads it: TOML with every field's meaning above it, the keys left out.

What it writes can be read again by config_sources.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

from voice_agent.family_options import names_of

_SECRETS = {"api_keys", "operator_keys", "api_key", "turn_secret", "credential"}


def describe(value: Any, path: str = "") -> str:
    """The configuration as commented TOML, every field with its meaning."""
    lines: list[str] = []
    tables: list[str] = []
    for item in fields(value):
        current = getattr(value, item.name)
        if is_dataclass(current):
            tables.append(f"\n[{path}{item.name}]\n{describe(current, f'{path}{item.name}.')}")
            continue
        doc = item.metadata["doc"]
        if item.name == "options":
            doc += f" {value.family}: {', '.join(names_of(path[:-1], value.family)) or 'none'}."
        lines += [f"# {doc}", f"{item.name} = {_shown(item.name, current)}"]
    return "\n".join(lines + tables)


def _shown(name: str, value: Any) -> str:
    """A secret is shown to be set, no more."""
    return _toml("..." if name in _SECRETS and value else value)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f'"{key}" = {_toml(item)}' for key, item in value.items()) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(item) for item in cast("tuple[Any, ...]", value)) + "]"
    if is_dataclass(value):
        return (
            "{"
            + ", ".join(
                f"{item.name} = {_shown(item.name, getattr(value, item.name))}" for item in fields(value)
            )
            + "}"
        )
    return str(value)
