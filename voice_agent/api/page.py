"""The page: a handful of small files, read once, served from memory with strict headers.

Only what was found at the start can be asked for, so no path leads elsewhere, and no request waits for a disk.
/page.json tells the page what it must know before a call; always with 200, since a browser prints any other status in
red even where the page expects it.
"""

import hashlib
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

import voice_agent
from voice_agent.errors import ConfigError

# by hand: the system's own table is wrong on some machines, and a module of the wrong type does not run
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".ico": "image/x-icon",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}
VOICES_PATH = "/v1/audio/voices"
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-cache",
}


@dataclass(frozen=True)
class PageFacts:
    """What the page asks before a call: see /page.json; `paths` are the server's routes."""

    model_name: str
    readiness: Callable[[], Sequence[str]]
    lasting: Callable[[], str]
    needs_key: bool
    paths: Collection[str]


def find_page() -> Path:
    """The folder of the page: inside the package, or beside it as in a checkout. Raises ConfigError."""
    package = Path(voice_agent.__file__).resolve().parent
    for folder in (package / "web", package.parent / "web"):
        if (folder / "index.html").is_file():
            return folder
    raise ConfigError(
        f"The page is missing: no web/index.html in or beside {package}. Reinstall the package."
    )


def create_page_routes(folder: Path) -> list[BaseRoute]:
    """One route for each file of the folder, and / for index.html."""
    routes: list[BaseRoute] = []
    for file in sorted(folder.iterdir()):
        if file.suffix in MEDIA_TYPES and file.is_file():
            path = "/" if file.name == "index.html" else f"/{file.name}"
            routes.append(_route(path, file.read_bytes(), MEDIA_TYPES[file.suffix]))
    return routes


def create_facts_route(facts: PageFacts) -> Route:
    """/page.json: model, readiness with reasons, whether a key is wanted, where voices are listed (null: nowhere).

    `state` is ready; starting, which ends by itself; stopped or failed, which do not; or stopping. `instance` is
    another after every start of the server, so that the page knows its calls are gone.
    """
    fixed = {
        "model": facts.model_name,
        "instance": secrets.token_hex(8),
        "needs_key": facts.needs_key,
        "voices_path": VOICES_PATH if VOICES_PATH in facts.paths else None,
    }

    async def serve(request: Request) -> Response:
        reasons = list(facts.readiness())
        state = "ready" if not reasons else facts.lasting() or "starting"
        return JSONResponse(
            fixed | {"ready": not reasons, "state": state, "reasons": reasons},
            headers={"cache-control": "no-store"},
        )

    return Route("/page.json", serve, methods=["GET"])


def _route(path: str, body: bytes, media_type: str) -> Route:
    headers = HEADERS | {"etag": f'"{hashlib.sha256(body).hexdigest()[:32]}"'}

    async def serve(request: Request) -> Response:
        if headers["etag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers | {"content-type": media_type})

    return Route(path, serve, methods=["GET"])
