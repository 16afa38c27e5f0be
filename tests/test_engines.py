"""Which engine process a configuration asks for."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from voice_agent.clock import MonotonicClock
from voice_agent.config import Config
from voice_agent.config_sources import load_config
from voice_agent.engine.memory_plan import GB, Gpu
from voice_agent.engines import (
    heard_language,
    model_names,
    running_engines,
    speech_spec,
    start_engines,
    store_of,
    thinker_spec,
)
from voice_agent.errors import ConfigError, RemoteProtocolError, WeightsError
from voice_agent.placing import place


def test_a_thinker_on_vllm_is_a_hugging_face_name_and_may_start_slowly(tmp_path: Path) -> None:
    flags = {"recognizer": {"family": "scripted", "model": ""}, "models": {"cache": str(tmp_path)}}
    config = load_config(environment={}, flags={"profile": "gpu-cascade", **flags})  # type: ignore[dict-item]
    spec = thinker_spec(config, store_of(config))
    assert spec.thinker is not None
    assert (spec.thinker.family, spec.thinker.folder) == ("vllm", "Qwen/Qwen3-8B")
    assert spec.limits.start_s >= 600
    assert spec.nice == 0
    assert "Qwen/Qwen3-8B" not in model_names(config)


def test_engines_keep_what_they_make_of_weights_in_the_configured_cache(tmp_path: Path) -> None:
    scripted = {"family": "scripted", "model": ""}
    flags = {name: scripted for name in ("recognizer", "thinker", "talker")}
    config = load_config(environment={}, flags={**flags, "models": {"cache": str(tmp_path)}})  # type: ignore[dict-item]
    store = store_of(config)
    for spec in (thinker_spec(config, store), speech_spec(config, store)):
        assert spec.env["VOICE_AGENT_CACHE"] == str(tmp_path)


def test_a_thinker_on_vllm_may_be_a_folder_with_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    model_folder(tmp_path / "llm")
    file = tmp_path / "agent.toml"
    file.write_text(
        '[recognizer]\nfamily = "scripted"\nmodel = ""\n[thinker]\nfamily = "vllm"\nmodel = "~/llm"\n'
        'options = { dtype = "bfloat16", tensor_parallel_size = 2 }\n'
    )
    config = load_config(file, environment={})
    spec = thinker_spec(config, store_of(config))
    assert spec.thinker is not None
    assert spec.thinker.folder == str(Path.home() / "llm")
    assert spec.thinker.extra == {"dtype": "bfloat16", "tensor_parallel_size": 2}


def model_folder(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(bytes(1000))
    return folder


def on_vllm(cache: Path, model: str, **options: str) -> Config:
    flags = {
        "recognizer": {"family": "scripted", "model": ""},
        "thinker": {"family": "vllm", "model": model, "options": options},
        "talker": {"family": "scripted", "model": ""},
        "models": {"cache": str(cache)},
    }
    return load_config(environment={}, flags=flags)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gone", "gone does not exist"),
        ("model.gguf", r'is a file, and vLLM takes a folder: .*; a GGUF runs with thinker.family = "llama"'),
        (
            "gguf",
            r'gguf holds no config.json file \(it holds m.gguf\); a GGUF runs with thinker.family = "llama"',
        ),
        ("empty", r"empty holds no config.json file \(it holds nothing\)"),
        ("cut", r"cut holds no \*.safetensors file \(it holds config.json\)"),
    ],
)
def test_a_folder_that_vllm_could_not_load_is_said_before_anything_starts(
    tmp_path: Path, name: str, says: str
) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    (tmp_path / "empty").mkdir()
    (tmp_path / "gguf").mkdir()
    (tmp_path / "gguf" / "m.gguf").write_bytes(b"GGUF")
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "config.json").write_text("{}")
    config = on_vllm(tmp_path, str(tmp_path / name))
    with pytest.raises(WeightsError, match=says):
        thinker_spec(config, store_of(config))


def test_weights_that_are_made_up_need_no_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    config = on_vllm(tmp_path, str(tmp_path), load_format="dummy")
    assert thinker_spec(config, store_of(config)).thinker


@pytest.mark.parametrize("folder", [True, False])
async def test_a_thinker_on_vllm_is_planned_by_its_folder_or_by_what_is_said_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: bool
) -> None:
    gpu = Gpu(0, f"GPU-{tmp_path.name}", "NVIDIA H200", 150 * GB, 149 * GB)
    monkeypatch.setattr("voice_agent.engines.place", partial(place, find=lambda: [gpu]))
    model = str(model_folder(tmp_path / "llm")) if folder else "Qwen/Qwen3-32B"
    config = on_vllm(tmp_path, model)
    placed = load_config(environment={}, flags={"engines": {"thinker": {"devices": [0]}}})
    object.__setattr__(config, "engines", placed.engines)
    lines = list[str]()
    engines = running_engines(config, store_of(config), MonotonicClock(), lines.append)
    if folder:
        async with engines:
            assert "  thinker: weights 0.0 GB" in lines
    else:
        with pytest.raises(ConfigError, match="engines.thinker.weights_gb: the weights are not here"):
            await engines.__aenter__()


@pytest.mark.parametrize(
    ("section", "family", "module"), [("thinker", "vllm", "vllm"), ("talker", "qwen3-tts", "torch")]
)
async def test_a_library_that_is_not_installed_is_told_before_a_process_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, family: str, module: str
) -> None:
    scripted = {"family": "scripted", "model": ""}
    flags: dict[str, Any] = {name: scripted for name in ("recognizer", "thinker", "talker")}
    flags |= {section: {"family": family, "model": "some/model"}, "models": {"cache": str(tmp_path)}}
    config = load_config(environment={}, flags=flags)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType]
    async with running_engines(config, store_of(config), MonotonicClock(), lambda line: None) as engines:
        with pytest.raises(ConfigError) as error:
            await start_engines(engines, config)
        assert (engines.thinker_process.state, engines.speech_process.state) == ("stopped", "stopped")
    way = "is not installed: .venv/bin/pip install -e '.[gpu]' in the clone"
    assert f"{section}.family: for {family!r} the module {module} {way}" in str(error.value)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            {"thinker": {"model": "whisper-tiny.en"}},
            "thinker.model: .* for recognizer, not for thinker; .*smollm2",
        ),
        ({"recognizer": {"model": "piper-joe"}}, "recognizer.model: .* for talker, .* whisper-base"),
        ({"talker": {"model": "silero-vad"}}, "talker.model: .* for vad, not for talker; .* piper-joe"),
        (
            {"talker": {"model": "kokoro-82m"}},
            "talker.family: 'kokoro-82m' is of family 'kokoro', not 'piper'",
        ),
        (
            {"recognizer": {"language": "ko"}},
            "recognizer.language: .* hears English only, not 'ko'; whisper-base",
        ),
    ],
)
def test_a_model_in_the_wrong_place_is_refused_before_anything_is_fetched(
    flags: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        model_names(load_config(environment={}, flags=flags))


@pytest.mark.parametrize(
    "flags",
    [
        {"recognizer": {"language": "en-US"}},
        {"recognizer": {"model": "whisper-base", "language": "ko"}},
        {"talker": {"model": "kokoro-82m", "family": "kokoro"}},
        {"thinker": {"model": "whisper-tiny.en", "url": "http://x/v1"}},
    ],
)
def test_a_model_in_its_place_is_named(flags: dict[str, Any]) -> None:
    assert model_names(load_config(environment={}, flags=flags))


@pytest.mark.parametrize(
    ("language", "known", "taken"),
    [
        ("en", ("en",), True),
        ("en-US", ("en", "ko"), True),
        ("KO", ("en", "ko"), True),
        ("de", ("en", "ko"), False),
        ("xx", ("en", "ko"), False),
        ("english", ("en",), False),
        ("xx", (), True),
    ],
)
def test_a_language_that_is_not_heard_is_refused_with_those_that_are(
    language: str, known: tuple[str, ...], taken: bool
) -> None:
    if taken:
        assert heard_language(language, known, "language") == language
        return
    with pytest.raises(
        RemoteProtocolError, match=f"'{language}' is not heard.* hears {', '.join(known)}"
    ) as refused:
        heard_language(language, known, "language")
    assert refused.value.param == "language"


def test_cloned_voices_go_to_the_speech_engine_that_can_clone(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    clones = '[talker.clones]\nanna = { file = "anna.wav", text = "Hello." }\n'
    file.write_text(f'[talker]\nfamily = "qwen3-tts"\nmodel = "/m"\noptions = {{ slots = 8 }}\n{clones}')
    config = load_config(file, environment={})
    spec = speech_spec(config, store_of(config))
    assert spec.talker is not None
    assert spec.talker.extra == {"slots": 8, "clones": {"anna": {"file": "anna.wav", "text": "Hello."}}}
    file.write_text(clones)
    with pytest.raises(ConfigError, match=r"talker\.clones: family piper"):
        load_config(file, environment={})
