"""Piper voices (VITS) cut at the decoder: text encoder and flow are the Talker, the decoder is the VoiceBox.

The published graph makes a whole sentence at once. Cut once at the input of the decoder's first convolution it gives
latent frames with the frames per phoneme beside them, and sound window by window; random nodes become inputs, so a
seed gives the same voice again. Frames of context on both sides make windows equal to the one-shot waveform.
Source: the voice's .onnx and .onnx.json as published (rhasspy/piper-voices). Knows no text beyond a clause's words.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from voice_agent.audio import Samples
from voice_agent.engine.messages import SpokenWord
from voice_agent.engine.runtime import FrameWord, Latents, TalkerOptions
from voice_agent.errors import EngineError, UnsupportedLanguage, WeightsError
from voice_agent.family_options import PiperOptions, read_options
from voice_agent.models import phonemes
from voice_agent.models.derived import Recipe, derive
from voice_agent.models.onnx_session import open_session

TALKER, VOICE_BOX = "talker.onnx", "voice_box.onnx"  # what a voice is cut into
CONTEXT_FRAMES = (
    12  # the decoder's reach: with it, windows join to within a rounding step (measured; 8 is not enough)
)
LEAD_FRAMES = 2  # of the silence before the first phoneme, 23 ms at 22,050 Hz; the rest only adds latency
GAIN = 1.25  # typical clauses peak at -3 dBFS; the graph's own level is 0.3 to 0.6
NOISE_FRAMES = 512  # longer clauses read the bank again from its start
MOST_SYMBOLS = 2_000  # attention is quadratic: more would be gigabytes, and no clause is a page
GARBLED_FROM = 0.5  # share of letters the voice cannot read
FASTEST, SLOWEST = 4.0, 0.25


@dataclass(frozen=True, slots=True)
class Clause:
    """Latent frames [1, C, F] of a clause, of which the first `skipped` are dropped silence."""

    latent: NDArray[np.float32]
    skipped: int


def load(folder: Path, options: TalkerOptions) -> "Piper":
    """Load the voice in a folder (cut it first if need be); raises WeightsError."""
    return Piper(folder, options)


class Piper:
    """One voice; call from one thread."""

    def __init__(self, folder: Path, options: TalkerOptions) -> None:
        self._keep_silence = read_options(PiperOptions, options.extra).keep_silence
        source = find_voice(folder)
        config = _read_config(source)
        parts = prepare(folder)
        self._ids = {symbol: ids[0] for symbol, ids in config["phoneme_id_map"].items() if ids}
        self._inference = config["inference"]
        self.rate_hz = int(config["audio"]["sample_rate"])
        self.voices = (source.stem.split("-")[1] if source.stem.count("-") == 2 else source.stem,)
        self.languages = ("en",)
        self._talker = open_session(parts / TALKER, options.threads)
        self._voice_box = open_session(parts / VOICE_BOX, options.threads)
        self._channels = next(int(i.shape[1]) for i in self._talker.get_inputs() if i.name == "frame_noise")
        self.samples_per_frame = len(self._render(np.zeros((1, self._channels, 4), np.float32))) // 4
        phonemes.warm_up()

    def encode(self, words: list[SpokenWord], voice: str, speed: float, seed: int) -> Latents:
        """One clause to latent frames; the same seed gives the same frames.

        Words without sound get an empty range. Raises UnsupportedLanguage when most letters are foreign, EngineError
        for a voice that is not here or a clause beyond a page.
        """
        if voice and voice not in self.voices:
            raise EngineError(f"no voice {voice!r} here: {', '.join(self.voices)}", code="unknown_voice")
        texts = [word.text for word in words]
        if phonemes.foreign_share(texts) >= GARBLED_FROM:
            raise UnsupportedLanguage("this voice speaks English only")
        symbols, spans = self._symbols(phonemes.phonemize(texts))
        if len(symbols) > MOST_SYMBOLS:
            raise EngineError(
                f"a clause of {len(symbols)} phonemes is too long to speak", code="clause_too_long"
            )
        if not symbols:
            return Latents(0, None, [FrameWord(word.start_char, word.end_char, 0, 0) for word in words])
        latent, ends = self._run_talker(symbols, min(FASTEST, max(SLOWEST, speed)), seed)
        skipped = 0 if self._keep_silence else max(0, int(ends[1]) - LEAD_FRAMES)
        timed = [_frame_word(word, span, ends, skipped) for word, span in zip(words, spans, strict=True)]
        return Latents(latent.shape[2] - skipped, Clause(latent, skipped), timed)

    def decode(self, latents: Latents, first_frame: int, frames: int) -> Samples:
        """Sound of a window, int16 [frames * samples_per_frame]; windows of any size join without a seam."""
        if first_frame < 0 or frames < 0 or first_frame + frames > latents.frames:
            raise ValueError(f"window {first_frame}+{frames} is outside of {latents.frames} frames")
        if frames == 0:
            return np.zeros(0, np.int16)
        clause = cast(Clause, latents.data)
        begin = clause.skipped + first_frame
        left = max(0, begin - CONTEXT_FRAMES)
        window = clause.latent[:, :, left : begin + frames + CONTEXT_FRAMES]
        sound = self._render(np.ascontiguousarray(window))
        cut_off = (begin - left) * self.samples_per_frame
        sound = sound[cut_off : cut_off + frames * self.samples_per_frame]
        return np.round(np.clip(sound * GAIN, -1.0, 1.0) * 32767).astype(np.int16)

    def _symbols(self, spoken: list[str]) -> tuple[list[int], list[tuple[int, int, int]]]:
        """Phoneme ids of a clause, and per word (first, end of its sound, end with closing mark) among them."""
        ids, spans = list[int](), list[tuple[int, int, int]]()
        for text in spoken:
            known = [self._ids[char] for char in text if char in self._ids]
            if ids and known:
                ids.append(self._ids[" "])
            first = len(ids)
            ids += known
            marks = len(text) - len(text.rstrip(phonemes.END_MARKS))
            spans.append((first, max(first, len(ids) - marks) if known else first, len(ids)))
        return ids, spans

    def _run_talker(
        self, symbols: list[int], speed: float, seed: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Latent [1, C, F], and for each id of the padded sequence the frame where it ends."""
        begin, pad, end = self._ids["^"], self._ids["_"], self._ids["$"]
        ids = [begin, pad, *(part for symbol in symbols for part in (symbol, pad)), end]
        noise = np.random.default_rng(seed & 0xFFFF_FFFF)
        scales = (
            self._inference["noise_scale"],
            self._inference["length_scale"] / speed,
            self._inference["noise_w"],
        )
        latent, frames = self._talker.run(
            None,
            {
                "input": np.array([ids], np.int64),
                "input_lengths": np.array([len(ids)], np.int64),
                "scales": np.array(scales, np.float32),
                "duration_noise": noise.standard_normal((1, 2, len(ids)), dtype=np.float32),
                "frame_noise": noise.standard_normal((1, self._channels, NOISE_FRAMES), dtype=np.float32),
            },
        )
        ends = np.cumsum(cast(NDArray[np.float32], frames).ravel()).astype(np.int64)
        return cast(NDArray[np.float32], latent), ends

    def _render(self, window: NDArray[np.float32]) -> NDArray[np.float32]:
        """VoiceBox on latent frames [1, C, F]: float samples."""
        sound = self._voice_box.run(None, {self._voice_box.get_inputs()[0].name: window})[0]
        return cast(NDArray[np.float32], sound).ravel()


