"""The event loop goes before what it starts: its threads, and its processes."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.live_server import live_server
from voice_agent import precedence

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="niceness of a thread is Linux's")


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def test_a_thread_that_took_precedence_has_it_alone_and_what_it_starts_steps_back() -> None:
    before = niceness()
    with ThreadPoolExecutor(1) as loop:
        if not loop.submit(precedence.take).result():
            assert loop.submit(niceness).result() == before
            pytest.skip("the kernel does not allow it here")
        assert loop.submit(niceness).result() == precedence.NICENESS
        assert niceness() == before
        assert loop.submit(_of_its_pool).result() == 0
        assert loop.submit(_of_its_process).result() == 0


def _of_its_pool() -> int:
    with ThreadPoolExecutor(1, initializer=precedence.step_back) as judge:
        return judge.submit(niceness).result()


def _of_its_process() -> int:
    code = "import os; from voice_agent import precedence as p; p.step_back(); print(os.getpriority(0, 0))"
    return int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)


def test_a_thread_that_stepped_back_further_by_itself_stays_there() -> None:
    with ThreadPoolExecutor(1) as thread:
        thread.submit(os.nice, 5).result()
        further = thread.submit(niceness).result()
        thread.submit(precedence.step_back).result()
        assert thread.submit(niceness).result() == further


def test_threads_that_are_let_step_back_do_so_alone_and_further_than_they_were() -> None:
    before = precedence.threads()
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        started, of_other = one.submit(niceness).result(), other.submit(threading.get_native_id).result()
        new = precedence.threads() - before
        assert of_other in new and len(new) == 2
        ended = max(new) + 100_000  # above every thread there is, or as if it had ended
        precedence.let_step_back((new - {of_other}) | {ended}, 3)
        assert one.submit(niceness).result() == min(started + 3, 19)
        precedence.let_step_back(new, 40)
        assert one.submit(niceness).result() == other.submit(niceness).result() == 19


def test_threads_come_forward_again_where_that_is_allowed_and_stay_where_it_is_not() -> None:
    before = precedence.threads()
    with ThreadPoolExecutor(1) as one:
        at_first = one.submit(niceness).result()
        new = precedence.threads() - before
        ended = max(new) + 100_000
        precedence.let_step_back(new, 2)
        allowed = precedence.let_come_forward(new | {ended}, at_first)
        assert one.submit(niceness).result() == (at_first if allowed else min(at_first + 2, 19))


@pytest.mark.loopback
def test_a_server_s_event_loop_goes_before_its_engines() -> None:
    with live_server("--profile", "scripted") as server:
        pid = server.process.pid
        engines = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        assert engines
        assert [os.getpriority(os.PRIO_PROCESS, engine) for engine in engines] == [0] * len(engines)
        if os.getpriority(os.PRIO_PROCESS, pid) != precedence.NICENESS:
            pytest.skip("the kernel does not allow it here")


def test_a_server_keeps_arithmetic_on_one_thread_before_anything_can_start_more() -> None:
    code = (
        "import os, sys; from voice_agent import __main__ as command\n"
        "command._pull = lambda *_: print(os.environ['OPENBLAS_NUM_THREADS'], 'numpy' in sys.modules) or 1\n"
        "command.main(['serve', '--profile', 'scripted'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=-1, text=True)
    assert found.stdout == "1 False\n"
