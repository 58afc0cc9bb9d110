"""Atomic writing of files, never through a link.

In a foreign folder, a name that collbench writes may be a link to any file of the user.
"""

import errno
import os
import re
import stat
import sys
from pathlib import Path

RUN_FILE = "run.jsonl"
_STREAMS = re.compile(r"/dev/(stdout|stderr)|(?:/dev|/proc/self)/fd/(\d{1,9})")  # links of the system to open files
_DESCRIPTORS = {"stdout": 1, "stderr": 2}


def new_file(path: Path) -> int:
    """Create a new file, and return its descriptor for writing; OSError if the path exists."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def replace_whole(path: Path, content: str | bytes, mode: int | None = None) -> None:
    """Replace a file's content atomically; raises OSError.

    The file gets *mode*, by default its previous mode; a pipe or a device is written directly.
    """
    data = content.encode() if isinstance(content, str) else content
    if opened := _STREAMS.fullmatch(os.fspath(path)):
        # Write to the descriptor itself: a reopened file would begin at its start.
        sys.stdout.flush()
        with os.fdopen(os.dup(_DESCRIPTORS.get(opened[1]) or int(opened[2])), "wb") as stream:
            stream.write(data)
        return
    kind = _kind(path)
    if kind and not stat.S_ISREG(kind):
        path.write_bytes(data)
        return
    half = _unused(path)
    try:
        handle = new_file(half)
    except OSError:
        # In a read-only folder a file may still be writable.
        if not kind:
            raise
        handle, half = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC), path
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if mode or kind:
                os.fchmod(handle, mode or stat.S_IMODE(kind))
        half.replace(path)
    except BaseException:
        if half != path:
            half.unlink(missing_ok=True)
        raise


def try_to_write(path: Path) -> None:
    """Raise OSError if a file cannot be written, without changing it; a pipe or a device is not opened."""
    kind = _kind(path)
    if stat.S_ISREG(kind):
        os.close(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC))
    elif not kind:
        os.close(new_file(half := _unused(path)))
        half.unlink()


def _unused(path: Path) -> Path:
    return path.with_name(f".collbench.{os.urandom(6).hex()}")  # not .prom, which node_exporter would read


def _kind(path: Path) -> int:
    """Return the mode of a path, 0 if it does not exist; OSError for a link and for a folder."""
    if _STREAMS.fullmatch(os.fspath(path)):
        return stat.S_IFIFO
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return 0
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, f"{path} is a link, and is not written through")
    if path.name == RUN_FILE:
        raise OSError(errno.EEXIST, "it is a run file, and is not written over")
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    return mode
