"""The one line on stderr that says how far a sweep is, and before its first row what is waited for.

Only on a terminal that understands escape codes; a pipe has none of it.
"""

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice
from typing import TypeVar

import click

from collbench.api.patience import leads, started
from collbench.cli._streams import obeys
from collbench.host.launcher import launched

AFTER = 0.5  # seconds without a row, from which on it is said what is waited for
FIRST = "waiting for the first row: kernels are compiled once, then checked"
_Item = TypeVar("_Item")


@contextmanager
def begun(session: AbstractContextManager[object], ranks: int, quiet: bool = False) -> Iterator[None]:
    """Inside the session, whose ranks, if there are any, take their time to start.

    A terminal counts the seconds; what is no terminal, or is to be quiet, gets one line where it takes very long.
    """
    with ExitStack() as stack:
        if quiet or not ranks or not obeys(sys.stderr):
            stack.enter_context(started(session))
        else:
            with waited(f"starting {ranks} rank{'s' if ranks > 1 else ''}"):
                stack.enter_context(session)
        yield


def awaited(rows: Iterator[_Item], quiet: bool = False) -> Iterator[_Item]:
    """The rows, with a word on the terminal until the first is there, or until it is known that there will be none."""
    with waited("" if quiet else FIRST):
        first = list(islice(rows, 1))
    yield from first
    yield from rows


@contextmanager
def waited(what: str) -> Iterator[None]:
    """Say on a terminal what is waited for and for how long, after half a second; taken away before what follows."""
    if not (what and obeys(sys.stderr) and leads(launched())):
        yield
        return
    over = threading.Event()
    drawing = threading.Thread(target=_count, args=(what, over), daemon=True)
    drawing.start()
    try:
        yield
    finally:
        over.set()
        drawing.join()


def _count(what: str, over: threading.Event) -> None:
    begun, pause = time.monotonic(), AFTER
    while not over.wait(pause):
        _draw(f"{what}, {_clock(time.monotonic() - begun)}")
        pause = 1.0
    if pause > AFTER:
        _draw("")


def _draw(text: str) -> None:
    """In the place of what the line says."""
    click.echo(f"\r\033[K{text[: shutil.get_terminal_size().columns - 1]}", err=True, nl=False)


class Status:
    """Progress with the time still to go, unless the total is 0; cleared before anything else is printed."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._started = time.monotonic()
        self._live = total > 0 and obeys(sys.stderr)

    def show(self, done: int, what: str) -> None:
        """Draw the line anew."""
        if not self._live:
            return
        elapsed = time.monotonic() - self._started
        left = f", {_clock(elapsed / done * (self._total - done))} left" if done else ""
        _draw(f"[{done}/{self._total}] {what}{left}")

    def clear(self) -> None:
        """Take the line away."""
        if self._live:
            _draw("")


def _clock(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 99 else f"{seconds / 60:.0f} min"
