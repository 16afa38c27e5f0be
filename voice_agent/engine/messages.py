"""What crosses the border between the server and an engine process, grouped by receiver.

Encoded as MessagePack by a fixed tag table, never pickled. `request_id` is the reply's id (the turn's for a
transcription); `epoch` tells attempts with one id apart: whatever carries an old one is dropped at every hop.
Sound goes inline as little-endian int16 bytes: a chunk is a few KB, far below where a shared block would pay.
"""

from typing import Any

import msgspec


def primary_tag(language: str) -> str:
    """The language itself of a BCP 47 tag: en of en-GB."""
    return language.partition("-")[0].lower()


class Message(msgspec.Struct, frozen=True, tag=True):
    """Root of all messages; the class name is the tag on the wire."""


class SpokenWord(msgspec.Struct, frozen=True, array_like=True):
    """A word as it is to be said, and the range of the reply's written text it stands for."""

    text: str
    start_char: int
    end_char: int


class Word(msgspec.Struct, frozen=True, array_like=True):
    """A written range and its samples, counted from the reply's first (see audio.WordTime)."""

    start_char: int
    end_char: int
    first_sample: int
    end_sample: int
    exact: bool


class HeardWord(msgspec.Struct, frozen=True, array_like=True):
    """A recognized word and when it was spoken, in seconds from the request's first sample."""

    text: str
    start_s: float
    end_s: float


class RowsRef(msgspec.Struct, frozen=True, array_like=True):
    """Which hidden rows: numbers `first_row` to `end_row` of the reply that goes by `key` in the pool's blocks."""

    key: int
    first_row: int
    end_row: int


# --- to the Thinker engine


class Transcribe(Message, frozen=True, tag=True):
    """Recognize speech: `pcm` is int16 mono at 16 kHz, 30 s at most; `language` None lets the model decide.

    With `timed` the transcript says when each word was spoken, if the recognizer can tell.
    """

    request_id: str
    epoch: int
    pcm: bytes
    language: str | None = None
    timed: bool = False


class Think(Message, frozen=True, tag=True):
    """Answer a conversation: `messages` and `tools` in OpenAI's chat form.

    `hidden` asks for the hidden rows of the "reply" or of "all" tokens, prompt included; "" for none.
    """

    request_id: str
    epoch: int
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = []
    tool_choice: str = "auto"
    max_output_tokens: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int | None = None
    stop: list[str] = []  # carried out by speech.stopping, whichever Thinker it is
    hidden: str = ""


# --- to the speech engine


class Speak(Message, frozen=True, tag=True):
    """Open a reply's speech; text follows piece by piece as SpeakText, then SpeakEnd.

    `most_frames` (0: no limit of its own) and `temperature` (None: the model's) are for voices that sample;
    `instructions` (how to speak) for those that follow any.
    """

    request_id: str
    epoch: int
    voice: str
    latency_first: bool = True
    speed: float = 1.0
    seed: int = 0
    most_frames: int = 0
    temperature: float | None = None
    instructions: str = ""


class SpeakText(Message, frozen=True, tag=True):
    """The next clause, in order, or the next words, for a voice that takes text as it comes.

    `language` is a BCP 47 primary tag (en, ko).
    `rows`: the hidden rows of all that the Thinker wrote since the clause before, where they were asked for.
    """

    request_id: str
    epoch: int
    words: list[SpokenWord]
    language: str
    rows: RowsRef | None = None


class SpeakEnd(Message, frozen=True, tag=True):
    """No more text comes for this reply."""

    request_id: str
    epoch: int


# --- to any engine


class Abort(Message, frozen=True, tag=True):
    """Stop this request now and free what it holds; unknown ids are ignored."""

    request_id: str
    epoch: int


class Ping(Message, frozen=True, tag=True):
    """Answer with Pong from the engine's own loop."""

    number: int


class Shutdown(Message, frozen=True, tag=True):
    """Finish nothing, free everything, exit 0."""


# --- from an engine


class Ready(Message, frozen=True, tag=True):
    """Loaded and warmed up; `describe` is shown by operators' tools (models, voices, languages, rates)."""

    describe: dict[str, Any]


class Loading(Message, frozen=True, tag=True):
    """A step of the start, for the person who waits."""

    stage: str


class StartFailed(Message, frozen=True, tag=True):
    """The engine cannot start; the text says what to do about it."""

    code: str
    text: str


class Pong(Message, frozen=True, tag=True):
    """Alive; `in_flight` are the request ids it holds, `busy_ms` how long its current step has run.

    `work`: running totals of what it did, for operators.
    """

    number: int
    in_flight: list[str]
    busy_ms: float
    work: dict[str, float] = {}


class Transcript(Message, frozen=True, tag=True):
    """What was said; empty if there were no words. Ends the request. `words` only where they were asked for.

    `tokens` is how many the recognizer wrote.
    """

    request_id: str
    epoch: int
    text: str
    language: str
    words: list[HeardWord] = []
    tokens: int = 0


class TextDelta(Message, frozen=True, tag=True):
    """The next piece of the answer; never splits a character. Its tokens' hidden rows are already in the pool."""

    request_id: str
    epoch: int
    text: str
    rows: RowsRef | None = None


class ToolCall(Message, frozen=True, tag=True):
    """A whole function call."""

    request_id: str
    epoch: int
    call_id: str
    name: str
    arguments: str


class SpeechChunk(Message, frozen=True, tag=True):
    """Sound: int16 mono at `rate_hz`, `first_sample` counted from the reply's start, words that begin in it."""

    request_id: str
    epoch: int
    pcm: bytes
    rate_hz: int
    first_sample: int
    words: list[Word] = []


class Finished(Message, frozen=True, tag=True):
    """The request's regular end: reason is stop, length, tool_calls or aborted; timings in ms for the timeline."""

    request_id: str
    epoch: int
    reason: str = "stop"
    usage: dict[str, int] = {}
    timings_ms: dict[str, float] = {}


class Failed(Message, frozen=True, tag=True):
    """The request's irregular end. With `final` false the request goes on (one clause could not be spoken)."""

    request_id: str
    epoch: int
    code: str
    message: str
    retryable: bool = False
    final: bool = True


ToEngine = Transcribe | Think | Speak | SpeakText | SpeakEnd | Abort | Ping | Shutdown
Request = Transcribe | Think | Speak
Result = Transcript | TextDelta | ToolCall | SpeechChunk | Finished | Failed
FromEngine = Ready | Loading | StartFailed | Pong | Result

_encoder = msgspec.msgpack.Encoder()
_to_engine = msgspec.msgpack.Decoder(ToEngine)
_from_engine = msgspec.msgpack.Decoder(FromEngine)


def encode(message: Message) -> bytes:
    """One message as bytes (framing is the transport's business)."""
    return _encoder.encode(message)


def decode_to_engine(frame: bytes) -> ToEngine:
    """Read a message in the engine; raises msgspec.ValidationError on anything else."""
    return _to_engine.decode(frame)


def decode_from_engine(frame: bytes) -> FromEngine:
    """Read a message in the server; raises msgspec.ValidationError on anything else."""
    return _from_engine.decode(frame)
