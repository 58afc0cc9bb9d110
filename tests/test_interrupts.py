"""Signals that end a command: raised once, later where something must be whole, with the status that shells expect."""

import os
import signal
import time

import pytest

from collbench import interrupts
from collbench.interrupts import ENDING, Interrupted, held, raised, waiting


def send(number: int) -> None:
    """To this process, whose handler has run when this returns."""
    os.kill(os.getpid(), number)
    time.sleep(0)


@pytest.fixture(autouse=True)
def _as_before() -> object:
    """What these tests change of the process."""
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_is_an_exception_with_its_status(number: int) -> None:
    with raised(), pytest.raises(Interrupted) as caught:
        send(number)
    assert interrupts.status(caught.value) == 128 + number
    assert interrupts.status(KeyboardInterrupt()) == 130


def test_inside_held_it_waits_for_the_end() -> None:
    """Also of the outer of two."""
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


def test_a_second_signal_does_not_disturb_what_the_first_one_began() -> None:
    with raised():
        with pytest.raises(Interrupted):
            send(signal.SIGINT)
        send(signal.SIGINT)
        send(signal.SIGTERM)


def test_a_signal_that_was_swallowed_can_be_sent_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a destructor, in which exceptions are lost."""
    monkeypatch.setattr(interrupts, "_AGAIN", 0.0)
    with raised():
        for _ in range(2):
            with pytest.raises(Interrupted):
                send(signal.SIGINT)


def test_what_the_caller_ignores_stays_ignored() -> None:
    """`nohup` says so of SIGHUP; afterwards the others end the process as if nobody had asked for them."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with raised():
        send(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


class Swallows:
    """Its destructor takes so long that a signal comes meanwhile, and what a destructor raises is lost."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        send(self.number)


def swallow(number: int) -> None:
    """Have a signal come into a destructor, and go on."""
    del (swallows := [Swallows(number)])[0]
    assert not swallows
    wait_for_it()


def wait_for_it() -> None:
    """Long enough for several looks."""
    deadline = time.monotonic() + 10 * interrupts._LOOK
    while time.monotonic() < deadline:
        time.sleep(interrupts._LOOK / 20)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_that_was_swallowed_is_raised_again(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    """And nobody is told of the first time."""
    with raised(), pytest.raises(Interrupted) as caught:
        swallow(number)
    assert caught.value.number == number
    assert not capsys.readouterr().err


def test_what_the_first_signal_began_is_not_disturbed_by_a_look() -> None:
    """However long it takes, in a handler, in a context's end, or while another error is on its way."""

    def work() -> None:
        try:
            send(signal.SIGTERM)
        finally:
            wait_for_it()
            try:
                raise OSError("in between")
            except OSError:
                wait_for_it()

    with raised(), pytest.raises(Interrupted):
        work()


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
        wait_for_it()


def test_the_alarm_of_the_caller_goes_on() -> None:
    """As the limit of a test."""
    came = []
    before = signal.signal(signal.SIGALRM, lambda *_: came.append(1))
    timer = signal.setitimer(signal.ITIMER_REAL, 0.3)
    with raised():
        pass
    deadline = time.monotonic() + 5
    while not came and time.monotonic() < deadline:
        time.sleep(0.01)
    signal.signal(signal.SIGALRM, before)
    signal.setitimer(signal.ITIMER_REAL, *timer)
    assert came
