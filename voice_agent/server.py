"""The composition root: weights, engines, ears, calls and HTTP put together, run, drained and ended.

One process, one event loop. HTTP answers from the first moment (/readyz says what is still loading); calls are taken
once both engines are warm.
"""

import asyncio
import gc
import signal
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from signaling.calls import Call, CallLimits, CallRegistry, CallRequest, new_call_id
from signaling.ice import IceServer, IceServers
from signaling.routes import create_signaling_routes
from signaling.seats import Seats
from voice_agent import precedence
from voice_agent.address import bind, url_of
from voice_agent.agent import Agent
from voice_agent.api.app import AppParts, create_app
from voice_agent.api.auth import Access
from voice_agent.api.client_secrets import ClientSecrets, create_secret_routes
from voice_agent.api.connections import HttpConnection, SocketConnection
from voice_agent.api.operators import create_operator_routes
from voice_agent.api.resume import Resumables
from voice_agent.api.stopping import EndsWithServer
from voice_agent.api.websocket import MAX_FRAME_BYTES, LiveCall, SocketRequest, create_websocket_routes
from voice_agent.call import BrowserCall
from voice_agent.clock import Clock, MonotonicClock
from voice_agent.config import Config, ServerConfig
from voice_agent.draining import Drain
from voice_agent.engines import Engines, running_engines, start_engines, store_of, thinker_warning
from voice_agent.errors import ConfigError, UnknownCall
from voice_agent.loop_lag import LoopLag
from voice_agent.shared_ears import SharedEars
from voice_agent.socket_call import SocketCall

STOP_S = 1  # what the drain has left in hand is ended after this


class SocketCalls:
    """Calls over WebSockets, beside the others in the registry; implements api.websocket.Calls."""

    def __init__(self, agent: Agent, registry: CallRegistry) -> None:
        self._agent = agent
        self._registry = registry

    async def open(self, request: SocketRequest) -> LiveCall:
        """Begin a call; raises BusyError, RemoteProtocolError."""

        async def create(call: CallRequest) -> Call:
            return await self._agent.create_socket_call(call, request)

        session = '{"type": "transcription"}' if request.transcription else None
        asked = CallRequest(new_call_id(), "", session, request.session)
        return cast(SocketCall, (await self._registry.admit(asked, create))[1])

    def find(self, call_id: str) -> LiveCall:
        """A running call of any kind that lines can join; raises UnknownCall."""
        call = self._registry.get(call_id)
        if not isinstance(call, BrowserCall | SocketCall):
            raise UnknownCall(f"The call {call_id[:64]!r} takes no control connection.")
        return call


def ice_servers(config: Config) -> IceServers:
    """The configured STUN and TURN servers."""
    servers = [IceServer(s.urls, s.username, s.credential) for s in config.ice.servers]
    return IceServers(servers, config.ice.turn_secret)


async def serve(config: Config, tell: Callable[[str], None]) -> None:
    """Serve until told to stop; `tell` gets a line for the person who started it.

    Raises ConfigError (port in use, bad certificate), WeightsError, EngineStartFailed.
    """
    _go_first()
    clock = MonotonicClock()
    store = store_of(config)
    listening = bind(config.server.host, config.server.port)
    ears = SharedEars.load(store)
    try:
        async with running_engines(config, store, clock, tell) as engines:
            agent = Agent(config, engines, ears, clock)
            limits = CallLimits(connect_timeout_s=config.session.connect_timeout_s)
            seats = Seats(config.session.max_sessions, clock)
            registry = CallRegistry(agent.create_call, seats, clock, limits)
            lag = LoopLag(clock)
            parts = app_parts(config, agent, registry, clock)
            operating = operator_routes(config, agent, engines, registry, lag)
            app = create_app(replace(parts, routes=[*parts.routes, *operating]))
            drain = Drain(registry, agent.places, clock, config.server.drain_s)
            quiet = EndsWithServer(app, lambda: server.should_exit)
            server = uvicorn.Server(_uvicorn_config(config, quiet))
            async with _measured(lag):
                start = _start(config, agent, engines, tell)
                await _run(config, start, drain, server, listening, tell)
    finally:
        ears.close()
        listening.close()


def _go_first() -> None:
    """Let the event loop go before the models, and before its own threads."""
    precedence.take()
    asyncio.get_running_loop().set_default_executor(
        ThreadPoolExecutor(thread_name_prefix="aside", initializer=precedence.step_back)
    )


