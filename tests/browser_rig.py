"""A person in front of the page: Debian's Chromium, a microphone that speaks when told, ears at the loudspeaker.

The microphone is a track made in the browser, so that a test says when it speaks; everything behind it is real. Tests
of the browser's own microphone use `file_microphone` instead.
"""

import base64
import functools
import wave
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import numpy as np
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Response

from tests.live_server import LiveServer, config_file, live_server
from tests.model_weights import weights
from voice_agent.audio import OPUS_RATE_HZ, Samples, silence
from voice_agent.engine.messages import SpokenWord
from voice_agent.engine.runtime import TalkerOptions
from voice_agent.media.resample import Resampler
from voice_agent.models import piper
from voice_agent.models.tones import words_heard

CHROMIUM = "/usr/bin/chromium"
BROWSER_RATE_HZ = OPUS_RATE_HZ
FAKE_MICROPHONE = "--use-fake-device-for-media-stream"
CALLS = "/v1/realtime/calls"
TURN_MS = 30_000
LOUD = 32768 * 10 ** (-45 / 20)
SENTENCE_GAP = 40  # blocks of 10 ms
CALL_MS = 20_000

# what the scripted recognizer hears: by the length of what was said
BACKCHANNEL, SHORT, LONG = "Mm-hmm.", "Tell me a story.", "And how does the story go on after that?"
STORY = (
    "Once there was an old sailor near the harbour, who painted little wooden boats every single evening, "
    "because children loved their bright colours, while nobody ever asked him where he really came from."
)
ANSWERS = ("The harbour opens early.", "Nobody knows his name.", "Good night and farewell.")
TOML = """
profile = "scripted"
[session]
max_sessions = {seats}
greeting = "{greeting}"
[recognizer.options]
text = "{long}"
by_duration = [[950, "{backchannel}"], [2100, "{short}"]]
[thinker.options]
texts = {texts}
{thinker}
[server]
drain_s = 0.5
"""

# a microphone that says what it is told to, and notes of what the page does
PERSON = """() => {
  let context, out, source;
  const mine = () => {
    context ??= new AudioContext();
    out = context.createMediaStreamDestination();
    window.microphone = out.stream;
    return out.stream;
  };
  if (!window.ownMicrophone) navigator.mediaDevices.getUserMedia = async () => mine();
  window.speak = (base64) => {
    const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
    const samples = Float32Array.from(new Int16Array(bytes.buffer), (value) => value / 32768);
    const buffer = context.createBuffer(1, samples.length, 48000);
    buffer.copyToChannel(samples, 0);
    source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(out);
    source.start();
    return new Promise((resolve) => { source.onended = () => resolve(); });
  };
  const Peer = window.RTCPeerConnection;
  window.peers = [];
  window.events = [];
  window.RTCPeerConnection = class extends Peer {
    constructor(...rest) { super(...rest); window.peers.push(this); }
    createDataChannel(...rest) {
      const channel = super.createDataChannel(...rest);
      channel.addEventListener('message', ({ data }) => window.events.push(JSON.parse(data)));
      return channel;
    }
  };
  window.states = [];
  addEventListener('DOMContentLoaded', () => {
    const note = () => {
      const { state } = document.body.dataset;
      if (window.states.at(-1) !== state) window.states.push(state);
    };
    new MutationObserver(note).observe(document.body, { attributes: true, attributeFilter: ['data-state'] });
    window.loudest = { user: 0, agent: 0 }; // what the meters have shown
    const look = () => Object.keys(window.loudest).forEach((who) => {
      const level = Number(document.body.style.getPropertyValue(`--${who}-level`));
      window.loudest[who] = Math.max(window.loudest[who], level);
    });
    new MutationObserver(look).observe(document.body, { attributes: true, attributeFilter: ['style'] });
    window.readings = 0;
    const read = () => { window.readings += 1; };
    const parts = document.getElementById('latency-parts'); // other pages have none
    if (parts) new MutationObserver(read).observe(parts, { childList: true });
  });
}"""

