"""The beta spelling of the Realtime protocol for the connections that ask for it (header OpenAI-Beta: realtime=v1).

Pure renaming between JSON objects, one event at a time: what is not named here is the same in both. `temperature` is
taken and shown and means nothing, as the GA protocol has none. Values are checked behind this, under their GA names;
an error's `param` is named back.
"""

from typing import Any, cast

from voice_agent.api.wire_items import Json

TYPES = {
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
    "conversation.item.added": "conversation.item.created",
}
LEFT_OUT = {"conversation.item.done"}
TRANSCRIPTION_UPDATE = "transcription_session.update"
OF_TRANSCRIPTION = (
    "input_audio_format",
    "input_audio_transcription",
    "input_audio_noise_reduction",
    "turn_detection",
)
PARTS = {"output_text": "text", "output_audio": "audio"}
FORMATS = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
FORMAT_NAMES = {name: flat for flat, name in FORMATS.items()}
FLAT = {
    "modalities": "output_modalities",
    "voice": "audio.output.voice",
    "speed": "audio.output.speed",
    "input_audio_format": "audio.input.format",
    "output_audio_format": "audio.output.format",
    "input_audio_transcription": "audio.input.transcription",
    "input_audio_noise_reduction": "audio.input.noise_reduction",
    "turn_detection": "audio.input.turn_detection",
    "max_response_output_tokens": "max_output_tokens",
}
TEMPERATURE = 0.8


class Beta:
    """One connection's spelling; remembers the temperature that it was told."""

    def __init__(self) -> None:
        self._temperature: Any = TEMPERATURE

    def read(self, event: Json) -> Json:
        """A client's event under its GA names."""
        kind = "realtime"
        if event.get("type") == TRANSCRIPTION_UPDATE:
            kind, event = "transcription", event | {"type": "session.update"}
        for name in ("session", "response"):
            inner = event.get(name)
            if isinstance(inner, dict):
                nested = self._nested(cast(Json, inner))
                event = event | {name: nested | ({"type": kind} if name == "session" else {})}
        return event

    def write(self, event: Json) -> list[Json]:
        """A server event under its beta names: one, none, or two (a conversation begins with its session)."""
        kind = event["type"]
        if kind in LEFT_OUT:
            return []
        renamed = event | {"type": TYPES.get(kind, kind)}
        if event.get("session", {}).get("type") == "transcription":
            return [
                renamed | {"type": f"transcription_{kind}", "session": _flat_transcription(event["session"])}
            ]
        if "session" in event:
            renamed["session"] = self._flat_session(event["session"])
        if "response" in event:
            renamed["response"] = self._flat_response(event["response"])
        if "item" in event:
            renamed["item"] = _item(event["item"])
        if kind == "error":
            renamed["error"] = event["error"] | {"param": _param(event["error"]["param"])}
        if kind != "session.created":
            return [renamed]
        session_id = event["session"]["id"]
        conversation = {"id": f"conv_{session_id}", "object": "realtime.conversation"}
        event_id = f"{event['event_id'][:62]}_c"
        created = {"event_id": event_id, "type": "conversation.created", "conversation": conversation}
        return [renamed, created]

    def _nested(self, flat: Json) -> Json:
        nested: Json = {}
        for key, value in flat.items():
            if key == "temperature":
                self._temperature = value
                continue
            _put(nested, FLAT.get(key, key), _value_in(key, value))
        return nested

    def _flat_session(self, session: Json) -> Json:
        flat = {key: value for key, value in session.items() if key not in {"type", "audio", *FLAT.values()}}
        for name, path in FLAT.items():
            flat[name] = _value_out(name, _get(session, path))
        return flat | {"temperature": self._temperature}

    def _flat_response(self, response: Json) -> Json:
        gone = {"audio", "output_modalities", "output"}
        flat = {key: value for key, value in response.items() if key not in gone}
        for name in ("modalities", "voice", "output_audio_format"):
            flat[name] = _value_out(name, _get(response, FLAT[name]))
        flat["output"] = [_item(item) for item in response["output"]]
        return flat | {"temperature": self._temperature}


def _flat_transcription(session: Json) -> Json:
    kept = {key: session[key] for key in session if key not in {"type", "audio"}}
    return kept | {name: _value_out(name, _get(session, FLAT[name])) for name in OF_TRANSCRIPTION}


def _value_in(key: str, value: Any) -> Any:
    if key == "modalities" and isinstance(value, list):
        names = cast(list[Any], value)
        return ["audio"] if "audio" in names else names
    if key.endswith("_audio_format") and isinstance(value, str):
        return {"type": FORMATS.get(value, value)}
    return value


def _value_out(key: str, value: Any) -> Any:
    if key == "modalities":
        return ["text", "audio"] if value == ["audio"] else value
    if key.endswith("_audio_format"):
        return FORMAT_NAMES[value["type"]]
    return value


def _item(item: Json) -> Json:
    if "content" not in item:
        return item
    content = [part | {"type": PARTS.get(part["type"], part["type"])} for part in item["content"]]
    return item | {"content": content}


def _param(param: str | None) -> str | None:
    """A parameter's GA path as the client wrote it."""
    root, _, rest = (param or "").partition(".")
    for name, path in FLAT.items():
        if root in {"session", "response"} and (rest == path or rest.startswith((f"{path}.", f"{path}["))):
            flat = name if name.endswith("_format") else name + rest[len(path) :]
            return f"{root}.{flat}"
    return param


def _put(tree: Json, path: str, value: Any) -> None:
    """Put a value at a path; what a client put on the way that is no object stays, to be refused."""
    *parents, last = path.split(".")
    for key in parents:
        if tree.get(key) is None:
            tree[key] = {}
        if not isinstance(tree[key], dict):
            return
        tree = tree[key]
    tree[last] = value


def _get(tree: Json, path: str) -> Any:
    for key in path.split("."):
        tree = tree[key]
    return tree
