"""The benches' command lines: a mistake is one line that names the option and what would be right, before a run."""

import builtins
import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from voice_agent.bench.__main__ import main as bench
from voice_agent.bench.handover import main as handover


def said(argv: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit status and what went to standard error."""
    try:
        status = bench(argv)
    except SystemExit as end:
        status = int(end.code or 0)
    return status, capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("crash --victim foo", "argument --victim: 'foo' is none of thinker, speech"),
        ("crash --victim thinker,foo", "argument --victim: 'foo' is none of thinker, speech"),
        ("crash --sessions 0", "argument --sessions: '0' should be a whole number, at least 1"),
        ("crash --rounds 0", "argument --rounds: '0' should be a whole number, at least 1"),
        ("crash --profile scripted", "argument --profile: "),
        ("crash --profile foo", "argument --profile: "),
        ("thinker --model nosuch", "--model: 'nosuch' is no folder here and none of the shapes qwen3-1.7b, qwen3-8b"),
        ("thinker --model tiny,waves=x", "--model: waves='x' should be a whole number"),
        ("thinker --model tiny,waves", "--model: 'waves' should be NAME=NUMBER"),
        ("thinker --model tiny,reader=cat", "--model: reader=cat is none of device, steps, host, nobody"),
        ("thinker --engine-args {bad", "argument --engine-args: '{bad' is no JSON object"),
        ("thinker --engine-args 3", "argument --engine-args: '3' is no JSON object"),
        ("thinker --sessions x", "argument --sessions: 'x' should be a whole number, at least 1"),
        ("thinker --sessions 1,0", "argument --sessions: '0' should be a whole number, at least 1"),
        ("thinker --memory 2", "argument --memory: '2' should be a number, 0 to 1"),
        ("thinker --waves 0", "argument --waves: '0' should be a whole number, at least 1"),
        ("thinker --prompt-tokens 900 --answer-tokens 200", "--context: 900 + 200 tokens do not fit into 1024"),
        ("thinker --crash flood", "--crash: flood is none of kill"),
        ("thinker --crash kill", "--crash needs two models --together"),
        ("handover --devices foo", "argument --devices: 'foo' should be auto, none, or pairs such as 0:0,0:1"),
        ("handover --devices 0:1:2", "argument --devices: "),
        ("handover --rows 65", "argument --rows: '65' should be a whole number, 1 to 64"),
        ("handover --rows 0 --steps 0", "argument --rows: '0' should be a whole number, 1 to 64"),
        ("handover --steps 0", "argument --steps: '0' should be a whole number, at least 1"),
        ("handover --period-ms nan", "argument --period-ms: 'nan' should be a number, at least 0"),
        ("handover --devices none --ways ipc", "--ways: ipc needs a GPU"),
        ("pcm --seconds 0", "argument --seconds: '0' should be a number, at least 0.1"),
        ("pcm --rounds 0", "argument --rounds: '0' should be a whole number, at least 1"),
        ("lag --seconds 100", "argument --seconds: '100' should be a number, 1 to 60"),
        ("lag --sessions 0", "argument --sessions: '0' should be a whole number, 1 to 10000"),
        ("media --seconds 0", "argument --seconds: '0' should be a number, at least 1"),
        ("media --sessions -1", "argument --sessions: '-1' should be a whole number, at least 0"),
        ("media --ramp x", "argument --ramp: 'x' should be a whole number, at least 0"),
        ("silence --sentences 0", "argument --sentences: '0' should be a whole number, at least 1"),
        ("silence --model nosuch", "argument --model: "),
        ("endpoint --items 0", "argument --items: '0' should be a whole number, at least 1"),
        ("endpoint --judge-ms -1", "argument --judge-ms: '-1' should be a number, at least 0"),
        ("turn --turns x", "argument --turns: 'x' should be a whole number, at least 0"),
        ("turn --seconds -3", "argument --seconds: '-3' should be a number, at least 0"),
        ("turn --url http://[::1", "argument --url: 'http://[::1' is no address"),
        ("turn --url nonsense", "argument --url: 'nonsense' should start with http:// or https://"),
        ("turn --api-key schlüssel", "argument --api-key: "),
        ("speech --rps 0", "argument --rps: '0' should be a number, at least 0.01"),
        ("speech --streams 0", "argument --streams: '0' should be a whole number, at least 1"),
        ("speech --seconds 0", "argument --seconds: '0' should be a number, at least 0.1"),
        ("speech --api-key schlüssel", "argument --api-key: "),
        ("speech --url http://[::1", "'http://[::1' is no address"),
        ("speech --url ftp://a", "argument --url: 'ftp://a' should start with http:// or https://"),
        ("speech --draw none", "--draw: it needs --picture FILE"),
        ("speech --quality --replies 0", "argument --replies: '0' should be a whole number, at least 1"),
        ("speech --quality --frames 0", "argument --frames: '0' should be a whole number, at least 1"),
        ("nosuch", "'nosuch' is none of turn, speech"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_about_its_option(
    line: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, told = said(line.split(" "), capsys)
    assert (status, says in told) == (2, True), told
    assert len([each for each in told.splitlines() if not each.startswith("usage:")]) == 1, told


@pytest.mark.parametrize("folder", ["/nowhere/report.json", "/"])
@pytest.mark.parametrize(
    "line",
    [
        "crash --json FILE",
        "handover --devices none --json FILE",
        "pcm --json FILE",
        "lag --json FILE",
        "media --json FILE",
        "silence --json FILE",
        "endpoint --svg FILE",
        "thinker --json FILE",
        "speech --json FILE",
        "speech --picture FILE",
        "speech --quality --json FILE",
    ],
)
def test_a_report_that_cannot_be_written_is_told_before_the_run(
    line: str, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, told = said(line.replace("FILE", folder).split(), capsys)
    assert status == 2 and f"{folder!r} cannot be written: " in told, told


def test_a_report_of_before_is_not_touched_by_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "old.json"
    file.write_text("old")
    assert said(["pcm", "--json", str(file), "--rounds", "0"], capsys)[0] == 2
    assert file.read_text() == "old"
    assert said(["pcm", "--json", str(tmp_path / "new.json"), "--rounds", "0"], capsys)[0] == 2
    assert not (tmp_path / "new.json").exists()


MODULES = ("torch", "vllm", "triton")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the extra `gpu` is not installed."""
    real_find, real_import = importlib.util.find_spec, builtins.__import__

    def find(name: str, package: str | None = None) -> object:
        return None if name in MODULES else real_find(name, package)

    def imported(name: str, *rest: object) -> ModuleType:
        if name.partition(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real_import(name, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(importlib.util, "find_spec", find)
    monkeypatch.setattr(builtins, "__import__", imported)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("thinker", "vllm"),
        ("speech --quality", "torch"),
        ("handover --devices 0:0", "torch"),
    ],
)
def test_what_needs_the_extra_gpu_says_so(line: str, module: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, told = said(line.split(), capsys)
    assert status == 2 and told.count("\n") == 1
    assert f"the module {module} is not installed: .venv/bin/pip install -e '.[gpu]' in the clone" in told


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "says"), [("speech_stages", "the module torch"), ("speech_route", "the module torch")]
)
def test_modules_run_by_their_name_say_so_too(name: str, says: str) -> None:
    program = (
        "import runpy, sys; sys.modules['torch'] = None; sys.argv[1:] = sys.argv[2:];"
        f"runpy.run_module('voice_agent.bench.{name}', run_name='__main__')"
    )
    for arguments, status, words in ((["--help"], 0, "usage:"), ([], 2, says)):
        done = subprocess.run(
            [sys.executable, "-c", program, "-", *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == status and words in done.stdout + done.stderr, done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    "name",
    "turn speech silence endpoint handover pcm media lag crash thinker".split() + ["speech --quality"],
)
def test_help_needs_nothing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        bench([*name.split(), "--help"])
    assert not end.value.code and "usage: voice-agent bench" in capsys.readouterr().out


def test_a_gpu_that_is_not_there_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("voice_agent.bench.handover._device_count", lambda: 1)
    with pytest.raises(SystemExit) as end:
        handover(["--devices", "0:1"])
    assert end.value.code == 2
    assert "--devices: 0:1: torch sees 1 GPU" in capsys.readouterr().err
