"""A command's process: Ctrl-C ends it wherever it is, and its end takes no time."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from forethought.app.process import loading, run_until_interrupted
from forethought.policy.local.crew import LocalCrew
from tiny import network


def press():
    os.kill(os.getpid(), signal.SIGINT)


def later(presses=1):
    """Press Ctrl-C a moment from now, so often."""

    def work():
        for _ in range(presses):
            time.sleep(0.05)
            press()

    threading.Thread(target=work).start()


def busy(ended):
    """Work that keeps the thread, and says when it has been cut short."""
    limit = time.monotonic() + 60
    try:
        while time.monotonic() < limit:
            sum(range(1000))
    except KeyboardInterrupt:
        ended.append("busy")
        raise
    pytest.fail("nobody interrupted it")


@pytest.fixture(autouse=True)
def handlers():
    """Whatever a test does, the process listens as before."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)]
    yield
    assert signal.set_wakeup_fd(-1) == -1
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_task_that_waits_is_cancelled_and_may_clean_up():
    ended = []

    async def work():
        later()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)  # longer than work may keep the loop: nobody insists here
            ended.append("cleaned")
            raise

    with pytest.raises(KeyboardInterrupt):
        run_until_interrupted(work())
    assert ended == ["cleaned"]


def test_work_that_keeps_the_loop_is_interrupted_and_may_clean_up_by_waiting():
    ended = []

    async def work():
        later()
        try:
            busy(ended)
        finally:
            await asyncio.sleep(0.5)
            ended.append("cleaned")

    with pytest.raises(KeyboardInterrupt):
        run_until_interrupted(work())
    assert ended == ["busy", "cleaned"]


def test_work_of_another_task_is_interrupted_and_the_first_one_cleans_up():
    ended = []

    async def other():
        busy(ended)

    async def work():
        later()
        task = asyncio.create_task(other())
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned")
            assert task.done()

    with pytest.raises(KeyboardInterrupt):
        run_until_interrupted(work())
    assert ended == ["busy", "cleaned"]


def test_a_second_press_ends_a_clean_up_that_hangs():
    async def work():
        later(presses=2)
        try:
            await asyncio.sleep(60)
        finally:
            busy([])

    with pytest.raises(KeyboardInterrupt):
        run_until_interrupted(work())


@pytest.mark.parametrize("swallowed", [asyncio.CancelledError, KeyboardInterrupt])
def test_an_end_that_hangs_is_interrupted_without_another_press(monkeypatch, swallowed):
    monkeypatch.setattr("forethought.app.process.PATIENCE", 0.5)
    ended = []

    async def work():
        later()
        try:
            if swallowed is KeyboardInterrupt:
                busy(ended)
            else:
                await asyncio.sleep(60)
        except swallowed:
            ended.append("swallowed")
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("ended")

    with pytest.raises(KeyboardInterrupt):
        run_until_interrupted(work())
    assert ended[-2:] == ["swallowed", "ended"]


def test_a_press_that_another_thread_receives_ends_a_wait():
    ended = []

    def elsewhere():
        time.sleep(0.2)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        ended.append("pressed")

    async def work():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        began = time.monotonic()
        try:
            await asyncio.sleep(20)
        finally:
            ended.append(time.monotonic() - began < 10)
            thread.join()

    with pytest.raises(KeyboardInterrupt):
        run_until_interrupted(work())
    assert ended == ["pressed", True]


def test_a_wait_for_a_crew_is_interrupted_as_everything_else():
    crew = LocalCrew(network())

    async def work():
        later()
        try:
            crew.run_now(waits, [None])
        finally:
            crew.close()

    with pytest.raises(KeyboardInterrupt):
        run_until_interrupted(work())


def waits(replica, payload, port):
    port.wait()


def test_what_nobody_interrupts_ends_as_it_does():
    async def work():
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        run_until_interrupted(work())


def test_a_task_that_cancels_itself_is_not_taken_for_an_interrupt():
    async def work():
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_until_interrupted(work())


def test_signals_are_left_alone_in_another_thread():
    ended = []

    async def work():
        ended.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=lambda: run_until_interrupted(work()))
    thread.start()
    thread.join()
    assert ended == [signal.getsignal(signal.SIGINT)]


def test_loading_collects_nothing_and_keeps_what_it_found():
    with loading():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with loading():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_end_of_a_command_searches_no_garbage_and_hears_no_signal():
    script = """
        import gc, os, signal
        from forethought.app.process import leave
        class Cycle:
            def __init__(self): self.me = self
            def __del__(self): print("searched for", flush=True)
        cycle = Cycle()
        del cycle
        {leave}
        os.kill(os.getpid(), signal.SIGINT)
        """
    ends = {}
    for call in ("leave()", "pass"):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script).format(leave=call)],
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        ends[call] = (done.returncode, "searched for" in done.stdout)
    assert ends == {"leave()": (0, False), "pass": (-signal.SIGINT, True)}
