"""Talking with the page in Debian's Chromium: turns, interruptions, holds, text, mute, push to talk.

A scripted Thinker and the tone Talker answer, so that what reached the loudspeaker is known word for word; one test
runs the real small models from the browser's own microphone.
"""

from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

from tests.browser_rig import (
    ANSWERS,
    LONG,
    SHORT,
    STORY,
    Speech,
    file_microphone,
    launch,
    most_of,
    person_at,
    scripted_server,
    spoken,
    tab,
    words_of,
    write_wav,
)
from tests.live_server import LiveServer, live_server

pytestmark = [pytest.mark.browser, pytest.mark.weights]


@pytest.fixture(scope="module")
def speech() -> Speech:
    return Speech.make()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    with scripted_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def storyteller(tmp_path_factory: pytest.TempPathFactory) -> Generator[LiveServer]:
    with scripted_server(tmp_path_factory.mktemp("story"), [STORY, *ANSWERS]) as running:
        yield running


@pytest.fixture(scope="module")
def playwright() -> Generator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Generator[Browser]:
    running = launch(playwright)
    yield running
    running.close()


def test_three_turns_are_heard_word_for_word_with_captions_of_both_and_their_latency(
    server: LiveServer, browser: Browser, speech: Speech
) -> None:
    with tab(browser, server.url) as person:
        person.start()
        person.listen(to_both=True)
        shown_ms: list[int | None] = []
        for turn, (said, answer) in enumerate(
            zip((speech.short, speech.long, speech.short), ANSWERS, strict=True), 1
        ):
            person.speak(said)
            person.wait_heard(answer)
            person.page.wait_for_function(
                f"() => document.querySelectorAll('.caption.agent:not(.partial)').length === {turn}"
            )
            person.wait("listening")
            shown_ms.append(person.reading_ms(turn))
        assert person.captions() == [
            ("You", SHORT),
            ("Agent", ANSWERS[0]),
            ("You", LONG),
            ("Agent", ANSWERS[1]),
            ("You", SHORT),
            ("Agent", ANSWERS[2]),
        ]
        assert most_of(person.sounded(" ".join(ANSWERS)), " ".join(ANSWERS))
        history = person.timeline()["history"]
        assert [message["content"] for message in history] == [text for _, text in person.captions()]
        person.page.wait_for_selector("#latency:not([hidden])")
        assert min(person.page.evaluate("Object.values(window.loudest)")) > 0.3  # both meters
        shown = person.page.inner_text("#latency")
        assert "Median of 3 turns" in shown and "Round trip" in shown
        both_ms = list(zip(shown_ms, person.waited_ms(), strict=True))
        added_ms = [at_ear - waited for at_ear, waited in both_ms if at_ear is not None]
        # a starved browser loses time of its sound, and the page then tells the server's figures
        assert added_ms
        assert all(-70 < one < 130 for one in added_ms), both_ms  # the sound output's delay is counted
        person.page.click("#toggle")
        person.wait("idle", 5_000)


def test_speaking_over_the_answer_stops_it_and_its_unheard_words_are_shown_as_cut(
    storyteller: LiveServer, browser: Browser, speech: Speech
) -> None:
    with tab(browser, storyteller.url) as person:
        person.start()
        person.listen()
        person.speak(speech.short)
        person.wait("speaking")
        person.page.wait_for_timeout(1_500)  # the browser's own clock: a person who listens a while
        person.speak(speech.long)
        cut = person.page.locator(".caption.cut").first
        cut.wait_for(timeout=15_000)
        person.wait_heard(ANSWERS[0])
        said, struck = cut.locator(".words").inner_text(), cut.locator("s").inner_text()
        assert said + struck == STORY and said and struck
        of_answer = words_of(ANSWERS[0].lower())  # the same words sound alike, whatever they begin with
        of_story = [word for word in person.sounded(STORY) if word not in of_answer]
        last = words_of(STORY).index(of_story[-1])
        assert -4 <= last + 1 - len(said.split()) <= 1, said
        assert person.timeline()["history"][1]["content"] == said.strip()


def test_a_sound_of_listening_holds_the_answer_and_costs_no_word(
    storyteller: LiveServer, browser: Browser, speech: Speech
) -> None:
    with tab(browser, storyteller.url) as person:
        person.start()
        person.listen()
        person.speak(speech.short)
        person.wait("speaking")
        person.page.wait_for_timeout(1_000)
        person.speak(speech.backchannel)
        person.wait_heard(STORY)
        person.wait("listening")
        states = person.states()
        assert "held" in states and states[states.index("held") + 1] == "speaking"
        assert person.page.locator(".cut").count() == 0
        assert most_of(person.sounded(STORY), STORY)


