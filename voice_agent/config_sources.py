"""Where the configuration comes from: a profile, then one TOML file, then VOICE_AGENT_* variables, then flags.

Nothing else reads the environment. Values are brought to the types of their fields here; keys that are not known are
refused with the nearest that is.
"""

import os
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from voice_agent.config import PROFILES, Config
from voice_agent.config_checks import checked
from voice_agent.errors import ConfigError
from voice_agent.near_names import did_you_mean_or_known, none_of

T = TypeVar("T")

ENVIRONMENT_PREFIX = "VOICE_AGENT_"
# read by others, no fields: the weights' folder and where the file is
RESERVED_VARIABLES = {"VOICE_AGENT_CACHE", "VOICE_AGENT_CONFIG", "VOICE_AGENT_API_KEY"}


def load_config(
    file: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    flags: Mapping[str, Mapping[str, Any]] | None = None,
) -> Config:
    """Read the configuration once. Raises ConfigError that names the field and what would be right."""
    text = environment.get("VOICE_AGENT_CONFIG", "")
    file = file or (Path(text) if text else None)
    layers = [_read_toml(file) if file else {}, _from_environment(environment), dict(flags or {})]
    chosen = [str(layer["profile"]) for layer in layers if "profile" in layer]
    profile = chosen[-1] if chosen else "cpu"
    if profile not in PROFILES:
        raise ConfigError(f"profile: {none_of(profile, PROFILES)}")
    tree: dict[str, Any] = {"profile": profile}
    for layer in [PROFILES[profile], *layers]:
        tree = _merge(tree, layer)
    config = _build(Config, _with_fitting_turns(tree), "")
    return checked(_with_remote_thinker(config))


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not TOML: {error}") from error


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """VOICE_AGENT_SERVER_PORT=9000 is server.port; lists are separated by commas, tables written as in TOML."""
    tree: dict[str, Any] = {}
    sections = {item.name: item for item in fields(Config)}
    for name, text in environment.items():
        if not name.startswith(ENVIRONMENT_PREFIX) or name in RESERVED_VARIABLES:
            continue
        key = name.removeprefix(ENVIRONMENT_PREFIX).lower()
        if key == "profile":
            tree["profile"] = text
            continue
        section, _, rest = key.partition("_")
        if section not in sections:
            raise ConfigError(
                f"{name}: there is no section {section!r}{did_you_mean_or_known(section, sections)}"
            )
        table_of = tree.setdefault(section, {})
        if section == "engines":  # an engine's settings are a table each
            engine, _, rest = rest.partition("_")
            table_of = table_of.setdefault(engine, {})
        table_of[rest] = text
    return tree


def _merge(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(value, Mapping) and isinstance(old, dict)
        merged[key] = _merge(cast(dict[str, Any], old), value) if both else value
    return merged


def _with_fitting_turns(tree: dict[str, Any]) -> dict[str, Any]:
    """Nothing is read ahead, unless it is asked for, where it gains nothing or is charged for."""
    thinker: dict[str, Any] = tree.get("thinker", {})
    if thinker.get("family", "llama") == "llama" and not thinker.get("url"):
        return tree
    return _merge({"turn": {"read_ahead_ms": 0}}, tree)


def _with_remote_thinker(config: Config) -> Config:
    if not config.thinker.url:
        return config
    return replace(config, thinker=replace(config.thinker, family="remote"))


def _build(kind: type[T], tree: Mapping[str, Any], path: str) -> T:
    known = {item.name: item for item in fields(cast(Any, kind))}
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, value in tree.items():
        if key not in known:
            raise ConfigError(f"{path}{key}: no such setting{did_you_mean_or_known(key, known)}")
        values[key] = _coerce(hints[key], value, f"{path}{key}")
    return kind(**values)


def _coerce(hint: Any, value: Any, path: str) -> Any:
    """Bring a TOML or environment value to the field's type; raises ConfigError naming the field."""
    if isinstance(value, str) and (typing.get_origin(hint) is dict or value.lstrip().startswith("[{")):
        value = _inline(value, path)
    if is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path}: should be a table")
        return _build(cast(type, hint), value, f"{path}.")
    origin = typing.get_origin(hint)
    if origin is Literal:
        options = typing.get_args(hint)
        if value not in options:
            raise ConfigError(f"{path}: {none_of(value, options)}")
        return value
    if origin is tuple:
        parts = [part for part in value.split(",") if part] if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            raise ConfigError(f"{path}: should be a list")
        return tuple(_coerce(typing.get_args(hint)[0], part, f"{path}[{n}]") for n, part in enumerate(parts))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path}: should be a table")
        return dict(value)
    return _coerce_scalar(hint, value, path)


def _inline(text: str, path: str) -> Any:
    """A table, or a list of them, that stands in one variable."""
    try:
        return tomllib.loads(f"it = {text}")["it"]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f'{path}: should be a table, as in TOML: {{ name = "value" }} ({error})') from error


def _coerce_scalar(hint: type, value: Any, path: str) -> Any:
    if hint is bool and isinstance(value, str) and value.lower() in {"true", "false", "1", "0"}:
        return value.lower() in {"true", "1"}
    if hint in {int, float} and isinstance(value, str):
        try:
            return hint(value)
        except ValueError:
            raise ConfigError(f"{path}: {value!r} is not a number") from None
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        names: dict[type, str] = {
            str: "text",
            int: "a whole number",
            float: "a number",
            bool: "true or false",
        }
        raise ConfigError(f"{path}: should be {names.get(hint, hint.__name__)}, not {value!r}")
    return value
