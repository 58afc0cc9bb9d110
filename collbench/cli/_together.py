"""Commands that the processes of an outside launcher carry out together: what one refuses, all refuse, in one line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from collbench import interrupts
from collbench.cli import _streams
from collbench.errors import CollbenchError, Unforeseen, UsageError
from collbench.measure.watchdog import WATCHDOG


@contextmanager
def company(joined: tuple[int, int] | None) -> Iterator[None]:
    """Around a command that processes of this rank and size carry out together; None where there is but one."""
    if not joined:
        yield
        return
    error: CollbenchError
    try:
        yield
        WATCHDOG.stop()
        return
    except (_streams.Unwritable, click.exceptions.Exit):
        raise
    except click.ClickException as refused:
        error = UsageError(refused.format_message())
    except CollbenchError as refused:
        error = refused
    except Exception as unforeseen:
        if signal := interrupts.behind(unforeseen):
            raise signal from None
        from collbench.cli._last_resort import line

        error = Unforeseen(line(unforeseen))
    _refuse(error, joined[0])


def _refuse(error: CollbenchError, rank: int) -> None:
    """Raise it once all know; only rank 0 says what all agreed upon."""
    try:
        from collbench.measure.launched import agree_on

        agree_on(error)
    except CollbenchError as agreed:
        error = agreed
    except ImportError:
        pass  # what is broken here is what it takes to speak to the others
    if error.agreed:
        WATCHDOG.stop()
        if rank:
            sys.exit(error.exit_status)
    raise error
