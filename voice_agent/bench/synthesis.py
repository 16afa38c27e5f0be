"""Sounds that are no words: coughs, clicks and breaths, the steady noises of rooms, and a room's echo.

Pure numpy at 48 kHz; a seed gives the same sound every time. Levels are dBFS: root mean square for steady noise, of the
loudest 20 ms for a burst. None of it is recorded: shapes follow what such sounds are made of (a burst of air through a
throat, a slow engine hum, rain), so a detector that learned real ones may find them easier or harder.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from voice_agent.audio import OPUS_RATE_HZ, Samples, ms_to_samples
from voice_agent.bench.sound import levels

Floats = NDArray[np.float64]
Dice = np.random.Generator


def burst(recipe: str, length_ms: float, level_dbfs: float, seed: int) -> Samples:
    """A short sound of the throat, the nose or the desk. Raises KeyError for a recipe that is not known."""
    samples = ms_to_samples(length_ms, OPUS_RATE_HZ)
    sound = _BURSTS[recipe](samples, np.random.default_rng(seed))
    loudest = max(levels(_to_int(sound / (np.abs(sound).max() + 1e-9) * 0.5)))
    return _to_int(sound / (np.abs(sound).max() + 1e-9) * 0.5 * 10 ** ((level_dbfs - loudest) / 20))


def steady(recipe: str, samples: int, level_dbfs: float, seed: int) -> Samples:
    """So many samples of a noise that goes on. Raises KeyError for a recipe that is not known."""
    sound = _STEADY[recipe](samples, np.random.default_rng(seed))
    return _to_int(sound / (np.sqrt(np.mean(sound**2)) + 1e-12) * 10 ** (level_dbfs / 20))


def mixed(*sounds: Samples) -> Samples:
    """Sounds of one length on top of each other; what is too loud is clipped."""
    return np.clip(np.sum([sound.astype(np.int32) for sound in sounds], axis=0), -32768, 32767).astype(
        np.int16
    )


def gained(samples: Samples, gain_db: float) -> Samples:
    """Louder or softer."""
    return _to_int(samples.astype(np.float64) / 32768 * 10 ** (gain_db / 20))


def across_the_room(samples: Samples, gain_db: float, seed: int = 0) -> Samples:
    """A voice from further away: softer, duller, with a room's tail of 0.25 s behind it."""
    dice = np.random.default_rng(seed)
    tail = ms_to_samples(250, OPUS_RATE_HZ)
    room = dice.standard_normal(tail) * np.exp(-6.0 * np.arange(tail) / tail)
    room *= 0.6 / np.sqrt(np.sum(room**2))
    room[0] = 1.0
    sound = samples.astype(np.float64) / 32768
    length = len(sound) + tail
    spectrum = np.fft.rfft(sound, length) * np.fft.rfft(room, length)
    spectrum *= 1 / np.sqrt(1 + (np.fft.rfftfreq(length, 1 / OPUS_RATE_HZ) / 3500) ** 2)
    heard = np.fft.irfft(spectrum, length)
    heard *= np.sqrt(np.mean(sound**2) / (np.mean(heard[: len(sound)] ** 2) + 1e-12))
    return _to_int(heard * 10 ** (gain_db / 20))


def drawn_out(samples: Samples, factor: float, rate_hz: int) -> Samples:
    """Speech made longer without changing its pitch, as people do to the word before a pause they did not plan.

    Windows of 30 ms are laid down with half an overlap, each moved by up to 12 ms to where it continues the last one.
    """
    window, search = rate_hz * 30 // 1000, rate_hz * 12 // 1000
    hop = window // 2
    if len(samples) < 2 * window or factor <= 1:
        return samples
    sound = np.concatenate([samples.astype(np.float64), np.zeros(window + hop)])
    length = round(len(samples) * factor)
    out, weight = np.zeros(length + window), np.zeros(length + window)
    shape = np.hanning(window) + 1e-3
    at = 0
    for place in range(0, length, hop):
        wanted = min(round(place / factor), len(samples) - 1)
        follows = sound[at + hop : at + hop + window]
        places = range(max(0, wanted - search), min(len(sound) - window, wanted + search) + 1, 4)
        at = max(places, key=lambda first: float(follows @ sound[first : first + window])) if place else 0
        out[place : place + window] += shape * sound[at : at + window]
        weight[place : place + window] += shape
    return np.clip(out[:length] / weight[:length], -32768, 32767).astype(np.int16)


def _to_int(sound: Floats) -> Samples:
    return np.clip(np.round(sound * 32768), -32768, 32767).astype(np.int16)


def _band(sound: Floats, low_hz: float, high_hz: float) -> Floats:
    """Soft-edged band-pass."""
    spectrum = np.fft.rfft(sound)
    hz = np.fft.rfftfreq(len(sound), 1 / OPUS_RATE_HZ)
    spectrum *= 1 / (1 + (low_hz / np.maximum(hz, 1e-3)) ** 4) / (1 + (hz / high_hz) ** 4)
    return np.fft.irfft(spectrum, len(sound))


def _coloured(samples: int, dice: Dice, slope: float) -> Floats:
    """Noise whose power falls with f to the `slope`: 1 pink, 2 brown."""
    spectrum = np.fft.rfft(dice.standard_normal(samples))
    hz = np.fft.rfftfreq(samples, 1 / OPUS_RATE_HZ)
    return np.fft.irfft(spectrum / np.maximum(hz, 30.0) ** (slope / 2), samples)


