"""The watchdog of a process that an outside launcher started: it rings in time, in one line, and ends the process."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT

SCRIPT = """
import sys, time
sys.modules["mpi4py.MPI"] = None  # as if it had started
from collbench.measure import watchdog
from collbench.measure.watchdog import WATCHDOG
watchdog._abort = lambda: {abort}
watchdog._GRACE, watchdog._ABORT = 0.5, 0.3
{steps}
time.sleep(20)
"""


def carried_out(steps: str, abort: str = "None") -> tuple[int, str, float]:
    """Status, errors and seconds of a process that does that and would then sleep."""
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(steps=steps, abort=abort)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr, time.monotonic() - begun


@pytest.mark.parametrize(("rank", "abort"), [(0, "None"), (1, "None"), (0, "time.sleep(60)")])
def test_a_process_in_which_nothing_begins_is_ended(rank: int, abort: str) -> None:
    """Although the first deadline was a later one, and even where MPI's abort hangs; rank 0 rings first."""
    status, errors, seconds = carried_out(f"WATCHDOG.start({rank}); time.sleep(0.2); WATCHDOG.feed(1)", abort)
    assert status == 1
    assert errors == f"collbench: error: rank {rank}: no progress for 1 s (--timeout); the run ends here\n"
    assert 1 + 0.5 * rank <= seconds < 12


def test_the_last_words_are_part_of_the_line() -> None:
    """They may write a file first."""
    words = "WATCHDOG.last_words = lambda reason: f'; noted: {reason[:11]}'"
    _, errors, _ = carried_out(f"{words}; WATCHDOG.start(0); WATCHDOG.feed(0.1)")
    assert errors.endswith("the run ends here; noted: no progress\n")


@pytest.mark.parametrize("steps", ["WATCHDOG.stop()", "[(WATCHDOG.feed(1), time.sleep(0.2)) for _ in range(8)]"])
def test_a_fed_or_stopped_one_is_silent(steps: str) -> None:
    status, errors, _ = carried_out(
        f"WATCHDOG.start(0); WATCHDOG.feed(1); {steps}; time.sleep(0.6); raise SystemExit(7)"
    )
    assert (status, errors) == (7, "")


def test_a_call_that_keeps_pythons_lock_is_ended_too() -> None:
    """As the start of MPI does, which no thread can watch."""
    lock = "import ctypes; ctypes.PyDLL(None).sleep(60)"
    status, errors, seconds = carried_out(f"\nwith watchdog.guarded(0, 1):\n    {lock}")
    assert status == -signal.SIGKILL
    assert errors == "collbench: error: rank 0: MPI did not start within 1 s: not all processes came to it\n"
    assert seconds < 12
    status, errors, _ = carried_out("\nwith watchdog.guarded(0, 1): pass\ntime.sleep(1.5); raise SystemExit(7)")
    assert (status, errors) == (7, "")


def test_a_rank_that_failed_says_of_what_before_the_first_rank_ends_all() -> None:
    """That one may wait on its device for this one, and know nothing but that nothing goes on."""
    trouble = "WATCHDOG.trouble = lambda: 'GPU 1: it broke'"
    _, errors, _ = carried_out(f"{trouble}; WATCHDOG.start(1); WATCHDOG.feed(2.5)")
    assert errors.splitlines() == [
        "collbench: error: rank 1: GPU 1: it broke",
        "collbench: error: rank 1: no progress for 2 s (--timeout); the run ends here",
    ]
    told_early = f"{trouble}; WATCHDOG.start(1); WATCHDOG.feed(2.6); time.sleep(2.4); os._exit(7)"
    status, errors, _ = carried_out(f"import os; {told_early}")
    assert (status, errors) == (7, "collbench: error: rank 1: GPU 1: it broke\n")


def test_what_the_others_came_to_hear_is_not_said_again() -> None:
    gone = "WATCHDOG.trouble = lambda: 'it broke' if time.monotonic() < until else ''"
    _, errors, _ = carried_out(f"until = time.monotonic() + 1; {gone}; WATCHDOG.start(1); WATCHDOG.feed(4)")
    assert errors == "collbench: error: rank 1: no progress for 4 s (--timeout); the run ends here\n"
