"""Slices of base64 read like the whole: the same bytes, and refused where the library's strict reader refuses."""

from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice_agent.base64_bytes import from_base64

SLICES = st.integers(1, 4).map(lambda quads: 4 * quads)


@given(data=st.binary(max_size=80), slice_chars=SLICES)
def test_any_bytes_come_back(data: bytes, slice_chars: int) -> None:
    assert from_base64(b64encode(data).decode(), slice_chars) == data


@given(text=st.text(st.sampled_from("AQgw+/=9 \n-é"), max_size=24), slice_chars=SLICES)
def test_any_text_is_read_or_refused_as_a_whole_would_be(text: str, slice_chars: int) -> None:
    try:
        whole = b64decode(text, validate=True)
    except ValueError:
        with pytest.raises(ValueError):
            from_base64(text, slice_chars)
    else:
        assert from_base64(text, slice_chars) == whole


def test_padding_in_the_middle_is_refused_where_a_slice_ends_with_it() -> None:
    with pytest.raises(ValueError, match="padding"):
        from_base64("AAA=AAAA", 4)