def _shape(samples: int, attack: float, decay: float) -> Floats:
    """Rise within `attack` of the length, then fall by e to the `decay`."""
    at = np.arange(samples) / max(1, samples)
    return np.minimum(1.0, at / attack) * np.exp(-decay * np.maximum(0.0, at - attack))


def _cough(samples: int, dice: Dice) -> Floats:
    air = _band(dice.standard_normal(samples), 350, 2800) * _shape(samples, 0.06, 4.5)
    throat = _band(_pulses(samples, 140, dice), 150, 1500) * _shape(samples, 0.3, 6.0)
    return air / np.abs(air).max() + 0.3 * throat / (np.abs(throat).max() + 1e-9)


def _double_cough(samples: int, dice: Dice) -> Floats:
    first = int(samples * 0.45)
    gap = int(samples * 0.12)
    rest = samples - first - gap
    return np.concatenate([_cough(first, dice), np.zeros(gap), 0.7 * _cough(rest, dice)])


def _throat(samples: int, dice: Dice) -> Floats:
    rough = _pulses(samples, 75, dice) + 0.15 * dice.standard_normal(samples)
    return _band(rough, 200, 1600) * _shape(samples, 0.25, 2.0)


def _pulses(samples: int, pitch_hz: float, dice: Dice) -> Floats:
    """Irregular beats of the vocal folds."""
    sound = np.zeros(samples)
    at = 0.0
    while at < samples:
        sound[int(at)] = 1.0 + 0.4 * dice.standard_normal()
        at += OPUS_RATE_HZ / pitch_hz * (1 + 0.15 * dice.standard_normal())
    return sound * np.sqrt(OPUS_RATE_HZ / pitch_hz) * 0.3


def _breath(samples: int, dice: Dice) -> Floats:
    return _band(dice.standard_normal(samples), 500, 3500) * np.sin(np.pi * np.arange(samples) / samples)


def _sniff(samples: int, dice: Dice) -> Floats:
    return _band(dice.standard_normal(samples), 1800, 7000) * _shape(samples, 0.5, 5.0)


def _click(samples: int, dice: Dice) -> Floats:
    return _band(dice.standard_normal(samples), 1500, 9000) * _shape(samples, 0.02, 9.0)


def _clicks(samples: int, dice: Dice) -> Floats:
    sound = np.zeros(samples)
    one = ms_to_samples(35, OPUS_RATE_HZ)
    for at in range(0, samples - one, ms_to_samples(110, OPUS_RATE_HZ)):
        sound[at : at + one] += _click(one, dice)
    return sound


def _tongue(samples: int, dice: Dice) -> Floats:
    return _band(dice.standard_normal(samples), 900, 3200) * _shape(samples, 0.05, 7.0)


def _knock(samples: int, dice: Dice) -> Floats:
    at = np.arange(samples) / OPUS_RATE_HZ
    body = np.sin(2 * np.pi * 130 * at) + 0.5 * np.sin(2 * np.pi * 310 * at)
    return (body + 0.2 * dice.standard_normal(samples)) * _shape(samples, 0.01, 8.0)


def _burst(samples: int, dice: Dice) -> Floats:
    return _band(dice.standard_normal(samples), 200, 5000) * _shape(samples, 0.1, 3.0)


def _sneeze(samples: int, dice: Dice) -> Floats:
    first = int(samples * 0.45)
    breath_in = 0.25 * _breath(first, dice)
    out = _band(dice.standard_normal(samples - first), 900, 6000) * _shape(samples - first, 0.1, 4.0)
    return np.concatenate([breath_in, out])


def _fan(samples: int, dice: Dice) -> Floats:
    at = np.arange(samples) / OPUS_RATE_HZ
    air = _coloured(samples, dice, 1.6)
    return air / air.std() + 0.5 * np.sin(2 * np.pi * 100 * at) + 0.2 * np.sin(2 * np.pi * 200 * at)


def _street(samples: int, dice: Dice) -> Floats:
    """A rumble that swells as cars pass."""
    at = np.arange(samples) / OPUS_RATE_HZ
    swell = 1 + 0.5 * np.sin(2 * np.pi * 0.23 * at + dice.uniform(0, 6)) + 0.2 * np.sin(2 * np.pi * 0.7 * at)
    return _band(_coloured(samples, dice, 1.3), 60, 4000) * swell


def _hum(samples: int, dice: Dice) -> Floats:
    at = np.arange(samples) / OPUS_RATE_HZ
    tones = sum((np.sin(2 * np.pi * 50 * k * at) / k for k in range(1, 9)), np.zeros(samples))
    air = _coloured(samples, dice, 1.0)
    return tones + 0.3 * air / air.std()


def _rain(samples: int, dice: Dice) -> Floats:
    return _band(dice.standard_normal(samples), 400, 9000)


def _pink(samples: int, dice: Dice) -> Floats:
    return _coloured(samples, dice, 1.0)


_BURSTS: dict[str, Callable[[int, Dice], Floats]] = {
    "cough": _cough,
    "double cough": _double_cough,
    "throat": _throat,
    "breath": _breath,
    "sniff": _sniff,
    "click": _click,
    "clicks": _clicks,
    "tongue": _tongue,
    "knock": _knock,
    "burst": _burst,
    "sneeze": _sneeze,
}
_STEADY: dict[str, Callable[[int, Dice], Floats]] = {
    "fan": _fan,
    "street": _street,
    "hum": _hum,
    "rain": _rain,
    "pink": _pink,
}
