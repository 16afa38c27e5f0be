"""The pinned models by name, and which of them a profile needs.

Data and look-ups only: nothing here touches a disk or a network. What is pinned of a model is told in `pinned`; the
models are in `pinned_ears`, `pinned_thinkers` and `pinned_talkers`.
"""

from voice_agent.errors import WeightsError
from voice_agent.models.pinned import Model
from voice_agent.models.pinned_ears import EARS
from voice_agent.models.pinned_talkers import TALKERS
from voice_agent.models.pinned_thinkers import THINKERS
from voice_agent.near_names import did_you_mean_or_known

MODELS: dict[str, Model] = {model.name: model for model in (*EARS, *THINKERS, *TALKERS)}

PROFILES: dict[str, tuple[str, ...]] = {
    "cpu": ("silero-vad", "smart-turn", "whisper-tiny.en", "qwen2.5-coder-0.5b", "piper-joe"),
    "cpu-small": ("silero-vad", "smart-turn", "whisper-tiny.en", "smollm2-135m", "piper-joe"),
    "gpu-cascade": ("silero-vad", "smart-turn", "whisper-tiny.en"),  # Thinker and Talker come by their names
    "scripted": (),
}


def model_named(name: str) -> Model:
    """Return the model of that name; WeightsError with the nearest name otherwise."""
    if name in MODELS:
        return MODELS[name]
    raise WeightsError(f"there is no model named {name!r}{did_you_mean_or_known(name, MODELS)}")


def profile_models(profile: str) -> tuple[str, ...]:
    """Return the names of a profile's models; WeightsError with the nearest name otherwise."""
    if profile in PROFILES:
        return PROFILES[profile]
    raise WeightsError(f"there is no profile named {profile!r}{did_you_mean_or_known(profile, PROFILES)}")
