"""Configuration: layers, names, types, and sentences that say what would be right."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from voice_agent.config import Config
from voice_agent.config_sources import load_config
from voice_agent.config_text import describe
from voice_agent.errors import ConfigError


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "agent.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_flags_win_over_environment_over_file_over_profile(tmp_path: Path) -> None:
    file = write(tmp_path, 'profile = "cpu-small"\n[server]\nport = 1\nhost = "127.0.0.2"\n')
    config = load_config(file, {"VOICE_AGENT_SERVER_PORT": "2"}, {"server": {"port": 3}})
    assert (config.profile, config.server.port, config.server.host) == ("cpu-small", 3, "127.0.0.2")
    assert config.recognizer.model == "whisper-tiny.en"
    assert load_config(file, {"VOICE_AGENT_SERVER_PORT": "2"}).server.port == 2


@pytest.mark.parametrize(
    ("text", "field", "right"),
    [
        ("[server]\nprot = 1", "server.prot", "'port'"),
        ("[sever]\nport = 1", "sever", "'server'"),
        ('profile = "gpu-small"', "profile", "cpu-small"),
        ('[server]\nport = "x"', "server.port", "not a number"),
        ("[server]\nport = true", "server.port", "whole number"),
        ("[server]\nport = 70000", "server.port", "65535"),
        ("[server]\nhost = 7", "server.host", "text"),
        ('[turn]\nmode = "serve"', "turn.mode", "'server'"),
        ("[turn]\nend_probability = 2", "turn.end_probability", "1.0"),
        ('[server]\ntls_cert = "a.pem"', "tls_key", "both or neither"),
        ('[thinker]\nurl = "localhost:1"', "thinker.url", "http://"),
        ('[thinker]\nfamily = "remote"', "thinker.url", "base URL"),
        ("[[ice.servers]]\nurl = 'stun:x'", "ice.servers[0].url", "'urls'"),
        ("server = 3", "server", "table"),
        ("[server", "agent.toml", "not TOML"),
    ],
)
def test_a_wrong_setting_is_named_with_what_would_be_right(
    tmp_path: Path, text: str, field: str, right: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(write(tmp_path, text), {})
    assert field in str(error.value) and right in str(error.value)


def test_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        load_config(Path("nowhere.toml"), {})


def test_public_address_without_keys_is_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"api_keys.*127\.0\.0\.1"):
        load_config(None, {"VOICE_AGENT_SERVER_HOST": "0.0.0.0"})
    config = load_config(None, {"VOICE_AGENT_SERVER_HOST": "0.0.0.0", "VOICE_AGENT_SERVER_API_KEYS": "a,b"})
    assert config.server.api_keys == ("a", "b")


def test_unknown_environment_section_is_refused() -> None:
    with pytest.raises(ConfigError, match="VOICE_AGENT_SEVER_PORT"):
        load_config(None, {"VOICE_AGENT_SEVER_PORT": "1"})


def test_engines_and_tables_are_set_by_the_environment_too() -> None:
    config = load_config(
        None,
        {
            "VOICE_AGENT_ENGINES_SPEECH_WARM_SPARE": "true",
            "VOICE_AGENT_ENGINES_SPEECH_WORK_GB": "2.5",
            "VOICE_AGENT_ENGINES_THINKER_DEVICES": "0,1",
            "VOICE_AGENT_THINKER_FAMILY": "vllm",
            "VOICE_AGENT_THINKER_OPTIONS": "{ prefix_caching = false, engine_args = { n = 3 } }",
            "VOICE_AGENT_ICE_SERVERS": '[{ urls = ["stun:a", "stun:b"] }]',
        },
    )
    assert (config.engines.speech.warm_spare, config.engines.speech.work_gb) == (True, 2.5)
    assert config.engines.thinker.devices == (0, 1) and not config.engines.thinker.warm_spare
    assert config.thinker.options == {"prefix_caching": False, "engine_args": {"n": 3}}
    assert [server.urls for server in config.ice.servers] == [("stun:a", "stun:b")]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        (
            "ENGINES_SPEECH_WARM_SPAR",
            "1",
            "engines.speech.warm_spar: no such setting; did you mean 'warm_spare'",
        ),
        ("ENGINES_SPEACH_WARM_SPARE", "1", "engines.speach: no such setting; did you mean 'speech'"),
        ("THINKER_OPTIONS", '{"a": 1}', "thinker.options: should be a table, as in TOML: {"),
        ("THINKER_OPTIONS", "3", "thinker.options: should be a table"),
        ("THINKER_URL", "http://[::1", "thinker.url: 'http://[::1' is no address"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(None, {f"VOICE_AGENT_{name}": value})
    assert says in str(error.value)


@pytest.mark.parametrize("text", ['profile = "foo"', '[turn]\nmode = "xy"', '[talker]\nfamily = "zz"'])
def test_what_there_is_is_listed_once(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(write(tmp_path, text), {})
    told = str(error.value)
    assert " is none of " in told and "there are" not in told


def test_a_url_makes_the_thinker_remote() -> None:
    assert load_config(None, {"VOICE_AGENT_THINKER_URL": "http://x/v1"}).thinker.family == "remote"


@pytest.mark.parametrize(
    ("flags", "ms"),
    [
        ({}, 900),
        ({"profile": "gpu-cascade"}, 0),
        ({"thinker": {"url": "http://localhost:8001/v1"}}, 0),
        ({"thinker": {"url": "http://localhost:8001/v1"}, "turn": {"read_ahead_ms": 700}}, 700),
    ],
)
def test_reading_ahead_is_for_models_that_read_slowly(flags: dict[str, Any], ms: int) -> None:
    assert load_config(environment={}, flags=flags).turn.read_ahead_ms == ms


def test_every_field_is_documented_and_the_printed_form_is_read_back(tmp_path: Path) -> None:
    text = describe(Config())
    keys = [line for line in text.splitlines() if " = " in line and not line.startswith("#")]
    comments = [line for line in text.splitlines() if line.startswith("# ")]
    assert len(keys) == len(comments) > 50
    assert tomllib.loads(text)["server"]["port"] == 8000
    assert load_config(write(tmp_path, text), {}) == Config()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SERVER_API_KEYS", "hush"),
        ("SERVER_OPERATOR_KEYS", "hush"),
        ("THINKER_API_KEY", "hush"),
        ("ICE_TURN_SECRET", "hush"),
        ("ICE_SERVERS", '[{ urls=["turn:a"], username="u", credential="hush" }]'),
    ],
)
def test_secrets_are_not_printed(name: str, value: str) -> None:
    config = load_config(None, {f"VOICE_AGENT_{name}": value})
    assert "hush" in repr(config)
    assert "hush" not in describe(config)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[thinker]\nthreads = -3", "thinker.threads"),
        ("[thinker]\nmax_output_tokens = 0", "thinker.max_output_tokens"),
        ("[recognizer]\nthreads = 0", "recognizer.threads"),
        ("[turn]\npause_ms = -5", "turn.pause_ms"),
        ("[turn]\nlongest_ms = 90000", "turn.longest_ms"),
        ("[session]\nconnect_timeout_s = -1.0", "session.connect_timeout_s"),
        ("[server]\ndrain_s = -1.0", "server.drain_s"),
        ('[server]\napi_keys = ["k", "sha256:abc"]', r"server.api_keys\[1\]: 'sha256:' wants 64 hex digits"),
        (
            '[server]\nallowed_origins = ["shop.example"]',
            r"server.allowed_origins\[0\]: 'shop.example' is no origin",
        ),
        ('[server]\nallowed_origins = ["https://shop.example/"]', r"is no origin: write it like https://"),
        ('[recognizer]\nlanguage = "english"', "recognizer.language: 'english' is no language tag"),
        ('[recognizer]\nfamily = "piper"', "recognizer.family: 'piper' is none of whisper, scripted"),
        ('[talker]\nfamily = "piperr"', "talker.family: .* did you mean 'piper'"),
    ],
)
def test_values_that_cannot_be_are_refused_by_name(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        load_config(write(tmp_path, text), {})


def test_variables_of_the_bench_are_no_settings() -> None:
    assert load_config(None, {"VOICE_AGENT_API_KEY": "x"}).server.api_keys == ()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"server": {"workers": 2}}, "server.workers: 2 server processes would each load every model"),
        ({"talker": {"max_jobs": 0}}, "talker.max_jobs: 0 is not between"),
        ({"engines": {"speech": {"job_gb": -1.0}}}, r"engines\.speech\.job_gb"),
        ({"engines": {"nose": {}}}, "engines.nose: no such setting"),
    ],
)
def test_settings_of_engines_that_cannot_be_are_refused(flags: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        load_config(environment={}, flags=flags)
