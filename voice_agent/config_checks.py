"""Which values of the configuration may stand, each by itself and together; nothing else checks them.

Knows no source of them: what it refuses it names by its field, and says what would be right.
"""

import ipaddress
import re
from dataclasses import fields
from urllib.parse import urlsplit

from voice_agent.config import DIGEST, FAMILIES, Config, ServerConfig
from voice_agent.errors import ConfigError
from voice_agent.family_options import check_options
from voice_agent.near_names import none_of

DIGEST_OF_KEY = re.compile(r"sha256:[0-9a-fA-F]{64}")
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]+")  # as a browser sends it: another form would never match
LANGUAGE_TAG = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{1,8})*")


def checked(config: Config) -> Config:
    """Give it back as it is; raises ConfigError for the first value that may not stand."""
    _check_ranges(config)
    _check_names(config)
    for section in FAMILIES:
        chosen = getattr(config, section)
        check_options(section, chosen.family, chosen.options)
    _check_server(config.server)
    _check_models(config)
    return config


def _check_ranges(config: Config) -> None:
    _in_range("server.port", config.server.port, 0, 65535)
    _in_range("session.max_sessions", config.session.max_sessions, 1, 10_000)
    _in_range("thinker.context_tokens", config.thinker.context_tokens, 256, 1_000_000)
    _in_range("thinker.max_output_tokens", config.thinker.max_output_tokens, 1, 100_000)
    _in_range("thinker.threads", config.thinker.threads, 0, 1024)
    _in_range("recognizer.threads", config.recognizer.threads, 1, 1024)
    _in_range("recognizer.lanes", config.recognizer.lanes, 1, 64)
    _in_range("talker.threads", config.talker.threads, 1, 1024)
    _in_range("talker.max_jobs", config.talker.max_jobs, 1, 10_000)
    _in_range("talker.queued_jobs", config.talker.queued_jobs, 0, 10_000)
    _in_range("talker.job_wait_s", config.talker.job_wait_s, 0, 3600)
    for engine in ("thinker", "speech"):
        for name in ("weights_gb", "work_gb", "cache_gb", "job_gb"):
            _in_range(f"engines.{engine}.{name}", getattr(getattr(config.engines, engine), name), 0, 100_000)
    _in_range("turn.longest_ms", config.turn.longest_ms, 1000, 28_000)
    for section, value in (("turn", config.turn), ("session", config.session), ("server", config.server)):
        for item in fields(value):
            if item.name.endswith(("_ms", "_s", "_db")):
                _in_range(f"{section}.{item.name}", getattr(value, item.name), 0, 1_000_000)
    for name in ("start_threshold", "end_threshold", "end_probability"):
        _in_range(f"turn.{name}", getattr(config.turn, name), 0.0, 1.0)


def _check_names(config: Config) -> None:
    """Families, the language, origins and digests of keys."""
    for section, families in FAMILIES.items():
        family = getattr(config, section).family
        if family not in families:
            raise ConfigError(f"{section}.family: {none_of(family, families)}")
    for name in ("api_keys", "operator_keys"):
        for n, key in enumerate(getattr(config.server, name)):
            if key.startswith(DIGEST) and not DIGEST_OF_KEY.fullmatch(key):
                raise ConfigError(
                    f"server.{name}[{n}]: {DIGEST!r} wants 64 hex digits (printf %s KEY | sha256sum)"
                )
    for n, origin in enumerate(config.server.allowed_origins):
        if origin != "*" and not ORIGIN.fullmatch(origin):
            raise ConfigError(
                f"server.allowed_origins[{n}]: {origin!r} is no origin: write it like https://shop.example, no path"
            )
    if config.recognizer.language and not LANGUAGE_TAG.fullmatch(config.recognizer.language):
        raise ConfigError(
            f"recognizer.language: {config.recognizer.language!r} is no language tag; write en, ko or de, or nothing"
        )


def _check_server(server: ServerConfig) -> None:
    """How many processes, and who can reach them on what terms."""
    if server.workers != 1:
        raise ConfigError(
            f"server.workers: {server.workers} server processes would each load every model and know nothing of each "
            "other's calls; one process serves them all, so leave it at 1"
        )
    if bool(server.tls_cert) != bool(server.tls_key):
        raise ConfigError("server.tls_cert and server.tls_key: both or neither")
    if not server.api_keys and not _is_loopback(server.host):
        raise ConfigError(
            f"server.host: {server.host} can be reached by others, so clients must prove who they are: "
            "set server.api_keys (VOICE_AGENT_SERVER_API_KEYS=key1,key2), or listen on 127.0.0.1"
        )


def _check_models(config: Config) -> None:
    """What a family needs that is chosen, or cannot do."""
    if config.talker.clones and config.talker.family != "qwen3-tts":
        raise ConfigError(f"talker.clones: family {config.talker.family} clones no voices; qwen3-tts does")
    if config.thinker.family == "remote" and not config.thinker.url:
        raise ConfigError("thinker.url: family remote needs the base URL of an OpenAI-compatible server")
    if config.thinker.url and (fault := url_fault(config.thinker.url)):
        raise ConfigError(f"thinker.url: {fault}")


def _in_range(path: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{path}: {value} is not between {low} and {high}")


def url_fault(url: str) -> str:
    """What is wrong with a server's address; empty if nothing is."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError as error:  # of the port, or an open bracket
        return f"{url!r} is no address ({error})"
    return "" if whole else f"{url!r} should start with http:// or https:// and name a host"


def key_fault(key: str) -> str:
    """Why a key cannot be sent as a bearer token; empty if it can."""
    can = key.isascii() and key.isprintable()
    return "" if can else "a key goes into an HTTP header, so ASCII letters only"


def _is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