# keep what the page plays, sample for sample; and both voices, left and right on one clock
LISTEN = """(toBoth) => {
  const voice = document.getElementById('speaker').srcObject;
  window.heardSound = kept(voice.getAudioTracks()[0].clone(), 1);
  if (!toBoth) return;
  const context = new AudioContext();
  const merger = context.createChannelMerger(2);
  const both = context.createMediaStreamDestination();
  [window.microphone, voice].forEach((stream, side) =>
    context.createMediaStreamSource(stream).connect(merger, 0, side));
  merger.connect(both);
  window.bothSound = kept(both.stream.getAudioTracks()[0], 2);

  function kept(track, planes) {
    const maxBufferSize = 2000; // 20 s: the page's thread may be busy, the sound goes on
    const reader = new MediaStreamTrackProcessor({ track, maxBufferSize }).readable.getReader();
    const parts = [];
    (async () => {
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        const samples = new Int16Array(planes * value.numberOfFrames);
        for (let planeIndex = 0; planeIndex < planes; planeIndex += 1) {
          const plane = new Float32Array(value.numberOfFrames);
          value.copyTo(plane, { planeIndex, format: 'f32-planar' });
          plane.forEach((one, n) => { samples[planes * n + planeIndex] = Math.max(-1, Math.min(1, one)) * 32767; });
        }
        parts.rate = value.sampleRate;
        value.close();
        parts.push(samples);
      }
    })();
    return parts;
  }
}"""
TAKE = """async (name) => {
  const blob = new Blob(window[name]);
  const bytes = new Uint8Array(await blob.arrayBuffer());
  let text = '';
  for (let n = 0; n < bytes.length; n += 32768) text += String.fromCharCode(...bytes.subarray(n, n + 32768));
  return [window[name].rate, btoa(text)];
}"""


@functools.cache
def piper_voice() -> piper.Piper:
    """Loaded once for all tests of a run."""
    folder = weights("piper-joe")
    return piper.load(folder, TalkerOptions("piper", str(folder)))


def spoken(*texts_and_pauses: str | int) -> Samples:
    """Sentences in Piper's voice and pauses in ms, at the browser's rate."""
    voice = piper_voice()
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


def coded(samples: Samples) -> str:
    """Sound in the form that `Person.speak` takes."""
    return base64.b64encode(samples.astype("<i2").tobytes()).decode()


def write_wav(path: Path, samples: Samples) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(BROWSER_RATE_HZ)
        file.writeframes(samples.astype("<i2").tobytes())
    return path


@dataclass
class Speech:
    """What the person says, made once: lengths decide what the scripted recognizer hears."""

    backchannel: str
    short: str
    long: str

    @classmethod
    @functools.cache
    def make(cls) -> "Speech":
        return cls(
            coded(spoken("Uh huh.", 100)),
            coded(spoken("Tell me a story.", 100)),
            coded(spoken("And how does the story go on after all of that?", 100)),
        )


def scripted_config(
    folder: Path,
    texts: Sequence[str] = ANSWERS,
    *,
    seats: int = 3,
    greeting: str = "",
    thinker: str = "first_ms = 50",
    more: str = "",
) -> Path:
    toml = TOML.format(
        seats=seats,
        greeting=greeting,
        texts=list(texts),
        thinker=thinker,
        backchannel=BACKCHANNEL,
        short=SHORT,
        long=LONG,
    )
    return config_file(folder, toml.replace("'", '"') + more)


@contextmanager
def scripted_server(folder: Path, texts: Sequence[str] = ANSWERS, **rest: Any) -> Generator[LiveServer]:
    with live_server("--config", str(scripted_config(folder, texts, **rest))) as server:
        yield server


def launch(playwright: Playwright, *arguments: str) -> Browser:
    return playwright.chromium.launch(
        executable_path=CHROMIUM, headless=True, args=[*arguments, "--disable-quic"]
    )


def file_microphone(wav: Path) -> list[str]:
    """Chromium's own fake microphone, playing a file once from when it is opened."""
    return [FAKE_MICROPHONE, f"--use-file-for-fake-audio-capture={wav}%noloop"]


