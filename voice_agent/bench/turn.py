"""`voice-agent bench turn`: how fast a running server answers, stops and lets go, as a caller hears it.

Each turn is a call of its own with an empty history: connect, a second for a greeting, one spoken question, the reply
to its end. Barge-ins come after the turns, in calls of their own. At the end the replies are recognized again, when
nothing is measured any more. Exit status: 0, 1 if a turn failed or the server refused, 2 if the bench lacks something.

`--sessions` lets so many callers talk at once, each in one call that goes on: `--turns` and `--barges` are each
caller's then, and the report says what the engines still held when all had hung up.

`--set` puts the labelled set to the server besides, an item a call: barge-ins, sounds of listening, coughs, side talk
and echo over a reply, questions with pauses or noise; `--items` keeps a run short.

`--sequential` asks short and long questions twice: as the session is, and after a session.update that sets
`overlap` false, in which the server is to run stage after stage (all text, then all speech, then playout).
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from voice_agent.bench import arguments, measure, overlap, report, turn_load, turn_set
from voice_agent.bench.caller import Caller
from voice_agent.bench.exactness import Ears, RecognizingEars, ToneEars, exactness
from voice_agent.bench.labelled import KINDS, OVER_A_REPLY, ItemSound, items, sound_of
from voice_agent.bench.line import Event
from voice_agent.bench.questions import BARGES, LONG_QUESTIONS, QUESTIONS
from voice_agent.bench.spoken import Hearing, Sentence, Voice, cache_folder, read_folder
from voice_agent.bench.wer import word_error_rate
from voice_agent.clock import NS_PER_S, Clock, MonotonicClock
from voice_agent.errors import BusyError, VoiceAgentError, WeightsError
from voice_agent.models.store import Store

SEAT_S, SEAT_POLL_S = 3.0, 0.25  # a call that was just hung up gives its seat back within this
RECOGNIZERS = (
    "whisper-tiny.en",
    "whisper-base",
)  # for the packaged voice the small one errs less: 0.8 against 2.5 %
SEQUENTIAL: Event = {"type": "session.update", "session": {"type": "realtime", "overlap": False}}


@dataclass(frozen=True)
class Material:
    """Everything the caller says."""

    questions: list[Sentence]
    long_questions: list[Sentence]
    barges: list[Sentence]
    over_questions: list[Sentence] = field(default_factory=list[Sentence])
    items: list[ItemSound] = field(default_factory=list[ItemSound])


def main(argv: Sequence[str]) -> int:
    """Run with the command line behind `bench turn`; prints the report and returns the exit status."""
    options = _parser().parse_args(argv)
    store = Store(cache_folder())
    try:
        material = _material(options, store)
        hearing = None if options.no_wer or options.sessions else _hearing(options, store)
    except (WeightsError, ModuleNotFoundError) as error:
        print(f"bench turn: {error}", file=sys.stderr)
        return 2
    try:
        run = _load(options, material) if options.sessions else _alone(options, material)
    except httpx.TransportError as error:
        print(
            f"bench turn: no server at {options.url} ({error}); start one: voice-agent serve", file=sys.stderr
        )
        return 1
    except VoiceAgentError as error:
        print(f"bench turn: the server refused the call: {error}", file=sys.stderr)
        return 1
    if hearing is not None:
        _recognize(run, hearing)
    _hear_again(run, ToneEars() if options.tones else RecognizingEars(hearing) if hearing else None)
    return _print(report.summed_up(run, argv), as_json=options.json)


def _alone(options: argparse.Namespace, material: Material) -> report.Run:
    return asyncio.run(_run(options, material, MonotonicClock()))


def _load(options: argparse.Namespace, material: Material) -> report.Run:
    """Many callers at once."""
    found = turn_load.run(
        turn_load.Load(
            options.url,
            options.sessions,
            options.turns,
            options.barges,
            options.transport,
            material.questions,
            material.long_questions,
            material.barges,
            options.api_key,
            options.seconds,
        )
    )
    models = asyncio.run(_models(options))
    load = report.LoadShape(options.sessions, options.transport, found.left, max(found.late_ms, default=None))
    return report.Run(found.turns, found.barges, models=models, load=load)


def _print(result: report.Report, *, as_json: bool) -> int:
    print(json.dumps(result, indent=1) if as_json else report.table(result))
    problems = report.problems(result)
    for problem in problems:
        print(f"bench turn: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser("voice-agent bench turn", "Measure a server like a caller.")
    count = arguments.whole(0)
    parser.add_argument(
        "--url", type=arguments.address, default="http://127.0.0.1:8000", help="the server's address"
    )
    parser.add_argument("--turns", type=count, default=10, help="questions to ask, a call each")
    parser.add_argument(
        "--barges", type=count, help="barge-ins to make (default: half as many as turns, at most 6)"
    )
    parser.add_argument("--sessions", type=count, default=0, metavar="N", help="N callers at once")
    parser.add_argument(
        "--transport", choices=("webrtc", "websocket"), default="webrtc", help="of the callers of --sessions"
    )
    parser.add_argument(
        "--seconds",
        type=arguments.number(0),
        default=0.0,
        help="no turn begins later than this (0: no limit)",
    )
    parser.add_argument(
        "--first-sound", action="store_true", help="hang up once a reply has sounded for a second"
    )
    parser.add_argument(
        "--set",
        action="append",
        choices=("all", *KINDS),
        default=[],
        help="put this part of the labelled set to the server (may be given more than once)",
    )
    parser.add_argument("--items", type=count, metavar="N", help="at most N items of each kind")
    parser.add_argument(
        "--tones",
        action="store_true",
        help="the server speaks in tones (profile scripted): hear its words exactly",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--sequential", action="store_true", help="show what overlapping the stages gains")
    parser.add_argument(
        "--wav",
        type=Path,
        metavar="FOLDER",
        help="ask these recordings instead of the list; folders `long` and `barges` in it hold the barge-ins'",
    )
    parser.add_argument("--recognizer", choices=RECOGNIZERS, help="model that hears the replies again")
    parser.add_argument("--no-wer", action="store_true", help="do not recognize the replies again")
    parser.add_argument(
        "--api-key",
        type=arguments.api_key,
        default=os.environ.get("VOICE_AGENT_API_KEY"),
        help="if the server wants one",
    )
    return parser


def _material(options: argparse.Namespace, store: Store) -> Material:
    """Speak or read what is needed; options.barges is settled here."""
    if options.barges is None:
        options.barges = 1 if options.sessions else min(6, (options.turns + 1) // 2)
    questions = read_folder(options.wav) if options.wav else []
    more = [read_folder(folder) for name in ("long", "barges") if (folder := _within(options.wav, name))]
    need_barges = options.barges and len(more) < 2
    need_voice = not options.wav or need_barges or options.sequential or options.set
    if not need_voice:
        long_questions, barges = more if len(more) == 2 else ([], [])
        return Material(questions, long_questions, barges)
    voice = Voice(store)
    asked = (
        max(options.turns, len(LONG_QUESTIONS)) if options.sequential or options.sessions else options.turns
    )
    return Material(
        questions or voice.sentences(QUESTIONS[:asked]),
        voice.sentences(LONG_QUESTIONS),
        voice.sentences(BARGES),
        voice.sentences(turn_set.QUESTIONS) if options.set else [],
        _items(options, voice),
    )


def _within(folder: Path | None, name: str) -> Path | None:
    """A folder in the one of recordings, if there are both."""
    return folder / name if folder and (folder / name).is_dir() else None


def _items(options: argparse.Namespace, voice: Voice) -> list[ItemSound]:
    """The parts of the labelled set that were asked for, as sound."""
    kinds = KINDS if "all" in options.set else options.set
    return [sound_of(item, voice) for item in items(kinds, options.items)]


def _hearing(options: argparse.Namespace, store: Store) -> Hearing:
    """The recognizer that was asked for, else the first that is there."""
    names = [options.recognizer] if options.recognizer else RECOGNIZERS
    present = [name for name in names if not store.missing([name])]
    return Hearing(store, present[0] if present else names[-1])


async def _run(options: argparse.Namespace, material: Material, clock: Clock) -> report.Run:
    run = report.Run(models=await _models(options))
    until_ns = clock.now_ns() + round(options.seconds * NS_PER_S) if options.seconds else None
    for number in range(options.turns):
        if until_ns is not None and clock.now_ns() > until_ns:
            break
        sentence = material.questions[number % len(material.questions)]
        async with _call(options, clock) as caller:
            await measure.settle(caller)
            ask = measure.ask(caller, clock, sentence.text, sentence.samples, to_end=not options.first_sound)
            run.turns.append(await ask)
        _progress(f"turn {number + 1} of {options.turns}: {_told(run.turns[-1])}")
    for number in range(options.barges):
        question = material.long_questions[number % len(material.long_questions)]
        barge = material.barges[number % len(material.barges)]
        async with _call(options, clock) as caller:
            await measure.settle(caller)
            run.barges.append(await measure.interrupt(caller, clock, question.samples, barge.samples))
        _progress(f"barge-in {number + 1} of {options.barges}: {_told_barge(run.barges[-1])}")
    for number, sound in enumerate(material.items):
        question = material.over_questions[number % len(material.over_questions)]
        async with _call(options, clock) as caller:
            await measure.settle(caller)
            if sound.item.kind in OVER_A_REPLY:
                outcome = await overlap.over_reply(caller, clock, question.samples, sound)
            else:
                outcome = await overlap.asked_with_pauses(caller, sound)
        run.outcomes.append(outcome)
        _progress(f"{number + 1} of {len(material.items)} {outcome.name}: {outcome.said}")
    if options.sequential:
        run.sequential = await _compare(options, material, clock)
    return run


async def _compare(
    options: argparse.Namespace, material: Material, clock: Clock
) -> dict[str, dict[str, list[float]]]:
    """Voice-to-voice of the same questions, overlapped and stage after stage, turn about."""
    found: dict[str, dict[str, list[float]]] = {}
    count = max(1, min(options.turns, len(material.long_questions)))
    for length, sentences in (("short", material.questions), ("long", material.long_questions)):
        times = found[length] = {"overlapped": [], "sequential": []}
        for sentence in sentences[:count]:
            for mode, values in times.items():
                voice_ms = await _one_time(options, clock, sentence, sequential=mode == "sequential")
                _progress(f"{length} {mode}: {'no reply' if voice_ms is None else f'{voice_ms:.0f} ms'}")
                values += [] if voice_ms is None else [voice_ms]
    return found


async def _one_time(
    options: argparse.Namespace, clock: Clock, sentence: Sentence, *, sequential: bool
) -> float | None:
    async with _call(options, clock) as caller:
        if sequential:
            caller.send(SEQUENTIAL)
            if await caller.event(lambda stamped: stamped.kind == "session.updated", 5) is None:
                raise VoiceAgentError("it does not know the session setting overlap")
        await measure.settle(caller)
        return await measure.time_to_voice(caller, sentence.samples)


@asynccontextmanager
async def _call(options: argparse.Namespace, clock: Clock) -> AsyncGenerator[Caller]:
    """A call; waits a moment for the seat of the one before. Raises BusyError when none gets free."""
    limit_ns = clock.now_ns() + round(SEAT_S * NS_PER_S)
    async with AsyncExitStack() as stack:
        while True:
            try:
                caller = await stack.enter_async_context(Caller(options.url, clock, options.api_key))
                break
            except BusyError:
                if clock.now_ns() > limit_ns:
                    raise
                await asyncio.sleep(SEAT_POLL_S)
        yield caller


async def _models(options: argparse.Namespace) -> list[str]:
    """The server's own names for what answers; empty if it does not say."""
    headers = {"authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    async with httpx.AsyncClient(base_url=options.url, headers=headers, trust_env=False, timeout=10) as http:
        response = await http.get("/v1/models")
    if response.status_code != 200:
        return []
    return [str(model.get("id")) for model in response.json().get("data", [])]


def _recognize(run: report.Run, hearing: Hearing) -> None:
    for turn in run.turns:
        if turn.reply is not None and turn.transcript.strip():
            run.heard.append((turn.transcript, hearing.text(turn.reply)))
            _progress(f"recognized reply {len(run.heard)}")
    run.word_error_rate = word_error_rate(run.heard)


def _hear_again(run: report.Run, ears: Ears | None) -> None:
    if ears is not None and run.outcomes:
        run.exactness = exactness(run.outcomes, ears)


def _told(turn: measure.Turn) -> str:
    return turn.failure or f"{turn.voice_to_voice_ms:.0f} ms"


def _told_barge(barge: measure.Barge) -> str:
    return barge.failure or barge.void or f"stopped in {barge.stop_ms:.0f} ms"


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
