"""Standard streams that may be closed, full or unable to write a character: a loss is said, and nothing breaks."""

import contextlib
import io
import os
import sys
from typing import Any


class Unwritable(Exception):
    """Standard output takes no more; `quietly` if its reader has gone, as after `| head`.  Click eats OSErrors."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(f"cannot write to standard output: {reason.strerror}; what is missing there is lost")
        self.quietly = isinstance(reason, BrokenPipeError)


class _Output(io.FileIO):
    """Raises Unwritable once, and takes the rest for lost."""

    lost = False

    def write(self, data: Any) -> int:
        """As FileIO does."""
        try:
            return len(data) if self.lost else super().write(data)
        except OSError as error:
            self.lost = True
            raise Unwritable(error) from None


class _Messages(io.FileIO):
    """Nobody may hear them, which must not end a measurement."""

    def write(self, data: Any) -> int:
        """As FileIO does where that is possible."""
        with contextlib.suppress(OSError):
            return super().write(data)
        return len(data)


def prepare() -> None:
    """Make this process's own streams such; others, as a test's, stay as they are."""
    _occupy()
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(io.BufferedWriter(_Output(1, "w", closefd=False)), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Messages(2, "w", closefd=False), sys.stderr)


def _text(binary: Any, before: Any) -> io.TextIOWrapper:
    """Text for that file: a character that the terminal does not know is a question mark."""
    encoding = before.encoding if before else "utf-8"
    direct = not isinstance(binary, io.BufferedWriter)
    lines = direct or binary.isatty()
    return io.TextIOWrapper(binary, encoding, "replace", line_buffering=lines, write_through=direct)


def _occupy() -> None:
    """Take the numbers of closed streams, which the next file to be opened, a run's, would get otherwise."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if number == 2 else os.O_RDONLY)  # writing to standard output fails
