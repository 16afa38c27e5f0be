"""A real vLLM core that runs out of memory, is killed, or is left alone by its server (`make test-vllm`)."""
# pyright: reportMissingImports=false

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

pytest.importorskip("vllm")
import psutil  # noqa: E402

from tests.engine_rig import until  # noqa: E402
from voice_agent.bench.plugin_metadata import with_plugin  # noqa: E402
from voice_agent.bench.thinker import CHILD, HOARDING  # noqa: E402
from voice_agent.bench.thinker_crash import no_more_memory  # noqa: E402
from voice_agent.bench.thinker_models import prompt, write_folder  # noqa: E402
from voice_agent.clock import MonotonicClock  # noqa: E402
from voice_agent.engine.messages import Failed, Finished, TextDelta, Think  # noqa: E402
from voice_agent.engine.runtime import EngineLimits, EngineSpec, ThinkerOptions  # noqa: E402
from voice_agent.engine.supervisor import EngineProcess  # noqa: E402
from voice_agent.errors import EngineError, EngineStartFailed  # noqa: E402

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.process]

SESSIONS = 8
START_S = 600.0  # four processes on two cores, and other programs
KV_SPACE = "VLLM_CPU_KVCACHE_SPACE"


def spec_of(folder: Path, **engine_args: object) -> EngineSpec:
    options = {
        "load_format": "dummy",
        "max_num_seqs": SESSIONS,
        "enforce_eager": True,
        "ignore_eos": True,
        "engine_args": engine_args,
    }
    return EngineSpec(
        kind="thinker",
        thinker=ThinkerOptions("vllm", str(folder), context_tokens=1024, extra=options),
        has_children=True,
        env=with_plugin() | {KV_SPACE: "1"},
        limits=EngineLimits(start_s=START_S),
    )


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncGenerator[EngineProcess]:
    spec = spec_of(write_folder(folder / "tiny", "tiny"), worker_cls=HOARDING)
    engine = EngineProcess("thinker", spec, MonotonicClock(), command=CHILD)
    try:
        await engine.start()
        yield engine
    finally:
        await engine.close()


async def outcome(
    engine: EngineProcess, name: str, seed: int, tokens: int = 600, begun: asyncio.Event | None = None
) -> str:
    """How an answer ended: its reason, or the error's text; `begun` is set at its first piece."""
    message = {"role": "user", "content": prompt(300, seed)}
    request = Think(name, engine.next_epoch(), [message], max_output_tokens=tokens)
    try:
        async with engine.submit(request) as results:
            async for result in results:
                match result:
                    case Failed(message=text):
                        return text
                    case Finished(reason=reason):
                        return reason
                    case TextDelta() if begun:
                        begun.set()
                    case _:
                        pass
    except EngineError as error:
        return str(error)
    return "no ending"


def core_of(engine: EngineProcess) -> psutil.Process:
    """The child of the engine that has the most memory."""
    children = psutil.Process(engine.pid).children()
    return max(children, key=lambda child: child.memory_info().rss)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_a_cores_end_is_named_to_every_request_and_the_engine_comes_back(tmp_path: Path) -> None:
    async with running(tmp_path) as engine:
        for number, (bring_about, says) in enumerate(
            [(no_more_memory, "out of host memory"), (kill, "SIGKILL")]
        ):
            begun = [asyncio.Event() for _ in range(SESSIONS)]
            loads = [
                asyncio.create_task(outcome(engine, f"r{number}-{n}", n + 100 * number, begun=begun[n]))
                for n in range(SESSIONS)
            ]
            await asyncio.gather(*(event.wait() for event in begun))
            pid, core = engine.pid, core_of(engine)
            await bring_about(engine)
            late = asyncio.create_task(outcome(engine, f"late-{number}", 50 + number))
            ends = await asyncio.gather(*loads, late)
            assert all(says in end for end in ends), ends
            await until(lambda: engine.state == "backoff", 10)
            await until(lambda says=says: says in "".join(engine.reasons()), 10)
            await until(lambda pid=pid: engine.state == "ready" and engine.pid != pid, START_S)
            assert await outcome(engine, f"again-{number}", 70 + number, 4) == "length"
            assert gone(core.pid)
        core = core_of(engine)
        os.kill(engine.pid or 0, signal.SIGKILL)
        await until(lambda: gone(core.pid), 5)


async def kill(engine: EngineProcess) -> None:
    core_of(engine).kill()


SERVER = """
import asyncio, sys
from pathlib import Path
from tests.test_models_vllm_faults import core_of, running

async def main():
    async with running(Path(sys.argv[1])) as engine:
        print(engine.pid, core_of(engine).pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_no_core_outlives_its_server(tmp_path: Path) -> None:
    root = str(Path(__file__).parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    with server:
        assert server.stdout is not None
        engine, core = (int(part) for part in server.stdout.readline().split())
        assert not gone(engine) and not gone(core)
        server.kill()
        end_s = time.monotonic() + 5
        while time.monotonic() < end_s and not (gone(engine) and gone(core)):
            time.sleep(0.02)
        assert gone(engine) and gone(core)


@pytest.mark.parametrize(
    ("engine_args", "says"),
    [
        ({"kv_cache_memory_bytes": 1 << 50}, "memory"),
        ({"max_model_len": 10**9}, "max_model_len"),
        ({"no_such_argument": 1}, "no_such_argument"),
    ],
)
async def test_a_start_that_fails_inside_vllm_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine_args: dict[str, object], says: str
) -> None:
    spec = spec_of(write_folder(tmp_path / "tiny", "tiny"), **engine_args)
    monkeypatch.delenv(KV_SPACE, raising=False)  # on a CPU it goes before kv_cache_memory_bytes
    del spec.env[KV_SPACE]
    engine = EngineProcess("thinker", spec, MonotonicClock())
    with pytest.raises(EngineStartFailed, match=says):
        await engine.start()
    assert engine.state == "closed"
