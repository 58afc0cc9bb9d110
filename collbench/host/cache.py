"""The user's cache folders: compiled kernels, and runs stored by commands.

Compiled kernels are executed and stored runs decide verdicts. So these folders have mode 0700, belong to this user,
and are never links.
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

_HELD: dict[tuple[int, int], int] = {}  # open descriptors of private folders, by device and inode


def cache_folder(error: type[Exception] = RuntimeError) -> Path:
    """Return $COLLBENCH_CACHE, or collbench in the user's cache folder; raise *error* without a home folder."""
    return _chosen("COLLBENCH_CACHE", "user_cache_path", "compiled kernels", error)


def state_folder(error: type[Exception]) -> Path:
    """Return $COLLBENCH_STATE, or collbench in the user's state folder; raise *error* without a home folder."""
    return _chosen("COLLBENCH_STATE", "user_state_path", "good runs", error)


def _chosen(variable: str, usual: str, what: str, error: type[Exception]) -> Path:
    """Return the folder that a variable names, or platformdirs' default; it may not exist."""
    try:
        if chosen := os.environ.get(variable):
            return Path(chosen).absolute()
        import platformdirs

        folder: Path = getattr(platformdirs, usual)("collbench", appauthor=False)
        return folder.expanduser()
    except (RuntimeError, OSError):  # OSError: the working folder is gone
        raise error(f"no home folder to keep {what} in; set {variable} to a folder") from None


def private_folder(folder: Path, what: str, variable: str, error: type[Exception]) -> Path:
    """Return a folder that only this user can write to, created if necessary, by a path that cannot be redirected.

    The path uses an open descriptor, so it stays the checked folder even if the owner of a parent folder replaces it.
    In containers and on shared disks that owner is often another user, so owners of parents are not checked. The path
    is valid for this user's processes while this process lives; `resolve()` returns the folder's name.

    Raises *error* if no such folder is possible, with the variable that names another folder.
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
        if found.st_mode & 0o777 != 0o700:  # regardless of the umask
            path.chmod(0o700)
    except OSError as reason:
        fix = f"set {variable} to a folder of your own"
        raise error(f"cannot keep {what} in {folder}: {reason.strerror}; {fix}") from None
    return path


def _is_own(path: Path) -> bool:
    """Whether only this user can write the file: others may have put files there before the folder was private."""
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    return False


def cached_file(stem: str, suffix: str, error: type[Exception], make: Callable[[Path], object]) -> Path:
    """Return a compiled file from the cache; if it is missing, one process creates it and the others wait.

    The stem has a hash of all of the file's sources; `make` writes the file to the path that it receives. Raises
    *error* if no cache is possible.
    """
    folder = private_folder(cache_folder(error) / "kernels", "compiled kernels", "COLLBENCH_CACHE", error)
    path = folder / f"{stem}{suffix}"
    if _is_own(path):
        return path

    # All ranks need the same kernel at once: one compiles it in a temporary folder, and the others wait.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    with os.fdopen(os.open(folder / f"{stem}.lock", flags, 0o600), "rb+", 0) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_own(path):
            with tempfile.TemporaryDirectory(prefix="collbench-") as scratch:
                product = Path(scratch, path.name)
                make(product)

                # Rename the file after it is synced, or a crash may leave a name without content.
                half = folder / f"{stem}.new"
                half.unlink(missing_ok=True)
                with os.fdopen(new_file(half), "wb") as file:
                    file.write(product.read_bytes())
                    os.fsync(file.fileno())
                half.chmod(0o700)  # it may be a program
            half.replace(path)
    return path
