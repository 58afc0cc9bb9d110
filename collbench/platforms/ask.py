"""Programs that are asked something: whatever they do, the answer comes in time, and they end with whoever asked."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from collbench.errors import PlatformError

_GUARD = """
import os, select, shutil, signal, sys
scratch, *command = sys.argv[1:]
child = os.fork()
if not child:
    os.setpgid(0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be run: {error.strerror}".encode())
        os._exit(127)
ended, tell = os.pipe()
signal.signal(signal.SIGCHLD, lambda *_: None)
signal.set_wakeup_fd(tell, warn_on_full_buffer=False) if not os.set_blocking(tell, False) else None
while not (gone := os.waitpid(child, os.WNOHANG))[0]:
    if 0 in select.select([0, ended], [], [])[0]:
        os.killpg(child, signal.SIGKILL)
        shutil.rmtree(scratch, ignore_errors=True)
        os._exit(1)
    os.read(ended, 1)
status = os.waitstatus_to_exitcode(gone[1])
os._exit(status if status >= 0 else 128 - status)
"""
"""Starts the program and ends with it; when its own standard input ends, since whoever asked has, it ends the program
with all its children, and removes the folder that they worked in."""


def ask(command: Sequence[str], seconds: float, cure: str, scratch: Path | None = None) -> tuple[int, str, str]:
    """Exit status (above 128 after a signal), output and errors, whatever their bytes.

    PlatformError with the cure if the program cannot be run or takes too long.  It works in the folder `scratch`.
    """
    hold, held = os.pipe()  # not the guard's own standard input: asking would close that at once
    try:
        with subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARD, str(scratch or ""), *command],
            stdin=hold,
            cwd=scratch,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        ) as guard:
            os.close(hold)
            try:
                output, errors = guard.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                raise PlatformError(f"{command[0]} did not end within {seconds:g} s; {cure}") from None
            finally:
                os.close(held)
    except OSError as error:
        raise PlatformError(f"{command[0]} cannot be asked: {error.strerror}; {cure}") from None
    if guard.returncode == 127 and "cannot be run" in errors:
        raise PlatformError(f"{errors}; {cure}")
    return guard.returncode, output, errors
