"""What the benches' command lines have in common: options that say what would be right before anything is measured.

Types for argparse, which ends the command with status 2 and a line that names the option. Beyond the configuration's
own words it takes the standard library alone, for machines that have little else.
"""

import argparse
import importlib.util
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from voice_agent.config_checks import key_fault, url_fault
from voice_agent.engine.failures import not_installed

Refused = argparse.ArgumentTypeError


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """A bench's; its usage is one line, so that what is wrong is not lost below it."""
    return argparse.ArgumentParser(prog=name, usage="%(prog)s [options]", description=description)


def whole(low: int, high: int | None = None) -> Callable[[str], int]:
    """A whole number from `low` to `high`."""

    def number_of(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or value < low or (high is not None and value > high):
            raise Refused(f"{text!r} should be a whole number, {_range(low, high)}")
        return value

    return number_of


def number(low: float, high: float | None = None) -> Callable[[str], float]:
    """A finite number from `low` to `high`."""

    def number_of(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and low <= value <= (math.inf if high is None else high)):
            raise Refused(f"{text!r} should be a number, {_range(low, high)}")
        return value

    return number_of


def several(one: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """Values of a kind with commas between; none for an empty text."""
    return lambda text: [one(part) for part in text.split(",") if part]


def one_of(*known: str) -> Callable[[str], str]:
    """One of these words; beside argparse's `choices`, for words in a list."""

    def word(text: str) -> str:
        if text not in known:
            raise Refused(f"{text!r} is none of {', '.join(known)}")
        return text

    return word


def file_to_write(text: str) -> Path:
    """A file that can be written when the run is over; it is not touched before."""
    file = Path(text)
    if file.is_dir():
        raise Refused(f"{text!r} cannot be written: it is a folder")
    if not file.parent.is_dir():
        raise Refused(f"{text!r} cannot be written: there is no folder {file.parent}")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise Refused(f"{text!r} cannot be written: no permission")
    return file


def address(text: str) -> str:
    """A server's URL."""
    if fault := url_fault(text):
        raise Refused(fault)
    return text


def api_key(text: str) -> str:
    """A bearer key, as an HTTP header can carry it."""
    if fault := key_fault(text):
        raise Refused(fault)
    return text


def json_object(text: str) -> dict[str, Any]:
    """An object in JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Refused(f"{text!r} is no JSON object, such as '{{\"name\": 1}}'")
    return value


def lacks(name: str, *modules: str) -> bool:
    """Whether one of the modules is missing; told in a line if so."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            print(f"{name}: {not_installed(module)}", file=sys.stderr)
            return True
    return False


def _range(low: float, high: float | None) -> str:
    return f"at least {low:g}" if high is None else f"{low:g} to {high:g}"
