"""The labelled set: enough of every kind, sounds that are what their labels say, and pauses where they belong."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import tone
from voice_agent.audio import OPUS_RATE_HZ, Samples, dbfs, silence
from voice_agent.bench.echo import MOST_LATE_MS, EchoPath
from voice_agent.bench.labelled import KINDS, Item, Right, items, sound_of, spread
from voice_agent.bench.sound import levels
from voice_agent.bench.spoken import PLAIN, Cut, Shape, with_pauses, without_pauses
from voice_agent.bench.synthesis import across_the_room, burst, drawn_out, gained, mixed, steady
from voice_agent.bench.turn_set import COUGHS, NOISES

AT_LEAST = {"barge": 25, "backchannel": 20, "cough": 12, "side": 10, "pause": 30, "noise": 8, "echo": 8}


class ToneVoice:
    """Says everything as 600 ms of tone with 100 ms of silence around."""

    def sound(self, text: str, shape: Shape = PLAIN) -> Samples:
        return np.concatenate([silence(4800), tone(300, 600, OPUS_RATE_HZ), silence(4800)])


def test_there_is_enough_of_every_kind_and_no_name_twice():
    counts = Counter(item.kind for item in items())
    assert set(counts) == set(KINDS)
    assert all(counts[kind] >= least for kind, least in AT_LEAST.items())
    assert counts.total() >= 120
    assert len({item.name for item in items()}) == counts.total()


def test_every_pause_item_has_pauses_of_a_third_of_a_second_to_a_bit_over_one():
    lengths = [int(ms) for item in items(["pause"]) for ms in re.findall(r"\[(\d+)\]", item.text)]
    assert all("[" in item.text for item in items(["pause"]))
    assert min(lengths) >= 300
    assert max(lengths) <= 1200


def test_labels_say_what_is_right_for_each_kind():
    right = {kind: {item.right for item in items([kind])} for kind in KINDS}
    assert right["barge"] == {Right.INTERRUPT}
    assert right["backchannel"] == right["cough"] == right["side"] == {Right.IGNORE}
    assert right["pause"] == right["noise"] == {Right.WAIT}
    assert right["echo"] == {Right.IGNORE, Right.INTERRUPT}


@given(st.lists(st.integers(), max_size=40), st.integers(1, 50))
def test_a_short_run_takes_different_items_in_order(row: list[int], most: int):
    items_ = [Item(str(n), "barge", Right.INTERRUPT) for n in range(len(row))]
    taken = spread(items_, most)
    assert len(taken) == min(most, len(items_))
    assert [item.name for item in taken] == sorted({item.name for item in taken}, key=int)
    assert spread(items_, None) == items_


def test_the_true_end_is_the_end_of_the_voice():
    sound = sound_of(items(["barge"])[0], ToneVoice())
    assert sound.first_sample == pytest.approx(4800, abs=960)
    assert sound.end_ms == pytest.approx(700, abs=20)
    assert dbfs(sound.samples[-960:]) == pytest.approx(-62, abs=3)  # the room goes on


def test_noise_is_ten_db_below_and_around_the_question():
    sound = sound_of(items(["noise"])[0], ToneVoice())
    before, said = sound.samples[: sound.first_sample], sound.samples[sound.first_sample : sound.end_sample]
    assert dbfs(said) - dbfs(before) == pytest.approx(
        10.4, abs=1.5
    )  # the question's level has the noise in it
    assert len(sound.samples) - sound.end_sample > 6 * OPUS_RATE_HZ


def test_side_talk_is_softer_than_the_user_by_what_its_label_says():
    for item in items(["side"]):
        said = ToneVoice().sound(item.text)
        heard = sound_of(item, ToneVoice()).samples[: len(said)]
        assert dbfs(heard) - dbfs(said) == pytest.approx(item.level_db, abs=1.5)


@pytest.mark.parametrize(("recipe", "length_ms", "level_dbfs"), COUGHS)
def test_bursts_have_their_length_and_level_and_are_always_the_same(
    recipe: str, length_ms: int, level_dbfs: int
):
    sound = burst(recipe, length_ms, level_dbfs, 3)
    assert len(sound) == length_ms * 48
    assert max(levels(sound)) == pytest.approx(
        level_dbfs, abs=2.5
    )  # where the peak would clip it stays softer
    assert np.array_equal(sound, burst(recipe, length_ms, level_dbfs, 3))
    assert not np.array_equal(sound, burst(recipe, length_ms, level_dbfs, 4))


@pytest.mark.parametrize("recipe", sorted({recipe for recipe, _ in NOISES}))
def test_steady_noise_has_its_level(recipe: str):
    assert dbfs(steady(recipe, 48_000, -30, 1)) == pytest.approx(-30, abs=0.5)


def test_loud_sums_are_clipped_and_gains_are_in_db():
    loud = np.full(10, 30_000, dtype=np.int16)
    assert mixed(loud, loud).max() == 32_767
    assert gained(loud, -6.02)[0] == pytest.approx(15_000, abs=10)
    assert len(across_the_room(tone(300, 100, OPUS_RATE_HZ), -12)) > 4800


@pytest.mark.parametrize("factor", [1.3, 1.6, 2.0])
def test_drawing_out_changes_the_length_and_not_the_pitch(factor: float):
    word = tone(200, 300, 22_050)
    longer = drawn_out(word, factor, 22_050)
    assert len(longer) == round(len(word) * factor)
    spectrum = np.abs(np.fft.rfft(longer.astype(np.float64), 22_050))
    assert int(np.argmax(spectrum)) == pytest.approx(200, abs=4)
    assert dbfs(longer) == pytest.approx(dbfs(word), abs=2)


def test_what_is_too_short_to_draw_out_stays_as_it_is():
    assert np.array_equal(drawn_out(tone(200, 20, 22_050), 2.0, 22_050), tone(200, 20, 22_050))


def test_pauses_are_read_from_the_text():
    plain, pauses = without_pauses("My number is four, [900] two six [600] one.")
    assert plain == "My number is four, two six one."
    assert [(plain[char:].split()[0], ms) for char, ms in pauses] == [("two", 900.0), ("one.", 600.0)]
    assert without_pauses("No pause.") == ("No pause.", [])


@pytest.mark.parametrize("planned", [True, False])
def test_a_pause_is_as_long_as_the_text_says(planned: bool):
    words = np.concatenate([tone(200, 300, 16_000), silence(800), tone(300, 300, 16_000)])
    paused = with_pauses(words, [Cut(0, 4800, 5600, 500, planned=planned)], 16_000)
    row = levels(paused, 160)
    quiet = [index for index, level in enumerate(row) if level < -45]
    assert 10 * len(quiet) == pytest.approx(500, abs=40)
    assert (len(paused) > len(words) + 7200 + 1600) is not planned


def test_several_pauses_go_between_their_words():
    words = np.concatenate([tone(200, 200, 16_000), silence(480)] * 3)
    cuts = [Cut(0, 3200, 3680, 400), Cut(3680, 6880, 7360, 700)]
    assert len(with_pauses(words, cuts, 16_000)) / 16 == pytest.approx(690 + 1100 - 60, abs=60)


def test_an_echo_comes_back_softer_and_later():
    path = EchoPath(-15, 100)
    click = np.concatenate([np.full(960, 8000, dtype=np.int16), silence(9600)])
    back: list[Samples] = []
    for at in range(0, len(click), 960):
        path.hear(click[at : at + 960])
        back.append(path.take(960))
    heard = np.concatenate(back)
    assert int(np.flatnonzero(heard)[0]) == 4800
    assert np.abs(heard[4800:5400]).max() == pytest.approx(8000 * 10 ** (-15 / 20), rel=0.01)


def test_an_echo_path_neither_grows_without_end_nor_runs_dry():
    path = EchoPath(-15, 60)
    for _ in range(200):
        path.hear(tone(300, 20, OPUS_RATE_HZ))
    assert path._queued <= (60 + MOST_LATE_MS + 20) * 48  # pyright: ignore[reportPrivateUsage]
    taken = [path.take(960) for _ in range(40)]
    assert not taken[-1].any()
