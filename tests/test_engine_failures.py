"""What is said when a library fails or the kernel kills: which memory ran out, and nothing that anybody said."""

import json
import logging
import os
import signal
from pathlib import Path

import pytest

from voice_agent.engine.failures import GPU_MEMORY, HOST_MEMORY, OUT_OF_MEMORY, code_and_text
from voice_agent.engine.host_memory import how_killed, oom_kills
from voice_agent.errors import EngineError
from voice_agent.models.vllm_last_words import ENVIRONMENT, LastWords, LeaveLastWords


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (MemoryError(), OUT_OF_MEMORY, HOST_MEMORY),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), OUT_OF_MEMORY, GPU_MEMORY),
        (RuntimeError("CUDA error: out of memory\nsecret"), OUT_OF_MEMORY, GPU_MEMORY),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
            OUT_OF_MEMORY,
            HOST_MEMORY,
        ),
        (OSError(12, "Cannot allocate memory"), OUT_OF_MEMORY, HOST_MEMORY),
        (
            ModuleNotFoundError("no", name="vllm"),
            "missing_module",
            "the module vllm is not installed: .venv/bin/pip install -e '.[gpu]' in the clone (docs/engines.md)",
        ),
        (
            ModuleNotFoundError("no", name="ctranslate2"),
            "missing_module",
            "the module ctranslate2 is not installed",
        ),
        (ValueError("a user's out of memory words"), "model_error", "the model failed with ValueError"),
        (EngineError("too long", code="too_long"), "too_long", "too long"),
    ],
)
def test_an_error_becomes_a_code_and_a_sentence_without_its_text(
    error: Exception, code: str, text: str
) -> None:
    assert code_and_text(error) == (code, text)


@pytest.mark.parametrize(
    ("number", "before", "now", "text"),
    [
        (signal.SIGKILL, 4, 5, "was killed by SIGKILL, by the kernel for want of host memory"),
        (signal.SIGKILL, 4, 4, "was killed by SIGKILL"),
        (signal.SIGKILL, None, 4, "was killed by SIGKILL, perhaps for want of host memory"),
        (signal.SIGSEGV, 4, 5, "was killed by SIGSEGV"),
    ],
)
def test_a_death_by_signal_in_words(number: int, before: int | None, now: int | None, text: str) -> None:
    assert how_killed(number, before, now) == text


def test_the_kernels_count_is_found_or_not_told(tmp_path: Path) -> None:
    file = tmp_path / "vmstat"
    assert oom_kills(file) is None
    file.write_text("nr_free_pages 5\noom_kill 17\n")
    assert oom_kills(file) == 17
    file.write_text("nr_free_pages 5\n")
    assert oom_kills(file) is None


# --- a vLLM core's last words -----------------------------------------------------------------------------------


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> LastWords:
    monkeypatch.setenv(ENVIRONMENT, "")
    return LastWords()


def fail(error: Exception) -> None:
    """As vLLM's core does with what ends it, in a process of its own."""
    logger = logging.getLogger("a.core")
    logger.handlers, logger.propagate = [LeaveLastWords(os.environ[ENVIRONMENT])], False
    child = os.fork()
    if child == 0:
        try:
            raise error
        except type(error):
            logger.exception("fatal")
        os._exit(0)
    os.waitpid(child, 0)


def test_nobody_said_anything(words: LastWords) -> None:
    assert words.safe() == words.whole() == ""


def test_the_last_words_are_told_whole_before_anybody_was_served_and_by_type_afterwards(
    words: LastWords,
) -> None:
    fail(ValueError("No room for the KV cache"))
    assert words.whole() == "ValueError: No room for the KV cache"
    assert words.safe() == "the model failed with ValueError"
    fail(OutOfMemoryError("CUDA out of memory. " + "x" * 3000))
    assert words.safe() == GPU_MEMORY
    assert words.whole().startswith(f"{GPU_MEMORY} (OutOfMemoryError: CUDA out of memory. xx")
    assert len(words.whole()) < 1200


def test_what_follows_from_a_want_of_memory_does_not_hide_it(words: LastWords, tmp_path: Path) -> None:
    file = tmp_path / "words"
    leave = LeaveLastWords(str(file))
    for error in (MemoryError(), RuntimeError("a worker ended")):
        leave.handle(logging.LogRecord("x", logging.ERROR, "", 0, "fatal", None, (type(error), error, None)))
    leave.handle(logging.LogRecord("x", logging.ERROR, "", 0, "a remark", None, None))
    assert json.loads(file.read_text())["safe"] == HOST_MEMORY
