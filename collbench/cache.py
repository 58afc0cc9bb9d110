"""Where collbench keeps what it can make anew: compiled kernels, and the index of runs.

What is kept is loaded and run, so its folders are ours alone: of mode 0700 whatever the umask, never another user's.
A folder is opened once, looked at, and used by that handle, so that none can be put in its place afterwards.
"""

import contextlib
import errno
import hashlib
import os
import stat
from pathlib import Path

from collbench.errors import PlatformError

_HASHED = 32  # hexadecimal digits of a content's hash in a file's name
_folders: dict[Path, int] = {}  # handles of those that were looked at


def cache_folder() -> Path:
    """$COLLBENCH_CACHE, else collbench under the user's cache folder; it need not exist."""
    if chosen := os.environ.get("COLLBENCH_CACHE"):
        return Path(chosen)
    own = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (own if own.is_absolute() else Path.home() / ".cache") / "collbench"


def private(name: str) -> Path:
    """A folder in the cache that nobody else can write to or exchange; PlatformError, with the fix, if there is none.

    The path leads through this process's handle, and holds as long as the process does.
    """
    handle = _folders.get(place := _place(name))
    if handle is None or not os.fstat(handle).st_nlink:  # somebody may have removed it
        handle = _folders[place] = _opened(place)
    held = Path(f"/proc/{os.getpid()}/fd/{handle}")
    return held if held.is_dir() else place  # where there is no /proc


def _place(name: str) -> Path:
    try:
        return cache_folder().absolute() / name
    except (RuntimeError, OSError) as error:  # no home, or no working folder
        raise _refused("a folder for the cache", str(error)) from None


def _opened(place: Path) -> int:
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        status = os.fstat(handle)
        if status.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, f"it belongs to user {status.st_uid}")
        if stat.S_IMODE(status.st_mode) != 0o700:
            os.fchmod(handle, 0o700)
    except OSError as error:
        link = place.is_symlink() and error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EEXIST)
        raise _refused(str(place), "it is a link" if link else str(error.strerror)) from None
    return handle


def _refused(what: str, why: str) -> PlatformError:
    return PlatformError(f"cannot keep compiled kernels in {what}: {why}; set COLLBENCH_CACHE to a folder of your own")


def kept(folder: Path, stem: str, suffix: str) -> Path | None:
    """The file that `keep` left in our folder, if it is still what it was; one that is not is removed."""
    for path in sorted(folder.glob(f"{stem}-*{suffix}")):
        if path.name == _name(stem, _content(path), suffix):
            return path
        path.unlink(missing_ok=True)
    return None


def keep(product: Path, folder: Path, stem: str, suffix: str) -> Path:
    """Copy a finished file into our folder under a name that holds a hash of its content and of the stem.

    It has no name before it is whole, so that whoever is killed meanwhile leaves nothing; file systems that know no
    files without a name get it under another one first.
    """
    content = product.read_bytes()
    place = folder / _name(stem, content, suffix)
    try:
        handle = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError:
        half = folder / f"{stem}.new"
        half.write_bytes(content)
        half.chmod(0o600)
        return half.replace(place)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        with contextlib.suppress(FileExistsError):
            os.link(f"/proc/self/fd/{handle}", place, src_dir_fd=handle, follow_symlinks=True)
    return place


def lock_file(path: Path) -> int:
    """A handle to lock, of a file in our folder that need not exist; what is in it stays, and no link is followed."""
    if path.is_symlink():
        path.unlink()  # from when others could write there
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)


def _name(stem: str, content: bytes | None, suffix: str) -> str:
    if content is None:
        return ""
    digest = hashlib.sha256(stem.encode() + b"\0" + content).hexdigest()[:_HASHED]
    return f"{stem}-{digest}{suffix}"


def _content(path: Path) -> bytes | None:
    """Of a regular file of ours that nobody else can change, else None."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
        return file.read() if own and status.st_nlink == 1 else None
