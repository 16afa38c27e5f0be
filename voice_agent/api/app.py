"""The HTTP application: routes, access, CORS, error bodies, and the page.

It is handed all that lives longer than a request (AppParts) and owns nothing itself.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route

from voice_agent.api.auth import Access, AccessGate
from voice_agent.api.health import Readiness, create_health_routes
from voice_agent.api.http_errors import RequestIds, exception_handlers
from voice_agent.api.operators import PREFIX as OPERATORS
from voice_agent.api.page import PageFacts, create_facts_route, create_page_routes, find_page

ALLOWED_HEADERS = ("Authorization", "Content-Type", "X-OpenAI-Agents-SDK", "OpenAI-Beta", "If-Match")
EXPOSED_HEADERS = ("Location", "Link", "Retry-After", "x-request-id")


@dataclass(frozen=True)
class AppParts:
    """What the composition root puts in.

    `routes` are those of signalling (and later of other surfaces); `readiness` gives the reasons why the server is
    not ready, and `lasting` the page's word where it will not get ready by itself (stopped, failed, stopping; empty:
    it will); `lifespan` runs around the serving; `page` is the page's folder, None for the packaged one.
    """

    routes: Sequence[BaseRoute]
    readiness: Readiness
    model_name: str
    access: Access = field(default_factory=Access)
    lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]] | None = None
    page: Path | None = None
    lasting: Callable[[], str] = str
    operators: Access = field(default_factory=Access)  # who may call what is under /operator/


def create_app(parts: AppParts) -> Starlette:
    """Put the application together; raises ConfigError if the page is missing."""
    paths = {route.path for route in parts.routes if isinstance(route, Route)}
    facts = PageFacts(parts.model_name, parts.readiness, parts.lasting, bool(parts.access.keys), paths)
    routes = [
        *parts.routes,
        *create_health_routes(parts.readiness, parts.model_name),
        create_facts_route(facts),
        *create_page_routes(parts.page or find_page()),
    ]
    middleware = [Middleware(RequestIds)]
    if parts.access.origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(parts.access.origins),
            allow_methods=["GET", "POST", "PATCH", "DELETE"],
            allow_headers=list(ALLOWED_HEADERS),
            expose_headers=list(EXPOSED_HEADERS),
            max_age=600,
        )
        middleware.append(cors)
    middleware.append(Middleware(AccessGate, access=parts.access))
    middleware.append(Middleware(AccessGate, access=parts.operators, prefix=OPERATORS))
    return Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers=exception_handlers(),
        lifespan=parts.lifespan,
    )
