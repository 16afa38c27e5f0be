"""The session object as clients see it, and its way to and from SessionSettings.

Holds the effective object: what the session obeys (SessionSettings) and what is only stored and echoed (tracing,
prompt, truncation, thresholds...). No I/O; it is told of the session's real settings by `adopt`.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

from voice_agent.api.schema import ResponseOptions, SessionPatch
from voice_agent.commands import Encoding
from voice_agent.errors import RemoteProtocolError
from voice_agent.session_settings import SessionSettings

Json = dict[str, Any]
# what a name means; takes the parameter to blame if there is no such thing
NameOf = Callable[[str, str], str]
PCM_24K: Json = {"type": "audio/pcm", "rate": 24000}
FLAGS = ("create_response", "interrupt_response")
TURN_DETECTION: dict[str, Json] = {
    "server_vad": {
        "type": "server_vad",
        "threshold": 0.5,
        "prefix_padding_ms": 300,
        "silence_duration_ms": 500,
        "idle_timeout_ms": None,
        "create_response": True,
        "interrupt_response": True,
    },
    "semantic_vad": {
        "type": "semantic_vad",
        "eagerness": "auto",
        "create_response": True,
        "interrupt_response": True,
    },
}
KINDS = {"server": "server_vad", "semantic": "semantic_vad"}
KNOBS = {  # server_vad's, by the settings' names
    "vad_threshold": "threshold",
    "prefix_ms": "prefix_padding_ms",
    "silence_ms": "silence_duration_ms",
    "idle_timeout_ms": "idle_timeout_ms",
}
REALTIME, TRANSCRIPTION = "realtime", "transcription"  # the types of a session
OF_TRANSCRIPTION = {"audio", "include"}  # what one for transcription alone has
NO_KNOBS: Json = {**dict.fromkeys(KNOBS), "eagerness": "auto"}
ALIAS = "gpt-"  # clients of other servers name models of theirs: they get ours under that name
# null means off for these; for all others it means absent
WHOLE = {
    "format",
    "tool_choice",
    "truncation",
    "tracing",
    "prompt",
    "reasoning",
}  # replaced, never merged into
NULLABLE = {
    "turn_detection",
    "transcription",
    "noise_reduction",
    "tracing",
    "prompt",
    "include",
    "idle_timeout_ms",
}


@dataclass(frozen=True, slots=True)
class Mapped:
    """A setting's place on the wire, and its two spellings."""

    path: tuple[str, ...]
    to_wire: Callable[[Any], Any]
    from_wire: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def flat_tools(tools: tuple[Json, ...]) -> list[Json]:
    """Chat's nested form to Realtime's flat one."""
    return [{"type": "function"} | tool["function"] for tool in tools]


def nested_tools(tools: list[Json]) -> tuple[Json, ...]:
    """Realtime's flat form to chat's nested one, as the Thinker takes it."""
    return tuple(
        {
            "type": "function",
            "function": {key: tool[key] for key in tool if key != "type" and tool[key] is not None},
        }
        for tool in tools
    )


def _choice_to_wire(choice: str) -> str | Json:
    return choice if choice in {"auto", "none", "required"} else {"type": "function", "name": choice}


def _choice_from_wire(choice: str | Json) -> str:
    return choice if isinstance(choice, str) else str(choice["name"])


def _voice_from_wire(voice: str | Json) -> str:
    return voice if isinstance(voice, str) else str(voice["id"])


def as_named(name: str, param: str) -> str:
    """Takes any name as it is."""
    return name


@dataclass(frozen=True, slots=True)
class Names:
    """What names stand for here: of voices (also aliases), and of languages that are heard."""

    voice: NameOf = as_named
    language: NameOf = as_named


MAPPED: dict[str, Mapped] = {
    "instructions": Mapped(("instructions",), _same, _same),
    "voice": Mapped(("audio", "output", "voice"), _same, _voice_from_wire),
    "speed": Mapped(("audio", "output", "speed"), _same, float),
    "latency_first": Mapped(("latency_first",), _same, _same),
    "overlap": Mapped(("overlap",), _same, _same),
    "max_output_tokens": Mapped(("max_output_tokens",), _same, _same),
    "tools": Mapped(("tools",), flat_tools, nested_tools),
    "tool_choice": Mapped(("tool_choice",), _choice_to_wire, _choice_from_wire),
    "text_only": Mapped(
        ("output_modalities",), lambda only: ["text" if only else "audio"], lambda names: names == ["text"]
    ),
}


