"""How much memory ranks may take here, and where memory comes from that several processes map.

What limits it is the machine's free memory and that of the control groups above this process (docker's --memory, a
job's), and only where the kernel has no memfd the room in /dev/shm (docker's --shm-size) too.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from collbench.errors import PlatformError

FOLDER = Path("/dev/shm")  # the file system in memory that every Linux has
_UNLIMITED = 2**60  # bytes: version 1 writes the largest multiple of a page for no limit


class Room(NamedTuple):
    """Bytes that may be taken, who limits them, and what a user can do about it."""

    free: int
    where: str
    fix: str


def nameless() -> int:
    """A descriptor of an empty file in memory without a name; PlatformError where there is none to be had."""
    if (fd := _memfd()) is not None:
        return fd
    try:
        return os.open(FOLDER, os.O_TMPFILE | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise PlatformError(
            f"no memory that ranks can share: neither memfd_create nor {FOLDER} gives any ({error.strerror}); "
            "mount a tmpfs there"
        ) from error


def _memfd() -> int | None:
    """None in kernels before 3.17 and in sandboxes that do not know it."""
    try:
        return os.memfd_create("collbench", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except (OSError, AttributeError):
        return None


def room(root: Path = Path("/")) -> Room:
    """What this process and its children may take: the least of all limits."""
    rooms = [*_groups(root), *_machine(root)]
    if (fd := _memfd()) is None:
        rooms.append(Room(shutil.disk_usage(FOLDER).free, str(FOLDER), "enlarge it (docker: --shm-size)"))
    else:
        os.close(fd)
    return min(rooms, default=Room(_UNLIMITED, "this machine", ""))


def _machine(root: Path) -> Iterator[Room]:
    match = re.search(r"^MemAvailable:\s*(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    if match:
        yield Room(int(match[1]) * 1024, "this machine", "end what takes it")


def _groups(root: Path) -> Iterator[Room]:
    """What is left in each control group above this process that has a limit, of version 2 and of version 1."""
    mount = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            yield from _above(mount, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            yield from _above(mount / "memory", path, *names)


def _above(mount: Path, path: str, limit: str, usage: str, reclaimable: str) -> Iterator[Room]:
    """In a container the path may be the host's, of which only the mount's own files are to be seen."""
    group = Path(*(part for part in Path(path).parts if part not in ("/", "..")))
    for folder in dict.fromkeys(mount / part for part in (group, *group.parents)):
        most, taken = _text(folder / limit).strip(), _text(folder / usage).strip()
        if not (most.isdigit() and taken.isdigit()) or int(most) >= _UNLIMITED:
            continue
        cached = re.search(rf"^{reclaimable} (\d+)$", _text(folder / "memory.stat"), re.MULTILINE)
        free = int(most) - int(taken) + int(cached[1] if cached else 0)
        yield Room(max(0, free), "its control group", "raise its limit (docker: --memory)")


def _text(path: Path) -> str:
    """What the file says, or nothing."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
