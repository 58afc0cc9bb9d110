"""Folders of this user: compiled kernels, which can be made anew, and what is kept from one command to the next.

Compiled kernels are loaded and run, so their folder has mode 0700, is never another user's, and never a link.
"""

import errno
import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    """Return $COLLBENCH_CACHE, else collbench under the user's cache folder; it need not exist.

    Raises:
        RuntimeError: Nobody knows where this user's home is.

    """
    if chosen := os.environ.get("COLLBENCH_CACHE"):
        return Path(chosen)
    from platformdirs import user_cache_path

    return user_cache_path("collbench", appauthor=False).expanduser()


def state_folder(error: type[Exception]) -> Path:
    """Return $COLLBENCH_STATE, else collbench under the user's folder of state; it need not exist.

    Raises *error* if no home folder is known.
    """
    if chosen := os.environ.get("COLLBENCH_STATE"):
        return Path(chosen)
    from platformdirs import user_state_path

    try:
        return user_state_path("collbench", appauthor=False).expanduser()
    except RuntimeError:
        raise error("no home folder to store good runs in; set COLLBENCH_STATE to a folder") from None


def private_folder(error: type[Exception]) -> Path:
    """Return the folder of compiled kernels, which nobody else can write to; raise *error* if there can be none."""
    folder = Path("a folder for the cache")
    try:
        folder = cache_folder().absolute() / "kernels"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.is_symlink():
            raise PermissionError(errno.EPERM, "it is a link")
        if (owner := folder.stat().st_uid) != os.geteuid():
            raise PermissionError(errno.EPERM, f"it belongs to user {owner}")
        folder.chmod(0o700)  # whatever the umask
    except (RuntimeError, OSError) as reason:
        why = getattr(reason, "strerror", None) or reason
        raise error(
            f"cannot keep compiled kernels in {folder}: {why}; set COLLBENCH_CACHE to a folder of your own"
        ) from None
    return folder


def cached_file(stem: str, suffix: str, error: type[Exception], make: Callable[[Path], object]) -> Path:
    """Return a compiled file of the cache; where it is not there yet, one process makes it and the others wait.

    Args:
        stem: Name of the file, with a hash of all that it is made of.
        suffix: What its name ends in.
        error: What to raise if there can be no cache.
        make: Writes the file at the path that it gets, in a folder of its own.

    """
    folder = private_folder(error)
    path = folder / f"{stem}{suffix}"
    if path.is_file():
        return path

    # All ranks want the same kernel at once: one makes it, in a folder of its own, and the others wait.
    with (folder / f"{stem}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.is_file():
            with tempfile.TemporaryDirectory(prefix="collbench-") as scratch:
                product = Path(scratch, path.name)
                make(product)

                # It gets its name once it is whole and on disk: a crash may else leave the name without the content.
                half = folder / f"{stem}.new"
                with half.open("wb") as file:
                    file.write(product.read_bytes())
                    os.fsync(file.fileno())
            half.replace(path)
    return path
