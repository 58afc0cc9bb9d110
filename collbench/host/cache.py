"""Folders of this user: compiled kernels, which can be made anew, and runs that commands store for later ones.

Compiled kernels are loaded and run, and stored runs decide verdicts: their folders have mode 0700, are never another
user's, and never a link.
"""

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from collbench.host.files import new_file

_HELD: dict[tuple[int, int], int] = {}  # descriptors of private folders, which stay open, by device and inode


def cache_folder(error: type[Exception] = RuntimeError) -> Path:
    """Return $COLLBENCH_CACHE, else collbench under the user's cache folder; *error* if no home folder is known."""
    return _chosen("COLLBENCH_CACHE", "user_cache_path", "compiled kernels", error)


def state_folder(error: type[Exception]) -> Path:
    """Return $COLLBENCH_STATE, else collbench under the user's folder of state; *error* if no home folder is known."""
    return _chosen("COLLBENCH_STATE", "user_state_path", "good runs", error)


def _chosen(variable: str, usual: str, what: str, error: type[Exception]) -> Path:
    """Return the folder that a variable names, else the usual one of platformdirs; it need not exist."""
    try:
        if chosen := os.environ.get(variable):
            return Path(chosen).absolute()
        import platformdirs

        folder: Path = getattr(platformdirs, usual)("collbench", appauthor=False)
        return folder.expanduser()
    except (RuntimeError, OSError):  # OSError: the working folder is gone
        raise error(f"no home folder to keep {what} in; set {variable} to a folder") from None


def private_folder(folder: Path, what: str, variable: str, error: type[Exception]) -> Path:
    """Return a folder that this user alone can write to, made if need be, by a path that nobody can lead elsewhere.

    The path goes by a descriptor that stays open, so it is the folder that was looked at, even if the owner of a
    folder above exchanges it.  In containers, on shared disks and in projects that is often somebody else, or
    unknown, so their owners are no reason to refuse.  The path holds in this process, and in others of this user for
    as long as it lives; `resolve()` gives the folder's name.

    Raises *error* if there can be none: it says what cannot be stored, and the variable that names another folder.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.is_symlink():
            raise PermissionError(errno.EPERM, "it is a link")
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        found = os.fstat(descriptor)
        held = _HELD.setdefault((found.st_dev, found.st_ino), descriptor)
        if held != descriptor:
            os.close(descriptor)
        if found.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, f"it belongs to user {found.st_uid}")
        path = Path("/proc/self").resolve() / "fd" / str(held)
        if found.st_mode & 0o777 != 0o700:  # whatever the umask was
            path.chmod(0o700)
    except OSError as reason:
        fix = f"set {variable} to a folder of your own"
        raise error(f"cannot keep {what} in {folder}: {reason.strerror}; {fix}") from None
    return path


def _is_own(path: Path) -> bool:
    """Whether it is a file that only this user writes: others may have left something before the folder was private."""
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return False


def cached_file(stem: str, suffix: str, error: type[Exception], make: Callable[[Path], object]) -> Path:
    """Return a compiled file of the cache; where it is not there yet, one process makes it and the others wait.

    The stem has a hash of all that the file is made of; `make` writes it at the path that it gets, in a folder of its
    own.  Raises *error* if there can be no cache.
    """
    folder = private_folder(cache_folder(error) / "kernels", "compiled kernels", "COLLBENCH_CACHE", error)
    path = folder / f"{stem}{suffix}"
    if _is_own(path):
        return path

    # All ranks want the same kernel at once: one makes it, in a folder of its own, and the others wait.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    with os.fdopen(os.open(folder / f"{stem}.lock", flags, 0o600), "rb+", 0) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_own(path):
            with tempfile.TemporaryDirectory(prefix="collbench-") as scratch:
                product = Path(scratch, path.name)
                make(product)

                # It gets its name once it is whole and on disk: a crash may else leave the name without the content.
                half = folder / f"{stem}.new"
                half.unlink(missing_ok=True)
                with os.fdopen(new_file(half), "wb") as file:
                    file.write(product.read_bytes())
                    os.fsync(file.fileno())
                half.chmod(0o700)  # it may be a program
            half.replace(path)
    return path
