"""The HTTP requests that need no session, put together: chat completions, speech, transcriptions, voices.

Part of the composition root: the only place that knows both the routes and what answers them.
"""

from collections.abc import Callable
from concurrent.futures import Executor

from starlette.routing import BaseRoute

from voice_agent.answers import AnswerParts, Answers
from voice_agent.api.chat_completions import ChatParts, create_chat_routes
from voice_agent.api.speech import SpeechParts, create_speech_routes
from voice_agent.api.transcriptions import create_transcription_routes
from voice_agent.api.voices import create_voice_routes
from voice_agent.clock import Clock
from voice_agent.config import Config
from voice_agent.engines import Engines, cascade_of
from voice_agent.models.catalog import MODELS
from voice_agent.places import Places
from voice_agent.transcripts import FileDetector, TranscriptParts, Transcripts
from voice_agent.voices import Voices


def create_request_routes(
    config: Config,
    engines: Engines,
    places: Places,
    detector: Callable[[], FileDetector],
    thread: Executor,
    clock: Clock,
) -> list[BaseRoute]:
    """All their routes. `detector` makes a voice detector for one file, which runs on `thread`."""
    transcripts = Transcripts(
        TranscriptParts(
            engines.thinker_process,
            detector,
            thread,
            places,
            clock,
            config.recognizer.language or None,
            engines.hearing,
        )
    )
    cascade = cascade_of(engines, config, clock)
    answers = Answers(AnswerParts(cascade, transcripts, places, config.thinker))
    voices = voices_of(config, engines)
    return [
        *create_chat_routes(ChatParts(answers, voices, (config.server.served_model_name,))),
        *create_speech_routes(SpeechParts(answers, voices, lambda: engines.forced_lengths)),
        *create_transcription_routes(transcripts),
        *create_voice_routes(voices),
    ]


def voices_of(config: Config, engines: Engines) -> Voices:
    """The names of the engine's voices, as the configuration has them; they stay known while it restarts."""
    model = MODELS.get(config.talker.model)
    aliases = {alias: str(voice) for alias, voice in config.talker.aliases.items()}
    licence = model.licence.name if model else "not known"
    return Voices(
        lambda: engines.voices(config.talker.voice),
        lambda: engines.languages,
        licence,
        aliases,
        lambda: engines.instructed,
    )
