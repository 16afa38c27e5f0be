"""Sound in a client's own items: recognized beside the conversation and written into its place in the history.

An item is in the conversation at once, with the words that were typed; replies that would need the others wait, which
is the session's business: it asks `waiting`, and is told by `heard` when nothing waits any more. Sound in the context
of one reply is heard the same way before that reply is asked for. Knows no turn, no reply and no wire.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from voice_agent.audio import MODEL_RATE_HZ, Samples
from voice_agent.clock import Clock
from voice_agent.commands import AddSpoken, AddText, CreateReply, Sound
from voice_agent.engine.client import EngineClient
from voice_agent.engine.messages import Transcript
from voice_agent.errors import EngineError
from voice_agent.events import SessionEvent, SoundFailed, SoundTranscribed, complaint
from voice_agent.media.wire_sound import MAX_WAITING_BYTES, sound_at_model_rate
from voice_agent.speech.chat import Chat
from voice_agent.turns import in_time, transcribe_all


@dataclass(frozen=True)
class SpokenPorts:
    """What hearing items needs of its session; `language` is asked for each sound."""

    recognizer: EngineClient
    clock: Clock
    chat: Chat
    language: Callable[[], str]
    emit: Callable[[SessionEvent], None]
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    heard: Callable[[], None]


class SpokenItems:
    """Hears items one after the other, in the order they came.

    State: `_unheard` items of the conversation; `_waiting_bytes` of sound not heard yet, bounded by MAX_WAITING_BYTES;
    `_order` held by whatever is heard; `_asked` replies whose own context is heard first.
    """

    def __init__(self, ports: SpokenPorts) -> None:
        self._ports = ports
        self._unheard = 0
        self._waiting_bytes = 0
        self._order = asyncio.Lock()
        self._asked: list[CreateReply] = []

    @property
    def waiting(self) -> bool:
        """Whether words of an item of the conversation are not known yet."""
        return self._unheard > 0

    def refusal(self, *items: AddSpoken) -> str:
        """Why these cannot be heard now; empty if they can."""
        if self._waiting_bytes + _bytes_in(items) <= MAX_WAITING_BYTES:
            return ""
        return (
            f"More than {MAX_WAITING_BYTES} bytes of sound wait to be recognized; wait for the transcripts."
        )

    def hear(self, item: AddSpoken) -> None:
        """Recognize the sounds of an item that is in the conversation."""
        self._unheard += 1
        self._begin(partial(self._write, item), item)

    def hear_context(self, command: CreateReply, ask: Callable[[CreateReply], None]) -> None:
        """Recognize the sounds in a reply's own context, then `ask` for it, unless that was forgotten meanwhile."""
        self._asked.append(command)
        self._begin(partial(self._resolve, command, ask), *spoken_in(command))

    def forget_asked(self) -> bool:
        """Ask for no reply of the conversation any more whose context is being heard; False if there is none."""
        kept = [command for command in self._asked if command.aside]
        found, self._asked = len(kept) < len(self._asked), kept
        return found

    # --- inside -------------------------------------------------------------------------------------------------

    def _begin(self, work: Callable[[], Awaitable[None]], *items: AddSpoken) -> None:
        size = _bytes_in(items)
        self._waiting_bytes += size
        self._ports.spawn(self._in_order(work, size))

    async def _in_order(self, work: Callable[[], Awaitable[None]], size: int) -> None:
        async with self._order:
            await work()
        self._waiting_bytes -= size

    async def _write(self, item: AddSpoken) -> None:
        await self._write_words(item)
        self._unheard -= 1
        if not self.waiting:
            self._ports.heard()

    async def _write_words(self, item: AddSpoken) -> None:
        """Write an item's words into the history as they become known; stops when the item was deleted."""
        words: dict[int, str] = {}
        seconds = 0.0
        for sound in _sounds(item):
            told = await self._heard(item.item_id, sound)
            if self._ports.chat.get(item.item_id) is None:
                return
            if isinstance(told, SoundTranscribed):
                words[sound.part] = told.text
                seconds += told.audio_seconds
                self._ports.chat.write_user(item.item_id, written(item, words).text, seconds)
            self._ports.emit(told)

    async def _resolve(self, command: CreateReply, ask: Callable[[CreateReply], None]) -> None:
        """A context whose sounds are words; one that cannot be heard fails the wish, not the session."""
        context: list[Any] = []
        for entry in command.context or ():
            if not isinstance(entry, AddSpoken):
                context.append(entry)
                continue
            words: dict[int, str] = {}
            seconds = 0.0
            for sound in _sounds(entry):
                told = await self._heard(entry.item_id, sound)
                if isinstance(told, SoundFailed):
                    self._asked = [one for one in self._asked if one is not command]
                    message = f"A sound in the input cannot be recognized: {told.message}"
                    self._ports.emit(complaint(told.code, message, command, "response.input"))
                    return
                words[sound.part] = told.text
                seconds += told.audio_seconds
            context.append(replace(written(entry, words), sound_s=seconds))
        if any(one is command for one in self._asked):
            self._asked = [one for one in self._asked if one is not command]
            ask(replace(command, context=tuple(context)))

    async def _heard(self, item_id: str, sound: Sound) -> SoundTranscribed | SoundFailed:
        samples = await sound_at_model_rate(sound.payload, sound.encoding)
        try:
            heard = await self._recognized(f"{item_id[:64]}.{sound.part}", samples)
        except EngineError as error:
            return SoundFailed(item_id, sound.part, error.code, error.notice())
        seconds = len(samples) / MODEL_RATE_HZ
        return SoundTranscribed(item_id, sound.part, heard.text, seconds, heard.tokens)

    async def _recognized(self, request_id: str, samples: Samples) -> Transcript:
        ports = self._ports
        work = transcribe_all(ports.recognizer, request_id, samples, ports.language() or None)
        return await in_time(ports.clock, samples, work)


def spoken_in(command: CreateReply) -> list[AddSpoken]:
    """The items with sound in a reply's own context."""
    return [entry for entry in command.context or () if isinstance(entry, AddSpoken)]


def written(item: AddSpoken, words: Mapping[int, str]) -> AddText:
    """The item as text: its typed parts, and the words of its sounds as far as they are known."""
    texts = [words.get(part.part, "") if isinstance(part, Sound) else part for part in item.parts]
    text = "\n".join(text for text in texts if text)
    return AddText(item.item_id, "user", text, item.client_event_id, item.after, item.images)


def _sounds(item: AddSpoken) -> list[Sound]:
    return [part for part in item.parts if isinstance(part, Sound)]


def _bytes_in(items: tuple[AddSpoken, ...]) -> int:
    return sum(len(sound.payload) for item in items for sound in _sounds(item))
