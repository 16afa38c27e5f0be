"""Tokens as published, texts in pieces, and what a checkpoint's folder may be wrong about."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
save_file = pytest.importorskip("safetensors.torch").save_file

import msgspec  # noqa: E402
from torch import Tensor  # noqa: E402

from tests import qwen3_tts_small as small  # noqa: E402
from tests.qwen3_tts_tokens import CONTROLS, TEXTS, write_tokenizer  # noqa: E402
from voice_agent.errors import EngineError, UnsupportedLanguage, WeightsError  # noqa: E402
from voice_agent.models.qwen3_tts.checkpoint import CODEC_FOLDER, load  # noqa: E402
from voice_agent.models.qwen3_tts.config import LARGE, SMALL, ModelConfig  # noqa: E402
from voice_agent.models.qwen3_tts.model import build_model  # noqa: E402
from voice_agent.models.qwen3_tts.prompt import Manner, Spoken, build_prompt, language_id  # noqa: E402
from voice_agent.models.qwen3_tts.sampling import sampling_rows  # noqa: E402
from voice_agent.models.qwen3_tts.speak import speak  # noqa: E402
from voice_agent.models.qwen3_tts.text import TextStream, TextTokenizer  # noqa: E402

GOLDEN = np.load(Path(__file__).parent / "data" / "qwen3_tts.npz")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return TextTokenizer(folder)


# --- tokens -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "at", [at for at, text in enumerate(TEXTS) if not any(token in text for token in CONTROLS)]
)
def test_tokens_are_the_published_ones(tokenizer: TextTokenizer, at: int) -> None:
    published = GOLDEN[f"tokens.{at}"].tolist()
    spoken = tokenizer.spoken(TEXTS[at])
    assert spoken.role == published[:3]
    assert spoken.text == published[3:-5]


def test_an_instruction_is_a_user_turn(tokenizer: TextTokenizer) -> None:
    assert tokenizer.instruction("hello world") == GOLDEN["tokens.instruction"].tolist()
    assert tokenizer.instruction("  ") == []


def test_a_text_cannot_speak_control_tokens(tokenizer: TextTokenizer) -> None:
    first_control = tokenizer.role[0] - CONTROLS.index("<|im_start|>")
    assert max(tokenizer.spoken(TEXTS[-1]).text) < first_control
    assert max(tokenizer.instruction("<|im_end|>")[1:-2]) < first_control


PIECES = st.text(alphabet=st.sampled_from("he lo'tlwrd.\n\t3(한é\u0301\u0323你🎉A<|im_end|>"), max_size=12)


@given(pieces=st.lists(PIECES, max_size=6))
@example(["I'", "r", "e", " ", " ", "x"])
@example(["a ", "\n", "\n b"])
@example(["e", "\u0301", "\u0323x"])
def test_a_text_in_pieces_has_the_tokens_of_the_whole(tokenizer: TextTokenizer, pieces: list[str]) -> None:
    stream, ids = TextStream(tokenizer), list[int]()
    for piece in pieces:
        ids += stream.add(piece)
    assert ids + stream.close() == tokenizer.spoken("".join(pieces)).text


def test_a_word_is_given_out_when_the_next_begins(tokenizer: TextTokenizer) -> None:
    stream = TextStream(tokenizer)
    assert stream.add("hello") == []
    assert stream.add(" w") == tokenizer.ids("hello")
    assert stream.close() == tokenizer.ids(" w")


# --- prompts ----------------------------------------------------------------------------------------------------

SPOKEN = Spoken([151644, 77091, 198], [9707, 1879])


def test_nine_rows_of_a_preset_voice_depend_on_voice_and_language_alone() -> None:
    prompt = build_prompt(LARGE, SPOKEN, Manner("Sohee", "ko"))
    assert prompt.shared == 9 and len(prompt.rows) == 10
    assert [row.code for row in prompt.rows] == [None, None, None, 2154, 2156, 2064, 2157, 2864, 2148, 2149]
    assert [row.text for row in prompt.rows][3:] == [151671] * 5 + [151672, 9707]
    assert prompt.following == [1879, 151673]
    other = build_prompt(LARGE, Spoken(SPOKEN.role, [1, 2, 3]), Manner("Sohee", "ko"))
    assert other.rows[:9] == prompt.rows[:9]
    assert build_prompt(LARGE, SPOKEN, Manner("sohee", instruction=[5])).shared == 0


@pytest.mark.parametrize(
    ("language", "voice", "code"),
    [
        ("auto", "ryan", None),
        ("KO", "ryan", 2064),
        ("Korean", "eric", 2064),
        ("zh", "dylan", 2074),
        ("auto", "eric", 2062),
    ],
)
def test_languages_have_names_and_codes(language: str, voice: str, code: int | None) -> None:
    assert language_id(LARGE.talker_config, language, voice) == code


def test_what_cannot_be_spoken_is_said_clearly() -> None:
    with pytest.raises(UnsupportedLanguage, match="'xx'.*korean"):
        build_prompt(LARGE, SPOKEN, Manner("ryan", "xx"))
    with pytest.raises(EngineError, match="'nobody'.*sohee") as unknown:
        build_prompt(LARGE, SPOKEN, Manner("nobody"))
    assert unknown.value.code == "unknown_voice"
    with pytest.raises(EngineError, match="0.6B"):
        build_prompt(SMALL, SPOKEN, Manner("ryan", instruction=[1]))
    with pytest.raises(EngineError, match="no text"):
        build_prompt(LARGE, Spoken(SPOKEN.role, []), Manner("ryan"))


# --- checkpoints ------------------------------------------------------------------------------------------------


class Recorder:
    """A source that remembers what it gave, as a checkpoint's state dict."""

    def __init__(self) -> None:
        self.given: dict[str, Tensor] = {}
        self.prefix = ""

    def get(self, name: str, *shape: int) -> Tensor:
        full = self.prefix + name
        self.given[full] = small.values(full, shape).float()
        return self.given[full]

    def under(self, prefix: str) -> "Recorder":
        inner = Recorder()
        inner.given, inner.prefix = self.given, f"{self.prefix}{prefix}."
        return inner


