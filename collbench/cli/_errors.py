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
from collbench.host import signals
from collbench.host.cache import cache_folder

SHOW = "COLLBENCH_TRACEBACK"  # set to 1, the variable has the traceback printed
_LONGEST = 300  # characters of the error itself


def on_purpose(error: BaseException) -> tuple[str, int] | None:
    """Return message, empty where nothing is left to say, and exit status of an error that is raised on purpose.

    None for others, and where click cannot be imported, which may be the error itself.
    """
    if isinstance(error, CollbenchError):
        return str(error), error.exit_status
    click = sys.modules.get("click")
    if not click:
        return None
    if isinstance(error, click.NoSuchOption):
        from collbench.cli.commands import unknown_option

        return unknown_option(error), error.exit_code
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    if isinstance(error, click.exceptions.Exit):
        return "", error.exit_code
    if isinstance(error, click.Abort):
        return "interrupted", signals.status(error.__cause__)
    return None


def unforeseen(error: BaseException) -> str:
    """Return the line for an error that nobody foresaw, after its traceback was written or printed."""
    text = "".join(traceback.format_exception(error))
    what = traceback.format_exception_only(error)[-1].strip()[:_LONGEST]
    if os.environ.get(SHOW) == "1":
        sys.stderr.write(text)
        return what
    where = f"{SHOW}=1 shows the traceback"
    for folder in (cache_folder, lambda: Path(tempfile.gettempdir())):
        try:
            place = folder()
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(".txt", "traceback-", place)
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except (OSError, RuntimeError):  # RuntimeError: nobody knows where home is
            continue
        where = f"the traceback is in {name}"
        break
    return f"{what}; this was not foreseen: {where}; please report it"


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
        known = on_purpose(reason)
        if known and not known[0]:
            raise
        if isinstance(reason, CollbenchError):
            error = reason
        else:
            error = UsageError(known[0]) if known else Unforeseen(unforeseen(reason))
    try:
        from collbench.measure.external_launcher import agree_on

        agree_on(error)
    except CollbenchError as agreed_error:
        error = agreed_error
    except ImportError:
        pass  # what is broken here is what it takes to speak to the others
    if error.agreed:
        WATCHDOG.stop()
        if launched[0]:  # only the first says what all agreed upon
            sys.exit(error.exit_status)
    raise error
