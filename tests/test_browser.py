"""The page in Debian's Chromium, with spoken WAV files as its microphone and the sound out listened to."""

import wave
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from tests.live_server import LiveServer, live_server
from tests.model_weights import weights
from voice_agent.audio import Samples, silence
from voice_agent.engine.messages import SpokenWord
from voice_agent.engine.runtime import TalkerOptions
from voice_agent.media.resample import Resampler
from voice_agent.models import piper

pytestmark = [pytest.mark.browser, pytest.mark.weights]

CHROMIUM = "/usr/bin/chromium"
TURN_MS = 40_000
BROWSER_RATE_HZ = 48_000
FAKE_MICROPHONE = "--use-fake-device-for-media-stream"
# taps the agent's sound as the page plays it and keeps the loudest level
LISTEN = """() => {
  const speaker = document.getElementById('speaker');
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  context.createMediaStreamSource(speaker.srcObject).connect(analyser);
  const data = new Float32Array(analyser.fftSize);
  window.loudest = 0;
  setInterval(() => {
    analyser.getFloatTimeDomainData(data);
    for (const value of data) window.loudest = Math.max(window.loudest, Math.abs(value));
  }, 20);
}"""


def spoken(*texts_and_pauses: str | int) -> Samples:
    """Sentences in the Talker's voice and pauses in ms, at the browser's rate."""
    folder = weights("piper-joe")
    voice = piper.load(folder, TalkerOptions("piper", str(folder)))
    pieces: list[Samples] = []
    for piece in texts_and_pauses:
        if isinstance(piece, int):
            pieces.append(silence(BROWSER_RATE_HZ * piece // 1000))
            continue
        words = [SpokenWord(word, 0, 0) for word in piece.split()]
        latents = voice.encode(words, voice.voices[0], 1.0, 0)
        resampler = Resampler(voice.rate_hz, BROWSER_RATE_HZ)
        pieces += [resampler.push(voice.decode(latents, 0, latents.frames)), resampler.flush()]
    return np.concatenate(pieces)


def write_wav(path: Path, samples: Samples) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(BROWSER_RATE_HZ)
        file.writeframes(samples.astype("<i2").tobytes())
    return path


@pytest.fixture(scope="module")
def server() -> Generator[LiveServer]:
    with live_server("--profile", "cpu-small") as running:
        yield running


@pytest.fixture(scope="module")
def playwright() -> Generator[Playwright]:
    with sync_playwright() as running:
        yield running


def browser_with(playwright: Playwright, wav: Path) -> Browser:
    arguments = [FAKE_MICROPHONE, f"--use-file-for-fake-audio-capture={wav}%noloop", "--disable-quic"]
    return playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=arguments)


def open_page(browser: Browser, url: str, problems: list[str], *, microphone: bool = True) -> Page:
    context = browser.new_context(permissions=["microphone"] if microphone else [])
    page = context.new_page()
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(url)
    return page


def wait_for_state(page: Page, state: str, timeout_ms: int = TURN_MS) -> None:
    page.wait_for_selector(f"body[data-state={state}]", timeout=timeout_ms)


def test_a_question_is_asked_answered_and_heard_with_captions_of_both(
    server: LiveServer, playwright: Playwright, tmp_path: Path
) -> None:
    wav = write_wav(tmp_path / "question.wav", spoken(3000, "What is the capital of France?", 2000))
    problems: list[str] = []
    browser = browser_with(playwright, wav)
    try:
        page = open_page(browser, server.url, problems)
        page.click("#toggle")
        wait_for_state(page, "listening", 15_000)
        page.evaluate(LISTEN)
        wait_for_state(page, "speaking")
        wait_for_state(page, "listening")
        captions = page.inner_text("#log")
        assert "capital" in captions.lower() and "france" in captions.lower()
        assert len(captions.splitlines()) >= 2
        assert page.evaluate("window.loudest") > 0.05
        page.click("#toggle")
        wait_for_state(page, "idle", 5_000)
        assert not problems
    finally:
        browser.close()


def test_speaking_over_the_answer_stops_it_and_the_cut_words_are_shown_as_cut(
    server: LiveServer, playwright: Playwright, tmp_path: Path
) -> None:
    # the second sentence starts while a 135M model still rambles about the first
    sound = spoken(
        3000, "Tell me a very long story about a dog.", 4500, "Stop it please, I have heard enough.", 3000
    )
    problems: list[str] = []
    browser = browser_with(playwright, write_wav(tmp_path / "barge.wav", sound))
    try:
        page = open_page(browser, server.url, problems)
        page.click("#toggle")
        wait_for_state(page, "speaking")
        page.wait_for_selector(".cut", timeout=TURN_MS)
        assert not problems
    finally:
        browser.close()


def test_a_denied_microphone_says_what_to_do(
    server: LiveServer, playwright: Playwright, tmp_path: Path
) -> None:
    browser = browser_with(playwright, write_wav(tmp_path / "nothing.wav", spoken(500)))
    try:
        page = open_page(browser, server.url, [], microphone=False)
        page.click("#toggle")
        page.wait_for_selector("#message:not([hidden])", timeout=10_000)
        assert "microphone" in page.inner_text("#message").lower()
    finally:
        browser.close()


def test_a_third_tab_is_told_that_all_seats_are_taken_and_a_closed_one_gives_its_seat_back(
    server: LiveServer, playwright: Playwright, tmp_path: Path
) -> None:
    browser = browser_with(playwright, write_wav(tmp_path / "nothing.wav", spoken(500)))
    try:
        pages = [open_page(browser, server.url, []) for _ in range(3)]
        for page in pages[:2]:
            page.click("#toggle")
            wait_for_state(page, "listening", 15_000)
        pages[2].click("#toggle")
        pages[2].wait_for_selector("#message:not([hidden])", timeout=10_000)
        assert pages[2].inner_text("#message")
        pages[0].click("#toggle")
        wait_for_state(pages[0], "idle", 5_000)
        pages[2].wait_for_timeout(1500)  # the browser's own clock: a person trying again
        pages[2].click("#toggle")
        wait_for_state(pages[2], "listening", 15_000)
    finally:
        browser.close()
