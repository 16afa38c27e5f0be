"""A reply cut anywhere: what history keeps is what left the playout, to a word, however the times were come by."""

import random

import numpy as np
import pytest

from voice_agent.audio import OPUS_RATE_HZ, PcmChunk, Samples, WordTime
from voice_agent.engine.messages import SpokenWord
from voice_agent.engine.runtime import FrameWord
from voice_agent.engine.word_times import GrowingTimes, spread
from voice_agent.media.playout import FRAME_SAMPLES, PlayoutBuffer
from voice_agent.models.scripted import ToneTalker, VoiceScript
from voice_agent.models.tones import plain, words_heard
from voice_agent.turn.heard import HeardText

TEXT = (
    "The harbour opens early, when boats return with fresh mackerel. Buyers wait along the quay; some haggle."
)
CLAUSES = [
    part.strip() for part in TEXT.replace(", ", ",|").replace(". ", ".|").replace("; ", ";|").split("|")
]
VOCABULARY = list(dict.fromkeys(plain(word) for word in TEXT.split()))


def spoken_words(clause: str, start_char: int) -> list[SpokenWord]:
    words: list[SpokenWord] = []
    at = 0
    for word in clause.split():
        begin = clause.index(word, at)
        at = begin + len(word)
        words.append(SpokenWord(word, start_char + begin, start_char + at))
    return words


def timed(words: list[SpokenWord], exact: list[FrameWord], frames: int, how: str) -> list[FrameWord]:
    if how == "exact":
        return exact
    if how == "proportional":
        return spread(words, frames)
    growing = GrowingTimes(words, frames_per_letter=3.2)
    found = [word for made in range(0, frames, 8) for word in growing.grown(made)]
    return found + growing.ended(frames)


def reply(how: str) -> tuple[list[PcmChunk], HeardText]:
    talker, heard, chunks, at = ToneTalker(VoiceScript()), HeardText(), list[PcmChunk](), 0
    heard.add_text(TEXT)
    for clause in CLAUSES:
        words = spoken_words(clause, TEXT.index(clause))
        latents = talker.encode(words, "tone", 1.0, 0)
        samples = talker.decode(latents, 0, latents.frames)
        places = timed(words, latents.words, latents.frames, how)
        step = talker.samples_per_frame
        times = tuple(
            WordTime(p.start_char, p.end_char, at + p.first_frame * step, at + p.end_frame * step, p.exact)
            for p in places
        )
        chunks.append(PcmChunk(samples, talker.rate_hz, times))
        heard.add_words(times)
        at += len(samples)
    return chunks, heard


def played(chunks: list[PcmChunk], frames: int) -> tuple[Samples, int]:
    buffer = PlayoutBuffer()
    for chunk in chunks:
        assert buffer.write("r", chunk)
    sound = np.concatenate([buffer.next_frame().samples for _ in range(frames)])
    return sound, buffer.played_samples("r")


@pytest.mark.parametrize("how", ["exact", "proportional", "growing"])
@pytest.mark.parametrize("cuts", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_at_random_cuts_history_is_within_a_word_of_what_left_the_playout(how: str, cuts: int) -> None:
    chunks, heard = reply(how)
    whole = sum(len(chunk.samples) * OPUS_RATE_HZ // chunk.rate_hz for chunk in chunks) // FRAME_SAMPLES
    chance = random.Random(7)
    misses: list[tuple[int, int, int]] = []
    for frames in sorted(chance.sample(range(1, whole), cuts)):
        sound, samples = played(chunks, frames)
        left = len(words_heard(sound, OPUS_RATE_HZ, VOCABULARY))
        kept = len(heard.at(samples).split())
        if abs(left - kept) > 1:
            misses.append((frames, left, kept))
    assert not misses


@pytest.mark.parametrize("how", ["exact", "proportional", "growing"])
def test_a_reply_played_to_its_end_is_heard_whole(how: str) -> None:
    chunks, heard = reply(how)
    assert heard.at(sum(len(chunk.samples) for chunk in chunks)) == TEXT


def test_words_without_letters_get_no_time_and_nothing_overlaps() -> None:
    words = spoken_words("One - two ... three", 0)
    placed = spread(words, 100)
    assert [p.end_frame - p.first_frame for p in placed if words[placed.index(p)].text in {"-", "..."}] == [
        0,
        0,
    ]
    assert all(a.end_frame <= b.first_frame for a, b in zip(placed, placed[1:], strict=False))
    assert placed[-1].end_frame <= 100
