"""Written text on its way to the Talker: cut into clauses or words, made speakable, hurried where sound runs dry."""

from voice_agent.audio import PcmChunk
from voice_agent.clock import NS_PER_MS, Clock
from voice_agent.engine.client import EngineStream
from voice_agent.engine.messages import RowsRef, SpeakEnd, SpeakText, SpokenWord
from voice_agent.speech.ask import Ask, Sink
from voice_agent.speech.clauses import Clause, ClauseSplitter
from voice_agent.speech.speakable import Speakable

URGENT_MS = 500  # what the Talker may need for a clause on a busy laptop


class Stock:
    """How much sound there is in hand, if playing began with the first chunk: tells when a piece is urgent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends_ns = 0  # when the sound rendered so far will have been played
        self._sent_char = 0
        self._rendered_char = 0

    def sent(self, end_char: int) -> None:
        """A clause up to this character went to the Talker."""
        self._sent_char = end_char

    def rendered(self, chunk: PcmChunk) -> None:
        """Sound came back."""
        self._ends_ns = max(self._ends_ns, self._clock.now_ns()) + int(chunk.duration_ms * NS_PER_MS)
        if chunk.words:
            self._rendered_char = chunk.words[-1].end_char

    def runs_dry(self) -> bool:
        """Whether all that was sent is rendered and will have been played before a next piece could be."""
        if not self._ends_ns or self._rendered_char < self._sent_char:
            return False
        return self._ends_ns - self._clock.now_ns() < URGENT_MS * NS_PER_MS


class Speaking:
    """Cuts the written text into clauses, or words, and sends them, made speakable, to an open Speak request."""

    def __init__(
        self,
        ask: Ask,
        stream: EngineStream | None,
        sink: Sink,
        languages: tuple[str, ...],
        clock: Clock,
        *,
        by_word: bool,
    ) -> None:
        self._stream = stream
        self._sink = sink
        self._languages = languages
        self.stock = Stock(clock)
        self._speak = ask.speak
        self._overlap = ask.overlap
        self._text = ""
        self._rows: RowsRef | None = None  # of what was written since the last clause that was sent
        soon = ask.speak.latency_first if ask.speak else True
        self._clauses = ClauseSplitter(soon, by_word=by_word)
        self._by_word = by_word
        self._speakable = Speakable(ask.language_hint)
        self.fed = False  # whether the Talker has anything to speak

    def write(self, delta: str, rows: RowsRef | None = None) -> None:
        """Take written text, with the hidden rows that it was written from."""
        if rows:
            self._rows = RowsRef(rows.key, self._rows.first_row, rows.end_row) if self._rows else rows
        if self._overlap and self._stream:
            self._send(self._clauses.push(delta))
            if self.stock.runs_dry():
                self._send(self._clauses.hurry())
        else:
            self._text += delta

    def end(self) -> None:
        """No more is written: the rest goes to the Talker."""
        if self._stream and self._speak:
            self._send([*self._clauses.push(self._text), *self._clauses.end()])
            self._stream.push(SpeakEnd(self._speak.request_id, self._speak.epoch))

    def _send(self, clauses: list[Clause]) -> None:
        assert self._stream and self._speak
        pieces: list[tuple[list[SpokenWord], str]] = []
        for clause in clauses:
            words = self._speakable.words(clause)
            language = self._speakable.language
            if words and self._languages and language not in self._languages:
                self._sink.unspoken(clause.start_char, clause.end_char, language)
            elif words and self._by_word and pieces and pieces[-1][1] == language:
                pieces[-1][0].extend(words)  # words that came at once are one message
            elif words:
                pieces.append((words, language))
        for words, language in pieces:
            self._sink.stamp("clause")
            self.stock.sent(words[-1].end_char)
            rows, self._rows = self._rows, None
            self.fed = True
            self._stream.push(SpeakText(self._speak.request_id, self._speak.epoch, words, language, rows))
