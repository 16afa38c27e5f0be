"""Edges of the user's turn from voice probabilities, by windows of 32 ms."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from voice_agent.turn.endpoint import (
    WINDOW_SAMPLES,
    Edge,
    Endpointer,
    EndpointRules,
    Onset,
    Pause,
    Resume,
    TurnEnd,
)

RULES = EndpointRules(
    mode="semantic",
    start_threshold=0.5,
    end_threshold=0.35,
    start_ms=64,
    pause_ms=160,
    server_silence_ms=500,
    end_probability=0.5,
    sure_ms=240,
    asked_ms=640,
    unsure_ms=1400,
    open_ms=2200,
    longest_ms=28_000,
)
WINDOW_MS = 32


class Microphone:
    """Feeds windows and collects edges with the window's end in ms."""

    def __init__(self, rules: EndpointRules = RULES) -> None:
        self.endpointer = Endpointer(rules)
        self.windows = 0
        self.edges: list[tuple[int, Edge]] = []

    def say(self, ms: int, probability: float = 0.9) -> list[Edge]:
        start = len(self.edges)
        for _ in range(ms // WINDOW_MS):
            edges = self.endpointer.window(probability, self.windows * WINDOW_SAMPLES)
            self.windows += 1
            self.edges += [(self.windows * WINDOW_MS, edge) for edge in edges]
        return [edge for _, edge in self.edges[start:]]

    def silence(self, ms: int) -> list[Edge]:
        return self.say(ms, 0.01)

    @property
    def last_at_ms(self) -> int:
        return self.edges[-1][0]


def test_onset_is_dated_back_to_the_first_voiced_window() -> None:
    mic = Microphone()
    mic.silence(320)
    assert mic.say(320) == [Onset(10 * WINDOW_SAMPLES)]


def test_one_voiced_window_is_a_click_and_begins_nothing() -> None:
    mic = Microphone()
    mic.say(32)
    assert mic.silence(320) == []


def test_probability_between_the_thresholds_keeps_speech_but_does_not_begin_it() -> None:
    mic = Microphone()
    assert mic.say(640, 0.4) == []
    mic.say(320, 0.9)
    assert mic.say(640, 0.4) == []


def test_pause_then_sure_model_and_known_words_end_the_turn_at_sure_ms() -> None:
    mic = Microphone()
    mic.say(640)
    (pause,) = mic.silence(160)
    assert pause == Pause(1, 20 * WINDOW_SAMPLES)
    mic.endpointer.judged(1, 0.9)
    mic.endpointer.understood(1, "What is it?")
    (end,) = mic.silence(320)
    assert end == TurnEnd(20 * WINDOW_SAMPLES, "finished")
    assert mic.last_at_ms - 640 == 256  # 240 rounded up to a window


def test_unsure_model_waits_for_patience() -> None:
    mic = Microphone()
    mic.say(640)
    mic.silence(160)
    mic.endpointer.judged(1, 0.2)
    assert mic.silence(1120) == []
    (end,) = mic.silence(320)
    assert isinstance(end, TurnEnd) and end.why == "patience"


def test_a_sure_model_waits_for_the_words_but_not_beyond_patience() -> None:
    mic = Microphone()
    mic.say(640)
    mic.silence(160)
    mic.endpointer.judged(1, 0.99)
    assert mic.silence(1120) == []
    (end,) = mic.silence(320)
    assert isinstance(end, TurnEnd) and end.why == "patience"


def test_a_whole_question_ends_sooner_than_patience_though_the_model_is_unsure() -> None:
    mic = Microphone()
    mic.say(640)
    mic.silence(160)
    mic.endpointer.judged(1, 0.05)
    mic.endpointer.understood(1, "Is it better to run in the morning or in the evening?")
    assert mic.silence(448) == []
    (end,) = mic.silence(64)
    assert isinstance(end, TurnEnd) and end.why == "finished"


def test_sound_without_a_word_waits_for_patience_though_the_model_is_sure() -> None:
    mic = Microphone()
    mic.say(640)
    mic.silence(160)
    mic.endpointer.judged(1, 0.98)
    mic.endpointer.understood(1, "")
    assert mic.silence(1120) == []
    (end,) = mic.silence(320)
    assert isinstance(end, TurnEnd) and end.why == "patience"


def test_judgement_that_comes_late_acts_at_the_next_window() -> None:
    mic = Microphone()
    mic.say(640)
    mic.silence(640)
    mic.endpointer.judged(1, 0.9)
    mic.endpointer.understood(1, "What is it?")
    (end,) = mic.silence(32)
    assert isinstance(end, TurnEnd)


def test_judgement_of_an_earlier_pause_is_ignored() -> None:
    mic = Microphone()
    mic.say(640)
    mic.silence(192)
    assert mic.say(320) == [Resume(1)]
    mic.silence(192)
    mic.endpointer.judged(1, 0.99)
    assert mic.silence(320) == []


def test_open_number_holds_the_turn_although_the_model_is_sure() -> None:
    mic = Microphone()
    mic.say(640)
    mic.silence(160)
    mic.endpointer.judged(1, 0.95)
    mic.endpointer.understood(1, "my number is four one five")
    assert mic.silence(1600) == []
    (end,) = mic.silence(640)
    assert isinstance(end, TurnEnd) and end.why == "patience"


def test_server_mode_ends_by_silence_alone() -> None:
    mic = Microphone(replace(RULES, mode="server"))
    mic.say(640)
    edges = mic.silence(512)
    assert [type(edge) for edge in edges] == [Pause, TurnEnd]


def test_push_to_talk_never_ends_a_turn_by_itself() -> None:
    mic = Microphone(replace(RULES, mode="none"))
    mic.say(30_016)
    assert not any(isinstance(edge, TurnEnd) for edge in mic.silence(6400))


def test_speech_without_end_is_cut_at_the_longest_turn_and_goes_on_as_a_new_one() -> None:
    mic = Microphone()
    mic.say(60_000)
    kinds = [type(edge) for _, edge in mic.edges]
    assert kinds == [Onset, TurnEnd, Onset, TurnEnd, Onset]


def test_silence_ms_runs_from_the_last_voiced_window_of_a_pause() -> None:
    mic = Microphone()
    mic.say(320)
    assert mic.endpointer.silence_ms == 0
    mic.silence(192)
    assert mic.endpointer.silence_ms == 192
    mic.say(64)
    assert mic.endpointer.silence_ms == 0


def test_voiced_ms_counts_sound_not_pauses() -> None:
    mic = Microphone()
    mic.say(320)
    mic.silence(192)
    mic.say(320)
    assert mic.endpointer.voiced_ms == 640


@given(st.lists(st.sampled_from([0.0, 0.2, 0.4, 0.6, 1.0]), max_size=400))
def test_edges_always_alternate_in_a_legal_order(probabilities: list[float]) -> None:
    endpointer = Endpointer(RULES)
    following: dict[type | None, set[type]] = {
        None: {Onset},
        Onset: {Pause, TurnEnd},
        Pause: {Resume, TurnEnd},
        Resume: {Pause, TurnEnd},
        TurnEnd: {Onset},
    }
    last: type | None = None
    for number, probability in enumerate(probabilities):
        for edge in endpointer.window(probability, number * WINDOW_SAMPLES):
            assert type(edge) in following[last]
            last = type(edge)
