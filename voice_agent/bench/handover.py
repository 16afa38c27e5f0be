"""Hand-over of a step's hidden rows between two processes: pickled queue, host shared memory, CUDA IPC.

Blocks of [1..64, 3584] bf16, one each period. On one GPU "event to kernel" is the hand-over itself, by the device's own
clock: from right before the writer's event to the first instruction of the reader's kernel. By the hosts' clock: from
the event's being queued until the reader has the reference (taken), and until its host knows that the kernel is done.
Runs with numpy alone (host ways) or with torch and a GPU; two GPUs are used when there are two. Needs no server:
`python -m voice_agent.bench.handover --json handover.json`.
"""

import argparse
import json
import multiprocessing
import platform
import re
import sys
from collections.abc import Sequence
from queue import Empty
from typing import Any

from voice_agent.bench import arguments
from voice_agent.bench.handover_job import BF16_BYTES, MOST_ROWS, NO_DEVICE, WIDTH, Job, Stamps
from voice_agent.bench.handover_sides import read_side, write_side
from voice_agent.bench.statistics import nearest_rank
from voice_agent.engine.cuda_ipc import device_pool
from voice_agent.engine.cuda_probe import why_not
from voice_agent.engine.slots import Shape

SLOTS = 8
HOST_WAYS = ("queue", "memory", "memory-spin")
DEVICE_WAYS = (*HOST_WAYS, "ipc", "ipc-spin", "ipc-ahead")
ROWS = (1, 2, 4, 8, 16, 32, 64)
_PAIR_S = 300.0

PAIRS = re.compile(r"\d+:\d+(,\d+:\d+)*")

Devices = tuple[int, int]


def main(argv: Sequence[str]) -> int:
    """Measure, print a table, write JSON; 1 when a way could not be measured, 2 when the command is wrong."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.devices not in {"auto", "none"} and arguments.lacks("bench handover: --devices", "torch"):
        return 2
    placings = _placings(options.devices)
    if fault := _fault(options, placings):
        parser.error(fault)
    options.ways = options.ways or DEVICE_WAYS
    results: list[dict[str, Any]] = []
    notes: list[str] = []
    for devices in placings:
        for way in _ways(options.ways, devices, notes):
            try:
                results += _measure(way, devices, options)
            except RuntimeError as error:
                notes.append(f"{way} {_name(devices)}: {error}")
    _print(results, notes)
    if options.json:
        report = {**_where(), "command": sys.argv, "notes": notes, "results": results}
        options.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 1 if notes else 0


def _parser() -> argparse.ArgumentParser:
    parser = arguments.parser("voice-agent bench handover", (__doc__ or "").split("\n")[0])
    add, rows = parser.add_argument, arguments.whole(1, MOST_ROWS)
    add("--rows", type=rows, nargs="+", default=list(ROWS), help=f"rows a step, at most {MOST_ROWS}")
    add("--steps", type=arguments.whole(1), default=300, help="measured steps for each number of rows")
    add("--warm-steps", type=arguments.whole(0), default=30, help="steps before that")
    add("--period-ms", type=arguments.number(0), default=2.0, help="time from step to step")
    add("--devices", type=_devices, default="auto", help="auto, none, or pairs such as 0:0,0:1")
    add("--ways", nargs="+", choices=DEVICE_WAYS, help="all by default; ipc needs a GPU")
    add("--json", type=arguments.file_to_write, help="write the results here")
    return parser


def _devices(text: str) -> str:
    if text not in {"auto", "none"} and not PAIRS.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} should be auto, none, or pairs such as 0:0,0:1")
    return text


def _fault(options: argparse.Namespace, placings: Sequence[Devices]) -> str:
    """Why it cannot be measured as asked here; empty if it can."""
    if (NO_DEVICE, NO_DEVICE) in placings:
        lacking = [way for way in options.ways or () if way not in HOST_WAYS]
        return f"--ways: {', '.join(lacking)} needs a GPU, and none is used here" if lacking else ""
    count = _device_count()
    missing = [_name(pair) for pair in placings if max(pair) >= count]
    return f"--devices: {', '.join(missing)}: torch sees {count} GPU{'s' * (count != 1)}" if missing else ""


def _placings(text: str) -> list[Devices]:
    """Pairs of writer's and reader's device."""
    if text == "none":
        return [(NO_DEVICE, NO_DEVICE)]
    if text != "auto":
        pairs = [pair.split(":") for pair in text.split(",")]
        return [(int(writer), int(reader)) for writer, reader in pairs]
    count = _device_count()
    return [(0, 0), (0, 1)][:count] if count else [(NO_DEVICE, NO_DEVICE)]


def _device_count() -> int:
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        return 0
    return torch.cuda.device_count()


def _ways(wanted: Sequence[str], devices: Devices, notes: list[str]) -> list[str]:
    if devices[0] == NO_DEVICE:
        return [way for way in wanted if way in HOST_WAYS]
    if any(way.startswith("ipc") for way in wanted) and (reason := why_not(*devices)):
        notes.append(f"no CUDA IPC {_name(devices)}, the host stands in: {reason}")
        return [way for way in wanted if not way.startswith("ipc")]
    return list(wanted)


def _measure(way: str, devices: Devices, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One pair of processes; raises RuntimeError when one of them fails."""
    pool = device_pool(Shape(SLOTS, MOST_ROWS, WIDTH * BF16_BYTES))
    job = Job(
        way,
        devices,
        pool.address,
        tuple(options.rows),
        options.steps,
        options.warm_steps,
        options.period_ms / 1000,
    )
    spawn = multiprocessing.get_context("spawn")
    queue, results, gate = spawn.Queue(), spawn.Queue(), spawn.Barrier(2)
    children = [
        spawn.Process(target=side, args=(job, queue, gate, results), daemon=True)
        for side in (write_side, read_side)
    ]
    try:
        for child in children:
            child.start()
        given = _collect(results, children, 2 * len(job.rows))
    finally:
        for child in children:
            child.join(10)
            child.kill()
            child.join()
        pool.close()
    return [_row(job, rows, given["writer", rows], given["reader", rows]) for rows in job.rows]


