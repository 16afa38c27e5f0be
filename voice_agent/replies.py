"""The session's replies: the one that is live, and the one thought ahead on words that may still change.

Keeps the chat history in step with what was heard, and tells the floor when sound begins and a reply is over.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from voice_agent.commands import CreateReply
from voice_agent.events import PlayoutStarted, ReplyText, ReplyToolCall, SessionEvent
from voice_agent.items import context_of
from voice_agent.metrics import TurnTimeline
from voice_agent.reply import ReplyPorts, ReplyRun, saying_ask, thinking_ask
from voice_agent.session_settings import SessionSettings
from voice_agent.speech.ask import Ask
from voice_agent.speech.chat import Chat
from voice_agent.turn.machine import Event

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


REMEMBERED_REPLIES = 64  # whose sound a client may still say to have cut
MAX_ASIDES = 8


class Replies:
    """At most one live reply and one ahead; `tell` is the floor's ear, `spawn` owns the tasks.

    State besides: `_tail` replies that are complete and still play out before the live one is heard; `_asides` those
    outside the conversation; `_recent` the last ones that were live.
    """

    def __init__(self, ports: ReplyPorts, chat: Chat, spawn: Spawn, tell: Callable[[Event], None]) -> None:
        self._emit = ports.emit
        self._aside_ports = replace(ports, output=ports.aside_output or ports.output)
        self._ports = replace(ports, emit=self._told)
        self._chat = chat
        self._spawn = spawn
        self._tell = tell
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ahead_text = ""
        self._tail: list[ReplyRun] = []
        self._asides: dict[str, ReplyRun] = {}
        self._recent: OrderedDict[str, ReplyRun] = OrderedDict()
        self._reading: asyncio.Task[None] | None = None
        self.current: ReplyRun | None = None
        self.ahead: ReplyRun | None = None

    # thinking ahead

    def think_ahead(self, settings: SessionSettings, text: str, timeline: TurnTimeline) -> None:
        """Begin to answer provisional words, unheard."""
        self.throw_away_ahead()
        messages = self._chat.messages(settings.instructions, text)
        self._ahead_text = text
        self.ahead = self._begin(thinking_ask(settings, messages, text), timeline)

    def read_ahead(self, settings: SessionSettings, text: str) -> None:
        """Let the Thinker read the words so far, so that only the rest is left at their end; answers go first."""
        if self._tasks or self._ports.cascade.thinking():
            return
        self._stop_reading()
        ask = thinking_ask(settings, self._chat.messages(settings.instructions, text), text)
        self._reading = self._spawn(self._ports.cascade.read_ahead(ask))

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading.cancel()
            self._reading = None

    def throw_away_ahead(self) -> None:
        """The words changed, or nobody may speak now."""
        if self.ahead:
            self._tasks[self.ahead.reply_id].cancel()
            self.ahead = None

    # the live reply

    def answer(self, settings: SessionSettings, text: str, timeline: TurnTimeline) -> None:
        """Answer the history's last words; what was thought ahead on the same words is used."""
        self._chat.cancel_calls()  # a tool that is still running answers a question nobody asks any more
        ready = self.ahead if self._ahead_text == text else None
        if not ready:
            self.throw_away_ahead()
            messages = self._chat.messages(settings.instructions)
            ready = self._begin(thinking_ask(settings, messages, text), timeline)
        self.ahead = None
        self._start(ready, timeline.turn_id, self._chat.sound_s)

    def create(self, settings: SessionSettings, command: CreateReply, timeline: TurnTimeline) -> None:
        """Answer because the client asks, under settings of its own."""
        self.throw_away_ahead()
        ask, heard_s = self._asked(settings, command)
        run = self._begin(ask, timeline)
        run.request = command
        self._start(run, None, heard_s)

    def create_aside(self, settings: SessionSettings, command: CreateReply) -> bool:
        """Answer outside the conversation, beside whatever goes on; False if too many do already."""
        if len(self._asides) >= MAX_ASIDES:
            return False
        ask, heard_s = self._asked(settings, command)
        run = ReplyRun(self._aside_ports, ask, TurnTimeline(None))
        run.request, run.heard_s = command, heard_s
        self._asides[run.reply_id] = run
        run.go_live(None)
        self._begin_task(run)
        return True

    def cancel_aside(self, reply_id: str) -> bool:
        """Stop one outside the conversation; False if there is none of this id."""
        run = self._asides.pop(reply_id, None)
        if run is None or run.done:
            return False
        self._tasks[reply_id].cancel()
        run.stop("client_cancelled")
        return True

    def _asked(self, settings: SessionSettings, command: CreateReply) -> tuple[Ask, float]:
        """What to ask for, and the seconds of sound in what it answers."""
        settings = replace(settings, **command.changes)
        chat = self._chat if command.context is None else context_of(self._chat, command.context)
        return thinking_ask(settings, chat.messages(settings.instructions)), chat.sound_s

    def say(self, settings: SessionSettings, text: str) -> None:
        """Say a given text (a greeting)."""
        self._start(self._begin(saying_ask(settings, text), TurnTimeline(None)), None, 0.0)

    def stop(self, reason: str) -> bool:
        """Stop the live reply everywhere at once; history keeps what was heard. Says whether anything was."""
        run, self.current = self.current, None
        if not run:
            return False
        for playing in self._tail:
            self._stop(playing, reason)
        self._tail.clear()
        return self._stop(run, reason)

    def _stop(self, run: ReplyRun, reason: str) -> bool:
        if task := self._tasks.get(run.reply_id):
            task.cancel()
        heard = run.stop(reason)
        self._chat.hear(run.reply_id, heard)
        return bool(heard)

    def leave_to_play(self) -> None:
        """The live reply is complete: let it play to its end while the next one is made; it has the floor no more."""
        if self.current:
            self._tail.append(self.current)
            self.current = None

    def recent(self, reply_id: str) -> ReplyRun | None:
        """A reply that is or was live, of the last ones."""
        return self._recent.get(reply_id)

    def cancel_all(self) -> None:
        """The session ends."""
        self._stop_reading()
        for task in self._tasks.values():
            task.cancel()

    def alive(self) -> list[str]:
        """Ids of replies that have not ended, unheard ones included."""
        return list(self._tasks)

    def _begin(self, ask: Ask, timeline: TurnTimeline) -> ReplyRun:
        """Set a reply going, unheard for now."""
        self._stop_reading()
        run = ReplyRun(self._ports, ask, timeline)
        self._begin_task(run)
        return run

    def _begin_task(self, run: ReplyRun) -> None:
        task = self._tasks[run.reply_id] = self._spawn(self._live_through(run))
        task.add_done_callback(lambda _: self._tasks.pop(run.reply_id, None))

    def _start(self, run: ReplyRun, turn_id: str | None, heard_s: float) -> None:
        """Let a reply be heard."""
        self.current, run.heard_s = run, heard_s
        self._recent[run.reply_id] = run
        if len(self._recent) > REMEMBERED_REPLIES:
            self._recent.popitem(last=False)
        self._chat.add_assistant(run.reply_id, run.text_so_far)
        self._tell(Event.REPLY)
        run.go_live(turn_id)

    async def _live_through(self, run: ReplyRun) -> None:
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(run.watch_sound())
            await run.run()
            watcher.cancel()
        while self.current is run and self._tail:  # the floor is not free before all was heard
            await asyncio.wait({self._tasks[self._tail[0].reply_id]})
        self._asides.pop(run.reply_id, None)
        if run in self._tail:
            self._tail.remove(run)
        self._chat.finish(run.reply_id)
        if self.current is run:
            self.current = None
            self._tell(Event.OVER)

    def _told(self, event: SessionEvent) -> None:
        """A reply speaks: history and floor first, then the transport."""
        match event:
            case PlayoutStarted() if self.current and self.current.reply_id == event.reply_id:
                self._tell(Event.SOUND)
            case ReplyText() if self.current and self.current.reply_id == event.reply_id:
                self._chat.add_assistant(event.reply_id, self.current.text_so_far)
            case ReplyToolCall():
                item_id = f"{event.reply_id}.{event.call_id}"
                self._chat.add_call(item_id, event.call_id, event.name, event.arguments)
            case _:
                pass
        self._emit(event)
