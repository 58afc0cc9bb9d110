"""A command that ends in time, whatever it does: itself, its process group, and what left that group.

The command runs below a guard, which leads a session and a process group of its own (this file, started as a program).
The guard sees by a pipe when whoever started it dies, even by kill -9, and then ends the group.  Processes that made
themselves another group are known by a variable of their environment.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE = 3.0  # seconds between asking a group to end and ending it
MARK = "COLLBENCH_BOUNDED"
DEADLINE = "COLLBENCH_DEADLINE"  # the variable that tells a command when to stop by itself, as time.monotonic() counts
SPARE = 0.1, 20.0  # of its limit, and seconds at most: what it has left then, to say what it has come to
_TURN = 0.05  # seconds between two looks


@dataclass(frozen=True)
class Ended:
    """How a command ended: `status` as a shell counts it, None after its time was up."""

    status: int | None
    seconds: float


def run(
    command: Sequence[str],
    log: Path,
    limit: float,
    environment: Mapping[str, str],
    show: Callable[[str], object],
) -> Ended:
    """Carry a command out for at most `limit` seconds; what it prints goes to `log`, and as it comes to `show`.

    Whatever ends this call, be it an exception, nothing that the command started is left.
    """
    mark, start = f"{os.getpid()}-{time.monotonic_ns()}", time.monotonic()
    ours, theirs = os.pipe()
    guard = [sys.executable, "-I", "-S", __file__, str(ours), *command]
    with log.open("wb") as output, log.open(encoding="utf-8", errors="replace") as said:
        process = subprocess.Popen(
            guard,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**environment, MARK: mark, DEADLINE: str(start + limit - min(SPARE[0] * limit, SPARE[1]))},
            pass_fds=(ours,),
            start_new_session=True,
        )
        os.close(ours)
        try:
            while process.poll() is None and time.monotonic() - start < limit:
                show(said.read())
                time.sleep(_TURN)
            status = process.poll()
        finally:
            _end(process, mark)
            os.close(theirs)
        show(said.read())
    return Ended(status, time.monotonic() - start)


def seconds_left() -> float | None:
    """Until this program should stop by itself; None if nobody waits for it."""
    deadline = os.environ.get(DEADLINE)
    return max(0.0, float(deadline) - time.monotonic()) if deadline else None


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Ask the group to end if it has not, then end it, and all that bears the mark."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + GRACE
    while (left := marked(mark)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_TURN)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def marked(mark: str) -> list[int]:
    """The processes below the command of that mark, whoever started them."""
    word, found = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def _guard(pipe: int, command: Sequence[str]) -> int:
    """Run the command in this process's group, and end the group once nobody holds the pipe's other end."""

    def watch() -> None:
        os.read(pipe, 1)
        os.killpg(0, signal.SIGKILL)

    signal.signal(signal.SIGTERM, lambda *_: None)  # not ignored, which the command would inherit
    threading.Thread(target=watch, daemon=True).start()
    status = subprocess.run(command, check=False).returncode
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(_guard(int(sys.argv[1]), sys.argv[2:]))