@pytest.mark.parametrize("how", [pytest.param("button", marks=pytest.mark.slow), "escape", "text"])
def test_the_answer_can_be_interrupted_by_button_key_and_text(
    storyteller: LiveServer, browser: Browser, speech: Speech, how: str
) -> None:
    with tab(browser, storyteller.url) as person:
        person.start()
        person.speak(speech.short)
        person.wait("speaking")
        person.page.wait_for_timeout(700)
        if how == "button":
            person.page.click("#interrupt")
        elif how == "escape":
            person.page.keyboard.press("Escape")
        else:
            person.type("Enough, thank you.")
            person.wait_caption("Enough, thank you.")
            person.wait_heard(ANSWERS[0])
        person.page.locator(".caption.cut s").wait_for(timeout=5_000)
        person.wait("listening")


def test_a_typed_question_is_answered_aloud(server: LiveServer, browser: Browser) -> None:
    with tab(browser, server.url) as person:
        person.start()
        person.listen()
        person.type("When does it open?")
        person.hear_out(ANSWERS[0])
        assert person.captions() == [("You", "When does it open?"), ("Agent", ANSWERS[0])]
        person.page.wait_for_selector("#latency:not([hidden])")
        assert person.page.input_value("#text") == ""


def test_a_muted_microphone_sends_nothing_until_it_is_open_again(
    server: LiveServer, browser: Browser, speech: Speech
) -> None:
    with tab(browser, server.url) as person:
        person.start()
        person.page.click("#mute")
        assert person.page.get_attribute("#mute", "aria-pressed") == "true"
        assert person.page.inner_text("#state") == "Muted"
        person.speak(speech.long)
        person.page.wait_for_timeout(1_000)
        assert person.captions() == [] and "hearing" not in person.states()
        assert person.page.evaluate("window.loudest.user") < 0.1
        person.page.click("#mute")
        person.listen()
        person.speak(speech.short)
        person.hear_out(ANSWERS[0])
        assert person.captions() == [("You", SHORT), ("Agent", ANSWERS[0])]


def test_push_to_talk_hears_only_while_the_key_is_down(
    server: LiveServer, browser: Browser, speech: Speech
) -> None:
    with tab(browser, server.url) as person:
        person.start()
        person.page.click("#open-settings")
        person.page.check("#choose-talk")
        person.page.keyboard.press("Escape")
        person.page.wait_for_selector("#talk:visible")
        person.page.wait_for_function("() => document.activeElement.id === 'talk'")
        assert person.page.inner_text("#state") == "Hold to talk"
        person.speak(speech.short)
        assert person.captions() == []
        person.page.click("#mute")
        person.page.click("#mute")  # whatever was clicked last, the space bar is for talking
        person.page.keyboard.down(" ")
        person.page.wait_for_selector("#talk[aria-pressed=true]")
        person.speak(speech.long)
        person.page.keyboard.up(" ")
        person.wait_heard(ANSWERS[0])
        assert person.captions() == [("You", LONG), ("Agent", ANSWERS[0])]
        assert person.page.get_attribute("#mute", "aria-pressed") == "false"
        box = person.page.locator("#talk").bounding_box()
        assert box
        person.page.mouse.move(box["x"] + 20, box["y"] + 20)
        person.page.mouse.down()
        person.page.mouse.up()
        assert "Hold the button" in person.message()
        person.page.click("#mute")
        person.page.keyboard.press(" ")
        person.page.locator("#message", has_text="is muted").wait_for()


def test_the_real_small_models_answer_the_browsers_own_microphone_after_one_real_click(
    playwright: Playwright, tmp_path: Path
) -> None:
    """No autoplay flag, no stand-in for the microphone: what a person does."""
    wav = write_wav(tmp_path / "question.wav", spoken(4000, "What is the capital of France?", 2000))
    browser = launch(playwright, *file_microphone(wav))
    try:
        with live_server("--profile", "cpu-small") as server:
            context = browser.new_context(permissions=["microphone"])
            person = person_at(context, server.url, own_microphone=True)
            box = person.page.locator("#toggle").bounding_box()
            assert box
            person.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            person.wait("listening")
            person.listen()
            person.wait("speaking", 60_000)
            person.wait("listening", 60_000)
            captions = person.captions()
            assert "capital" in captions[0][1].lower() and "france" in captions[0][1].lower()
            assert captions[1][0] == "Agent" and captions[1][1]
            loudest = person.page.evaluate("Math.max(...window.heardSound.map((part) => Math.max(...part)))")
            assert loudest > 1000
            assert person.page.evaluate("document.getElementById('speaker').paused") is False
            assert not person.problems
    finally:
        browser.close()
