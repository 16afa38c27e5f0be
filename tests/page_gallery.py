"""Pictures of the page in every state, at three sizes, light and dark, for eyes: no test judges them.

    python -m tests.page_gallery FOLDER [SCENE ...]    then look at FOLDER/index.html
    python -m tests.page_gallery FOLDER readme         the README's two: a conversation with the real models

A real server stands behind every picture, with scripted models unless it says otherwise. What it cannot be brought to
(still loading, a browser that waits for the person's yes) is stood in for at the page's edge: its HTTP, getUserMedia,
the inside of a held reply.
"""

import argparse
import base64
import html
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import httpx
from playwright.sync_api import Page, Playwright, Route, sync_playwright

from tests.browser_rig import (
    CALLS,
    FAKE_MICROPHONE,
    STORY,
    Person,
    Speech,
    coded,
    file_microphone,
    launch,
    person_at,
    scripted_server,
    spoken,
    write_wav,
)
from tests.live_server import live_server

SIZES = {"desktop": (1280, 800), "tablet": (820, 1180), "phone": (390, 844)}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
Look = tuple[str, Literal["light", "dark"]]
LOOKS: list[Look] = [(size, scheme) for size in SIZES for scheme in SCHEMES]

STORY_ON = (
    " Then a letter came one morning, with stamps from far away, and he smiled for the first time in years."
)
TALK = (
    "Good evening. The harbour opens at seven, and the ferry leaves at half past eight.",
    STORY + STORY_ON,
)
QUESTION = "Could you please tell me when the harbour opens in the morning, and when the first ferry leaves after that?"
# what a page that is loaded at this size does by itself
SETTLE = """() => {
  document.getElementById('latency').open = matchMedia('(min-width: 60rem) and (min-height: 40rem)').matches;
  return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
}"""
CONVERSATION = (
    "What is the capital of France?",
    "And what is it famous for?",
    "Tell me a story about a lighthouse.",
)
LAST_IS_BEING_ANSWERED = """(questions) =>
  document.querySelectorAll('.caption.user').length >= questions && document.body.dataset.state === 'speaking'"""
LONG_ENOUGH = "() => document.getElementById('log').textContent.length > 1500"
NEVER_ANSWERED = "() => { navigator.mediaDevices.getUserMedia = () => new Promise(() => {}); }"
DRAG = "dispatchEvent(new DragEvent('dragover', { dataTransfer: new DataTransfer(), cancelable: true }))"
DROP = """async () => {
  const canvas = Object.assign(document.createElement('canvas'), { width: 64, height: 64 });
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([blob], 'square.png', { type: 'image/png' }));
  dispatchEvent(new DragEvent('drop', { dataTransfer, cancelable: true }));
}"""
AS_WEBP = """async (png) => {
  const image = await createImageBitmap(await (await fetch(png)).blob());
  const canvas = Object.assign(document.createElement('canvas'), { width: image.width, height: image.height });
  canvas.getContext('2d').drawImage(image, 0, 0);
  return canvas.toDataURL('image/webp', 0.85);
}"""


def take_one(page: Page, look: Look, file: Path | None = None) -> bytes:
    size, scheme = look
    page.set_viewport_size({"width": SIZES[size][0], "height": SIZES[size][1]})
    page.emulate_media(color_scheme=scheme)
    page.evaluate(SETTLE)
    return page.screenshot(path=file)


@dataclass
class Album:
    """A folder of pictures, named by scene, size and scheme."""

    folder: Path
    names: list[str] = field(default_factory=list[str])

    def take(self, page: Page, name: str) -> None:
        """One picture for each look."""
        self.names.append(name)
        for size, scheme in LOOKS:
            take_one(page, (size, scheme), self.folder / f"{name}-{size}-{scheme}.png")
        sys.stderr.write(f"{name}\n")

    def bind(self) -> None:
        """Write index.html: a row for each scene."""
        rows = [
            f"<h2>{html.escape(name)}</h2><p>"
            + "".join(f'<img src="{name}-{size}-{scheme}.png" height=480 alt="">' for size, scheme in LOOKS)
            for name in self.names
        ]
        text = "<!doctype html><meta charset=utf-8><style>p{white-space:nowrap}img{margin:4px}</style>"
        (self.folder / "index.html").write_text(text + "".join(rows), encoding="utf-8")