def app_parts(config: Config, agent: Agent, registry: CallRegistry, clock: Clock) -> AppParts:
    """What the HTTP application is made of."""
    own_names = () if config.server.host in {"0.0.0.0", "::"} else (config.server.host,)
    known = ClientSecrets()
    resumables = Resumables[LiveCall](clock, config.session.resume_s)
    model_name = config.server.served_model_name
    return AppParts(
        lasting=lambda: "stopping" if registry.draining else agent.lasting(),
        routes=[
            *create_secret_routes(known, agent.describe_session),
            *create_signaling_routes(registry, ice_servers(config)),
            *create_websocket_routes(SocketCalls(agent, registry), model_name, resumables),
            *agent.request_routes(),
        ],
        readiness=lambda: [*agent.readiness(), *(["draining"] if registry.draining else [])],
        model_name=config.server.served_model_name,
        access=Access(
            config.server.api_keys,
            config.server.allowed_origins,
            own_names,
            known.session_of,
            resumables.knows,
        ),
        lifespan=_lifespan(registry),
        operators=Access(config.server.operator_keys, config.server.allowed_origins, own_names),
    )


def operator_routes(
    config: Config, agent: Agent, engines: Engines, registry: CallRegistry, lag: LoopLag
) -> list[BaseRoute]:
    """What operators may do; nothing where clients have keys and operators none: a client is no operator."""
    if config.server.api_keys and not config.server.operator_keys:
        return []

    def load(_seconds: float) -> dict[str, float]:
        return {"calls": len(registry), "tasks": len(asyncio.all_tasks())}

    processes = {"thinker": engines.thinker_process, "speech": engines.speech_process}
    figures = {"loop_lag": lag.summary, "pace": agent.pace.summary, "load": load}
    return create_operator_routes(processes, figures)


@asynccontextmanager
async def _measured(lag: LoopLag) -> AsyncGenerator[None]:
    probe = asyncio.create_task(lag.run(), name="loop lag")
    try:
        yield
    finally:
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)


def _lifespan(registry: CallRegistry) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with registry:
            yield

    return lifespan


async def _start(config: Config, agent: Agent, engines: Engines, tell: Callable[[str], None]) -> None:
    """Until no caller is the first to anything."""
    await start_engines(engines, config)
    await agent.rehearse()
    gc.collect()
    gc.freeze()  # what lives for ever is not looked at again, so that a call's end may collect in a millisecond
    if warning := await thinker_warning(engines):
        tell(f"warning: {warning}")


async def _run(
    config: Config,
    start: Coroutine[Any, Any, None],
    drain: Drain,
    server: uvicorn.Server,
    listening: socket.socket,
    tell: Callable[[str], None],
) -> None:
    """HTTP from the first moment; the start beside it; whichever fails ends both."""
    serving = asyncio.create_task(server.serve(sockets=[listening]), name="http")
    starting = asyncio.create_task(start, name="start")
    try:
        await asyncio.wait({serving, starting}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            tell(f"ready: {url_of(config, listening)}")
            stop_on_signals(server, drain, tell)
        await serving
    finally:
        server.should_exit = True
        starting.cancel()
        await asyncio.gather(serving, starting, return_exceptions=True)


def stop_on_signals(server: uvicorn.Server, drain: Drain, tell: Callable[[str], None]) -> None:
    """First SIGTERM or SIGINT: refuse what is new, let what is in hand end, stop. Second: stop now."""
    loop = asyncio.get_running_loop()
    draining: list[asyncio.Task[None]] = []

    async def end() -> None:
        await drain.run()
        server.should_exit = True

    def on_signal() -> None:
        if draining:
            server.should_exit = server.force_exit = True
        else:
            if waits_for := drain.in_hand():
                tell(f"waiting for {waits_for}, {drain.drain_s:g} s at most; once more stops at once")
            draining.append(asyncio.create_task(end(), name="drain"))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


def _check_certificate(server: ServerConfig) -> None:
    for name in ("tls_cert", "tls_key"):
        path = getattr(server, name)
        if path and not Path(path).is_file():
            raise ConfigError(f"server.{name}: {path} is not a file")
    if server.tls_cert:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                server.tls_cert, server.tls_key
            )
        except (ssl.SSLError, OSError) as error:
            message = "they are no PEM certificate chain and its private key"
            raise ConfigError(f"server.tls_cert and server.tls_key: {message} ({error})") from error


def _uvicorn_config(config: Config, app: ASGIApp) -> uvicorn.Config:
    _check_certificate(config.server)
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=STOP_S,
        http=HttpConnection,
        ws=SocketConnection,
        ws_max_size=MAX_FRAME_BYTES,
        ssl_certfile=config.server.tls_cert or None,
        ssl_keyfile=config.server.tls_key or None,
    )
