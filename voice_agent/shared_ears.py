"""What all sessions of this process hear with: two small models, loaded once, and the threads they run on.

Knows no session: it makes the ears that one is handed.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from voice_agent import precedence
from voice_agent.listening import Ears
from voice_agent.media.echo import EchoCanceller, PlayedSound
from voice_agent.media.end_of_turn import EndOfTurn
from voice_agent.media.vad import LiveVad, SileroNetwork, VoiceBatch
from voice_agent.models.store import Store


@dataclass(frozen=True)
class SharedEars:
    """What all sessions hear with: two small models, and a thread for judgements, so that none delays a voice.

    The thread of live voices goes first as the loop does; those of files and of judgements step back.
    """

    silero: SileroNetwork
    voices: VoiceBatch
    voice_thread: ThreadPoolExecutor
    end_of_turn: EndOfTurn
    file_thread: ThreadPoolExecutor
    judge_thread: ThreadPoolExecutor

    @classmethod
    def load(cls, store: Store) -> "SharedEars":
        """Load the two small models (0.2 s). Raises WeightsError."""
        silero = SileroNetwork(store.folder_of("silero-vad") / "silero_vad.onnx")
        voice_thread = ThreadPoolExecutor(1, "voices")
        return cls(
            silero=silero,
            voices=VoiceBatch(silero, voice_thread),
            voice_thread=voice_thread,
            end_of_turn=EndOfTurn(next(store.folder_of("smart-turn").glob("*.onnx"))),
            file_thread=ThreadPoolExecutor(1, "vad", precedence.step_back),
            judge_thread=ThreadPoolExecutor(1, "end-of-turn", precedence.step_back),
        )

    def ears(self, played: PlayedSound | None) -> Ears:
        """A session's own ears; deaf to the echo of what it plays, if that is given."""
        echo = EchoCanceller(played) if played else None
        return Ears(LiveVad(self.voices), self.end_of_turn, self.judge_thread, echo)

    def close(self) -> None:
        """End the threads."""
        self.voice_thread.shutdown()
        self.file_thread.shutdown()
        self.judge_thread.shutdown()
