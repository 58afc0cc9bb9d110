"""Facts about GPUs before ranks start, without CuPy.

A short-lived child process queries the driver: a process that initialises CUDA can neither fork nor survive a wedged
device.
"""

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from collbench.errors import PlatformError
from collbench.host.launcher import launched
from collbench.units import format_size

STARTUP = 360.0  # seconds for ranks to get ready: their process starts the driver anew, and then compiles

_DRIVER = "libcuda.so.1"
_DEVICES = Path("/dev")  # nvidiactl is there wherever the kernel has NVIDIA's driver
_TIMEOUT = 300.0  # seconds; a cold driver takes two or three for each GPU, without persistence mode tens

_QUESTION = """
import ctypes, json, sys
cuda, count, device, nbytes = ctypes.CDLL(sys.argv[1]), ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
def call(name, *arguments):
    if status := getattr(cuda, name)(*arguments):
        text = ctypes.c_char_p()
        if hasattr(cuda, "cuGetErrorString"):
            cuda.cuGetErrorString(status, ctypes.byref(text))
        words = f"{name} fails with error {status}" + (f" ({text.value.decode()})" if text.value else "")
        print("\\n" + json.dumps({"refusal": words}))
        sys.exit()
memories = []
call("cuInit", 0)
call("cuDeviceGetCount", ctypes.byref(count))
for index in range(count.value):
    call("cuDeviceGet", ctypes.byref(device), index)
    call("cuDeviceTotalMem_v2", ctypes.byref(nbytes), device)
    memories.append(nbytes.value)
print("\\n" + json.dumps({"memories": memories}))
"""
_TRIAL = """
import json, sys
sys.path.insert(0, sys.argv[1])
refusal = ""
try:
    from collbench.platforms.gpu.cuda import Cuda, load_cupy
    Cuda(load_cupy()).count()
except Exception as error:
    refusal = str(error) or type(error).__name__
print("\\n" + json.dumps({"refusal": refusal}))
"""


@dataclass(frozen=True)
class Answer:
    """What a child found out."""

    memories: tuple[int, ...] = ()  # bytes of each GPU that CUDA shows
    refusal: str = ""  # why CUDA or CuPy cannot be used
    hung: bool = False


def memories() -> tuple[int, ...]:
    """Return the bytes of each GPU that CUDA shows; none without a usable one, PlatformError without an answer."""
    answer = _driver(_DRIVER, _TIMEOUT)
    if answer.hung:
        raise PlatformError(f"{answer.refusal}: check nvidia-smi, or use --on cpu")
    return answer.memories


def available() -> bool:
    """Whether CUDA shows a GPU; a matter of milliseconds where no driver is installed."""
    return bool(memories())


def installed() -> bool:
    """Whether this machine has an NVIDIA driver at all, in the kernel or as a library."""
    return (_DEVICES / "nvidiactl").exists() or not _unloadable(_DRIVER)


def refusal() -> str:
    """Why CUDA shows no GPU although an NVIDIA driver is installed; nothing where it does, or where none is."""
    if not installed():
        return ""
    if reason := _unloadable(_DRIVER):
        fix = "a container needs NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        return f"{_DEVICES}/nvidiactl is there, but {reason}; {fix}"
    answer = _driver(_DRIVER, _TIMEOUT)
    if answer.memories:
        return ""
    reason = answer.refusal or "the CUDA driver shows no GPU"

    # Devices that this user may not open, and GPUs that the user has hidden, are likely causes.
    nodes = filter(Path.is_char_device, sorted(_DEVICES.glob("nvidia*")))
    denied = [str(node) for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
    hints = [f"no permission to use {', '.join(denied)}"] if denied else []
    if (masked := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        hints.append(f"CUDA_VISIBLE_DEVICES is '{masked}'")
    return "; ".join([reason, *hints, "check nvidia-smi"])


def missing() -> str:
    """Return what to install before a GPU can be used."""
    return "" if importlib.util.find_spec("cupy") else "CuPy: pip install 'collbench[cuda12]' (or cuda13)"


@cache
def broken() -> str:
    """Why the CuPy that is installed cannot use the GPUs; nothing if it can.  A child imports it, in a second or so."""
    return _child(_TIMEOUT, "-P", "-c", _TRIAL, str(Path(__file__).parents[3])).refusal


def obstacle() -> str:
    """Why the GPUs cannot be used although a driver is installed, in one line; nothing if they can be."""
    if (reason := refusal()) or not available():
        return reason
    return f"install {what}" if (what := missing()) else broken()


@cache
def _driver(library: str, timeout: float) -> Answer:
    if _unloadable(library):
        return Answer()
    return _child(timeout, "-I", "-S", "-c", _QUESTION, library)


def _unloadable(library: str) -> str:
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return str(error)
    return ""


def _child(timeout: float, *arguments: str) -> Answer:
    """Return what a child says in a line of JSON, whatever else it prints; any other end of it is a refusal."""
    # A process that hangs in the driver may not even be killed.  Hence a file and no pipe, which it would keep open.
    with tempfile.TemporaryFile() as printed:
        command = [sys.executable, *arguments]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(1)
            return Answer(refusal=f"the CUDA driver did not answer within {timeout:g} s", hung=True)
        printed.seek(0)
        lines = [line for line in printed.read().decode("utf-8", "replace").splitlines() if line.strip()]

    # The answer is the last line of JSON: libraries may print what they like before and after it.
    for line in reversed(lines):
        with suppress(ValueError, AttributeError):
            answer = json.loads(line)
            refusal = " ".join(answer.get("refusal", "").split())
            return Answer(tuple(answer.get("memories", ())), refusal)
    last = f": {lines[-1].strip()[:200]}" if lines else ""
    return Answer(refusal=f"the process that asked the CUDA driver ended without an answer{last}")


def default_ranks() -> int:
    """Return a rank for each GPU; on a single GPU two that share it, since one rank has no peer."""
    return max(2, len(memories()))


def refuse_too_large(nbytes: int, ranks: int) -> None:
    """PlatformError if the ranks of a GPU need more memory than it has, even if it were all free."""
    # Under an outside launcher nobody knows yet how many of its processes come to these GPUs: one at least.
    gpus = len(memories())
    ranks = min(ranks, gpus) if launched() else ranks
    for device, has in enumerate(memories()):
        if (needed := len(range(device, ranks, gpus)) * nbytes) > has:
            raise too_large(device, needed, f"has {format_size(has)}")


def too_large(device: int, needed: int, obstacle: str) -> PlatformError:
    """The error for ranks that do not fit on a GPU."""
    return PlatformError(f"the ranks on GPU {device} need {format_size(needed)} and it {obstacle}: lower -e or --ranks")
