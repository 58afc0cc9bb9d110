"""What can be known of the GPUs before any rank is started, without CuPy and without touching CUDA in this process.

The driver is asked by a short-lived child: whoever initialises CUDA can neither fork nor outlive a wedged device.
"""

import ctypes
import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from functools import cache

from collbench.errors import PlatformError
from collbench.platforms import Region
from collbench.units import format_size
from collbench.world import launched

_DRIVER = "libcuda.so.1"
_PATIENCE = 30.0  # seconds; a cold driver takes two or three

_QUESTION = """
import ctypes, sys
cuda, count, device, nbytes = ctypes.CDLL(sys.argv[1]), ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
if cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0:
    for index in range(count.value):
        cuda.cuDeviceGet(ctypes.byref(device), index)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(nbytes), device)
        print(nbytes.value)
"""


@cache
def memories() -> tuple[int, ...]:
    """Bytes of memory of each GPU that CUDA shows here; empty without a driver, a GPU or permission to use one."""
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        return ()
    try:
        answer = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _QUESTION, _DRIVER],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PlatformError(
            f"the CUDA driver did not answer within {_PATIENCE:.0f} s: check nvidia-smi, or use --on cpu"
        ) from None
    return tuple(int(line) for line in answer.stdout.split())


def available() -> bool:
    """Whether CUDA shows a GPU; a matter of milliseconds where no driver is installed."""
    return bool(memories())


def missing() -> str:
    """What to install before a GPU can be used."""
    return "" if importlib.util.find_spec("cupy") else "CuPy: pip install 'collbench[cuda12]' (or cuda13)"


def default_ranks() -> int:
    """A rank for each GPU; on a single one two that share it, since one alone has nobody to talk to."""
    return max(2, len(memories()))


def refuse_too_large(need: Mapping[Region, int], ranks: int) -> None:
    """PlatformError if the ranks of a GPU need more memory than it has, even if it were all free.

    Under an outside launcher nobody knows yet how many of its processes come to these GPUs: one at least.
    """
    if launched():
        ranks = min(ranks, len(memories()))
    for device, has in enumerate(memories()):
        wanted = len(range(device, ranks, len(memories()))) * sum(need.values())
        if wanted > has:
            raise too_large(device, wanted, f"has {format_size(has)}")


def too_large(device: int, wanted: int, obstacle: str) -> PlatformError:
    """The error for ranks that do not fit on a GPU."""
    return PlatformError(f"the ranks on GPU {device} need {format_size(wanted)} and it {obstacle}: lower -e or --ranks")
