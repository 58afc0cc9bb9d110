"""A private /dev/shm for a trial, so that everything left there belongs to it.

It needs a mount namespace.  Root can make one; other users can if they may make a user namespace.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

SHARED = "/dev/shm"
_ENTER = shutil.which("nsenter") or "nsenter"  # found before a trial changes the PATH
_USER = [] if os.geteuid() == 0 else ["--user"]


class Den:
    """A mount namespace for the time of a `with` block; if there can be none, the machine's own /dev/shm."""

    def __init__(self) -> None:
        self._holder: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        maps = ["--map-root-user"] if _USER else []
        script = f"mount -t tmpfs -o size=4g tmpfs {SHARED} && echo ready && exec sleep 100000"
        holder = subprocess.Popen(
            ["unshare", "--mount", *_USER, *maps, "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert holder.stdout
        if holder.stdout.readline() == b"ready\n":
            self._holder = holder
        else:
            holder.wait()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._holder:
            self._holder.kill()
            self._holder.wait()
            assert self._holder.stdout
            self._holder.stdout.close()

    @property
    def private(self) -> bool:
        return self._holder is not None

    def path(self, path: Path | str) -> Path:
        """Return a path of the den as this process can open it."""
        return Path(f"/proc/{self._holder.pid}/root{path}") if self._holder else Path(path)

    def inside(self, command: Sequence[str], folder: Path) -> list[str]:
        """Return a command that runs the given one in the den, in a folder; it keeps its process id."""
        if not self._holder:
            return list(command)
        keep = ["--preserve-credentials"] if _USER else []
        return [_ENTER, "--target", str(self._holder.pid), "--mount", *_USER, *keep, f"--wdns={folder}", *command]

    def small_disk(self, folder: Path, nbytes: int) -> bool:
        """Mount a file system of this size, and return whether it was possible."""
        folder.mkdir(parents=True, exist_ok=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "tmpfs", str(folder)]
        return self.private and not subprocess.run(self.inside(mount, folder.parent), check=False).returncode

    def left(self) -> list[str]:
        """Return the names in shared memory, after a second at most in which they may still disappear."""
        for _ in range(20):
            names = {path.name for path in self.path(SHARED).iterdir()}
            if not names or not self.private:
                break
            time.sleep(0.05)
        return sorted(names) if self.private else []

    def sweep(self) -> None:
        """Remove these names, for the next trial."""
        for name in self.left():
            self.path(f"{SHARED}/{name}").unlink(missing_ok=True)
