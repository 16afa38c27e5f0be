"""What operators may do while the server runs: see the engines, restart or stop one, see how late things are and how
much is in hand.

Under /operator/, behind keys of its own (`server.operator_keys`): a key to talk is no key to stop an engine. It knows
an engine only as something that can be told so.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from voice_agent.api.health import NO_STORE
from voice_agent.errors import RemoteProtocolError

PREFIX = "/operator/"
MOST_S = 86_400  # more is not kept by any figure


class Operated(Protocol):
    """An engine as an operator sees it."""

    @property
    def state(self) -> str:
        """Starting, ready, backoff, crash_loop, stopped or closed."""
        ...

    @property
    def pid(self) -> int | None:
        """Of the process that is up."""
        ...

    @property
    def spare_ready(self) -> bool:
        """Whether a warm spare stands by."""
        ...

    @property
    def held(self) -> list[str]:
        """Request ids in it, by its own word of a second ago at most."""
        ...

    @property
    def work(self) -> Mapping[str, float]:
        """Running totals of what it did, by the same word; empty where it counts nothing."""
        ...

    def reasons(self) -> list[str]:
        """Why it is not ready."""
        ...

    def restart(self) -> None:
        """End its process and start another."""
        ...

    def stop(self) -> None:
        """End its process for good."""
        ...


def create_operator_routes(
    engines: Mapping[str, Operated], figures: Mapping[str, Callable[[float], Mapping[str, float]]]
) -> list[BaseRoute]:
    """GET /operator/engines, POST /operator/engines/{name}/{restart,stop}, GET /operator/{figure}."""

    async def seen(request: Request) -> Response:
        return JSONResponse({"engines": [_seen(*item) for item in engines.items()]}, headers=NO_STORE)

    async def order(request: Request) -> Response:
        name, word = request.path_params["name"], request.path_params["order"]
        engine = engines.get(name)
        if engine is None:
            raise HTTPException(404, f"There is no engine {name[:100]!r}; there are {', '.join(engines)}.")
        if word not in {"restart", "stop"}:
            raise HTTPException(404, f"An engine can be told to restart or to stop, not to {word[:100]!r}.")
        (engine.restart if word == "restart" else engine.stop)()
        return JSONResponse(_seen(name, engine), 202, NO_STORE)

    async def figure(request: Request) -> Response:
        summary = figures[request.url.path.removeprefix(PREFIX)]
        return JSONResponse(dict(summary(_seconds(request))), headers=NO_STORE)

    return [
        Route("/operator/engines", seen),
        Route("/operator/engines/{name}/{order}", order, methods=["POST"]),
        *(Route(PREFIX + name, figure) for name in figures),
    ]


def _seconds(request: Request) -> float:
    """How far back to look; raises RemoteProtocolError."""
    try:
        seconds = float(request.query_params.get("seconds", "60"))
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= MOST_S:
        message = f"Invalid value for 'seconds': it should be a number from 0 to {MOST_S}."
        raise RemoteProtocolError("invalid_value", message, "seconds")
    return seconds


def _seen(name: str, engine: Operated) -> dict[str, Any]:
    return {
        "name": name,
        "state": engine.state,
        "pid": engine.pid,
        "spare_ready": engine.spare_ready,
        "held": len(engine.held),
        "work": dict(engine.work),
        "reasons": engine.reasons(),
    }
