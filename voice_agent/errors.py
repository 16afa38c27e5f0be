"""Every error the program raises on purpose.

VoiceAgentError
├── ConfigError             a setting is wrong: names the field and what would be right
├── WeightsError            a model file is missing, cut, or not the one that was pinned
├── MediaError              the peer's media cannot be used
│   └── OfferRejected       an SDP that cannot be answered
├── BusyError               no seat free: carries when to come again
├── IllegalTransition       a bug: the turn machine was told something impossible
├── RemoteProtocolError     the other side broke the wire protocol: code and field
├── UnknownCall             no such call (ended, or never was)
└── EngineError             an engine could not do it; `retryable` says whether again may help
    ├── EngineDied          its process ended
    ├── EngineStartFailed   it never got ready
    ├── EngineStalled       it gave nothing for too long
    ├── UnsupportedLanguage the voice cannot speak this text
    ├── SharedMemoryError   blocks cannot be shared between processes here
    └── SlotStale           a block was given back before it was read

`code` is what goes over the wire; nobody parses the text.
"""

AGAIN = "please try again"
FAILED = f"The server failed on this request; {AGAIN}."
NOTICES = {  # codes of engines whose texts speak of the server: its files, addresses, processes, and what to do there
    "engine_died": f"An engine of the server went down with this request; {AGAIN}.",
    "engine_start_failed": "An engine of the server does not start.",
    "out_of_memory": f"The server has too little memory for this request; {AGAIN} later.",
    "thinker_unreachable": f"The server does not reach its language model; {AGAIN}.",
    "thinker_broken_off": f"The language model's answer broke off; {AGAIN}.",
    "thinker_stalled": f"The language model gave nothing for too long; {AGAIN}.",
    **dict.fromkeys(
        ("config_error", "cuda_error", "engine_error", "internal_error", "memory_plan", "missing_module",
         "model_error", "shared_memory", "slot_stale", "weights_error"),
        FAILED,
    ),
}  # fmt: skip


class VoiceAgentError(Exception):
    """Root of the tree; `code` is stable and machine-readable."""

    code = "internal_error"


class ConfigError(VoiceAgentError):
    """A setting is wrong; the text names the field and what would be right."""

    code = "config_error"


class WeightsError(VoiceAgentError):
    """A model file is missing, cut short, or not the pinned one."""

    code = "weights_error"


class MediaError(VoiceAgentError):
    """The peer's media cannot be used."""

    code = "media_error"


class OfferRejected(MediaError):
    """An SDP offer (or candidate) that cannot be answered; `param` names the offending part."""

    code = "invalid_offer"

    def __init__(self, message: str, param: str = "sdp") -> None:
        super().__init__(message)
        self.param = param


class BusyError(VoiceAgentError):
    """No seat is free; come again after `retry_after_s`."""

    code = "server_busy"

    def __init__(self, message: str, retry_after_s: int = 5) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class IllegalTransition(VoiceAgentError):
    """The turn machine was told something that cannot happen in its state: a bug of ours."""

    code = "illegal_transition"


class RemoteProtocolError(VoiceAgentError):
    """The other side broke the wire protocol; the session lives on."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class UnknownCall(VoiceAgentError):
    """No call has this id."""

    code = "call_id_not_found"


class EngineError(VoiceAgentError):
    """An engine failed a request; `retryable` says whether asking again may help."""

    code = "engine_error"

    def __init__(self, message: str, *, code: str | None = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.retryable = retryable

    def notice(self) -> str:
        """What callers are told; the text itself, which may name the server's own affairs, is for its log."""
        return NOTICES.get(self.code, str(self))

    def kept_back(self) -> str:
        """What the log says besides the code: the text, where callers are told another."""
        return f": {self}" if self.code in NOTICES else ""


class EngineDied(EngineError):
    """The engine's process ended while it held the request."""

    code = "engine_died"


class EngineStartFailed(EngineError):
    """The engine never became ready."""

    code = "engine_start_failed"


class EngineStalled(EngineError):
    """The engine gave nothing for longer than its limit."""

    code = "engine_stalled"


class UnsupportedLanguage(EngineError):
    """The chosen voice cannot speak the text's language; captions are still sent."""

    code = "unsupported_language"


class SharedMemoryError(EngineError):
    """Memory for blocks between processes cannot be had; the text says what is missing."""

    code = "shared_memory"


class SlotStale(EngineError):
    """A reference to a block whose slot was given back or used again; its rows are gone."""

    code = "slot_stale"
