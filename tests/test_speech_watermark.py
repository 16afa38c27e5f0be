import numpy as np

from voice_agent.speech.watermark import PassThrough, Watermarker


def test_pass_through_names_itself_none_and_changes_no_sample() -> None:
    watermarker: Watermarker = PassThrough()
    pcm = np.arange(-500, 500, dtype=np.int16)
    marked = watermarker.push(pcm, 22_050)
    assert watermarker.name == "none"
    assert np.array_equal(marked, np.arange(-500, 500, dtype=np.int16))
    assert marked.dtype == np.int16
    assert len(watermarker.push(pcm[:0], 22_050)) == 0


def test_pass_through_holds_nothing_back() -> None:
    watermarker = PassThrough()
    watermarker.push(np.ones(10, dtype=np.int16), 16_000)
    rest = watermarker.flush()
    assert len(rest) == 0
    assert rest.dtype == np.int16
