"""A session's inside, seen from outside: its state, what is in flight, its last turns, what was played and heard.

Only looks; the page, the operators and the bench read it whatever the transport.
"""

from dataclasses import dataclass, field

from voice_agent.audio import AudioOutput
from voice_agent.metrics import TurnTimeline
from voice_agent.replies import Replies
from voice_agent.speech.cascade import Cascade
from voice_agent.speech.chat import Chat
from voice_agent.turn.machine import TurnMachine
from voice_agent.turns import Turns

KEPT_TIMELINES = 100


@dataclass(frozen=True)
class Inside:
    """What is looked at; `timelines` are those of the last turns and of replies without one."""

    session_id: str
    machine: TurnMachine
    turns: Turns
    replies: Replies
    chat: Chat
    cascade: Cascade
    output: AudioOutput
    timelines: list[TurnTimeline] = field(default_factory=list[TurnTimeline])

    def keep(self, timeline: TurnTimeline) -> None:
        """Keep a timeline, once."""
        if timeline not in self.timelines:
            self.timelines.append(timeline)
            del self.timelines[:-KEPT_TIMELINES]

    def as_json(self) -> dict[str, object]:
        """State, stages in flight, turns with their parts, what was played and heard."""
        run = self.replies.current
        ids = self.replies.alive()
        return {
            "id": self.session_id,
            "state": self.machine.state,
            "in_flight": {
                "recognizer": self.turns.working(),
                "thinker": [i for i in self.cascade.thinking() if i in ids],
                "talker": [i for i in self.cascade.speaking() if i in ids],
                "playout": [run.reply_id] if run else [],
            },
            "turns": [timeline.as_json() for timeline in self.timelines],
            "history": self.chat.messages(""),
            "underruns": self.output.underruns,
            "played_samples": self.output.played_samples(run.reply_id) if run else 0,
            "heard_text": run.heard_so_far() if run else "",
        }
