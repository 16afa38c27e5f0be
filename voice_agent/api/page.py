"""The page: a handful of small files, read once, served from memory with strict headers.

Only what was found at the start can be asked for, so no path leads elsewhere, and no request waits for a disk.
"""

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
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


def _route(path: str, body: bytes, media_type: str) -> Route:
    headers = HEADERS | {"etag": f'"{hashlib.sha256(body).hexdigest()[:32]}"'}

    async def serve(request: Request) -> Response:
        if headers["etag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers | {"content-type": media_type})

    return Route(path, serve, methods=["GET"])
