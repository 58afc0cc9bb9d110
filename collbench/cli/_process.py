"""Standard streams of a command, and the one line printed for an error.

Streams may be closed, full or unable to encode a character; lost output is reported and nothing crashes.  An unforeseen
error is printed as one line, too.  Under a launcher, all processes fail if one refuses the command.
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

SHOW = "COLLBENCH_TRACEBACK"  # 1 prints the traceback of an unforeseen error
_LONGEST = 300  # characters of the error itself


class Unwritable(Exception):
    """Standard output cannot be written; `quietly` if its reader has gone, as after `| head`.

    It is not an OSError, because click hides those.
    """

    def __init__(self, reason: OSError) -> None:
        super().__init__(f"cannot write to standard output: {reason.strerror}; what is missing there is lost")
        self.quietly = isinstance(reason, BrokenPipeError)


class _Output(io.FileIO):
    """A standard stream: a failing output raises Unwritable once, a failing error stream must not end a measurement."""

    lost = False

    def write(self, data: Any) -> int:
        """Write as FileIO does; Unwritable if standard output fails for the first time."""
        if not self.lost:
            try:
                return super().write(data)
            except OSError as error:
                if self.fileno() == 1:
                    self.lost = True
                    raise Unwritable(error) from None
        return len(data)


class _Wrapping(io.TextIOWrapper):
    """Text stream that wraps long lines between words on a terminal.

    JSON, errors and text that moves the cursor are not wrapped.
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
        """Write text for a program, such as CSV, without wrapping."""
        return super().write(text)


_CODE = re.compile(r"\x1b\[[0-9;]*m")  # a colour, which has no width
_PROGRAMS = ('"', "{", "[", "#", "collbench: ")  # beginnings of lines for programs: JSON, other tools' output, errors


def coloured() -> bool:
    """Return whether to colour standard output: its terminal can, and NO_COLOR is empty (no-color.org)."""
    return obeys(sys.stdout) and not os.environ.get("NO_COLOR")


def obeys(stream: TextIO) -> bool:
    """Return whether the stream is a terminal with escape codes; one with TERM=dumb or without TERM has none."""
    return is_terminal(stream) and os.environ.get("TERM", "") not in ("", "dumb")


def prepare() -> None:
    """Replace the standard streams of this process; streams that a test replaced stay."""
    _occupy()
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(io.BufferedWriter(_Output(1, "w", closefd=False)), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Output(2, "w", closefd=False), sys.stderr)


def _text(binary: Any, before: Any) -> io.TextIOWrapper:
    """Return a text stream over a binary one; a character that cannot be encoded becomes a question mark."""
    direct = not isinstance(binary, io.BufferedWriter)
    lines = direct or binary.isatty()
    encoding = getattr(before, "encoding", "utf-8")
    return _Wrapping(binary, encoding, "replace", line_buffering=lines, write_through=direct)


def _occupy() -> None:
    """Open the descriptors of closed streams, or the next opened file, perhaps a run file, would get them."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # Read-only, so that a write to standard output fails and is reported.
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)


def ending(error: BaseException) -> tuple[str, int]:
    """Return the message for an error, empty if nothing is to be printed, and the exit status."""
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
    """Return message and exit status, as `ending` does, of an expected error; None for others."""
    if isinstance(error, CollbenchError):
        return str(error), error.exit_status
    click = sys.modules.get("click")  # the error may be that click cannot be imported
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
    """Return one line for a misused command: the error, and the choices or where to find them."""
    message = error.format_message().rstrip(".")
    option = next((each for each in error.ctx.command.params if getattr(error, "option_name", "") in each.opts), None)
    if option:  # without its argument
        names = [each.value for each in option.shell_complete(error.ctx, "")][:3]
        message += f" {option.metavar}{f', such as {names[0]}' if names else ''}"
    choices = f"`{error.ctx.command_path} --help` says what it takes"
    if hasattr(error.ctx.command, "list_commands"):
        choices = f"choose from: {', '.join(error.ctx.command.list_commands(error.ctx))}"
    return f"{message} {choices}" if message.endswith("?") else f"{message}; {choices}"


def unforeseen(error: BaseException) -> str:
    """Return the line for an unforeseen error, after writing its traceback to a file or printing it."""
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
    """Return the error as one that can be sent to other processes; its text is empty if nothing is to be printed."""
    if isinstance(reason, CollbenchError):
        return reason
    if intended := on_purpose(reason):
        return UsageError(intended[0])
    return Unforeseen(unforeseen(reason))


@contextlib.contextmanager
def agreed(launched: tuple[int, int] | None) -> Iterator[None]:
    """Make all processes of a launcher fail together; `launched` is (rank, size), None for a single process."""
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

    # Send the error to the others, or they would wait for this process in their next exchange.
    try:
        from collbench.measure.worker import agree_on

        agree_on(error)
    except CollbenchError as agreed_error:
        error = agreed_error
    except ImportError:
        pass  # the broken module is the one that the exchange needs
    if error.agreed:
        WATCHDOG.stop()
        if launched[0]:  # only rank 0 prints an error that all agreed on
            sys.exit(error.exit_status)
    raise error
