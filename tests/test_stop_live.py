"""A running server that is told to stop: what is in hand goes on for a while, and ends in words, not in traces."""

import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.live_server import LiveServer, config_file, live_server

pytestmark = pytest.mark.process

ANSWER = 'texts = ["one two three four five six seven eight."]\npiece_ms = 800'  # 6 s, longer than any grace


@contextmanager
def stopping(folder: Path, answer: str, drain_s: float) -> Generator[LiveServer]:
    text = f'profile = "scripted"\n[server]\ndrain_s = {drain_s}\n[thinker.options]\n{answer}\n'
    with live_server("--config", str(config_file(folder, text))) as server:
        yield server


@dataclass
class Chat:
    """One chat on a thread of its own."""

    url: str
    stream: bool = True
    status: int = 0
    body: str = ""
    broke: bool = False

    def __post_init__(self) -> None:
        self.begun = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        messages = [{"role": "user", "content": "Hi."}]
        asked = {"model": "voice-agent", "messages": messages, "stream": self.stream}
        try:
            with httpx.stream("POST", f"{self.url}/v1/chat/completions", json=asked, timeout=60) as response:
                self.status = response.status_code
                for piece in response.iter_text():
                    self.body += piece
                    self.begun.set()
        except httpx.TransportError:
            self.broke = True

    def over(self) -> "Chat":
        self._thread.join(30)
        assert not self._thread.is_alive()
        return self


def no_trace(server: LiveServer) -> None:
    server.process.wait(20)
    time.sleep(0.2)
    assert not [line for line in server.lines if "Traceback" in line or "Exception in ASGI" in line]


def test_replies_over_http_go_on_to_their_end_and_nothing_new_begins(tmp_path: Path) -> None:
    with stopping(tmp_path, ANSWER, 20) as server:
        streamed = Chat(server.url)
        assert streamed.begun.wait(20)
        whole = Chat(server.url, stream=False)
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert "draining" in httpx.get(f"{server.url}/readyz").text
        late = Chat(server.url).over()
        assert late.status == 503 and "about to stop" in late.body
        for chat in (streamed.over(), whole.over()):
            assert chat.status == 200 and "eight" in chat.body and not chat.broke
        ended_s = time.monotonic()
        assert streamed.body.endswith("data: [DONE]\n\n")
        no_trace(server)
        assert time.monotonic() - ended_s < 5 and server.process.returncode == 0
        assert any("waiting for 2 request(s), 20 s at most" in line for line in server.lines)


@pytest.mark.parametrize(
    ("drain_s", "signals"), [(0.5, [signal.SIGTERM]), (60, [signal.SIGINT, signal.SIGINT])]
)
def test_what_does_not_end_in_time_is_told_so(
    tmp_path: Path, drain_s: float, signals: list[signal.Signals]
) -> None:
    with stopping(tmp_path, f"{ANSWER}\nendless = true", drain_s) as server:
        streamed = Chat(server.url)
        assert streamed.begun.wait(20)
        whole = Chat(server.url, stream=False)
        time.sleep(0.3)
        for number in signals:
            server.process.send_signal(number)
            time.sleep(0.2)
        assert '"error"' in streamed.over().body and not streamed.broke
        assert whole.over().status == 503 and whole.body.startswith('{"error"')
        no_trace(server)
