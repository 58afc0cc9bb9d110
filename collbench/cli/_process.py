"""The process of a command: its standard streams, and the one line that an error becomes.

Streams may be closed, full or unable to write a character: a loss is said, and nothing breaks.  An error that nobody
foresaw is one line too, and what one process of a launcher refuses, all refuse.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator
from typing import Any, TextIO

from collbench.errors import CollbenchError, Unforeseen, UsageError
from collbench.exits import BAD, NOBODY_READS
from collbench.host import signals
from collbench.present.terminal import is_terminal, room, wrapped

SHOW = "COLLBENCH_TRACEBACK"  # set to 1, the variable has the traceback printed
_LONGEST = 300  # characters of the error itself


class Unwritable(Exception):
    """Standard output takes no more; `quietly` if its reader has gone, as after `| head`.  Click eats OSErrors."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(f"cannot write to standard output: {reason.strerror}; what is missing there is lost")
        self.quietly = isinstance(reason, BrokenPipeError)


class _Output(io.FileIO):
    """Standard output, which raises Unwritable once, and standard error, whose loss must not end a measurement."""

    lost = False

    def write(self, data: Any) -> int:
        """Write as FileIO does, and raise Unwritable where it cannot."""
        if not self.lost:
            try:
                return super().write(data)
            except OSError as error:
                if self.fileno() == 1:
                    self.lost = True
                    raise Unwritable(error) from None
        return len(data)


class _Wrapping(io.TextIOWrapper):
    """For a terminal: lines that are too long for it go on below themselves, and no word is broken.

    What a program reads, a line of JSON or an error, stays whole, and so does what moves the cursor.
    """

    def write(self, text: str) -> int:
        """Write as TextIOWrapper does, with long lines wrapped."""
        width = room(self)
        moves = "\r" in text or "\x1b" in _CODE.sub("", text)
        if width is None or moves or all(len(_CODE.sub("", line)) <= width for line in text.split("\n")):
            return super().write(text)
        lines = (line if line.lstrip().startswith(_PROGRAMS) else wrapped(line, width) for line in text.split("\n"))
        super().write("\n".join(lines))
        return len(text)

    def write_whole(self, text: str) -> int:
        """Write text for a program, such as CSV, with its lines as they are."""
        return super().write(text)


_CODE = re.compile(r"\x1b\[[0-9;]*m")  # of a colour, which takes no room
_PROGRAMS = ('"', "{", "[", "#", "collbench: ")  # begin lines that programs read: JSON, other tools', errors


def coloured() -> bool:
    """Return whether standard output may have colours: a terminal knows them and NO_COLOR is empty (no-color.org)."""
    return obeys(sys.stdout) and not os.environ.get("NO_COLOR")


def obeys(stream: TextIO) -> bool:
    """Return whether it is a terminal that understands escape codes, as none of TERM=dumb, an empty one or nothing."""
    return is_terminal(stream) and os.environ.get("TERM", "") not in ("", "dumb")


def prepare() -> None:
    """Make this process's own streams such; others, as a test's, stay as they are."""
    _occupy()
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(io.BufferedWriter(_Output(1, "w", closefd=False)), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Output(2, "w", closefd=False), sys.stderr)


def _text(binary: Any, before: Any) -> io.TextIOWrapper:
    """Return text for that file: a character that the terminal does not know is a question mark."""
    direct = not isinstance(binary, io.BufferedWriter)
    lines = direct or binary.isatty()
    encoding = getattr(before, "encoding", "utf-8")
    return _Wrapping(binary, encoding, "replace", line_buffering=lines, write_through=direct)


def _occupy() -> None:
    """Take the numbers of closed streams, which the next file to be opened, a run's, would get otherwise."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # Read-only, so that what is written to standard output fails and is reported.
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)


def ending(error: BaseException) -> tuple[str, int]:
    """Return the message for an error, empty where nothing is left to say, and the exit status."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", signals.status(error)
    if isinstance(error, SystemExit):
        return "", error.code if isinstance(error.code, int) else BAD
    if isinstance(error, BrokenPipeError) or (isinstance(error, Unwritable) and error.quietly):
        return "", NOBODY_READS
    if isinstance(error, Unwritable):
        return str(error), BAD
    return on_purpose(error) or (unforeseen(error), BAD)


def on_purpose(error: BaseException) -> tuple[str, int] | None:
    """Return message and exit status, as `ending` does, of an error that is raised on purpose; None for others."""
    if isinstance(error, CollbenchError):
        return str(error), error.exit_status
    click = sys.modules.get("click")  # which may be what cannot be imported
    if not click:
        return None
    if isinstance(error, click.UsageError) and error.ctx and type(error) is not click.BadParameter:
        return _misused(error), error.exit_code
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    if isinstance(error, click.exceptions.Exit):
        return "", error.exit_code
    if isinstance(error, click.Abort):
        return "interrupted", signals.status(error.__cause__)
    return None


def _misused(error: Any) -> str:
    """Return one line: what is missing, unexpected, no option or no command, and what there is."""
    message = error.format_message().rstrip(".")
    choices = f"`{error.ctx.command_path} --help` says what it takes"
    if hasattr(error.ctx.command, "list_commands"):
        choices = f"choose from: {', '.join(error.ctx.command.list_commands(error.ctx))}"
    return f"{message} {choices}" if message.endswith("?") else f"{message}; {choices}"


def unforeseen(error: BaseException) -> str:
    """Return the line for an error that nobody foresaw, after its traceback was written or printed."""
    text = "".join(traceback.format_exception(error))
    what = traceback.format_exception_only(error)[-1].strip()[:_LONGEST]
    if os.environ.get(SHOW) == "1":
        sys.stderr.write(text)
        return what
    where = f"{SHOW}=1 shows the traceback"
    with contextlib.suppress(OSError):
        handle, name = tempfile.mkstemp(".txt", "collbench-traceback-")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        where = f"the traceback is in {name}"
    return f"{what}; this was not foreseen: {where}; please report it"


def _as_ours(reason: Exception) -> CollbenchError:
    """Return an error that can be sent to other processes; empty where nothing is left to say."""
    if isinstance(reason, CollbenchError):
        return reason
    if intended := on_purpose(reason):
        return UsageError(intended[0])
    return Unforeseen(unforeseen(reason))


@contextlib.contextmanager
def agreed(launched: tuple[int, int] | None) -> Iterator[None]:
    """Surround a command that processes of this rank and size carry out together; None where there is but one."""
    if not launched:
        yield
        return
    from collbench.measure.launcher_watchdog import WATCHDOG

    WATCHDOG.start(launched[0])
    try:
        yield
        WATCHDOG.stop()
        return
    except Unwritable:
        raise
    except Exception as reason:
        error = _as_ours(reason)
        if not str(error):
            raise

    # The others have to hear of it, or they would wait for this process in their next exchange.
    try:
        from collbench.measure.worker import agree_on

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
