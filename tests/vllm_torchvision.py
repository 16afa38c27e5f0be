"""Let torchvision be imported beside a torch for CPUs: run once in the environment of `make test-vllm`.

PyPI's torchvision is built for GPUs, so its compiled operators (boxes, regions) do not load there, and then its import
fails over the names of two of them. These names are declared; the operators stay absent, and torchvision says so to
whoever calls one. Its image transforms, which the processors of models that see use, are plain torch. A torchvision
that loads is left as it is.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

_NAMES = """

if not _has_ops():  # written by voice-agent's tests: see tests/vllm_torchvision.py
    _declared = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _declared.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def main() -> int:
    """Give 0 once torchvision can be imported."""
    if _imports():
        return 0
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return 1
    extension = Path(found.origin).parent / "extension.py"
    text = extension.read_text(encoding="utf-8")
    if _NAMES not in text:
        extension.write_text(text + _NAMES, encoding="utf-8")
    return 0 if _imports() else 1


def _imports() -> bool:
    return not subprocess.run(
        [sys.executable, "-c", "import torchvision"], check=False, stderr=subprocess.DEVNULL
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
