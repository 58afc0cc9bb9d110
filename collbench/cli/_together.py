"""Commands that the processes of an outside launcher carry out together: what one refuses, all refuse, in one line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from collbench.cli import _streams
from collbench.errors import CollbenchError, Unforeseen, UsageError
from collbench.launcher import launched
from collbench.measure.watchdog import WATCHDOG


@contextmanager
def company(together: bool) -> Iterator[None]:
    """Around a command; those that are not carried out together, or have no launcher, are left alone."""
    joined = launched() if together else None
    if not joined:
        yield
        return
    WATCHDOG.start(joined[0])
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
        from collbench.cli import _last_resort

        error = Unforeseen(_last_resort.line(unforeseen))
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
