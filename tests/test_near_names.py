"""What a person who mistyped meant, in each of the places that ask; and words that are near nothing there."""

from dataclasses import fields
from typing import Any

import pytest

from voice_agent.api.parse import dotted_names, validated
from voice_agent.api.schema import EVENTS, SessionPatch
from voice_agent.config import FAMILIES, PROFILES, Config, ServerConfig, SessionConfig, ThinkerConfig
from voice_agent.errors import RemoteProtocolError
from voice_agent.family_options import OPTIONS, names_of
from voice_agent.models.catalog import MODELS
from voice_agent.near_names import did_you_mean, did_you_mean_or_known, near_name
from voice_agent.voices import DEFAULT_ALIASES


def names(kind: Any) -> list[str]:
    return [item.name for item in fields(kind)]


SECTIONS, SERVER, SESSION, THINKER = map(names, (Config, ServerConfig, SessionConfig, ThinkerConfig))
VOICES = ["joe", "af_heart", "am_michael", *DEFAULT_ALIASES]
QWEN, VLLM, LLAMA = (
    names_of(*key) for key in (("talker", "qwen3-tts"), ("thinker", "vllm"), ("thinker", "llama"))
)
FAMILY_NAMES = [family for families in FAMILIES.values() for family in families]


@pytest.mark.parametrize(
    ("known", "typed", "meant"),
    [
        (SECTIONS, "sever", "server"),
        (SECTIONS, "recogniser", "recognizer"),
        (SECTIONS, "model", "models"),
        (SERVER, "prot", "port"),
        (SERVER, "apikeys", "api_keys"),
        (SERVER, "origins", "allowed_origins"),
        (SERVER, "tls_certificate", "tls_cert"),
        (SESSION, "max_session", "max_sessions"),
        (SESSION, "timeout", "silent_timeout_s"),
        (THINKER, "temprature", "temperature"),
        (THINKER, "max_tokens", "max_output_tokens"),
        (THINKER, "context_length", "context_tokens"),
        (PROFILES, "cpu_small", "cpu-small"),
        (PROFILES, "CPU", "cpu"),
        (FAMILY_NAMES, "llama.cpp", "llama"),
        (FAMILY_NAMES, "qwen3tts", "qwen3-tts"),
        (VOICES, "Joe", "joe"),
        (VOICES, "aloy", "alloy"),
        (VOICES, "af_haert", "af_heart"),
        (VOICES, "michael", "am_michael"),
        (VOICES, "preset_spk_2", "preset_spk_1"),
        (MODELS, "whisper-tiny", "whisper-tiny.en"),
        (MODELS, "Qwen2.5-0.5B", "qwen2.5-coder-0.5b"),
        (MODELS, "kokoro82m", "kokoro-82m"),
        (MODELS, "piper", "piper-joe"),
        (MODELS, "smollm", "smollm2-135m"),
        (QWEN, "fused", "fused_codec"),
        (QWEN, "instruction", "instructions"),
        (VLLM, "gpu_memory_utilisation", "gpu_memory_utilization"),
        (VLLM, "max_seqs", "max_num_seqs"),
        (LLAMA, "n_gpu_layers", "gpu_layers"),
        (EVENTS, "session.udpate", "session.update"),
        (EVENTS, "input_audio_buffer_append", "input_audio_buffer.append"),
    ],
)
def test_a_slip_finds_its_name(known: Any, typed: str, meant: str) -> None:
    assert near_name(typed, known) == meant
    assert did_you_mean(typed, known) == did_you_mean_or_known(typed, known) == f"; did you mean {meant!r}?"


@pytest.mark.parametrize(
    ("known", "typed"),
    [
        (SECTIONS, "asr"),
        (SECTIONS, "tts"),
        (SERVER, "cors"),
        (SESSION, "prompt"),
        (SESSION, "max_calls"),
        (THINKER, "top_p"),
        (PROFILES, "laptop"),
        (FAMILY_NAMES, "tone"),
        (VOICES, "josh"),
        (VOICES, "default"),
        (VOICES, ""),
        (MODELS, "gemma"),
        (MODELS, "gpt-4o"),
        (QWEN, "temperature"),
        (LLAMA, "threads"),
        ([], "anything"),
        (dotted_names(SessionPatch), "banana"),
    ],
)
def test_a_word_near_nothing_finds_none(known: Any, typed: str) -> None:
    assert near_name(typed, known) is None
    assert did_you_mean(typed, known) == ""
    assert did_you_mean_or_known(typed, known) == f"; known are {', '.join(known)}"


@pytest.mark.parametrize(
    ("patch", "meant"),
    [
        ({"instuctions": ""}, "session.instructions"),
        ({"voice": "joe"}, "session.audio.output.voice"),  # where the first form of the protocol had it
        ({"turn_detection": None}, "session.audio.input.turn_detection"),
        ({"modalities": []}, "session.output_modalities"),
        ({"input_audio_transcription": {}}, "session.audio.input.transcription"),
        ({"audio": {"output": {"sped": 1}}}, "session.audio.output.speed"),
        (
            {"audio": {"input": {"format": {"type": "audio/pcm", "rates": 1}}}},
            "session.audio.input.format.rate",
        ),
        ({"zzz": 1}, ""),  # as a whole it is like session.type: why paths have a likeness of their own
        ({"temprature": 1}, ""),
        ({"client_secret": 1}, ""),
    ],
)
def test_a_parameter_is_found_by_its_path_or_its_last_word(patch: dict[str, Any], meant: str) -> None:
    with pytest.raises(RemoteProtocolError) as refused:
        validated(SessionPatch, {"type": "realtime"} | patch, "session")
    told = str(refused.value)
    assert told.endswith(f"'; did you mean {meant!r}?" if meant else "'.")


def test_paths_are_like_one_another() -> None:
    assert near_name("session.zzz", [f"session.{name}" for name in dotted_names(SessionPatch)]) is not None


def test_every_option_finds_itself_without_a_letter() -> None:
    for section, family in OPTIONS:
        known = names_of(section, family)
        for name in known:
            assert near_name(name[:-1], known) in {name, name[:-1]}
