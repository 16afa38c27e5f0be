"""GET /v1/audio/voices: which voices there are, what they speak, on what terms, and what else they answer to.

Not in OpenAI's API; the list form is theirs.
"""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from voice_agent.requests import VoiceList


def create_voice_routes(voices: VoiceList) -> list[BaseRoute]:
    """The route; the list is empty until the voice model is loaded."""

    async def list_voices(request: Request) -> Response:
        data = [
            {
                "id": voice.name,
                "object": "audio.voice",
                "name": voice.name,
                "languages": list(voice.languages),
                "licence": voice.licence,
                "default": voice.default,
                "aliases": list(voice.aliases),
                "instructions": voice.instructed,
            }
            for voice in voices.all()
        ]
        return JSONResponse({"object": "list", "data": data})

    return [Route("/v1/audio/voices", list_voices)]
