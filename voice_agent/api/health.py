"""What operators and clients ask about the server itself: alive, ready, version, models.

`readiness` is a callable that gives the reasons against; asking costs no engine anything, so that a busy GPU never
looks dead.
"""

import time
from collections.abc import Callable, Sequence
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from voice_agent import __version__

NO_STORE = {"cache-control": "no-store"}
Readiness = Callable[[], Sequence[str]]


def create_health_routes(readiness: Readiness, model_name: str) -> list[BaseRoute]:
    """/livez, /readyz, /version, /v1/models."""
    model = {"id": model_name, "object": "model", "created": int(time.time()), "owned_by": "voice-agent"}

    async def livez(request: Request) -> Response:
        return JSONResponse({"status": "alive"}, headers=NO_STORE)

    async def readyz(request: Request) -> Response:
        reasons = list(readiness())
        if reasons:
            return JSONResponse(
                {"status": "not ready", "reasons": reasons}, 503, NO_STORE | {"retry-after": "2"}
            )
        return JSONResponse({"status": "ready"}, headers=NO_STORE)

    async def version(request: Request) -> Response:
        return JSONResponse(
            {"name": "voice-agent", "version": __version__, "model": model_name}, headers=NO_STORE
        )

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model]})

    async def one_model(request: Request) -> Response:
        name = unquote(request.path_params["model"])
        if name != model_name:
            raise HTTPException(
                404, f"The model {name[:100]!r} does not exist; this server has {model_name!r}."
            )
        return JSONResponse(model)

    return [
        Route("/livez", livez),
        Route("/readyz", readyz),
        Route("/version", version),
        Route("/v1/models", models),
        Route("/v1/models/{model:path}", one_model),
    ]
