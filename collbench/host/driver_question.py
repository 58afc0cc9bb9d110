"""A question to NVIDIA's driver, by a program that may hang in it.

tools/cuda_extra.py takes this module before anything is installed: the standard library only, no syntax newer than 3.8.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

TIMEOUT = 240.0  # seconds for an answer: without persistence mode, every GPU is started first
MURMUR = 8.0  # seconds after which a user wants to know what takes so long


def ask(command: Sequence[str], timeout: float = TIMEOUT, murmur: float = MURMUR) -> str | None:
    """Return what a command prints, on either stream; None if it does not end in time.

    A process that hangs in the driver may not even be killed.  Hence a file and no pipe, which it would keep open.
    """
    with tempfile.TemporaryFile() as printed:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT)
        except OSError as error:
            return str(error)
        begun = time.monotonic()
        while process.poll() is None and time.monotonic() < begun + timeout:
            time.sleep(0.02)
            if time.monotonic() > begun + murmur:
                say(f"waiting for {command[0]}: the NVIDIA driver is still starting (persistence mode is off?)")
                murmur = float("inf")
        if process.poll() is None:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
            return None
        printed.seek(0)
        return printed.read().decode("utf-8", "replace")


def say(sentence: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"collbench: {sentence}\n")
    sys.stderr.flush()
