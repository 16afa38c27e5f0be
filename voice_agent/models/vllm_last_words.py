"""Why a vLLM engine core ended, told by itself: this process hears from vLLM only that it did.

The core's own log has the exception; a handler there, which our plugin puts in place, leaves it in a file in this
process's memory, so that nothing is left behind when both are gone. What was heard of a request's error is only its
type (see engine.failures); before the engine is ready there is nothing of a user's in it and all is told. No vLLM.
"""

import contextlib
import json
import logging
import os

from voice_agent.engine.failures import OUT_OF_MEMORY, code_and_text

ENVIRONMENT = "VOICE_AGENT_LAST_WORDS"  # the file, as the core's processes open it
LONGEST_CHARS = 1_000


class LastWords:
    """This side: make it before vLLM starts its processes."""

    def __init__(self) -> None:
        self._file = os.memfd_create("voice-agent-last-words")
        os.environ[ENVIRONMENT] = f"/proc/{os.getpid()}/fd/{self._file}"

    def safe(self) -> str:
        """Why it ended, without anything that may be a user's; empty if the core could not say."""
        return self._read().get("safe", "")

    def whole(self) -> str:
        """As the library said it, behind our sentence where memory was wanting."""
        return self._read().get("whole", "")

    def _read(self) -> dict[str, str]:
        with contextlib.suppress(ValueError):
            return json.loads(os.pread(self._file, 8 * LONGEST_CHARS, 0))
        return {}


class LeaveLastWords(logging.Handler):
    """The core's side: a handler for the loggers that tell of a fatal error; the first want of memory stays."""

    def __init__(self, path: str) -> None:
        super().__init__(logging.ERROR)
        self._path = path
        self._memory = False

    def emit(self, record: logging.LogRecord) -> None:
        """Leave the record's exception; a record without one is somebody's remark."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None or self._memory:
            return
        code, safe = code_and_text(error)
        self._memory = code == OUT_OF_MEMORY
        whole = f"{type(error).__name__}: {error}"[:LONGEST_CHARS]
        whole = f"{safe} ({whole})" if self._memory else whole
        with contextlib.suppress(OSError), open(self._path, "w", encoding="utf-8") as file:
            file.write(json.dumps({"safe": safe, "whole": whole}))
