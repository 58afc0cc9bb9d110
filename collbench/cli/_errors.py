"""Errors of a command: one that nobody foresaw is one line too; what one process of a launcher refuses, all refuse."""

import os
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collbench.cli import _streams
from collbench.errors import CollbenchError, Unforeseen, UsageError
from collbench.host.cache import cache_folder

SHOW = "COLLBENCH_TRACEBACK"  # set to 1, the variable has the traceback printed
_LONGEST = 300  # characters of the error itself


def unforeseen(error: BaseException) -> str:
    """Return the line for an error that nobody foresaw, after its traceback was written or printed."""
    text = "".join(traceback.format_exception(error))
    what = traceback.format_exception_only(error)[-1].strip()[:_LONGEST]
    if os.environ.get(SHOW) == "1":
        sys.stderr.write(text)
        return what
    place = _write(text)
    where = f"the traceback is in {place}" if place else f"{SHOW}=1 shows the traceback"
    return f"{what}; this was not foreseen: {where}; please report it"


def _write(text: str) -> Path | None:
    """Write the traceback into the cache, else into the folder for temporary files; None if neither takes one."""
    for folder in (cache_folder, lambda: Path(tempfile.gettempdir())):
        try:
            place = folder()
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(".txt", "traceback-", place)
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except (OSError, RuntimeError):  # RuntimeError: nobody knows where home is
            continue
        return Path(name)
    return None


@contextmanager
def agreed(launched: tuple[int, int] | None) -> Iterator[None]:
    """Surround a command that processes of this rank and size carry out together; None where there is but one."""
    if not launched:
        yield
        return
    from collbench.measure.watchdog import WATCHDOG

    WATCHDOG.start(launched[0])
    try:
        yield
        WATCHDOG.stop()
        return
    except _streams.Unwritable:
        raise
    except Exception as reason:
        error = _known(reason)
    _refuse(error, launched[0])


def _known(reason: Exception) -> CollbenchError:
    """Return the error that is sent to all processes, also where click cannot be imported."""
    if isinstance(reason, CollbenchError):
        return reason
    if click := sys.modules.get("click"):
        if isinstance(reason, click.exceptions.Exit):
            raise reason
        if isinstance(reason, click.ClickException):
            return UsageError(reason.format_message())
    return Unforeseen(unforeseen(reason))


def _refuse(error: CollbenchError, rank: int) -> None:
    """Raise the error once all processes know; only rank 0 says what all agreed upon."""
    from collbench.measure.watchdog import WATCHDOG

    try:
        from collbench.measure.external_launcher import agree_on

        agree_on(error)
    except CollbenchError as agreed_error:
        error = agreed_error
    except ImportError:
        pass  # what is broken here is what it takes to speak to the others
    if error.agreed:
        WATCHDOG.stop()
        if rank:
            sys.exit(error.exit_status)
    raise error
