"""Errors that collbench raises on purpose, and its warnings."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from collbench.exits import BAD, REFUSED
from collbench.host import sanitize
from collbench.host.files import replace_whole

_NEAR = 5  # suggested names


class CollbenchError(Exception):
    """An error that a user can act on: one line with the problem, the choices and the fix, without a traceback.

    The message may contain text of a file or of the command line, so it is sanitised here.
    """

    exit_status = REFUSED
    agreed = False  # whether every process of the run raises it, so that rank 0 prints it for all

    def __init__(self, message: object = "") -> None:
        super().__init__(sanitize.message(str(message)))


class Notice(UserWarning):
    """A warning on results, for example missing rows or dead ranks; commands always print it."""


def notify(message: str, stacklevel: int) -> None:
    """Warn with a Notice; it never ends a measurement, even if filters make warnings errors (`-W error`)."""
    with suppress(Notice):
        warnings.warn(message, Notice, stacklevel + 1)


class UsageError(CollbenchError):
    """The command asks for something that does not exist or is impossible."""


class RunFileError(CollbenchError):
    """A run file that cannot be read; the message names file and line."""


class PlatformError(CollbenchError):
    """The hardware or its software cannot carry out the request, usually before anything was measured."""


class SourceError(PlatformError):
    """The source of a kernel cannot be compiled; the message names file and line."""


class RanksLost(PlatformError):
    """Ranks ended and cannot be started again; the rows measured so far stay."""

    exit_status = BAD

    def __init__(self, message: object, implementation: str) -> None:
        super().__init__(message)
        self.implementation = implementation  # the running one


class StorageError(CollbenchError):
    """The run file can no longer be written; its rows stay."""

    exit_status = BAD


class Unforeseen(CollbenchError):
    """An unforeseen error, as one line for all processes of a run."""

    exit_status = BAD


class CaseFailed(CollbenchError):
    """One case hung or crashed; its row says `failed` and the run goes on."""


class TimedOut(CaseFailed):
    """Ranks did not continue in time; the next case may wait as long."""


class StartFailed(CaseFailed):
    """A library did not start in time; the next case would wait as long."""


class Unsupported(CollbenchError):
    """An implementation cannot do a case; its row says `skipped` with this reason."""


def unknown(what: str, name: str, choices: Iterable[str]) -> UsageError:
    """Return the error for an unknown name: similar names first, then all choices."""
    import difflib

    names, small = list(choices), name.lower()
    near = [part for part in name.split(",") if part in names]  # several names where one is expected
    if not near:
        near = difflib.get_close_matches(small, names)
    if not near and len(name) > 1:
        near = [choice for choice in names if small in choice][:_NEAR]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return UsageError(f"unknown {what} {name!r}; {hint}choose from: {', '.join(names)}")


@contextmanager
def writing(path: Path, option: str, kind: type[CollbenchError] = UsageError) -> Iterator[None]:
    """Turn an OSError inside into `kind`, naming *path* and the option to change.  Use as a context manager."""
    try:
        yield
    except OSError as error:
        raise kind(f"cannot write {path}: {error.strerror}; choose another {option}") from None


def write_file(path: Path, content: str | bytes, option: str, kind: type[CollbenchError] = UsageError) -> None:
    """Write the file of an option; `kind` is raised if it cannot be written."""
    with writing(path, option, kind):
        replace_whole(path, content)