class WireSession:
    """The effective session object of one session."""

    def __init__(
        self,
        session_id: str,
        model: str,
        settings: SessionSettings,
        expires_at: int | None = None,
        names: Names | None = None,
    ) -> None:
        self._names = names or Names()
        self._identity: Json = {
            "id": session_id,
            "object": "realtime.session",
            "type": REALTIME,
            "model": model,
        }
        if expires_at is not None:
            self._identity["expires_at"] = expires_at
        self._model = model
        self._tokens_limit = settings.max_output_tokens  # what "inf" stands for here
        knobs = {KNOBS[name]: getattr(settings, name) for name in KNOBS}
        configured = {knob: value for knob, value in knobs.items() if value is not None}
        self._detections = TURN_DETECTION | {"server_vad": TURN_DETECTION["server_vad"] | configured}
        self._wire = _initial(settings, self._detections)

    def full(self) -> Json:
        """The whole object for session.created and session.updated."""
        whole = self._identity | deepcopy(self._wire)
        if self.kind == REALTIME:
            return whole
        shown = {key: whole[key] for key in whole if key in {"id", "type", "expires_at", "include"}}
        audio_in = {"audio": {"input": whole["audio"]["input"]}}
        return shown | {"object": "realtime.transcription_session"} | audio_in

    @property
    def kind(self) -> str:
        """Its type on the wire."""
        return self._identity["type"]

    @property
    def transcription(self) -> Json | None:
        """How the client wants to be told what it said; None: not at all."""
        return self._wire["audio"]["input"]["transcription"]

    @property
    def text_only(self) -> bool:
        """Whether replies are written, not spoken."""
        return self._wire["output_modalities"] == ["text"]

    @property
    def input_encoding(self) -> Encoding:
        """The format of appended sound."""
        return self._wire["audio"]["input"]["format"]["type"]

    @property
    def output(self) -> Json:
        """Format and voice, as responses carry them."""
        output = self._wire["audio"]["output"]
        return {"format": output["format"], "voice": output["voice"]}

    @property
    def max_output_tokens(self) -> int | str:
        """As the client wrote it."""
        return self._wire["max_output_tokens"]

    def update(self, patch: SessionPatch, *, begins: bool = False) -> dict[str, Any]:
        """Merge a partial session; returns the settings that change. Raises RemoteProtocolError, nothing applied.

        Only one that `begins` may become one of another type.
        """
        wanted = patch.model_dump(exclude_unset=True)
        kind = wanted.pop("type")
        self._check_kind(kind, wanted, begins)
        model = wanted.pop("model", None) or self._model
        if model != self._model and not model.startswith(ALIAS):
            raise RemoteProtocolError(
                "invalid_value",
                f"The model of a session cannot change; it is {self._model!r}.",
                "session.model",
            )
        merged = _merge(self._wire, wanted)
        for side in ("input", "output"):
            if merged["audio"][side]["format"]["type"] == "audio/pcm":
                merged["audio"][side]["format"] = dict(PCM_24K)
        merged["audio"]["output"]["voice"] = _voice_from_wire(merged["audio"]["output"]["voice"])
        named = (patch.audio and patch.audio.input and patch.audio.input.turn_detection) or None
        if named is not None:
            knobs = named.model_dump(exclude_unset=True)
            merged["audio"]["input"]["turn_detection"] = _turn_detection(
                self._turn_detection(), knobs, self._detections
            )
        if kind == TRANSCRIPTION:
            _only_transcribe(merged["audio"]["input"], self._model if begins else None)
        before, after = self._settings(self._wire, self.kind), self._settings(merged, kind)
        self._wire, self._identity["type"] = merged, kind
        return {name: value for name, value in after.items() if name not in before or value != before[name]}

    def adopt(self, settings: SessionSettings) -> None:
        """Show what the session really does now; what it agrees with keeps the client's own spelling."""
        shown = self._settings(self._wire, self.kind)
        for name, mapped in MAPPED.items():
            if shown[name] != getattr(settings, name):
                _put(self._wire, mapped.path, mapped.to_wire(getattr(settings, name)))
        if shown["turn_detection"] != settings.turn_detection:
            kind = KINDS.get(settings.turn_detection)
            self._wire["audio"]["input"]["turn_detection"] = dict(self._detections[kind]) if kind else None
        if detection := self._turn_detection():
            detection |= {flag: getattr(settings, flag) for flag in FLAGS}

    def overrides(self, options: ResponseOptions) -> dict[str, Any]:
        """The settings that response.create changes for one reply."""
        wanted = _merge({}, options.model_dump(exclude_unset=True))
        found = {name: _get(wanted, mapped.path) for name, mapped in MAPPED.items()}
        changes = {name: MAPPED[name].from_wire(value) for name, value in found.items() if value is not None}
        if changes.get("max_output_tokens") == "inf":
            changes["max_output_tokens"] = self._tokens_limit
        if "voice" in changes:
            changes["voice"] = self._names.voice(changes["voice"], "response.audio.output.voice")
        return changes

    def shape_of(self, options: ResponseOptions) -> Json:
        """What the response object repeats, where response.create differs from the session."""
        wanted = options.audio.output if options.audio and options.audio.output else None
        output = self.output
        if wanted and wanted.format:
            pcm = wanted.format.type == "audio/pcm"
            output["format"] = dict(PCM_24K) if pcm else {"type": wanted.format.type}
        if wanted and wanted.voice:
            output["voice"] = wanted.voice if isinstance(wanted.voice, str) else wanted.voice.id
        return {"output": output, "max_output_tokens": options.max_output_tokens or self.max_output_tokens}

    def _check_kind(self, kind: str, wanted: Json, begins: bool) -> None:
        if kind != self.kind and not begins:
            message = (
                f"The type of a session cannot change; it is {self.kind!r}. One for transcription alone begins with "
                "?intent=transcription, or with a client secret for such a session."
            )
            raise RemoteProtocolError("invalid_value", message, "session.type")
        if kind != TRANSCRIPTION:
            return
        extra = [key for key in wanted if key not in OF_TRANSCRIPTION and wanted[key] is not None]
        extra += ["audio.output"] if (wanted.get("audio") or {}).get("output") else []
        if extra:
            message = f"A session for transcription has no '{extra[0]}'."
            raise RemoteProtocolError("unknown_parameter", message, f"session.{extra[0]}")

    def _turn_detection(self) -> Json | None:
        return self._wire["audio"]["input"]["turn_detection"]

    def _settings(self, wire: Json, kind: str) -> dict[str, Any]:
        settings = {name: mapped.from_wire(_get(wire, mapped.path)) for name, mapped in MAPPED.items()}
        if settings["max_output_tokens"] == "inf":
            settings["max_output_tokens"] = self._tokens_limit
        settings["voice"] = self._names.voice(settings["voice"], "session.audio.output.voice")
        language = (wire["audio"]["input"]["transcription"] or {}).get("language") or ""
        at = "session.audio.input.transcription.language"
        settings["language"] = self._names.language(language, at) if language else ""
        settings["answers"] = kind == REALTIME
        detection: Json | None = wire["audio"]["input"]["turn_detection"]
        if detection is None:
            return settings | NO_KNOBS | {"turn_detection": "none"}
        settings |= {flag: detection[flag] for flag in FLAGS}
        if detection["type"] == "semantic_vad":
            return settings | NO_KNOBS | {"turn_detection": "semantic", "eagerness": detection["eagerness"]}
        knobs = {name: detection[knob] for name, knob in KNOBS.items()}
        return settings | NO_KNOBS | {"turn_detection": "server"} | knobs


