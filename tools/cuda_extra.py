"""The choice between the extras cuda12 and cuda13 for this machine, by `nvidia-smi`; the Makefile runs it.

It runs as a script before there is a virtual environment, with any Python: it uses the standard library only, and no
syntax newer than 3.8.  It prints the extra, or nothing without a usable GPU.  If a driver is present and the answer is
not the plain one, stderr has one line with the reason.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

TIMEOUT = 240.0  # seconds for an answer: without persistence mode, every GPU is started first
MURMUR = 8.0  # seconds after which a line explains the wait
QUERY = ("--query-gpu=compute_cap", "--format=csv,noheader")
TRACES = ("/dev/nvidiactl", "/proc/driver/nvidia/version", "/usr/lib/wsl/lib/libcuda.so.1")
"""Paths that exist only with NVIDIA's driver, or in a container or WSL with access to it."""

OLDEST = 12  # the oldest major version of CUDA with an extra in pyproject.toml
LEAST_CAPABILITY = (7, 5)  # the smallest for which CUDA 13 compiles
VOLTA_UNTIL = (13, 0)  # CUDA of driver 580, the last branch that runs older GPUs; 590 brought CUDA 13.1

_VERSION = re.compile(r"CUDA (?:UMD )?Version\s*:\s*(\d+)\.(\d+)")  # UMD, the user-mode driver, since release 610
_NO_VERSION = re.compile(r"CUDA (?:UMD )?Version\s*:\s*[^\d\s]\S*")
_CAPABILITY = re.compile(r"(\d+)\.(\d+)")
_NO_GPU = "No devices were found"
_BORDER = re.compile(r"[|+=\-\s]*")
_FIX = "going on with the CPU only; where the GPUs work, name the extra: make EXTRA=cuda12 (or cuda13)"


def ask(command: Sequence[str], timeout: float = TIMEOUT, murmur: float = MURMUR) -> str | None:
    """Return the output of a command, of both streams; None if it does not end in time.

    A process that hangs in the driver may survive SIGKILL.  The output goes to a file, because such a process would
    keep a pipe open.
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
    sys.stderr.write(f"collbench: {sentence}\n")
    sys.stderr.flush()


class Choice(NamedTuple):
    """An extra of pyproject.toml, or "" for none, and the reason unless the choice is plain."""

    extra: str
    why: str = ""


def choose(shown: str, capabilities: str = "") -> Choice:
    """Return the extra for any two outputs of `nvidia-smi`: without options, and with QUERY.

    A newer driver runs an older CUDA, so with a driver for CUDA 13 the GPUs decide.
    """
    match = _VERSION.search(shown)
    if not match or _NO_GPU in shown + capabilities:
        return Choice("", f"{_complaint(shown, capabilities)}; {_FIX}")
    version = int(match[1]), int(match[2])
    if version[0] < OLDEST:
        why = f"the NVIDIA driver's CUDA is {match[1]}.{match[2]}, and CuPy needs 12 or newer: update the driver"
        return Choice("", f"{why}; going on with the CPU only")
    return Choice("cuda12") if version[0] == OLDEST else _thirteen(version, capabilities)


def _thirteen(version: tuple[int, int], capabilities: str) -> Choice:
    """Return the choice for a driver of CUDA 13 or newer."""
    lines = [line.strip() for line in capabilities.splitlines() if line.strip()]
    known = [(int(line[1]), int(line[2])) for line in map(_CAPABILITY.fullmatch, lines) if line]
    if known and min(known) < LEAST_CAPABILITY:
        major, minor = min(known)
        return Choice("cuda12", f"choosing cuda12: a GPU has compute capability {major}.{minor}, too old for CUDA 13")
    if len(known) == len(lines) > 0 or version > VOLTA_UNTIL:
        return Choice("cuda13")
    return Choice("cuda12", "choosing cuda12: nvidia-smi does not say whether a GPU is too old for CUDA 13")


def _complaint(shown: str, capabilities: str) -> str:
    """Return the reason for no GPU or no version, in the words of nvidia-smi if it has any."""
    if _NO_GPU in shown + capabilities:
        return f"nvidia-smi says '{_NO_GPU}'"
    if match := _NO_VERSION.search(shown):
        return (
            f"nvidia-smi says '{match[0]}': libcuda.so.1 is missing "
            "(a container needs NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
        )
    if "Driver Version" in shown:
        return "the NVIDIA driver does not say its CUDA, as drivers before 410 did not: update it"
    words = [line.strip() for line in shown.splitlines() if not _BORDER.fullmatch(line)]
    return f"nvidia-smi says '{words[0][:200]}'" if words else "nvidia-smi says nothing"


def here(traces: Sequence[str] = TRACES, timeout: float = TIMEOUT, murmur: float = MURMUR) -> Choice:
    program = shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path="/usr/lib/wsl/lib")
    if not program:
        driver = next(filter(os.path.exists, traces), "")
        return Choice("", f"there is an NVIDIA driver ({driver}) but no nvidia-smi to ask; {_FIX}" if driver else "")
    shown = ask([program], timeout, murmur)
    if shown is None:
        return Choice("", f"{program} did not answer within {timeout:g} s, so the driver hangs; {_FIX}")
    knows = _VERSION.search(shown)
    return choose(shown, ask([program, *QUERY], timeout, murmur) or "" if knows else "")


def main() -> None:
    """Print the extra for the Makefile, and the reason on stderr."""
    choice = here()
    if choice.why:
        say(choice.why)
    sys.stdout.write(choice.extra)


if __name__ == "__main__":
    main()