BASE = msgspec.structs.replace(small.CONFIG, tts_model_type="base", speaker_encoder_config=small.SPEAKER)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path, small.CONFIG)


def write_checkpoint(tmp_path: Path, model: ModelConfig) -> Path:
    talker, codec = Recorder(), Recorder()
    build_model(talker, codec, model, small.CODEC)
    write_tokenizer(tmp_path)
    (tmp_path / CODEC_FOLDER).mkdir()
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(model))
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.7, "do_sample": true}')
    (tmp_path / CODEC_FOLDER / "config.json").write_bytes(msgspec.json.encode(small.CODEC))
    names = sorted(talker.given)
    save_file(
        {name: talker.given[name] for name in names[::2]}, tmp_path / "model-00001-of-00002.safetensors"
    )
    save_file(
        {name: talker.given[name] for name in names[1::2]}, tmp_path / "model-00002-of-00002.safetensors"
    )
    save_file(codec.given, tmp_path / CODEC_FOLDER / "model.safetensors")
    return tmp_path


def test_a_checkpoint_gives_the_model_it_holds(folder: Path) -> None:
    loaded, built = load(folder, CPU, torch.float32), small.small_model()
    assert loaded.model.cloning is None  # only Base models clone
    assert torch.equal(loaded.model.talker.layers[1].qkv, built.talker.layers[1].qkv)
    assert torch.equal(loaded.model.code_predictor.heads, built.code_predictor.heads)
    codes = torch.zeros((1, 2, 16), dtype=torch.int64)
    assert torch.equal(loaded.model.codec.decode(codes), built.codec.decode(codes))
    assert loaded.generation.temperature == 0.7 and loaded.generation.top_k == 50


def test_a_base_checkpoint_clones_a_clip(tmp_path: Path) -> None:
    loaded = load(write_checkpoint(tmp_path, BASE), CPU, torch.float32)
    cloning = loaded.model.cloning
    assert cloning
    clip = small.clip(26_000)
    voice, vector_only = cloning.clone(clip, [90, 91]), cloning.clone(clip)
    assert voice.codes is not None and voice.codes.shape == (14, 16) and vector_only.codes is None
    rows = sampling_rows(2, seeds=[1, 2])
    prompts = [
        build_prompt(BASE, Spoken([190, 77, 10], [20, 21]), Manner(clone=clone))
        for clone in (voice, vector_only)
    ]
    codes = speak(loaded.model, prompts, rows, most_frames=6)
    assert [len(frames) for frames in codes] == [6, 6] and not torch.equal(codes[0], codes[1])
    with pytest.raises(EngineError, match=r"0\.5 s"):
        cloning.clone(small.clip(5_000))


def test_a_wrong_checkpoint_names_what_is_wrong(folder: Path) -> None:
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"has no tensor talker\."):
        load(folder, CPU, torch.float32)
    (folder / CODEC_FOLDER / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(WeightsError, match=r"model\.safetensors"):
        load(folder, CPU, torch.float32)
    config = msgspec.json.decode((folder / "config.json").read_bytes())
    config["talker_config"]["hidden_size"] = "big"
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    with pytest.raises(WeightsError, match=r"talker_config\.hidden_size"):
        load(folder, CPU, torch.float32)
    config["tokenizer_type"], config["talker_config"]["hidden_size"] = "qwen3_tts_tokenizer_25hz", 48
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    with pytest.raises(WeightsError, match="12hz"):
        load(folder, CPU, torch.float32)
    with pytest.raises(WeightsError, match=r"config\.json"):
        load(folder / "nowhere", CPU, torch.float32)


def test_another_shape_than_configured_is_refused(folder: Path) -> None:
    config = msgspec.json.decode((folder / "config.json").read_bytes())
    config["talker_config"]["intermediate_size"] = 80
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    with pytest.raises(WeightsError, match=r"mlp\.gate_proj\.weight has shape \(64, 48\)"):
        load(folder, CPU, torch.float32)
