"""NVML, the NVIDIA driver's management library: opened, asked, and its numbers explained, here alone.

Needs nvidia-ml-py (module pynvml), which is imported here and nowhere else.  Every function takes the module
as `nvml`, so that tests can pass machines that nobody has at hand.  The numbers are those of NVIDIA's nvml.h.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from collbench.errors import PlatformError
from collbench.topology.architectures import ARCHITECTURES

NVLINK_GENERATIONS = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5, 8: 6}
"""NVLink generation for NVML_NVLINK_VERSION_*, an enumeration: an A100 answers 5 and means NVLink 3.1."""

GENERATIONS = {2: "Kepler", 3: "Maxwell", 13: "Rubin"} | {gpus.nvml: gpus.name for gpus in ARCHITECTURES.values()}
"""NVML_DEVICE_ARCH_*."""

PATHS = {
    0: "on one board",
    10: "through one PCIe switch",
    20: "through several PCIe switches",
    30: "through one CPU host bridge",
    40: "between host bridges of one NUMA node",
    50: "between NUMA nodes",
}
"""NVML_TOPOLOGY_*: nvidia-smi topo prints PIX, PXB, PHB, NODE and SYS for all but the first."""

REFUSALS = {
    1: "chipset not supported",
    2: "GPU not supported",
    3: "not across these host bridges",
    4: "switched off by a driver setting",
    5: "not supported",
}
"""NVMLP2P_STATUS_* other than OK (0) and unknown (6)."""

FABRIC_STATES = {1: "not started", 2: "in progress", 3: "completed"}
"""NVML_GPU_FABRIC_STATE_* of GPUs that are on a fabric."""

# Not NVMLP2P_CAPS_INDEX_*: in nvidia-ml-py a comma has turned the first of them into a tuple.
P2P_READ, P2P_WRITE, P2P_NVLINK = 0, 1, 2

_CONTAINER = "a container needs NVIDIA_DRIVER_CAPABILITIES=compute,utility"


@contextmanager
def session(nvml: Any) -> Iterator[Any]:
    """NVML, ready to be asked; the one place that turns its errors into collbench's."""
    nvml = nvml or _load()
    try:
        nvml.nvmlInit()
        try:
            yield nvml
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        fix = _CONTAINER if error.value == nvml.NVML_ERROR_LIBRARY_NOT_FOUND else "check `nvidia-smi`"
        raise PlatformError(f"NVML cannot be used ({error}): {fix}") from error


def _load() -> Any:
    try:
        import pynvml
    except ModuleNotFoundError as error:
        if error.name != "pynvml":
            raise
        raise PlatformError("NVML cannot be used (no module named pynvml): pip install nvidia-ml-py") from error
    return pynvml


def ask(nvml: Any, name: str, *arguments: Any) -> Any:
    """What NVML answers, or None if this driver, GPU or version of nvidia-ml-py cannot say."""
    function = getattr(nvml, name, None)
    if function is None:
        return None
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None
