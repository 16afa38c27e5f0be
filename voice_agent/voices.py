"""The names of voices: the model's own, and aliases that stand for one of them.

Out of the box OpenAI's voice names and `preset_spk_1` are aliases of the default voice, so that a client keeps its
code; a name of the model's own wins over an alias. Aliases of the configuration come on top.
"""

from collections.abc import Callable, Mapping, Sequence

from voice_agent.errors import BusyError, RemoteProtocolError
from voice_agent.near_names import did_you_mean
from voice_agent.requests import Voice

DEFAULT_ALIASES = (
    "preset_spk_1", "alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage",
    "shimmer", "verse",
)  # fmt: skip


class Voices:
    """Looks names up; `names` gives the model's voices, the default first, none while the engine is not ready."""

    def __init__(
        self,
        names: Callable[[], Sequence[str]],
        languages: Callable[[], Sequence[str]],
        licence: str,
        aliases: Mapping[str, str],
        instructed: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._names = names
        self._languages = languages
        self._licence = licence
        self._instructed = instructed
        self._aliases = {name: "" for name in DEFAULT_ALIASES} | dict(aliases)  # "" is the default voice

    def all(self) -> list[Voice]:
        """All voices, the default one first."""
        names, languages, instructed = list(self._names()), tuple(self._languages()), self._instructed()
        return [
            Voice(
                name, languages, self._licence, not index, self._aliases_of(name, names), name in instructed
            )
            for index, name in enumerate(names)
        ]

    def named(self, name: str, param: str) -> str:
        """The voice of a name or alias ("" is the default); raises RemoteProtocolError that says what there is."""
        names = list(self._names())
        if not names:
            raise BusyError("The voices are not loaded yet.", retry_after_s=2)
        if name in names:
            return name
        target = self._aliases.get(name, name) or names[0]
        if target in names:
            return target
        hint = did_you_mean(name, [*names, *self._aliases]) or "."
        message = f"There is no voice '{name[:64]}'; this server has {', '.join(names)}{hint}"
        raise RemoteProtocolError("invalid_value", message, param)

    def _aliases_of(self, name: str, names: list[str]) -> list[str]:
        return [
            alias
            for alias, target in self._aliases.items()
            if alias not in names and (target or names[0]) == name
        ]
