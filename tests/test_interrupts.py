"""Signals that end a command: raised once, later where something must be whole, with the status that shells expect."""

import contextlib
import os
import signal
import time
from types import SimpleNamespace

import pytest

from collbench import interrupts
from collbench.interrupts import ENDING, Interrupted, held, raised, waiting


def send(number: int) -> None:
    """To this process, whose handler has run when this returns."""
    os.kill(os.getpid(), number)
    time.sleep(0)


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> object:
    """What these tests change of the process; looks come when a test says so."""
    monkeypatch.setattr(interrupts, "_LOOK", 1000.0)
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def look() -> None:
    """The alarm that comes every fifth of a second after a signal was raised."""
    os.kill(os.getpid(), signal.SIGALRM)
    time.sleep(0)


def test_a_signal_is_an_exception_with_its_status() -> None:
    for number in ENDING:
        with raised(), pytest.raises(Interrupted) as caught:
            send(number)
        assert interrupts.status(caught.value) == 128 + number
    assert interrupts.status(KeyboardInterrupt()) == 130


def test_inside_held_a_signal_waits_for_the_end_of_the_outermost() -> None:
    done = []

    def work() -> None:
        with held():
            with held():
                assert not waiting()
                send(signal.SIGTERM)
                assert waiting()
                done.append("inner")
            done.append("outer")

    with raised(), pytest.raises(Interrupted):
        work()
    assert done == ["inner", "outer"]
    assert not waiting()


def test_an_exception_on_its_way_is_not_replaced() -> None:
    def work() -> None:
        with held():
            send(signal.SIGTERM)
            raise OSError("first")

    with raised(), pytest.raises(OSError, match="first"):
        work()


def test_a_second_signal_does_not_disturb_what_the_first_one_began_until_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(interrupts, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with raised():
        with pytest.raises(Interrupted):
            send(signal.SIGINT)
        send(signal.SIGINT)
        send(signal.SIGTERM)
        now[0] += 10
        with pytest.raises(Interrupted):
            send(signal.SIGTERM)


def test_what_the_caller_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with raised():
        send(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


class Swallows:
    """A signal comes into its destructor, and what a destructor raises is lost."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        send(self.number)


def swallow(number: int) -> None:
    """Have a signal come into a destructor, and go on until the next look."""
    del (swallows := [Swallows(number)])[0]
    assert not swallows
    look()


def test_a_signal_that_was_swallowed_is_raised_again(capsys: pytest.CaptureFixture[str]) -> None:
    for number in ENDING:
        with raised(), pytest.raises(Interrupted) as caught:
            swallow(number)
        assert caught.value.number == number
        assert not capsys.readouterr().err


def test_an_alarm_looks_whether_the_signal_was_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_LOOK", 0.05)

    def deaf() -> None:
        with contextlib.suppress(Interrupted):
            send(signal.SIGINT)
        time.sleep(100)

    with raised(), pytest.raises(Interrupted):
        deaf()


def test_what_the_first_signal_began_is_not_disturbed_by_a_look() -> None:
    done = []

    def work() -> None:
        try:
            send(signal.SIGTERM)
        finally:
            look()
            try:
                raise OSError("in between")
            except OSError:
                look()
            done.append("all of it")

    with raised(), pytest.raises(Interrupted):
        work()
    assert done == ["all of it"]


def test_a_look_waits_for_the_end_of_held() -> None:
    done = []

    def work() -> None:
        with held():
            swallow(signal.SIGINT)
            done.append("all of it")

    with raised():
        with pytest.raises(Interrupted):
            work()
        assert done == ["all of it"]


def test_a_command_that_has_answered_is_left_alone() -> None:
    with raised():
        with pytest.raises(Interrupted) as caught:
            send(signal.SIGHUP)
        assert interrupts.answered(caught.value) == 129
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_alarm_of_the_caller_goes_on() -> None:
    before = signal.setitimer(signal.ITIMER_REAL, 1000, 5)
    with raised():
        pass
    left, again = signal.setitimer(signal.ITIMER_REAL, *before)
    assert 0 < left <= 1000
    assert again == 5
