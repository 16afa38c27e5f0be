"""An operator's orders, a warm spare, memory that runs out, and processes that an engine started itself."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine_rig import (
    answer,
    clause,
    hang,
    process_engine,
    results,
    running,
    speech_spec,
    text_of,
    think,
    thinker_spec,
    until,
)
from tests.test_engine_supervisor import EXIT_ONCE_READY, HurriedClock, gone
from voice_agent.bench.memory_lid import MemoryLid
from voice_agent.engine.messages import Failed, Speak
from voice_agent.engine.supervisor import EngineProcess
from voice_agent.errors import EngineDied

pytestmark = pytest.mark.process


# --- an operator's orders ---------------------------------------------------------------------------------------


async def test_stop_keeps_it_down_until_restart_and_says_how() -> None:
    async with running(thinker_spec()) as engine:
        pid = engine.pid
        assert pid is not None
        async with engine.submit(think(engine, "r", "forever")) as stream:
            engine.stop()
            with pytest.raises(EngineDied):
                await results(stream)
        await until(lambda: engine.state == "stopped")
        assert gone(pid) and engine.pid is None
        assert engine.reasons() == [
            "the test engine: stopped, by an operator; `voice-agent engine restart test` starts it again"
        ]
        with pytest.raises(EngineDied):
            await answer(engine, think(engine, "r", "say x"))
        engine.restart()
        await until(lambda: engine.state == "ready")
        assert text_of(await answer(engine, think(engine, "r", "say back"))) == "back "


async def test_restart_replaces_the_process_without_spending_the_budget() -> None:
    async with running(thinker_spec()) as engine:
        for _ in range(2):
            pid = engine.pid
            engine.restart()
            await until(lambda pid=pid: engine.state == "ready" and engine.pid != pid)
        assert engine._budget.spent == 0  # pyright: ignore[reportPrivateUsage]


async def test_an_engine_that_still_starts_can_be_stopped() -> None:
    engine = process_engine(thinker_spec())
    start = asyncio.create_task(engine.start())
    await until(lambda: engine.state == "starting")
    engine.stop()
    await until(lambda: engine.state == "stopped")
    assert not start.done()
    engine.restart()
    await start
    assert engine.state == "ready"
    await engine.close()


async def test_restart_leads_out_of_a_crash_loop() -> None:
    engine = EngineProcess(
        "dying", thinker_spec(), HurriedClock(), command=(sys.executable, "-c", EXIT_ONCE_READY)
    )
    await engine.start()
    try:
        await until(lambda: engine.state == "crash_loop")
        assert "`voice-agent engine restart dying` starts it again" in engine.reasons()[0]
        assert engine.notice() == "the dying engine has failed" and engine.lasting == "failed"
        engine.restart()
        await until(lambda: engine.state != "crash_loop")
    finally:
        await engine.close()


# --- a warm spare -----------------------------------------------------------------------------------------------


async def test_with_a_spare_a_request_right_after_a_kill_is_answered() -> None:
    async with running(thinker_spec(), warm_spare=True) as engine:
        for round_number in range(2):
            await until(lambda: engine.spare_ready)
            pid = engine.pid
            assert pid is not None
            async with engine.submit(think(engine, "r", "forever")) as stream:
                await anext(aiter(stream))
                os.kill(pid, signal.SIGKILL)
                killed_s = time.monotonic()
                with pytest.raises(EngineDied):
                    await results(stream)
            said = text_of(await answer(engine, think(engine, "r", f"say {round_number}")))
            assert said == f"{round_number} " and time.monotonic() - killed_s < 2.0


async def test_a_spare_does_not_wait_for_the_end_of_one_that_hangs() -> None:
    spec = thinker_spec(ping_s=0.05, silent_s=0.4, terminate_s=5.0)
    async with running(spec, warm_spare=True) as engine:
        await until(lambda: engine.spare_ready)
        pid = await hang(engine)
        noticed_s = time.monotonic()
        assert text_of(await answer(engine, think(engine, "r", "say back"))) == "back "
        assert time.monotonic() - noticed_s < 2.0
        assert not gone(pid)
        os.kill(pid, signal.SIGCONT)  # it takes its SIGTERM
    assert gone(pid)


async def test_a_spare_that_serves_is_logged_by_its_engine_s_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with running(thinker_spec(), warm_spare=True) as engine:
        await until(lambda: engine.spare_ready)
        first = engine.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await until(lambda: engine.state == "ready" and engine.pid not in {first, None})
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGUSR1)  # it prints where it is
        await until(lambda: "test engine: " in caplog.text)


async def test_who_comes_while_a_spare_takes_over_waits_and_whom_nobody_starts_is_told_so() -> None:
    async with running(thinker_spec(), warm_spare=True) as engine:
        await until(lambda: engine.spare_ready)
        assert engine.pid is not None and engine.notice() == engine.lasting == ""
        os.kill(engine.pid, signal.SIGKILL)
        async with asyncio.timeout(
            60
        ):  # a spare takes over within some turns of the loop: none may be missed
            while engine.state == "ready":  # noqa: ASYNC110 - the engine tells nobody when it goes
                await asyncio.sleep(0)
        assert "start" in engine.notice() and await engine.comes_up()
        engine.stop()
        await until(lambda: engine.state == "stopped")
        asked_s = time.monotonic()
        assert not await engine.comes_up() and time.monotonic() - asked_s < 0.3
        assert engine.notice() == "the test engine is stopped by an operator" and engine.lasting == "stopped"


async def test_a_spare_that_is_killed_is_replaced_and_one_that_hangs_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("voice_agent.engine.starting.SPARE_RETRY_S", 0.1)
    engine = process_engine(thinker_spec(terminate_s=0.1), warm_spare=True)
    await engine.start()
    try:
        for number in (signal.SIGKILL, signal.SIGSTOP):
            await until(lambda: engine.spare_ready)
            spare = _spare_pid(engine)
            os.kill(spare, number)
            if number == signal.SIGKILL:
                await until(lambda spare=spare: engine.spare_ready and _spare_pid(engine) != spare)
        pid = engine.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await until(lambda: engine.state == "ready" and engine.pid not in {pid, spare})
        assert text_of(await answer(engine, think(engine, "r", "say well"))) == "well "
        assert gone(spare)
    finally:
        await engine.close()


async def test_close_and_stop_end_the_spare_too() -> None:
    async with running(thinker_spec(), warm_spare=True) as engine:
        await until(lambda: engine.spare_ready)
        first = _spare_pid(engine)
        engine.stop()
        await until(lambda: engine.state == "stopped" and gone(first))
        engine.restart()
        await until(lambda: engine.state == "ready" and engine.spare_ready)
        second = _spare_pid(engine)
    assert gone(second)


def _spare_pid(engine: EngineProcess) -> int:
    spare = engine._spare  # pyright: ignore[reportPrivateUsage]
    assert spare is not None and spare._starting is not None  # pyright: ignore[reportPrivateUsage]
    return spare._starting.result().child.pid  # pyright: ignore[reportPrivateUsage]


# --- memory -----------------------------------------------------------------------------------------------------


async def test_a_request_that_runs_out_of_memory_fails_alone_and_says_which_memory() -> None:
    async with running(thinker_spec()) as engine:
        pid = engine.pid
        given = await answer(engine, think(engine, "r", "hoard"))
        assert isinstance(given[-1], Failed)
        assert given[-1].code == "out_of_memory" and "host memory" in given[-1].message
        assert text_of(await answer(engine, think(engine, "r", "say on"))) == "on " and engine.pid == pid


async def test_one_engine_killed_for_memory_ends_its_sixteen_replies_and_nobody_elses() -> None:
    async with running(thinker_spec()) as victim, running(speech_spec()) as other:
        epochs = [other.next_epoch() for _ in range(4)]

        async def speak(number: int) -> float:
            request_id = f"s{number}"
            async with other.submit(Speak(request_id, epochs[number], "low")) as stream:
                stream.push(clause(request_id, epochs[number], "slow " * 20))
                chunks = [await anext(aiter(stream)) for _ in range(3)]
            return len(chunks)

        async def ended(number: int) -> float:
            with pytest.raises(EngineDied, match="the test engine is down: was killed by SIGKILL"):
                await answer(victim, think(victim, f"t{number}", "forever"))
            return time.monotonic()

        waiting = [asyncio.create_task(ended(number)) for number in range(16)]
        speaking = [asyncio.create_task(speak(number)) for number in range(4)]
        await until(lambda: len(victim.in_flight()) == 16)
        assert victim.pid is not None
        killed_s = time.monotonic()
        os.kill(victim.pid, signal.SIGKILL)  # as the kernel does for want of memory
        assert max(await asyncio.gather(*waiting)) - killed_s < 1.0
        await until(lambda: "killed by SIGKILL" in "".join(victim.reasons()))
        assert await asyncio.gather(*speaking) == [3] * 4 and other.state == "ready"
        await until(lambda: victim.state == "ready")
        assert text_of(await answer(victim, think(victim, "n", "say new"))) == "new "
        assert time.monotonic() - killed_s < 10.0


async def test_an_engine_that_the_kernel_kills_for_memory_says_so_and_its_server_lives() -> None:
    lid = MemoryLid(f"voice-agent-test-{os.getpid()}")
    if lid.path is None:
        pytest.skip("no control group can be made here")
    try:
        async with running(thinker_spec()) as engine, running(speech_spec()) as other:
            assert engine.pid and other.pid
            assert oom_score_adj(engine.pid) > oom_score_adj(os.getpid())
            lid.take(engine.pid)
            lid.close()
            with pytest.raises(EngineDied, match="by the kernel for want of host memory"):
                await answer(engine, think(engine, "r", "devour"))
            await until(lambda: engine.state == "ready")
            assert text_of(await answer(engine, think(engine, "r", "say on"))) == "on "
            assert other.state == "ready"
    finally:
        lid.remove()


def oom_score_adj(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


# --- what a process is born with, and where it stood ------------------------------------------------------------


async def test_the_environment_of_an_engine_is_set_before_anything_is_imported() -> None:
    spec = replace(thinker_spec(), env={"OMP_NUM_THREADS": "3", "CUDA_VISIBLE_DEVICES": "1"})
    async with running(spec) as engine:
        request = think(engine, "r", "environment OMP_NUM_THREADS CUDA_VISIBLE_DEVICES NO_SUCH_NAME")
        assert text_of(await answer(engine, request)) == "3 1 unset "


async def test_a_crash_inside_a_library_is_logged_with_where_it_was(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with running(thinker_spec()) as engine:
        with pytest.raises(EngineDied, match="was killed by SIGSEGV"):
            await answer(engine, think(engine, "r", "crash"))
        await until(lambda: "in misbehave" in caplog.text)
        assert "Fatal Python error: Segmentation fault" in caplog.text


async def test_an_engine_that_stands_still_shows_where_when_asked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with running(thinker_spec()) as engine:
        async with engine.submit(think(engine, "r", "stall")):
            await until(lambda: engine.held == ["r"])
            os.kill(engine.pid or 0, signal.SIGUSR1)
            await until(lambda: "in misbehave" in caplog.text)
        assert engine.state == "ready"


# --- an engine's own children -----------------------------------------------------------------------------------


async def test_what_an_engine_started_ends_with_it() -> None:
    async with running(replace(thinker_spec(), has_children=True)) as engine:
        grandchild = int(text_of(await answer(engine, think(engine, "r", "family"))))
        assert engine.pid is not None and not gone(grandchild)
        os.kill(engine.pid, signal.SIGKILL)
        await until(lambda: gone(grandchild), 3)


FAMILY_SERVER = """
import asyncio, sys
from dataclasses import replace
from tests.engine_rig import answer, process_engine, text_of, think, thinker_spec

async def main():
    engine = process_engine(replace(thinker_spec(), has_children=True))
    await engine.start()
    print(engine.pid, text_of(await answer(engine, think(engine, "r", "family"))), flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_what_an_engine_started_ends_when_the_server_is_killed() -> None:
    root = str(Path(__file__).parent.parent)
    server = subprocess.Popen(
        [sys.executable, "-c", FAMILY_SERVER],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": root},
    )
    with server:
        assert server.stdout is not None
        engine, grandchild = (int(part) for part in server.stdout.readline().split())
        server.kill()
        server.wait()
    end_s = time.monotonic() + 3
    while time.monotonic() < end_s and not (gone(engine) and gone(grandchild)):
        time.sleep(0.02)
    assert gone(engine) and gone(grandchild)
