"""What an engine imports to be up again: callers wait for it, so nothing that only an installation or a test wants."""

import subprocess
import sys

import pytest

from tests.model_weights import weights

UNWANTED = ("onnx", "google.protobuf", "httpx", "rich")


def imported(code: str) -> set[str]:
    whole = f"import os, sys\n{code}\nprint(*sys.modules)\nsys.stdout.flush()\nos._exit(0)"
    return set(subprocess.run([sys.executable, "-c", whole], check=True, stdout=-1, text=True).stdout.split())


@pytest.mark.parametrize("family", ["llama", "piper"])
def test_a_family_imports_only_what_it_serves_with(family: str) -> None:
    assert not imported(f"import voice_agent.models.{family}") & set(UNWANTED)


@pytest.mark.weights
def test_a_voice_that_was_cut_before_is_loaded_without_what_cuts_it() -> None:
    folder = weights("piper-joe")
    load = (
        "from pathlib import Path\nfrom voice_agent.engine.runtime import TalkerOptions\n"
        "from voice_agent.models import piper\n"
        f"def load(): return piper.load(Path({str(folder)!r}), TalkerOptions('piper', {str(folder)!r}))\n"
    )
    imported(f"{load}load()")  # cut once
    assert not imported(f"{load}load()") & set(UNWANTED)
