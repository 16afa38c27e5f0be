"""`voice-agent engine list|restart|stop`: an operator's word to a running server, over HTTP."""

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx

from voice_agent.config import DIGEST, Config
from voice_agent.config_checks import key_fault
from voice_agent.errors import VoiceAgentError

POLL_S = 0.5
PATIENCE_S = 300.0  # a large model's load
OBEYED_S = 5.0  # an order that has changed nothing by then changes nothing
DOWN = {"crash_loop", "stopped", "closed"}  # what an engine does not leave by itself
KEYS = "server.operator_keys (VOICE_AGENT_SERVER_OPERATOR_KEYS=KEY)"


class OperatorError(VoiceAgentError):
    """The server did not do it; the text says why."""

    code = "operator_error"


def operate(config: Config, url: str, order: str, name: str, tell: Callable[[str], None]) -> int:
    """Give the order and wait for it to be carried out; the exit status. Raises OperatorError.

    `url` empty: the server this configuration describes.
    """
    keys = [key for key in config.server.operator_keys if not key.startswith(DIGEST)]
    if config.server.operator_keys and not keys:
        message = "the configuration holds the digests of the operators' keys alone; give the key itself as"
        raise OperatorError(f"{message} VOICE_AGENT_SERVER_OPERATOR_KEYS")
    if keys and (fault := key_fault(keys[0])):
        raise OperatorError(f"{KEYS}: {fault}")
    try:
        http = httpx.Client(
            base_url=url or _own_url(config),
            headers={"authorization": f"Bearer {keys[0]}"} if keys else {},
            timeout=10,
            trust_env=False,
        )
    except httpx.InvalidURL as error:
        raise OperatorError(f"--url: {url!r} is no address ({error})") from error
    with http:
        engines = _asked(http, "GET", "/operator/engines")["engines"]
        chosen = [engine for engine in engines if name in {"", engine["name"]}]
        if not chosen:
            there = ", ".join(engine["name"] for engine in engines)
            raise OperatorError(f"NAME: {name!r} is no engine of this server; there are {there}")
        if order == "list":
            for engine in chosen:
                tell(_line(engine))
            return 0
        before = _asked(http, "POST", f"/operator/engines/{quote(name, safe='')}/{order}")
        return _wait(http, before, "ready" if order == "restart" else "stopped", tell)


def _wait(http: httpx.Client, before: dict[str, Any], wanted: str, tell: Callable[[str], None]) -> int:
    """Tell each change until it is as wanted; 1 if it will not be."""
    name, told, obeyed = before["name"], "", False
    begin_s = time.monotonic()
    while (waited_s := time.monotonic() - begin_s) < PATIENCE_S:
        engines = _asked(http, "GET", "/operator/engines")["engines"]
        engine = next(engine for engine in engines if engine["name"] == name)
        if (line := _line(engine)) != told:
            tell(line)
            told = line
        obeyed = obeyed or (engine["state"], engine["pid"]) != (before["state"], before["pid"])
        if engine["state"] == wanted and (wanted == "stopped" or engine["pid"] != before["pid"]):
            return 0
        if engine["state"] in DOWN and (obeyed or waited_s > OBEYED_S):
            return 1
        time.sleep(POLL_S)
    return 1


def _asked(http: httpx.Client, method: str, path: str) -> dict[str, Any]:
    try:
        response = http.request(method, path)
    except httpx.HTTPError as error:
        raise OperatorError(f"no server answers at {http.base_url}: {error}") from error
    if response.status_code == 404 and not path.startswith("/operator/engines/"):
        raise OperatorError("this server takes no orders: set server.operator_keys and start it again")
    if response.status_code in {401, 403}:
        raise OperatorError(
            f"{_reason(response)} The server's operators have keys of their own: give one as {KEYS}"
        )
    if response.is_error:
        raise OperatorError(_reason(response))
    return response.json()


def _reason(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {response.status_code}"


def _line(engine: dict[str, Any]) -> str:
    pid = f", process {engine['pid']}" if engine["pid"] else ""
    spare = ", with a warm spare" if engine["spare_ready"] else ""
    reasons = "".join(f"\n  {reason}" for reason in engine["reasons"])
    return f"{engine['name']}: {engine['state']}{pid}{spare}{reasons}"


def _own_url(config: Config) -> str:
    server = config.server
    host = "127.0.0.1" if server.host in {"0.0.0.0", "::", "localhost"} else server.host
    return f"{'https' if server.tls_cert else 'http'}://{f'[{host}]' if ':' in host else host}:{server.port}"
