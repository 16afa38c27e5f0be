"""What a newcomer does: the self test without a network, the wheel, and mistakes at the start."""

import os
import shutil
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from tests.live_server import config_file, live_server

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parent.parent


def voice_agent(*arguments: str, prefix: tuple[str, ...] = (), timeout_s: int = 120) -> tuple[int, str, str]:
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "voice_agent", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.weights
def test_check_answers_a_spoken_question_with_the_network_cut() -> None:
    """In a network namespace of its own, with nothing but loopback."""
    if not shutil.which("unshare"):
        pytest.fail("unshare (util-linux) is needed")
    prefix = ("unshare", "--net", "--map-root-user")
    status, out, err = voice_agent("check", "--profile", "cpu-small", prefix=prefix)
    assert status == 0, out + err
    assert "capital" in out.lower() and "answered:" in out and "heard:" in out and "total" in out


@pytest.mark.weights
def test_server_says_why_it_is_not_ready_then_that_it_is_and_a_second_one_finds_the_port_taken() -> None:
    with live_server("--profile", "cpu-small") as server:
        assert httpx.get(f"{server.url}/readyz").status_code == 200
        page = httpx.get(server.url)
        assert page.status_code == 200 and "<title>" in page.text
        port = server.url.rsplit(":", 1)[1]
        status, _, err = voice_agent("serve", "--profile", "cpu-small", "--port", port)
        assert status == 1 and port in err and "--port" in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("serve", "--host", "0.0.0.0"), ("api_keys", "127.0.0.1")),
        (("serve", "--profile", "cpu-tiny"), ("cpu-tiny", "cpu-small")),
        (("serve", "--config", "nowhere.toml"), ("nowhere.toml",)),
        (("serve", "--tls-cert", "a.pem"), ("tls_key",)),
        (("serve", "--workers", "2"), ("server.workers", "load every model")),
    ],
)
def test_a_mistake_ends_in_one_sentence_that_says_what_is_right(
    arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    status, _, err = voice_agent(*arguments)
    assert status == 1 and "Traceback" not in err
    assert all(word in err for word in words), err


@pytest.mark.weights
@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ('[thinker]\nmodel = "/nowhere/model"', ("/nowhere/model",)),
        ('[thinker]\nmodel = "smollm"', ("smollm", "smollm2-135m")),
        ('[models.files]\nsmollm2-135m = "/nowhere"', ("/nowhere",)),
    ],
)
def test_a_model_that_is_not_there_is_named(tmp_path: Path, toml: str, words: tuple[str, ...]) -> None:
    config = config_file(tmp_path, f'profile = "cpu-small"\n{toml}\n')
    status, _, err = voice_agent("serve", "--port", "0", "--config", str(config))
    assert status == 1 and "Traceback" not in err
    assert all(word in err for word in words), err


def test_the_wheel_carries_page_and_signalling_and_finds_them(tmp_path: Path) -> None:
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            str(tmp_path),
            str(ROOT),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("voice_agent-*.whl")
    installed = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(installed)
    code = (
        "import signaling, voice_agent; from voice_agent.api.page import find_page; "
        "page = find_page(); "
        "print(voice_agent.__file__, signaling.__file__, page / 'index.html', (page / 'main.js').is_file())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
        check=False,
    )
    assert run.stdout.count(str(installed)) == 3 and run.stdout.strip().endswith("True"), (
        run.stdout + run.stderr
    )


def test_without_keys_only_this_machine_is_answered_and_with_keys_only_their_bearers() -> None:
    environment = {"VOICE_AGENT_SERVER_API_KEYS": "sesame"}
    with live_server("--profile", "scripted", environment=environment) as server:
        url = f"{server.url}/v1/models"
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"authorization": "Bearer wrong"}).status_code == 401
        assert httpx.get(url, headers={"authorization": "Bearer sesame"}).status_code == 200
        port = int(server.url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)):
            assert httpx.get(f"{server.url}/livez").status_code == 200


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "voice_agent", "config", "--profile", "scripted"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_thinker_that_cannot_be_reached_is_told_before_the_first_question(tmp_path: Path) -> None:
    config = config_file(tmp_path, 'profile = "scripted"\n[thinker]\nurl = "http://127.0.0.1:9/v1"\n')
    with live_server("--config", str(config)) as server:
        (warning,) = [line for line in server.lines if line.startswith("warning: ")]
        assert "thinker.url" in warning and "http://127.0.0.1:9/v1/models" in warning
