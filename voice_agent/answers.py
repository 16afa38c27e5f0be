"""Replies without a session: a conversation or a text in, written text and a sound file out, by the same cascade.

What a Thinker cannot hear the recognizer writes down first, in its place between the other parts. The stages overlap
as in a call; each piece is given out at once. Closing the generator cancels the cascade, which aborts the engines.
"""

import asyncio
import base64
import functools
import logging
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any

from voice_agent.audio import MODEL_RATE_HZ, WIRE_RATE_HZ, PcmChunk, Samples
from voice_agent.config import ThinkerConfig
from voice_agent.engine.messages import Speak, Think, ToolCall
from voice_agent.errors import EngineError, RemoteProtocolError, UnsupportedLanguage
from voice_agent.media.containers import encode
from voice_agent.pictures import address_fault
from voice_agent.places import Ability, Places
from voice_agent.requests import (
    AUDIO_TOKENS_IN_PER_S,
    AUDIO_TOKENS_OUT_PER_S,
    CallPiece,
    ChatRequest,
    Ended,
    ImagePart,
    Message,
    ReplyPiece,
    SoundPart,
    SoundPiece,
    SpeechRequest,
    SpeechWish,
    TextPart,
    TextPiece,
    Usage,
)
from voice_agent.sound_file import SoundFile
from voice_agent.speech.ask import Answer, Ask
from voice_agent.speech.cascade import Cascade
from voice_agent.speech.languages import language_of
from voice_agent.transcripts import Transcripts, decoded

logger = logging.getLogger(__name__)

MOST_SOUND_S = 600.0  # in one message part
WAITING_CHUNKS = 16  # of sound that nobody took yet: then the Talker waits


@dataclass(frozen=True)
class AnswerParts:
    """What answering needs; `thinker` says what it can do and what holds where a request says nothing."""

    cascade: Cascade
    transcripts: Transcripts
    places: Places
    thinker: ThinkerConfig


