"""Whisper on CTranslate2, int8, greedy, without the 30 s window that makes short utterances slow.

The mel is only as long as the speech and half a second. Alone that makes Whisper say sentences twice, since the decoder
has learned to stop where it sees silence; so the encoder's view of a silent rest, computed once at load, is appended
to the memory it attends to (measured on 74 clips: 0 repeats, 35 without). A repeat that still happens is noticed and
decoded again over real silence. Noise and hum give "". Does not know: VAD, turns, partial results.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import ctranslate2
import numpy as np
from faster_whisper import WhisperModel
from numpy.typing import NDArray

from voice_agent.audio import MODEL_RATE_HZ, Samples, silence
from voice_agent.engine.messages import HeardWord, primary_tag
from voice_agent.engine.runtime import RecognizerOptions
from voice_agent.errors import ConfigError, EngineError, WeightsError
from voice_agent.family_options import WhisperOptions, read_options
from voice_agent.models.first_word import command_in, first_words

SHORTEST_SAMPLES = MODEL_RATE_HZ // 10  # below that there is no word
LONGEST_SAMPLES = 30 * MODEL_RATE_HZ  # the model's window
QUIETEST_PEAK = 32  # -60 dBFS: a dead microphone's dither
LANGUAGE_MARK = re.compile(r"<\|([a-z]{2,3})\|>")
POSITIONS_HZ = 50  # encoder positions per second
MOST_POSITIONS = 1_500
MEL_HZ = 100
PAD_S, REST_S = 0.5, 6.0  # real zeros after the speech, and the silent rest in all
CAREFUL_PAD_S, CAREFUL_REST_S = 5.0, 15.0  # for the second look at a repeat
NO_SPEECH = 0.6  # sentences stayed below 0.3, noise above 0.64
# together they mean noise; score is the mean log-probability per token
UNSURE_NO_SPEECH, UNSURE_SCORE = 0.4, -1.4
# a word said alone: 0.27-0.79 at -0.5 ... -1.4; misheard ones, coughs and clicks at -1.6 and less, or one sound over
# and over
LONE_NO_SPEECH, LONE_SCORE = 0.8, -1.5
SHORT_SAMPLES = MODEL_RATE_HZ  # a sound that can be one command
FASTEST_CHARS_PER_S = 20.0  # fast speakers reach 18, pauses included


@dataclass(frozen=True, slots=True)
class Heard:
    """One decoding: text, the language it was decoded as, and how sure the model was."""

    text: str
    language: str
    score: float
    no_speech: float


def load(folder: Path, options: RecognizerOptions) -> "Whisper":
    """Load a CTranslate2 Whisper folder; raises WeightsError, ConfigError for a language it does not hear.

    `extra`: `languages`, those detection may choose.
    """
    return Whisper(folder, options)


class Whisper:
    """One Whisper model; nothing of it changes after loading, and CTranslate2 takes `lanes` calls at once."""

    def __init__(self, folder: Path, options: RecognizerOptions) -> None:
        if not (folder / "model.bin").is_file():
            raise WeightsError(f"{folder} holds no model.bin: not a CTranslate2 Whisper model")
        try:
            loaded = WhisperModel(
                str(folder),
                device="cpu",
                compute_type="int8",
                cpu_threads=options.threads,
                num_workers=options.lanes,
                local_files_only=True,
            )
        except (RuntimeError, ValueError, OSError) as error:
            raise WeightsError(f"the Whisper model in {folder} cannot be loaded: {error}") from error
        self._model = cast(Any, loaded.model)
        self._mel = loaded.feature_extractor
        self._tokenizer = cast(Any, loaded.hf_tokenizer)
        self._multilingual = bool(self._model.is_multilingual)
        if not self._multilingual and primary_tag(options.language or "en") != "en":
            raise ConfigError(
                f"recognizer.language: the model in {folder} hears English only, not {options.language!r}"
            )
        self.languages = self._languages()
        self._allowed = read_options(WhisperOptions, options.extra).languages
        self._end_id = self._id("<|endoftext|>")
        self._first_words = first_words(self._first_token)
        self._silent_rest = self._encode(_speech_like(), 30.0)

    def transcribe(self, samples: Samples, language: str | None) -> tuple[str, str]:
        """Text and language of int16 16 kHz [T]; what lies beyond 30 s is not heard. English-only models return "en".

        Raises EngineError for a language the model does not know.
        """
        speech = samples[:LONGEST_SAMPLES]
        language = self._known(language)
        if len(speech) < SHORTEST_SAMPLES or int(np.abs(speech.astype(np.int32)).max()) < QUIETEST_PEAK:
            return "", language or "en"
        heard = self._listen(speech, language, PAD_S, REST_S)
        unit = repeated(heard.text)
        seconds = len(speech) / MODEL_RATE_HZ
        if unit and not _too_fast(heard.text, seconds):  # perhaps the speaker did say it twice
            heard = self._listen(speech, heard.language, CAREFUL_PAD_S, CAREFUL_REST_S)
            unit = repeated(heard.text) if _too_fast(heard.text, seconds) else None
        if is_speech(heard, alone=len(speech) <= SHORT_SAMPLES):
            return unit or heard.text, heard.language
        return self._command(speech, heard.language), heard.language

    def _command(self, speech: Samples, language: str) -> str:
        """A one-word command in a short sound of which no text came; "" if it is none."""
        if language != "en" or len(speech) > SHORT_SAMPLES:
            return ""
        prompt = self._prompt(language)
        result = self._model.generate(
            self._memory(speech, PAD_S, REST_S),
            [prompt],
            beam_size=1,
            max_length=len(prompt) + 1,
            return_logits_vocab=True,
        )[0]
        logits = np.array(result.logits[0][0], np.float32)
        return command_in(logits, self._first_words) or ""

    def align(self, samples: Samples, text: str, language: str) -> list[HeardWord]:
        """When each word of a recognized text was spoken, from where the decoder looked; costs a third encoding."""
        speech = samples[:LONGEST_SAMPLES]
        words = text.split()
        tokens = [self._tokenizer.encode(f" {word}", add_special_tokens=False).ids for word in words]
        if not words or len(speech) < SHORTEST_SAMPLES:
            return []
        aligned = self._model.align(
            self._memory(speech, PAD_S, REST_S),
            self._prompt(language)[:-1],  # with time stamps on, or they are told as words
            [[token for group in tokens for token in group]],
            MEL_HZ * len(speech) // MODEL_RATE_HZ,
        )[0]
        lengths = [len(group) for group in tokens]
        return word_times(words, lengths, aligned.alignments, len(speech) / MODEL_RATE_HZ)

    def count_tokens(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _languages(self) -> tuple[str, ...]:
        """The tags among the marks of the vocabulary, which are of two or three letters."""
        if not self._multilingual:
            return ("en",)
        marks = (LANGUAGE_MARK.fullmatch(token) for token in self._tokenizer.get_vocab())
        return tuple(sorted(mark[1] for mark in marks if mark))

    def _known(self, language: str | None) -> str | None:
        if not self._multilingual:
            return "en"
        if language is None:
            return None
        tag = primary_tag(language)
        if tag not in self.languages:
            raise EngineError(
                f"the recognizer does not know the language {language!r}", code="invalid_language"
            )
        return tag

    def _listen(self, speech: Samples, language: str | None, pad_s: float, rest_s: float) -> Heard:
        memory = self._memory(speech, pad_s, rest_s)
        language = language or self._detect(memory)
        tokens_per_s = 16 if self._multilingual else 10  # Korean takes more tokens than English
        result = self._model.generate(
            memory,
            [self._prompt(language)],
            beam_size=1,
            max_length=min(224, 12 + int(tokens_per_s * len(speech) / MODEL_RATE_HZ)),
            return_scores=True,
            return_no_speech_prob=True,
        )[0]
        ids = [token for token in result.sequences_ids[0] if token < self._end_id]
        return Heard(self._tokenizer.decode(ids).strip(), language, result.scores[0], result.no_speech_prob)

    def _memory(self, speech: Samples, pad_s: float, rest_s: float) -> Any:
        """What the decoder attends to [1, P, D]: the speech's positions, then those of the silent rest."""
        encoded = self._encode(speech, pad_s)
        wanted = min(MOST_POSITIONS, int((len(speech) / MODEL_RATE_HZ + rest_s) * POSITIONS_HZ))
        whole = np.concatenate([encoded, self._silent_rest[:, encoded.shape[1] : wanted]], axis=1)
        return _view(whole)

    def _encode(self, speech: Samples, pad_s: float) -> NDArray[np.float32]:
        """Encoder output [1, P, D] of the speech and so many seconds of zeros, within the 30 s window."""
        padded = np.concatenate(
            [speech.astype(np.float32) / 32768, np.zeros(int(pad_s * MODEL_RATE_HZ), np.float32)]
        )
        mel = self._mel(padded, padding=0)
        mel = mel[:, : min(30 * MEL_HZ, mel.shape[1] // 2 * 2)]
        return np.array(self._model.encode(_view(mel[None])), np.float32)

    def _detect(self, memory: Any) -> str:
        """The likeliest language, among the allowed ones if any were named."""
        ranked = [token.strip("<|>") for token, _ in self._model.detect_language(memory)[0]]
        return next((tag for tag in ranked if not self._allowed or tag in self._allowed), ranked[0])

    def _prompt(self, language: str) -> list[int]:
        task = [f"<|{language}|>", "<|transcribe|>"] if self._multilingual else []
        return [self._id(token) for token in ("<|startoftranscript|>", *task, "<|notimestamps|>")]

    def _first_token(self, text: str) -> int:
        return int(self._tokenizer.encode(text, add_special_tokens=False).ids[0])

    def _id(self, token: str) -> int:
        found = self._tokenizer.token_to_id(token)
        if found is None:
            raise WeightsError(f"the tokenizer beside the Whisper model has no {token}")
        return int(found)


def is_speech(heard: Heard, *, alone: bool = False) -> bool:
    """Whether a decoding stands for words, not for noise, hum or breath; `alone`: of a sound as short as one word."""
    if not any(char.isalnum() for char in heard.text):
        return False
    if alone:
        sure = heard.no_speech <= LONE_NO_SPEECH and heard.score >= LONE_SCORE
        return sure and (heard.no_speech <= NO_SPEECH or repeated(heard.text) is None)
    if heard.no_speech > NO_SPEECH:
        return False
    return not (heard.no_speech > UNSURE_NO_SPEECH and heard.score < UNSURE_SCORE)


def word_times(
    words: list[str], token_counts: list[int], path: Sequence[tuple[int, int]], duration_s: float
) -> list[HeardWord]:
    """Words in seconds from an alignment path of (token, encoder position), both of which never go back.

    A token begins at its first position, a word with its first token and ends where the next word begins.
    """
    begins = dict[int, int]()
    for token, position in path:
        begins.setdefault(token, position)
    starts, first = list[float](), 0
    for count in token_counts:
        known = begins.get(first)
        starts.append(known / POSITIONS_HZ if known is not None else starts[-1] if starts else 0.0)
        first += count
    end = begins.get(first)
    ends = [*starts[1:], duration_s if end is None else end / POSITIONS_HZ]
    timed = zip(words, starts, ends, strict=True)
    return [HeardWord(word, min(a, duration_s), min(max(a, b), duration_s)) for word, a, b in timed]


def repeated(text: str) -> str | None:
    """The part that a text says over and over from its first word to its last; None if it does not.

    At least three words said twice, or anything said four times; the last time may be cut short.
    """
    words = text.split()
    plain = ["".join(char for char in word.lower() if char.isalnum()) for word in words]
    for period in range(1, len(words) // 2 + 1):
        times = len(words) / period
        if (period >= 3 or times >= 4) and all(
            plain[i] == plain[i - period] for i in range(period, len(words))
        ):
            return " ".join(words[:period])
    return None


def _too_fast(text: str, seconds: float) -> bool:
    return len(text) / seconds > FASTEST_CHARS_PER_S


def _view(array: NDArray[np.float32]) -> Any:
    return cast(Any, ctranslate2).StorageView.from_array(np.ascontiguousarray(array, np.float32))


def _speech_like() -> Samples:
    """A second of three hummed syllables: silence after nothing looks different to the encoder than after speech."""
    time = np.arange(MODEL_RATE_HZ) / MODEL_RATE_HZ
    phase = 2 * np.pi * np.cumsum(110 + 30 * np.sin(2 * np.pi * 0.7 * time)) / MODEL_RATE_HZ
    formants = ((600, 300, 1.0), (1_500, 300, 0.5), (2_600, 400, 0.3))  # Hz, width, strength
    voice = np.zeros(MODEL_RATE_HZ)
    for harmonic in range(1, 30):
        strength = sum(
            level * np.exp(-(((harmonic * 120 - hz) / width) ** 2)) for hz, width, level in formants
        )
        voice += strength * np.sin(harmonic * phase)
    envelope = np.sqrt(np.clip(np.sin(2 * np.pi * 3.5 * time), 0, 1))
    loud = (voice * envelope / np.abs(voice).max() * 8_000).astype(np.int16)
    return np.concatenate([silence(MODEL_RATE_HZ // 5), loud, silence(MODEL_RATE_HZ * 3 // 10)])
