"""Names that stand beside a run, one a line in a file of its folder, so that a copy of the folder keeps them."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from collbench.errors import CollbenchError, UsageError
from collbench.host.sanitize import safe_read, text
from collbench.runfile.file import NAME

FILE = "tags"  # within the folder of a run
LAST, BEST = "last", "best"
RESERVED = (LAST, BEST)
"""The words that choose a baseline without a tag."""
_LONGEST = 64
_MOST = 2**16  # bytes of the file


def tags(folder: Path) -> tuple[str, ...]:
    """The tags of the run in that folder, in the order given; lines that are no names are passed over."""
    try:
        with safe_read(folder / FILE, UsageError, _MOST) as file:
            lines = file.read(_MOST).decode(errors="replace").splitlines()
    except CollbenchError:
        return ()
    return tuple(dict.fromkeys(line for line in map(str.strip, lines) if not _complaint(line)))


def add(name: str, folder: Path) -> tuple[str, ...]:
    """Tag the run in that folder; all its tags. UsageError where there is no run, or the name cannot be one."""
    if complaint := _complaint(name):
        raise UsageError(f"{name!r} cannot be a tag: {complaint}")
    _needs_run(folder)
    with _alone(folder):
        has = tags(folder)
        if name not in has:
            _rewrite(folder, (*has, name))
        return tags(folder)


def remove(name: str, folder: Path) -> tuple[str, ...]:
    """Take a tag from the run in that folder; what is left. UsageError where it has no such tag."""
    _needs_run(folder)
    with _alone(folder):
        has = tags(folder)
        if name not in has:
            raise UsageError(f"{folder} has no tag {name!r}; its tags: {', '.join(has) or 'none'}")
        left = tuple(tag for tag in has if tag != name)
        _rewrite(folder, left)
        return left


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """With the folder locked, so that two who change its tags at once do not lose each other's; nothing stays of it."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
    except OSError as error:
        raise UsageError(f"cannot write {folder / FILE}: {error.strerror}") from None


def _rewrite(folder: Path, names: tuple[str, ...]) -> None:
    """Through a temporary name, so that nobody reads half of it; without names the file goes."""
    file = folder / FILE
    if not names:
        file.unlink()
        return
    mode = file.stat().st_mode & 0o777 if file.exists() else (folder / NAME).stat().st_mode & 0o666
    handle, scratch = tempfile.mkstemp(dir=folder, prefix=f".{FILE}-")
    try:
        with os.fdopen(handle, "wb") as half:
            half.write("".join(f"{name}\n" for name in names).encode())
        Path(scratch).chmod(mode)
        Path(scratch).replace(file)
    except BaseException:
        Path(scratch).unlink()
        raise


def _needs_run(folder: Path) -> None:
    if (folder / NAME).is_file():
        return
    inside = sorted(path.parent.name for path in folder.glob(f"*/{NAME}"))[:8] if folder.is_dir() else []
    hint = f"; runs within it: {', '.join(inside)}" if inside else ""
    raise UsageError(f"there is no run in {folder}{hint}; give a folder that holds a {NAME}")


def _complaint(name: str) -> str:
    """Why this is no name for a tag; nothing if it is one."""
    if name in RESERVED:
        return f"{' and '.join(RESERVED)} choose a baseline by themselves"
    if not name or name[0] in "-.":
        return "it needs a first character that is neither a dash nor a dot"
    if text(name[:_LONGEST]) != name[:_LONGEST] or any(sign.isspace() or sign in "/\\" for sign in name):
        return "spaces, slashes, control and invisible characters are not allowed"
    return f"it is longer than {_LONGEST} characters" if len(name) > _LONGEST else ""