class Answers:
    """Implements requests.Answerer."""

    def __init__(self, parts: AnswerParts) -> None:
        self._parts = parts

    async def answer(self, request: ChatRequest) -> AsyncGenerator[ReplyPiece]:
        """Answer a conversation."""
        async with self._parts.places.taken(*self._abilities(request)):
            rendered = await self._render(request.messages)
            ask = self._ask(request, rendered)
            async with aclosing(self._pieces(ask, request.speech, streamed=request.streamed)) as pieces:
                async for piece in pieces:
                    match piece:
                        case Ended(usage=usage):
                            audio_in = math.ceil(rendered.sound_s * AUDIO_TOKENS_IN_PER_S)
                            yield replace(piece, usage=replace(usage, audio_in=audio_in))
                        case _:
                            yield piece

    async def say(self, request: SpeechRequest) -> AsyncGenerator[SoundPiece | Ended]:
        """Say a text; raises RemoteProtocolError if the voice can say nothing of it."""
        async with self._parts.places.taken("speak"):
            reply_id = token_hex(10)
            speak = _speak(reply_id, request.speech)
            ask = Ask(reply_id, request.text, speak, language_hint=language_of(request.text, "en"))
            async with aclosing(self._pieces(ask, request.speech)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, SoundPiece | Ended):
                        yield piece

    def _abilities(self, request: ChatRequest) -> list[Ability]:
        """What the request needs of the engines."""
        sound = any(isinstance(part, SoundPart) for message in request.messages for part in message.parts)
        hears: list[Ability] = ["hear"] if sound and not self._parts.thinker.hears else []
        speaks: list[Ability] = ["speak"] if request.speech else []
        return [*hears, "think", *speaks]

    # --- the conversation as the Thinker takes it -----------------------------------------------------------------

    async def _render(self, messages: tuple[Message, ...]) -> "_Rendered":
        rendered = _Rendered()
        for message in messages:
            parts = [await self._part(part, rendered) for part in message.parts]
            rendered.add(message, parts)
        return rendered

    async def _part(self, part: TextPart | SoundPart | ImagePart, rendered: "_Rendered") -> dict[str, Any]:
        match part:
            case TextPart(text=text):
                return {"type": "text", "text": text}
            case ImagePart(url=url, detail=detail, param=param):
                if not self._parts.thinker.sees:
                    message = f"The model of this server cannot see: take the image at '{param}' out."
                    raise RemoteProtocolError("unsupported_value", message, param)
                if fault := await asyncio.to_thread(address_fault, url):
                    where = f"{param}.image_url.url"
                    raise RemoteProtocolError(
                        "invalid_value", f"Invalid value for '{where}': {fault}.", where
                    )
                return {"type": "image_url", "image_url": {"url": url, "detail": detail}}
            case SoundPart(data=data, param=param):
                samples = await decoded(data, param, MOST_SOUND_S)
                rendered.sound_s += len(samples) / MODEL_RATE_HZ
                return await self._heard(samples)

    async def _heard(self, samples: Samples) -> dict[str, Any]:
        """Sound for a Thinker: as it is if it can hear, else in the recognizer's words."""
        if not self._parts.thinker.hears:
            return {"type": "text", "text": await self._parts.transcripts.text_of(samples)}
        wav = await asyncio.to_thread(_wav_in_base64, samples)
        return {"type": "input_audio", "input_audio": {"data": wav, "format": "wav"}}

    def _ask(self, request: ChatRequest, rendered: "_Rendered") -> Ask:
        reply_id, thinker = token_hex(10), self._parts.thinker
        temperature = thinker.temperature if request.temperature is None else request.temperature
        think = Think(
            request_id=reply_id,
            epoch=0,
            messages=rendered.messages,
            tools=list(request.tools),
            tool_choice=request.tool_choice,
            max_output_tokens=request.max_output_tokens or thinker.max_output_tokens,
            temperature=temperature,
            top_p=request.top_p,
            seed=request.seed,
            stop=list(request.stop),
        )
        speak = _speak(reply_id, request.speech) if request.speech else None
        return Ask(reply_id, think, speak, language_hint=language_of(rendered.last_words, "en"))

    # --- the reply ------------------------------------------------------------------------------------------------

    async def _pieces(
        self, ask: Ask, wish: SpeechWish | None, *, streamed: bool = True
    ) -> AsyncGenerator[ReplyPiece]:
        """A reply's pieces; made once more if an engine died before anything was given out that would differ then."""
        given = _GivenOut()
        for last in (False, True):
            held = list[ReplyPiece]()
            again = functools.partial(given.may_start_over, ask) if not last else lambda: False
            try:
                async with aclosing(self._attempt(ask, wish, again)) as pieces:
                    async for piece in pieces:
                        if not streamed:
                            held.append(piece)
                        elif new := given.new(piece):
                            yield new
            except EngineError as error:
                if not error.retryable or not again():
                    raise
                logger.warning("answer %s: trying again after %s", ask.reply_id, error.code)
                given.begin_anew()
                continue
            for piece in held:
                yield piece
            return

    async def _attempt(
        self, ask: Ask, wish: SpeechWish | None, again: Callable[[], bool]
    ) -> AsyncGenerator[ReplyPiece]:
        """Run the cascade as a task of this generator's and give its pieces out as they come."""
        sink, file = _PieceSink(again), SoundFile(wish) if wish else None
        work = asyncio.create_task(self._parts.cascade.run(ask, sink), name=f"answer {ask.reply_id}")
        work.add_done_callback(sink.over)
        try:
            while not isinstance(got := await sink.next(), asyncio.Task):
                match got:
                    case str() if isinstance(ask.think, Think):  # else the words are the client's own
                        yield TextPiece(got)
                    case ToolCall():
                        yield CallPiece(f"call_{token_hex(10)}", got.name, got.arguments)
                    case PcmChunk():
                        if file and (data := await asyncio.to_thread(file.push, got)):
                            yield SoundPiece(data)
                    case _:
                        pass
            answer = got.result()
            if isinstance(ask.think, str) and sink.unspoken_language and not (file and file.samples):
                message = f"This voice does not speak the language of the text ({sink.unspoken_language})."
                raise RemoteProtocolError(UnsupportedLanguage.code, message, "input")
            if file and (data := await asyncio.to_thread(file.finish)):
                yield SoundPiece(data)
            yield Ended(answer.reason, _usage(answer, file.samples if file else 0))
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


