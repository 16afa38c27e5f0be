"""Stop sequences: cut before the first, however the text came, and the Thinker is told to stop."""

from collections.abc import AsyncGenerator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.engine.messages import Finished, RowsRef, TextDelta, Think
from voice_agent.speech.completion import ThinkResult
from voice_agent.speech.stopping import StopAware, StopCutter


def cut(pieces: Sequence[str], stops: Sequence[str]) -> str:
    cutter = StopCutter(stops)
    return "".join([cutter.push(piece) for piece in pieces]) + cutter.end()


@pytest.mark.parametrize(
    ("pieces", "stops", "kept"),
    [
        (["Hello there."], [], "Hello there."),
        (["Hello there."], ["the"], "Hello "),
        (["Hel", "lo the", "re."], ["there"], "Hello "),
        (["a", "b", "a", "c"], ["abd"], "abac"),
        (["ab", "ab", "c"], ["abc"], "ab"),
        (["one\n", "\ntwo"], ["\n\n"], "one"),
        (["x<en", "d>y"], ["<end>", "y"], "x"),
        (["ends with ST"], ["STOP"], "ends with ST"),
        (["STOP"], ["STOP"], ""),
    ],
)
def test_text_ends_before_the_first_stop_sequence(pieces: list[str], stops: list[str], kept: str):
    assert cut(pieces, stops) == kept


@given(st.text("ab. ", max_size=40), st.lists(st.text("ab. ", min_size=1, max_size=4), max_size=4), st.data())
def test_how_the_text_came_in_pieces_does_not_matter(text: str, stops: list[str], data: st.DataObject):
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    bounds = [0, *places, len(text)]
    pieces = [text[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    found = [(at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0]
    assert cut(pieces, stops) == text[: min(found, default=(0, len(text)))[1]]


class Writer:
    """A Thinker that writes until it is closed."""

    def __init__(self) -> None:
        self.closed = False

    async def stream(self, request: Think) -> AsyncGenerator[ThinkResult, None]:
        try:
            for word in ("one ", "two ", "three ", "four "):
                yield TextDelta(request.request_id, request.epoch, word)
            yield Finished(request.request_id, request.epoch, "stop", {"output_tokens": 4})
        finally:
            self.closed = True


async def test_the_thinker_is_closed_at_a_stop_sequence_and_the_reply_ends_regularly():
    writer = Writer()
    request = Think("r", 1, [{"role": "user", "content": "count"}], stop=["thr"])
    results = [result async for result in StopAware(writer).stream(request)]
    assert writer.closed
    assert "".join(result.text for result in results if isinstance(result, TextDelta)) == "one two "
    assert results[-1] == Finished("r", 1, "stop", {"output_tokens": 3})


async def test_without_a_stop_sequence_nothing_is_changed():
    plain = Think("r", 1, [], stop=[])
    assert [r async for r in StopAware(Writer()).stream(plain)] == [r async for r in Writer().stream(plain)]
    held = Think("r", 1, [], stop=["four five"])
    texts = [r.text async for r in StopAware(Writer()).stream(held) if isinstance(r, TextDelta)]
    assert "".join(texts) == "one two three four "


class Stateful:
    """A Thinker whose every piece has a hidden row."""

    async def stream(self, request: Think) -> AsyncGenerator[ThinkResult, None]:
        for number, word in enumerate(("one ", "two ", "three ")):
            yield TextDelta(request.request_id, request.epoch, word, RowsRef(7, number, number + 1))
        yield Finished(request.request_id, request.epoch)


async def test_hidden_rows_do_not_wait_for_text_that_is_held_back():
    request = Think("r", 1, [], stop=["one two four"])
    results = [r async for r in StopAware(Stateful()).stream(request) if isinstance(r, TextDelta)]
    assert [r.rows for r in results if r.rows] == [RowsRef(7, n, n + 1) for n in range(3)]
    assert "".join(r.text for r in results) == "one two three "
