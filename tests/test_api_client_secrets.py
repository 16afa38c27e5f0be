import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from tests.realtime_wire import SETTINGS
from voice_agent.api import client_secrets
from voice_agent.api.client_secrets import ClientSecrets, create_secret_routes
from voice_agent.api.http_errors import exception_handlers
from voice_agent.api.realtime import RealtimeProtocol
from voice_agent.errors import BusyError


class Time:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def describe(session: str) -> dict[str, object]:
    protocol = RealtimeProtocol("sess_1", "voice-agent", SETTINGS)
    protocol.configure(session)
    return protocol.session()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def known(time: Time) -> ClientSecrets:
    return ClientSecrets(time)


@pytest.fixture
def client(known: ClientSecrets) -> TestClient:
    app = Starlette(routes=create_secret_routes(known, describe), exception_handlers=exception_handlers())
    return TestClient(app)


def test_a_key_is_good_until_its_time_is_over_and_any_number_of_times(
    client: TestClient, known: ClientSecrets, time: Time
) -> None:
    body = {
        "expires_after": {"anchor": "created_at", "seconds": 60},
        "session": {"type": "realtime", "instructions": "Sing."},
    }
    answer = client.post(client_secrets.PATH, json=body)
    assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
    made = answer.json()
    assert made["value"].startswith("ek_") and made["expires_at"] == time.now + 60
    assert made["session"]["instructions"] == "Sing." and made["session"]["object"] == "realtime.session"
    for _ in range(2):
        assert known.session_of(made["value"]) == '{"type": "realtime", "instructions": "Sing."}'
    time.now += 60
    assert known.session_of(made["value"]) is None
    assert known.session_of("ek_never_was") is None


@pytest.mark.parametrize("body", [b"", b"{}", b'{"session":null}'])
def test_nothing_asked_for_is_ten_minutes_of_the_defaults(
    client: TestClient, time: Time, body: bytes
) -> None:
    made = client.post(client_secrets.PATH, content=body).json()
    assert made["expires_at"] == time.now + 600 and made["session"]["instructions"] == "Be brief."


BAD: list[tuple[bytes, str | None]] = [
    (b"nonsense", None),
    (b"[]", None),
    (b"\xff", None),
    (b'{"expires_after":{"seconds":9}}', "expires_after.seconds"),
    (b'{"expires_after":{"seconds":7201}}', "expires_after.seconds"),
    (b'{"expires_after":{"seconds":10.5}}', "expires_after.seconds"),
    (b'{"expires_after":{"anchor":"now"}}', "expires_after.anchor"),
    (b'{"expires":1}', "expires"),
    (b'{"session":{"type":"realtime","voice":"x"}}', "session.voice"),
    (b'{"session":{"type":"realtime","audio":{"output":{"speed":9}}}}', "session.audio.output.speed"),
    (b'{"session":5}', "session"),
]


@pytest.mark.parametrize(("body", "param"), BAD)
def test_a_bad_body_is_a_400_that_names_the_parameter(
    client: TestClient, body: bytes, param: str | None
) -> None:
    answer = client.post(client_secrets.PATH, content=body)
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["param"] == param and error["message"] and error["code"]


def test_a_body_that_is_too_long_is_a_413(client: TestClient) -> None:
    assert client.post(client_secrets.PATH, content=b" " * 300_000).status_code == 413


def test_keys_are_bounded_and_those_that_are_over_make_room(
    known: ClientSecrets, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_secrets, "MAX_SECRETS", 3)
    for _ in range(3):
        known.mint("{}", 60)
    with pytest.raises(BusyError):
        known.mint("{}", 60)
    time.now += 61
    assert known.session_of(known.mint("{}", 60)[0]) == "{}"