def _frame_word(
    word: SpokenWord, span: tuple[int, int, int], ends: NDArray[np.int64], skipped: int
) -> FrameWord:
    """Frames of a word from its span of symbols; symbol k is id 2 + 2k of the padded sequence, then its pad."""
    first, end, _ = span
    first_frame, end_frame = int(ends[1 + 2 * first]), int(ends[1 + 2 * end])
    return FrameWord(
        word.start_char, word.end_char, first_frame - skipped, max(first_frame, end_frame) - skipped
    )


def find_voice(folder: Path) -> Path:
    """The .onnx of the voice in a folder; raises WeightsError unless there is exactly one, with its .json."""
    found = sorted(folder.glob("*.onnx"))
    if len(found) != 1:
        raise WeightsError(f"{folder} holds {len(found)} .onnx files, a Piper voice is exactly one")
    if not found[0].with_name(found[0].name + ".json").is_file():
        raise WeightsError(f"{found[0].name}.json is missing beside the voice")
    return found[0]


def prepare(folder: Path) -> Path:
    """The folder with the voice's two parts, cutting them once. Raises WeightsError."""
    return derive(find_voice(folder), Recipe("cut1", (TALKER, VOICE_BOX), _cut))


def _cut(source: Path, into: Path) -> None:
    from voice_agent.models.piper_cut import cut  # here: a voice that was cut starts without onnx

    cut(source, into / TALKER, into / VOICE_BOX)


def _read_config(source: Path) -> dict[str, Any]:
    path = source.with_name(source.name + ".json")
    try:
        config = json.loads(path.read_text("utf-8"))
        language = str(config["espeak"]["voice"])
        speakers = config.get("num_speakers", 1)
        missing = {"^", "_", "$", " "} - set(config["phoneme_id_map"])
        _ = (
            config["inference"]["noise_scale"],
            config["inference"]["noise_w"],
            config["inference"]["length_scale"],
        )
        _ = int(config["audio"]["sample_rate"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise WeightsError(f"{path.name} is not a Piper voice's description: {error!r}") from error
    if not language.startswith("en"):
        raise WeightsError(f"{source.name} speaks {language}: only English voices have a lexicon here")
    if missing or speakers != 1:
        raise WeightsError(f"{source.name}: only single-speaker voices with the usual marks can be spoken")
    return config
