"""Every error that collbench raises on purpose, and what it warns of."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from collbench.exits import BAD, REFUSED
from collbench.host import sanitize
from collbench.host.files import replace_whole

_NEAR = 5  # names that are suggested


class CollbenchError(Exception):
    """What a user can act on: the message says what is wrong, the choices and the fix, in one line, with no traceback.

    Words of a file or of the command line may be in it, so it is sanitised here, once.
    """

    exit_status = REFUSED
    agreed = False  # whether every process of the run raises it, so that the first may speak for all

    def __init__(self, message: object = "") -> None:
        super().__init__(sanitize.message(str(message)))


class Notice(UserWarning):
    """What a user has to know of results: a part that is missing, ranks that died; commands always print it."""


def notify(message: str, stacklevel: int) -> None:
    """Warn by a Notice, which costs no measurement where the user's filters make it an error (`-W error`)."""
    with suppress(Notice):
        warnings.warn(message, Notice, stacklevel + 1)


class UsageError(CollbenchError):
    """The command asks for something that does not exist or cannot be."""


class RunFileError(CollbenchError):
    """A run file that cannot be read; the message names file and line."""


class PlatformError(CollbenchError):
    """The hardware or its software cannot do what was asked, as a rule before anything was measured."""


class SourceError(PlatformError):
    """The source of a kernel cannot be compiled; the message names file and line."""


class RanksLost(PlatformError):
    """Ranks ended, and the like of them cannot be had again: what was measured before stays."""

    exit_status = BAD

    def __init__(self, message: object, implementation: str) -> None:
        super().__init__(message)
        self.implementation = implementation  # whose turn it was


class StorageError(CollbenchError):
    """The run file can no longer be written; what is in it stays."""

    exit_status = BAD


class Unforeseen(CollbenchError):
    """What nobody raised on purpose, in one line for all processes of a run."""

    exit_status = BAD


class CaseFailed(CollbenchError):
    """One case hung or crashed; its row says `failed` and the run goes on."""


class TimedOut(CaseFailed):
    """Ranks did not go on in time: the next case may wait as long."""


class StartFailed(CaseFailed):
    """A library did not start in time: the next case would wait for it as long."""


class Unsupported(CollbenchError):
    """An implementation cannot do a case; its row says `skipped` with this reason."""

    exit_status = BAD


def unknown(what: str, name: str, choices: Iterable[str]) -> UsageError:
    """Return the error for a name that is in no registry: the names that are, and those that look like it."""
    import difflib

    names, small = list(choices), name.lower()
    near = difflib.get_close_matches(small, names)
    if not near and len(name) > 1:
        near = [choice for choice in names if small in choice][:_NEAR]
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return UsageError(f"unknown {what} {name!r}; choose from: {', '.join(names)}{hint}")


@contextmanager
def writing(path: Path, option: str, kind: type[CollbenchError] = UsageError) -> Iterator[None]:
    """Around what writes a file that the user named by that option: an error of that kind if it cannot be written."""
    try:
        yield
    except OSError as error:
        raise kind(f"cannot write {path}: {error.strerror}; choose another {option}") from None


def write_file(path: Path, content: str | bytes, option: str, kind: type[CollbenchError] = UsageError) -> None:
    """Put the content at a path that the user named by that option; an error of that kind if that cannot be."""
    with writing(path, option, kind):
        replace_whole(path, content)
