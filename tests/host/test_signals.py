"""Signals end a command at once, or wait for a safe place while ranks live."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from collbench.host import signals
from collbench.host.signals import ENDING, Interrupted, deferred
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_deferred_signal_is_raised_where_the_code_asks_for_it_with_its_status() -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
        with deferred():
            signals.check()
            signal.raise_signal(number)
            assert signals.pending()
            with pytest.raises(Interrupted) as caught:
                signals.check()
            assert signals.status(caught.value) == 128 + number
            assert not signals.pending()
        assert signal.getsignal(number) is signal.SIG_DFL
    assert signals.status(KeyboardInterrupt()) == 130


def test_a_signal_that_nobody_asked_for_is_raised_at_the_end_of_the_outermost_context() -> None:
    done = []

    def work() -> None:
        with deferred():
            with deferred():
                signal.raise_signal(signal.SIGTERM)
                done.append("inner")
            done.append("outer")

    with pytest.raises(Interrupted):
        work()
    assert done == ["inner", "outer"]


def test_an_exception_on_its_way_is_not_replaced() -> None:
    def work() -> None:
        with deferred():
            signal.raise_signal(signal.SIGTERM)
            raise OSError("first")

    with pytest.raises(OSError, match="first"):
        work()


def test_what_the_caller_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with deferred():
        signal.raise_signal(signal.SIGHUP)
        assert not signals.pending()


def test_another_thread_leaves_signals_as_they_are() -> None:
    before = signal.getsignal(signal.SIGTERM)
    found = []

    def work() -> None:
        with deferred():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert found == [before]


def ended_by(number: int, script: str) -> tuple[int, str, str]:
    head = f"import os, signal, sys, time\nfrom collbench.host import signals\nnumber = {number}\n"
    command, surroundings = [sys.executable, "-c", head + script], os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


LINE = "collbench: error: interrupted\n"


def test_without_ranks_a_signal_ends_the_command_in_one_line_after_what_it_printed() -> None:
    script = "signals.end_at_once()\nprint('a row')\nsignal.raise_signal(number)\nprint('never')"
    for number in ENDING:
        assert ended_by(number, script) == (128 + number, "a row\n", LINE), number


def test_a_second_signal_ends_a_command_whose_ranks_do_not_end_and_a_repeated_one_is_no_second() -> None:
    script = (
        "signals.deferred().__enter__()\nsignal.raise_signal(signal.SIGTERM)\nsignal.raise_signal(number)\n"
        "print('goes on')\ntime.sleep(1.1)\nsignal.raise_signal(number)\nprint('never')"
    )
    assert ended_by(signal.SIGINT, script) == (130, "goes on\n", LINE)


def test_a_signal_that_the_main_thread_cannot_answer_is_seen_by_another_thread() -> None:
    waits_in_c = (
        "import ctypes, threading\n"
        "def look():\n"
        "    for _ in range(1000):\n        if signals.unanswered():\n            break\n        time.sleep(0.01)\n"
        "    print(signals.unanswered(), signals.unanswered(), flush=True)\n    os._exit(7)\n"
        "signals.deferred().__enter__()\nprint(signals.unanswered(), flush=True)\n"
        "threading.Thread(target=look).start()\n"
        "ctypes.CDLL(None).system(b'exec >&- 2>&-; kill -TERM $PPID; while kill -0 $PPID; do sleep 0.1; done')"
    )
    assert ended_by(signal.SIGTERM, waits_in_c) == (7, "None\n15 15\n", "")
    answers = (
        "with signals.deferred():\n    signal.raise_signal(number)\n    print(signals.unanswered())\n    os._exit(7)"
    )
    assert ended_by(signal.SIGTERM, answers) == (7, "None\n", "")
