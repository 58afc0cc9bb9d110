"""The folder of what collbench can make anew: compiled kernels.

What is stored there is loaded and run, so its folders belong to this user alone: of mode 0700 whatever the umask, never
another user's, and never a link.  A folder is opened once, looked at, and used by that handle, so that none can be put
in its place afterwards.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

_HASH_DIGITS = 32  # hexadecimal digits of a content's hash in a file's name
_folders: dict[Path, int] = {}  # handles of folders that were looked at


def cache_folder() -> Path:
    """Return $COLLBENCH_CACHE, else collbench under the user's cache folder; it need not exist."""
    if chosen := os.environ.get("COLLBENCH_CACHE"):
        return Path(chosen)
    from platformdirs import user_cache_path

    return user_cache_path("collbench", appauthor=False).expanduser()  # RuntimeError where nobody knows where home is


def state_folder(error: type[Exception]) -> Path:
    """Return $COLLBENCH_STATE, else collbench under the user's folder of state; raise *error* if none is known.

    It need not exist.
    """
    if chosen := os.environ.get("COLLBENCH_STATE"):
        return Path(chosen)
    from platformdirs import user_state_path

    try:
        return user_state_path("collbench", appauthor=False).expanduser()
    except RuntimeError:
        raise error("no home folder to store good runs in; set COLLBENCH_STATE to a folder") from None


def private_folder(name: str, error: type[Exception]) -> Path:
    """Return a folder in the cache that nobody else can write to or exchange; raise *error* if there can be none.

    The path leads through a handle of this process, and holds as long as the process does.
    """
    place = Path("a folder for the cache")
    try:
        place = cache_folder().absolute() / name
        handle = _folders.get(place)
        if handle is None or not os.fstat(handle).st_nlink:  # somebody may have removed it
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            place.mkdir(mode=0o700, exist_ok=True)
            handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            status = os.fstat(handle)
            if status.st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, f"it belongs to user {status.st_uid}")
            if stat.S_IMODE(status.st_mode) != 0o700:
                os.fchmod(handle, 0o700)
            _folders[place] = handle
    except (RuntimeError, OSError) as reason:  # RuntimeError: nobody knows where home is
        link = place.is_symlink() and getattr(reason, "errno", 0) in (errno.ELOOP, errno.ENOTDIR, errno.EEXIST)
        why = "it is a link" if link else getattr(reason, "strerror", None) or reason
        raise error(
            f"cannot keep compiled kernels in {place}: {why}; set COLLBENCH_CACHE to a folder of your own"
        ) from None
    held = Path(f"/proc/{os.getpid()}/fd/{handle}")
    return held if held.is_dir() else place  # where there is no /proc


def cached_file(stem: str, suffix: str, error: type[Exception], make: Callable[[Path], object]) -> Path:
    """Return a compiled file of the cache; where it is not there yet, one process makes it and the others wait.

    Args:
        stem: Name of the file, with a hash of all that it is made of.
        suffix: What its name ends in.
        error: What to raise if there can be no cache.
        make: Writes the file at the place that it gets, in a folder of its own.

    """
    folder = private_folder("kernels", error)
    if found := find(folder, stem, suffix):
        return found
    with os.fdopen(open_lock(folder / f"{stem}.lock"), "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # all ranks want the same kernel at once
        if found := find(folder, stem, suffix):
            return found
        with tempfile.TemporaryDirectory(prefix="collbench-") as scratch:  # of ranks, in the folder of their run
            product = Path(scratch, f"{stem}{suffix}")
            make(product)
            return keep(product, folder, stem, suffix)


def find(folder: Path, stem: str, suffix: str) -> Path | None:
    """Return the file that `keep` left in a private folder, if its content is the same; remove one that is not."""
    for path in sorted(folder.glob(f"{stem}-*{suffix}")):
        content = _private_content(path)
        if content is not None and path.name == _hashed_name(stem, content, suffix):
            return path
        path.unlink(missing_ok=True)
    return None


def keep(product: Path, folder: Path, stem: str, suffix: str) -> Path:
    """Copy a finished file into a private folder, under a name that holds a hash of its content and of the stem.

    It has no name before it is whole, so that a process killed meanwhile leaves nothing; file systems that know no
    files without a name get it under another one first.
    """
    content = product.read_bytes()
    place = folder / _hashed_name(stem, content, suffix)
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


def open_lock(path: Path) -> int:
    """Return a handle to lock, of a file in a private folder that need not exist; no link is followed."""
    if path.is_symlink():
        path.unlink()  # from when others could write there
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)


def _hashed_name(stem: str, content: bytes, suffix: str) -> str:
    digest = hashlib.sha256(stem.encode() + b"\0" + content).hexdigest()[:_HASH_DIGITS]
    return f"{stem}-{digest}{suffix}"


def _private_content(path: Path) -> bytes | None:
    """Return the content of a regular file of this user that nobody else can change, else None."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        private = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
        return file.read() if private and status.st_nlink == 1 else None
