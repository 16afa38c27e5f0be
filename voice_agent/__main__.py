"""The command line: serve, models, check, bench, config.

Prints for people; everything that can go wrong on purpose ends in one sentence on standard error and status 1.
"""

import argparse
import asyncio
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from voice_agent import __version__
from voice_agent.config import Config
from voice_agent.config_checks import url_fault
from voice_agent.config_sources import load_config
from voice_agent.config_text import describe
from voice_agent.errors import ConfigError, VoiceAgentError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = _bench(given[1:]) if given[:1] == ["bench"] else _run(given)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever read it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except VoiceAgentError as error:
        print(f"voice-agent: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _bench(given: list[str]) -> int:
    from voice_agent.bench.__main__ import main as bench

    return bench(given)


def _run(given: list[str]) -> int:
    options = _parser().parse_args(given)
    logging.basicConfig(
        level=options.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    _quiet_libraries()
    return options.run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="voice-agent", description="A realtime voice agent backend.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    serve = _command(commands, "serve", _serve, "serve the page and the API")
    serve.add_argument("--host", help="address to listen on")
    serve.add_argument("--port", type=int, help="TCP port")
    serve.add_argument("--workers", type=int, help="1: more server processes are refused")
    serve.add_argument("--served-model-name", help="the model name clients see")
    serve.add_argument("--tls-cert", help="PEM certificate chain")
    serve.add_argument("--tls-key", help="PEM private key")

    models = _command(commands, "models", _models, "what weights are there, and on what terms")
    models.add_argument("action", nargs="?", choices=["list", "pull"], default="list")
    models.add_argument("names", nargs="*", help="model names; the profile's by default")

    engine = _command(commands, "engine", _engine, "see, restart or stop an engine of a running server")
    engine.add_argument("order", choices=["list", "restart", "stop"])
    engine.add_argument("name", nargs="?", default="", help="thinker or speech")
    engine.add_argument(
        "--url", type=_url, default="", help="the server; by default the one this configuration describes"
    )

    _command(commands, "check", _check, "self test without a microphone")
    _command(commands, "config", _config, "print the configuration with every field's meaning")
    commands.add_parser("bench", help="measure over the wire, like a caller (voice-agent bench --help)")
    return parser


def _url(text: str) -> str:
    if text and (fault := url_fault(text)):
        raise argparse.ArgumentTypeError(fault)
    return text


def _command(commands: Any, name: str, run: Any, help_text: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=help_text)
    parser.add_argument("--config", type=Path, help="TOML file")
    parser.add_argument("--profile", help="cpu, cpu-small, gpu-cascade or scripted")
    parser.add_argument("--log-level", default="warning", choices=["debug", "info", "warning", "error"])
    parser.set_defaults(run=run)
    return parser


def _load(options: argparse.Namespace) -> Config:
    given = vars(options)
    names = ("host", "port", "workers", "served_model_name", "tls_cert", "tls_key")
    flags: dict[str, Any] = {"server": {n: given[n] for n in names if given.get(n) is not None}}
    if options.profile:
        flags["profile"] = options.profile
    return load_config(options.config, flags=flags)


def _serve(options: argparse.Namespace) -> int:
    # before numpy is imported: its matrices here are small, and a thread for each core would spin beside the event loop
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    config = _load(options)
    if status := _pull(config, []):
        return status
    from voice_agent.server import serve

    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(serve(config, _tell))
    return 0


def _new_loop() -> asyncio.AbstractEventLoop:
    """The faster loop, where there is one (not on Windows)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _models(options: argparse.Namespace) -> int:
    from voice_agent.engines import model_names, store_of
    from voice_agent.models.report import describe as describe_models

    config = _load(options)
    if options.action == "pull":
        return _pull(config, options.names)
    table = describe_models(store_of(config), config.profile, model_names(config), _flags(options))
    print(table, end="")
    return 0


def _flags(options: argparse.Namespace) -> str:
    """The flags that chose this configuration, as they have to be given again."""
    given = {"--config": options.config, "--profile": options.profile}
    return "".join(f" {name} {shlex.quote(str(value))}" for name, value in given.items() if value)


def _pull(config: Config, names: list[str]) -> int:
    from voice_agent.engines import model_names, store_of
    from voice_agent.models.report import pull

    return pull(store_of(config), names or model_names(config), sys.stderr)


def _engine(options: argparse.Namespace) -> int:
    from voice_agent.operate import operate

    if options.order != "list" and not options.name:
        raise ConfigError("name: which engine? `voice-agent engine list` shows them")
    return operate(_load(options), options.url, options.order, options.name, _tell)


def _check(options: argparse.Namespace) -> int:
    config = _load(options)
    if status := _pull(config, []):
        return status
    from voice_agent.check import check

    return asyncio.run(check(config, _tell))


def _config(options: argparse.Namespace) -> int:
    print(describe(_load(options)))
    return 0


def _tell(line: str) -> None:
    print(line, flush=True)


def _quiet_libraries() -> None:
    """Libraries that log a line for each packet or candidate say only what is wrong."""
    for name in ("aioice", "aiortc", "uvicorn", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
