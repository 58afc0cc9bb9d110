"""A watchdog ends the processes of a launcher in which nothing begins, and the start of MPI that does not end."""

import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from collbench.measure import launcher_watchdog as watchdog
from collbench.measure.launcher_watchdog import Watchdog
from tests.commands.sweep.test_command import wait_for
from tests.conftest import ROOT


class Clock:
    """Time that passes when a test says so; the watchdog has looked at it when `passes` returns, or has rung."""

    def __init__(self) -> None:
        self.now, self.looks, self.rung = 0.0, 0, threading.Event()

    def monotonic(self) -> float:
        self.looks += 1
        return self.now

    def passes(self, seconds: float) -> bool:
        self.now += seconds
        before = self.looks
        wait_for(lambda: self.rung.is_set() or self.looks > before + 2)
        return self.rung.is_set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made_up = Clock()
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=made_up.monotonic))
    monkeypatch.setattr(watchdog, "_LOOK", 0.005)
    monkeypatch.setattr(watchdog, "end_all", made_up.rung.set)
    return made_up


LINE = "collbench: error: rank {}: no progress for {} s (--timeout); the run ends here{}\n"


def test_the_watchdog_rings_when_nothing_begins_in_time_and_on_rank_0_first(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in (0, 1):
        clock.rung.clear()
        dog = Watchdog()
        dog.start(rank)
        dog.last_words = lambda reason: f"; noted: {reason[:11]}"
        dog.waits = lambda: "rank 1 waits for rank 0"
        for _ in range(3):
            dog.feed(10, "first product of rank 0")
            assert not clock.passes(9)
        assert clock.passes(2) is (rank == 0)
        assert clock.passes(20)
        assert capsys.readouterr().err == LINE.format(rank, 10, "; noted: no progress").replace(
            "(--timeout)", "(--timeout) in the phase: first product of rank 0; rank 1 waits for rank 0"
        )


def test_a_stopped_watchdog_is_silent(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    before = set(threading.enumerate())
    dog = Watchdog()
    dog.start(0)
    (thread,) = set(threading.enumerate()) - before
    dog.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert not clock.rung.is_set()
    assert capsys.readouterr().err == ""


def test_a_rank_that_failed_says_of_what_before_the_first_rank_ends_all(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    dog = Watchdog()
    dog.trouble = lambda: "GPU 1: it broke" if clock.now < 9.5 else ""
    dog.start(1)
    dog.feed(10)
    assert not clock.passes(8)
    assert capsys.readouterr().err == ""
    assert not clock.passes(1)
    assert capsys.readouterr().err == "collbench: error: rank 1: GPU 1: it broke\n"
    assert not clock.passes(2)
    assert clock.passes(20)
    assert capsys.readouterr().err == LINE.format(1, 10, "")


def test_a_signal_that_nobody_answers_ends_the_run_on_rank_0_before_the_launcher_does(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    coming: list[int] = []
    monkeypatch.setattr(watchdog.signals, "unanswered", lambda: coming[0] if coming else None)
    for rank in (1, 0):
        clock.rung.clear()
        coming.clear()
        dog = Watchdog()
        dog.start(rank)
        dog.waits = lambda: "rank 1 ended"
        dog.last_words = lambda reason: f"; noted: {reason}"
        dog.feed(10)
        assert not clock.passes(1)
        coming.append(signal.SIGTERM)
        assert clock.passes(1) is (rank == 0)
        if rank:
            dog.stop()
    words = "SIGTERM came, and nothing goes on; rank 1 ended"
    assert capsys.readouterr().err == f"collbench: error: rank 0: {words}; the run ends here; noted: {words}\n"


def ended(steps: str) -> tuple[int, str]:
    """Status and errors of a process that does that and would then sleep."""
    script = (
        "import sys, time\nsys.modules['mpi4py.MPI'] = None  # as if it had started\n"
        f"from collbench.measure import launcher_watchdog as watchdog\nwatchdog._ABORT = 0.3\n{steps}\ntime.sleep(100)"
    )
    command, surroundings = [sys.executable, "-c", script], os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_a_process_is_ended_although_mpi_hangs_or_keeps_python_s_lock() -> None:
    hangs = "watchdog._abort = lambda: time.sleep(100)\nwatchdog.WATCHDOG.start(0)\nwatchdog.WATCHDOG.feed(0.1)"
    assert ended(hangs) == (1, LINE.format(0, 0, ""))
    lock = "with watchdog.guarded(0, 1):\n    import ctypes\n    ctypes.PyDLL(None).sleep(100)"
    line = "collbench: error: rank 0: MPI did not start within 1 s: not all processes came to it\n"
    assert ended(lock) == (-signal.SIGKILL, line)
    assert ended("with watchdog.guarded(0, 1): pass\ntime.sleep(1.5)\nraise SystemExit(7)") == (7, "")
