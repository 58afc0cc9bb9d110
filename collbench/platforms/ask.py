"""Ask a program something: whatever it does, the answer comes in time, and the program and its children end."""

import contextlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from collbench.errors import PlatformError


def ask(command: Sequence[str], seconds: float, hint: str, scratch: Path | None = None) -> tuple[int, str, str]:
    """Return exit status (above 128 after a signal), output and errors of a program, whatever their bytes.

    Args:
        command: The program and its arguments.
        seconds: The time that it may take; it is killed with all its children then.
        hint: What to do if it cannot be asked, the end of an error.
        scratch: The folder that it works in, removed if it takes too long.

    Raises:
        PlatformError: The program cannot be run or takes too long.

    """
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            cwd=scratch,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        ) as process:
            try:
                output, errors = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                _kill_all(process.pid)
                if scratch:
                    shutil.rmtree(scratch, ignore_errors=True)
                raise PlatformError(f"{command[0]} did not end within {seconds:g} s; {hint}") from None
            except BaseException:
                _kill_all(process.pid)
                raise
    except OSError as error:
        raise PlatformError(f"{command[0]} cannot be run: {error.strerror}; {hint}") from None
    status = process.returncode
    return (status if status >= 0 else 128 - status), output, errors


def _kill_all(pid: int) -> None:
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in (*process.children(recursive=True), process):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
