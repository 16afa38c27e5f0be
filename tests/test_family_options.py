"""The `options` tables: what is refused before anything is loaded, and what the documents say of them."""

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from voice_agent.config import FAMILIES, Config
from voice_agent.config_sources import load_config
from voice_agent.config_text import describe
from voice_agent.errors import ConfigError
from voice_agent.family_options import (
    OPTIONS,
    LlamaOptions,
    Qwen3TtsOptions,
    VllmOptions,
    names_of,
    read_options,
)

DOCUMENT = Path(__file__).parent.parent / "docs" / "options.md"
EACH = [(section, family) for section, families in FAMILIES.items() for family in families]


def configured(section: str, family: str, options: dict[str, Any]) -> Config:
    more = {"url": "http://127.0.0.1:1/v1"} if family == "remote" else {}
    return load_config(None, {}, {section: {"family": family, "options": options, **more}})


@pytest.mark.parametrize(("section", "family"), EACH)
def test_an_unknown_option_is_refused_with_the_known_ones(section: str, family: str) -> None:
    names = names_of(section, family)
    with pytest.raises(ConfigError) as refused:
        configured(section, family, {"zzz": 1})
    text = str(refused.value)
    assert text.startswith(f"{section}.options.zzz: no such option of {family}")
    assert all(name in text for name in names) and ("it takes none" in text) is (not names)


@pytest.mark.parametrize(
    ("section", "family", "typo", "meant"),
    [
        ("recognizer", "whisper", "langauges", "languages"),
        ("thinker", "llama", "rond_weights", "round_weights"),
        ("thinker", "vllm", "max_seqs", "max_num_seqs"),
        ("thinker", "scripted", "text", "texts"),
        ("talker", "piper", "keep_silences", "keep_silence"),
        ("talker", "kokoro", "silence", "keep_silence"),
        ("talker", "qwen3-tts", "slot", "slots"),
    ],
)
def test_the_nearest_one_is_named(section: str, family: str, typo: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{section}\.options\.{typo}: .*did you mean '{meant}'\?"):
        configured(section, family, {typo: 1})


@pytest.mark.parametrize(
    ("section", "family", "options"),
    [
        ("recognizer", "whisper", {"languages": "en"}),
        ("recognizer", "scripted", {"by_duration": [[100]]}),
        ("thinker", "llama", {"poll": "often"}),
        ("thinker", "llama", {"round_weights": "false"}),
        ("thinker", "vllm", {"max_num_seqs": True}),
        ("talker", "piper", {"keep_silence": 1}),
        ("talker", "qwen3-tts", {"slots": 2.5}),
    ],
)
def test_an_option_of_another_type_is_named(section: str, family: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"^{section}\.options\.{next(iter(options))}: Expected"):
        configured(section, family, options)


@pytest.mark.parametrize(("section", "family"), EACH)
def test_every_default_may_be_written_out(section: str, family: str) -> None:
    plain = OPTIONS[section, family]()
    table = {name: getattr(plain, name) for name in names_of(section, family)}
    written = {name: value for name, value in table.items() if value is not None}
    assert getattr(configured(section, family, written), section).options == written
    assert read_options(type(plain), written) == plain


@pytest.mark.parametrize(
    ("section", "family", "name"),
    [("thinker", "vllm", "hidden"), ("talker", "scripted", "hidden_pool"), ("talker", "qwen3-tts", "clones")],
)
def test_what_the_server_fills_in_is_no_setting(section: str, family: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"no such option of {family}"):
        configured(section, family, {name: "x"})


def test_models_read_what_the_server_filled_in_and_refuse_the_unknown_too() -> None:
    assert read_options(VllmOptions, {"hidden": "last", "hidden_pool": "p"}).hidden_pool == "p"
    assert read_options(Qwen3TtsOptions, {"clones": {"anna": {"file": "a.wav"}}}).clones
    with pytest.raises(ConfigError, match="did you mean 'poll'"):
        read_options(LlamaOptions, {"pol": 1})


def test_readers_share_no_list() -> None:
    first, second = read_options(VllmOptions, {}), read_options(VllmOptions, {})
    assert first.engine_args == {} and first.engine_args is not second.engine_args


def test_the_printed_configuration_names_the_family_s_options() -> None:
    assert "Further options of the family. llama: instructions, poll, gpu_layers, round_weights." in describe(
        Config()
    )
    assert " remote: none." in describe(configured("thinker", "remote", {}))


def test_the_document_lists_every_option_with_its_default() -> None:
    rows = [
        f"| {section} | {family} | `{item.name}` | {_default(item)} | {item.metadata['doc']} |"
        for section, family in EACH
        for item in fields(OPTIONS[section, family])
        if "doc" in item.metadata
    ]
    listed = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert listed[1:] == rows


def _default(item: Any) -> str:
    value = item.default if item.default is not MISSING else item.default_factory()
    return "" if value is None or value == "" else f"`{json.dumps(value)}`"