def _initial(settings: SessionSettings, detections: dict[str, Json]) -> Json:
    kind = KINDS.get(settings.turn_detection)
    detection = detections[kind] | {flag: getattr(settings, flag) for flag in FLAGS} if kind else None
    wire: Json = {
        "audio": {
            "input": {
                "format": dict(PCM_24K),
                "transcription": None,
                "noise_reduction": None,
                "turn_detection": detection,
            },
            "output": {"format": dict(PCM_24K)},
        },
        "parallel_tool_calls": True,
        "truncation": "auto",
        "tracing": None,
        "prompt": None,
        "include": None,
    }
    for name, mapped in MAPPED.items():
        _put(wire, mapped.path, mapped.to_wire(getattr(settings, name)))
    return wire


def _only_transcribe(audio_in: Json, first_model: str | None) -> None:
    """What is said is told, unless the client switches that off later, and nothing answers it."""
    if first_model and audio_in["transcription"] is None:
        audio_in["transcription"] = {"model": first_model}
    if audio_in["turn_detection"]:
        audio_in["turn_detection"] |= {"create_response": False}


def _turn_detection(old: Json | None, knobs: Json, detections: dict[str, Json]) -> Json:
    """The whole object after an update; another type starts from its own defaults."""
    kind: str | None = knobs.get("type") or (old["type"] if old else None)
    at = "session.audio.input.turn_detection"
    if not kind:
        raise RemoteProtocolError(
            "missing_required_parameter", f"Missing required parameter: '{at}.type'.", f"{at}.type"
        )
    base = old if old and old["type"] == kind else detections[kind]
    for knob, value in knobs.items():
        if knob not in base and value is not None:
            raise RemoteProtocolError("unknown_parameter", f"{kind} has no '{knob}'.", f"{at}.{knob}")
    given = {
        knob: value for knob, value in knobs.items() if value is not None or knob in NULLABLE & base.keys()
    }
    return base | given


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> Json:
    """Deep merge; null counts only where it means off."""
    merged = deepcopy(dict(below))
    for key, value in above.items():
        if value is None and key not in NULLABLE:
            continue
        if isinstance(value, dict) and key not in WHOLE:
            old = merged.get(key)
            below_it = cast(Json, old) if isinstance(old, dict) else {}
            merged[key] = _merge(below_it, cast(Json, value))
        else:
            merged[key] = value
    return merged


def _get(tree: Json, path: tuple[str, ...]) -> Any:
    for key in path:
        tree = tree.get(key) or {} if key != path[-1] else tree
    return tree.get(path[-1])


def _put(tree: Json, path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value