class _GivenOut:
    """What the client has of a reply: whether it may be made once more, and what is new of the second one then.

    State: `_told` characters of text in all, `_seen` of them in this attempt, `_fixed` once anything else was given.
    """

    def __init__(self) -> None:
        self._told = self._seen = 0
        self._fixed = False

    def new(self, piece: ReplyPiece) -> ReplyPiece | None:
        """The piece without what was told before; None if nothing of it is new."""
        if not isinstance(piece, TextPiece):
            self._fixed = True
            return piece
        rest = piece.text[max(0, self._told - self._seen) :]
        self._seen += len(piece.text)
        self._told = max(self._told, self._seen)
        return TextPiece(rest) if rest else None

    def may_start_over(self, ask: Ask) -> bool:
        """Whether a second attempt would begin with what was given out."""
        return not self._fixed and (ask.same_again or not self._told)

    def begin_anew(self) -> None:
        """The next pieces are of a second attempt."""
        self._seen = 0


@dataclass
class _Rendered:
    """Messages in OpenAI's chat form, how long their sound is, and the last words of the user."""

    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    sound_s: float = 0.0
    last_words: str = ""

    def add(self, message: Message, parts: list[dict[str, Any]]) -> None:
        """Parts that are all text become one text: every chat template takes that."""
        texts = [part["text"] for part in parts if part["type"] == "text"]
        only_text = len(texts) == len(parts)
        whole: dict[str, Any] = {"role": message.role, "content": "\n".join(texts) if only_text else parts}
        if message.tool_calls:
            whole |= {"tool_calls": list(message.tool_calls), "content": whole["content"] or None}
        if message.tool_call_id:
            whole["tool_call_id"] = message.tool_call_id
        if message.role == "user":
            self.last_words = " ".join(texts)
        self.messages.append(whole)


class _PieceSink:
    """The cascade's sink as a queue. Full (`WAITING_CHUNKS` of sound): the Talker waits; text is bounded by its length.

    State: `unspoken_language` once a clause stayed silent for its language.
    """

    def __init__(self, may_start_over: Callable[[], bool]) -> None:
        self.may_start_over = may_start_over
        self._queue: asyncio.Queue[str | PcmChunk | ToolCall | asyncio.Task[Answer]] = asyncio.Queue()
        self._room = asyncio.Semaphore(WAITING_CHUNKS)
        self.unspoken_language = ""

    async def next(self) -> "str | PcmChunk | ToolCall | asyncio.Task[Answer]":
        """The next piece; the task itself once it is over."""
        got = await self._queue.get()
        if isinstance(got, PcmChunk):
            self._room.release()
        return got

    def over(self, work: "asyncio.Task[Answer]") -> None:
        """Nothing more comes."""
        self._queue.put_nowait(work)

    def text(self, delta: str) -> None:
        """Take written text."""
        self._queue.put_nowait(delta)

    async def sound(self, pcm: PcmChunk) -> None:
        """Take sound; waits while too much is waiting."""
        await self._room.acquire()
        self._queue.put_nowait(pcm)

    def tool_call(self, call: ToolCall) -> None:
        """Take a function call."""
        self._queue.put_nowait(call)

    def unspoken(self, start_char: int, end_char: int, language: str) -> None:
        """A clause is not said; its text is there all the same."""
        self.unspoken_language = language

    def stamp(self, stage: str) -> None:
        """Nobody measures here."""

    def breaks_off(self, error: EngineError) -> None:
        """The client is told at the end, behind the sound."""


def _wav_in_base64(samples: Samples) -> str:
    return base64.b64encode(encode(samples, "wav", MODEL_RATE_HZ)).decode()


def _speak(reply_id: str, wish: SpeechWish) -> Speak:
    return Speak(
        reply_id,
        0,
        wish.voice,
        wish.latency_first,
        wish.speed,
        wish.seed,
        most_frames=wish.most_frames,
        temperature=wish.temperature,
        instructions=wish.instructions,
    )


def _usage(answer: Answer, samples: int) -> Usage:
    """Engines count in completions' words, a remote Thinker's reader in Realtime's."""
    counts = answer.usage
    return Usage(
        text_in=counts.get("input_tokens", counts.get("prompt_tokens", 0)),
        text_out=counts.get("output_tokens", counts.get("completion_tokens", 0)),
        audio_out=math.ceil(samples / WIRE_RATE_HZ * AUDIO_TOKENS_OUT_PER_S),
    )