@dataclass
class Person:
    """One tab and who sits before it; `problems` are red lines of the console."""

    page: Page
    url: str
    problems: list[str] = field(default_factory=list[str])
    locations: list[str] = field(default_factory=list[str])

    def watch(self) -> None:
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("response", self._note_call)

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.problems.append(f"{message.text} {message.location.get('url', '')}")

    def _note_call(self, response: Response) -> None:
        if response.request.method == "POST" and response.url.endswith(CALLS) and response.ok:
            self.locations.append(response.headers["location"])

    def start(self) -> None:
        self.page.click("#toggle")
        self.wait("listening", CALL_MS)

    def wait(self, state: str, timeout_ms: int = TURN_MS) -> None:
        self.page.wait_for_selector(f"body[data-state={state}]", timeout=timeout_ms)

    def wait_caption(self, text: str, kind: str = "caption", timeout_ms: int = TURN_MS) -> None:
        self.page.locator(f".{kind}", has_text=text).first.wait_for(timeout=timeout_ms)

    def wait_heard(self, text: str, timeout_ms: int = TURN_MS) -> None:
        """Until a caption's words are all marked as heard."""
        self.page.locator(".caption.agent .words", has_text=text).first.wait_for(timeout=timeout_ms)

    def speak(self, sound: str) -> None:
        self.page.evaluate("(sound) => window.speak(sound)", sound)

    def begin_to_speak(self, sound: str) -> None:
        """Like `speak`, without waiting for its end."""
        self.page.evaluate("(sound) => { window.speak(sound); }", sound)

    def type(self, text: str) -> None:
        self.page.fill("#text", text)
        self.page.keyboard.press("Enter")

    def hear_out(self, answer: str) -> None:
        """Until an answer is over; it must have sounded at the loudspeaker since `listen`."""
        self.wait_heard(answer)
        self.wait("listening")
        sounded: list[str] = []
        for _ in range(10):  # the sound comes after the word of it
            if most_of(sounded := self.sounded(answer), answer):
                return
            self.page.wait_for_timeout(300)
        raise AssertionError(f"{sounded} of {answer!r} sounded")

    def listen(self, *, to_both: bool = False) -> None:
        self.page.evaluate(LISTEN, to_both)

    def sounded(self, text: str) -> list[str]:
        """Which of the words of a text sounded at the loudspeaker, in order; not for texts that repeat a word."""
        rate_hz, samples = self._recorded("heardSound")
        return [word for word, _ in words_heard(samples, rate_hz, words_of(text))]

    def waited_ms(self) -> list[float]:
        """From the end of each of the person's sounds to the next one of the agent's, in the recording of both."""
        rate_hz, samples = self._recorded("bothSound")
        block = rate_hz // 100
        blocks = samples[: len(samples) // (2 * block) * 2 * block].reshape(-1, block, 2).astype(np.float64)
        person, agent = (np.sqrt((blocks**2).mean(axis=1)) > LOUD).T
        ends = [int(n) for n in np.flatnonzero(person) if not person[n + 1 : n + 1 + SENTENCE_GAP].any()]
        begins = [next((n for n in range(end, len(agent)) if agent[n : n + 2].all()), None) for end in ends]
        return [
            10.0 * (begin - end - 1) for end, begin in zip(ends, begins, strict=True) if begin is not None
        ]

    def _recorded(self, name: str) -> tuple[int, Samples]:
        rate_hz, coded = cast(tuple[int, str], tuple(self.page.evaluate(TAKE, name)))
        return rate_hz, np.frombuffer(base64.b64decode(coded), "<i2").astype(np.int16)

    def reading_ms(self, turns: int) -> int | None:
        """The read-out of the latest of so many turns, the sum of its parts; None if not measured at the ear."""
        self.page.wait_for_function("(turns) => window.readings >= turns", arg=turns, timeout=TURN_MS)
        if "to your ear" not in self.page.inner_text("#latency-where"):
            return None
        return sum(int(text.split()[0]) for text in self.page.locator("#latency-parts dd").all_inner_texts())

    def states(self) -> list[str]:
        return self.page.evaluate("window.states")

    def message(self) -> str:
        """What the notice says, once it says something."""
        self.page.wait_for_selector("#message:not([hidden])", timeout=CALL_MS)
        return self.page.inner_text("#message")

    def captions(self) -> list[tuple[str, str]]:
        """Who and what, as a screen reader would have it."""
        found: list[tuple[str, str]] = []
        for text in self.page.locator(".caption").all_text_contents():
            who, _, words = text.partition(": ")
            found.append((who, words))
        return found

    def timeline(self) -> dict[str, Any]:
        """The inside of the latest call."""
        return httpx.get(f"{self.url}{self.locations[-1]}/timeline").json()


def most_of(sounded: list[str], text: str) -> bool:
    """Whether a text sounded in its order; a browser on a busy machine conceals some of it."""
    words = words_of(text)
    rest = iter(words)
    return all(word in rest for word in sounded) and len(sounded) >= 0.6 * len(words)


def words_of(text: str) -> list[str]:
    return list(dict.fromkeys(word.strip(".,?!") for word in text.split()))


def person_at(context: BrowserContext, url: str, *, own_microphone: bool = False) -> Person:
    """Open a tab; `own_microphone` leaves the browser's own in place."""
    page = context.new_page()
    if own_microphone:
        page.add_init_script("window.ownMicrophone = true;")
    page.add_init_script(f"({PERSON})()")
    person = Person(page, url)
    person.watch()
    page.goto(url)
    page.wait_for_selector("body[data-server=ready]", timeout=CALL_MS)
    return person


@contextmanager
def tab(browser: Browser, url: str, *, own_microphone: bool = False, **options: Any) -> Generator[Person]:
    """A tab in a profile of its own, as most tests need it; nothing red may have been printed."""
    context = browser.new_context(permissions=["microphone"], **options)
    try:
        person = person_at(context, url, own_microphone=own_microphone)
        yield person
        assert not person.problems, person.problems
    finally:
        context.close()