def _collect(results: Any, children: Sequence[Any], count: int) -> dict[tuple[str, int], Stamps]:
    given: dict[tuple[str, int], Stamps] = {}
    waited_s = 0.0
    while len(given) < count:
        try:
            side, rows, stamps = results.get(timeout=0.5)
            given[side, rows] = stamps
        except Empty:
            waited_s += 0.5
            if waited_s > _PAIR_S or any(child.exitcode for child in children):
                raise RuntimeError("a process failed or hangs; its error is above") from None
    return given


def _row(job: Job, rows: int, writer: Stamps, reader: Stamps) -> dict[str, Any]:
    """Microseconds of one way for one number of rows."""
    warm = job.warm_steps

    def spread(starts_ns: list[int], ends_ns: list[int]) -> dict[str, float]:
        us = [(end - start) / 1000 for start, end in zip(starts_ns[warm:], ends_ns[warm:], strict=True)]
        return {f"p{percent}": round(nearest_rank(us, percent), 1) for percent in (50, 99)}

    same_clock = job.devices[0] == job.devices[1] != NO_DEVICE
    return {
        "way": job.way,
        "devices": _name(job.devices),
        "rows": rows,
        "event_to_kernel_us": spread(writer.device_ns, reader.device_ns) if same_clock else {},
        "ready_to_done_us": spread(writer.first_ns, reader.second_ns),
        "event_to_done_us": spread(writer.second_ns, reader.second_ns),
        "event_to_taken_us": spread(writer.second_ns, reader.first_ns),
        "writer_cpu_us": round(writer.cpu_us, 1),
        "reader_cpu_us": round(reader.cpu_us, 1),
        "steps": job.steps,
        "period_ms": 1000 * job.period_s,
    }


def _name(devices: Devices) -> str:
    return "host" if devices[0] == NO_DEVICE else f"{devices[0]}:{devices[1]}"


_SPANS = ("event_to_kernel_us", "event_to_taken_us", "event_to_done_us", "ready_to_done_us")


def _print(results: list[dict[str, Any]], notes: list[str]) -> None:
    heads = (key.removesuffix("_us").replace("_", " ") for key in _SPANS)
    print("us".ljust(28) + "".join(f"{head:>20}" for head in heads) + f"{'CPU a step':>20}")
    print(
        f"{'way':12}{'devices':>8}{'rows':>8}"
        + f"{'p50':>10}{'p99':>10}" * len(_SPANS)
        + f"{'writer':>10}{'reader':>10}"
    )
    for row in results:
        figures = "".join(f"{row[key].get(part, '-'):>10}" for key in _SPANS for part in ("p50", "p99"))
        print(
            f"{row['way']:12}{row['devices']:>8}{row['rows']:>8}{figures}"
            f"{row['writer_cpu_us']:>10.1f}{row['reader_cpu_us']:>10.1f}"
        )
    for note in notes:
        print(note)


def _where() -> dict[str, Any]:
    where: dict[str, Any] = {"python": platform.python_version(), "machine": platform.platform()}
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        return where
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {**where, "torch": torch.__version__, "gpus": gpus}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