@dataclass
class Studio:
    """What scenes are made with."""

    album: Album
    playwright: Playwright
    speech: Speech

    @contextmanager
    def tab(
        self,
        url: str,
        *,
        flags: tuple[str, ...] = (FAKE_MICROPHONE,),
        allowed: bool = True,
        own: bool = False,
    ) -> Generator[Person]:
        """A browser with one tab."""
        browser = launch(self.playwright, *flags)
        try:
            context = browser.new_context(permissions=["microphone"] if allowed else [])
            yield person_at(context, url, own_microphone=own)
        finally:
            browser.close()

    @contextmanager
    def call(self, texts: Sequence[str] = TALK, thinker: str = "first_ms = 50") -> Generator[Person]:
        """A tab in a call with a server of its own."""
        with (
            tempfile.TemporaryDirectory() as folder,
            scripted_server(Path(folder), texts, thinker=thinker) as server,
            self.tab(server.url) as person,
        ):
            person.start()
            yield person


def leave_waiting(_: Route) -> None:
    """Neither pass a request on nor refuse it."""


def hold(route: Route) -> None:
    """Let the inside of a call say that its reply is held, which in truth lasts too short for six pictures."""
    inside = route.fetch().json()
    route.fulfill(json=inside | {"state": "held"})


def before_a_call(studio: Studio) -> None:
    """Nobody has pressed anything yet."""
    with tempfile.TemporaryDirectory() as folder, scripted_server(Path(folder), TALK) as server:
        facts = {"model": "voice-agent", "instance": "i", "needs_key": False, "voices_path": None}
        loading = facts | {"ready": False, "state": "starting", "reasons": ["loading the voice"]}
        with studio.tab(server.url) as person:
            studio.album.take(person.page, "idle")
            person.page.route("**/page.json", lambda route: route.fulfill(json=loading))
            person.page.reload()
            person.page.wait_for_selector("body[data-server=starting]")
            studio.album.take(person.page, "server-starting")
            person.page.route("**/page.json", lambda route: route.abort())
            person.page.reload()
            person.page.wait_for_selector("body[data-server=gone]")
            studio.album.take(person.page, "server-gone")
        with studio.tab(server.url) as person:
            person.page.evaluate(NEVER_ANSWERED)
            person.page.click("#toggle")
            studio.album.take(person.page, "asking")
        with studio.tab(server.url) as person:
            person.page.route(f"**{CALLS}", leave_waiting)
            person.page.click("#toggle")
            person.wait("connecting")
            studio.album.take(person.page, "connecting")


def refused(studio: Studio) -> None:
    """A microphone that cannot be had, a key that is wanted, a server that has no room."""
    with tempfile.TemporaryDirectory() as folder, scripted_server(Path(folder), TALK, seats=1) as server:
        away = server.url.replace("127.0.0.1", "agent.test")
        resolve = "--host-resolver-rules=MAP agent.test 127.0.0.1"
        cases: list[tuple[str, str, tuple[str, ...], bool]] = [
            ("denied", server.url, (FAKE_MICROPHONE,), False),
            ("no-device", server.url, (), True),
            ("insecure-origin", away, (FAKE_MICROPHONE, resolve), False),
        ]
        for name, url, flags, allowed in cases:
            with studio.tab(url, flags=flags, allowed=allowed, own=True) as person:
                person.page.click("#toggle")
                person.message()
                studio.album.take(person.page, name)
        with studio.tab(server.url) as first, studio.tab(server.url) as second:
            first.start()
            second.page.click("#toggle")
            second.message()
            studio.album.take(second.page, "busy")
    keys = 'api_keys = ["sesame"]\n'
    with (
        tempfile.TemporaryDirectory() as folder,
        scripted_server(Path(folder), TALK, more=keys) as locked,
        studio.tab(locked.url) as person,
    ):
        person.page.click("#toggle")
        person.message()
        studio.album.take(person.page, "key-wanted")


def talking(studio: Studio) -> None:
    """A conversation from its first second to its end."""
    with studio.call() as person:
        album, page = studio.album, person.page
        album.take(page, "listening")
        person.begin_to_speak(coded(spoken(QUESTION + " " + QUESTION)))
        person.wait("hearing")
        album.take(page, "hearing")
        person.wait_heard(TALK[0])
        person.wait("listening")
        page.wait_for_selector("#latency:not([hidden])")
        album.take(page, "answered")

        page.click("#mute")
        album.take(page, "muted")
        page.click("#mute")
        page.evaluate(DRAG)
        album.take(page, "picture-over-the-page")
        page.evaluate(DROP)
        person.message()
        album.take(page, "picture-refused")
        page.click("#open-settings")
        album.take(page, "settings")
        page.check("#choose-talk")
        page.keyboard.press("Escape")
        album.take(page, "push-to-talk")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.down(" ")
        album.take(page, "push-to-talk-held-down")
        page.keyboard.up(" ")
        page.click("#toggle")
        person.wait("idle")
        album.take(page, "stopped")


def thinking(studio: Studio) -> None:
    """A Thinker that takes its time."""
    with studio.call(thinker="first_ms = 60_000") as person:
        person.type("When does the harbour open?")
        person.wait("thinking")
        studio.album.take(person.page, "thinking-typed-turn")


def telling(studio: Studio) -> None:
    """An answer that goes on for minutes, as a story does."""
    album = studio.album
    with studio.call((" " + TALK[1],), "endless = true\npiece_ms = 300") as person:
        person.type("Tell me about the old sailor.")
        person.wait("speaking")
        person.wait_heard("old sailor near")
        album.take(person.page, "speaking")
        person.page.route("**/timeline?*", hold)
        person.wait("held")
        album.take(person.page, "held")
        person.page.unroute("**/timeline?*")
        person.wait("speaking")
        person.page.keyboard.press("Escape")
        person.page.locator(".caption.cut s").wait_for()
        album.take(person.page, "cut")
        person.type("And after that?")
        person.page.wait_for_function(LONG_ENOUGH, timeout=120_000)
        album.take(person.page, "long-captions")


def troubled(studio: Studio) -> None:
    """A call that something happens to."""
    with tempfile.TemporaryDirectory() as folder, scripted_server(Path(folder), TALK) as server:
        with studio.tab(server.url, own=True) as person:
            person.start()
            person.page.context.clear_permissions()
            person.message()
            studio.album.take(person.page, "microphone-lost")
        with studio.tab(server.url) as person:
            person.start()
            httpx.delete(server.url + person.locations[-1])
            person.wait("failed")
            studio.album.take(person.page, "hung-up-elsewhere")
        with studio.tab(server.url) as person:
            person.start()
            person.type("When does the harbour open?")
            person.wait_heard(TALK[0])
            server.process.kill()
            person.wait("reconnecting")
            studio.album.take(person.page, "reconnecting")


def readme(studio: Studio) -> None:
    """The README's pictures: the default models answer, by what they can, what the browser's own microphone hears."""
    with tempfile.TemporaryDirectory() as folder:
        questions = [piece for text in CONVERSATION for piece in (text, 12_000)]
        wav = write_wav(Path(folder) / "questions.wav", spoken(4_000, *questions))
        with (
            live_server() as server,
            studio.tab(server.url, flags=tuple(file_microphone(wav)), own=True) as person,
        ):
            person.start()
            person.page.wait_for_function(LAST_IS_BEING_ANSWERED, arg=len(CONVERSATION), timeout=120_000)
            person.page.wait_for_timeout(2_500)
            keep_as_webp(person.page, studio.album.folder)


def keep_as_webp(page: Page, folder: Path) -> None:
    """One wide and one narrow picture of the same moment, as small as a README wants them."""
    looks: list[tuple[str, Look]] = [("page", ("desktop", "light")), ("page-phone", ("phone", "dark"))]
    for name, look in looks:
        shown = base64.b64encode(take_one(page, look)).decode()
        blank = page.context.new_page()
        webp: str = blank.evaluate(AS_WEBP, f"data:image/png;base64,{shown}")
        blank.close()
        (folder / f"{name}.webp").write_bytes(base64.b64decode(webp.partition(",")[2]))


SCENES = {one.__name__: one for one in (before_a_call, refused, talking, telling, thinking, troubled)}


def main() -> None:
    """Make the pictures that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("scenes", nargs="*", help=f"of {', '.join(SCENES)} (all), or readme")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        studio = Studio(Album(arguments.folder), playwright, Speech.make())
        for name in arguments.scenes or SCENES:
            (SCENES | {"readme": readme})[name](studio)
    if studio.album.names:
        studio.album.bind()


if __name__ == "__main__":
    main()
