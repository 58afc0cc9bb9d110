"""What `collbench topo` shows of the GPUs here: as NVML knows them, and as CUDA does if CuPy is there to ask it."""

import os
from collections.abc import Sequence

from collbench.errors import CollbenchError, PlatformError
from collbench.platforms.gpu import peers, probe
from collbench.platforms.gpu.cuda import Cuda, load_cupy
from collbench.topology import discover_gpu
from collbench.topology.topology import Topology


def discover(ranks: int | None) -> tuple[Topology, str]:
    """In CUDA's order with peer access probed, or else in NVML's order and why; and a remark for the user."""
    topology = listed = discover_gpu.discover(ranks)  # first: it is quick, and knows whether there is a GPU at all
    if needed := probe.missing():
        reason = f"needs {needed}"
    else:
        try:
            cuda = Cuda(load_cupy())
            topology = discover_gpu.discover(ranks, *_visible(cuda))
            return topology.probed(_probed(cuda, range(len(topology.gpus)))), ""
        except (CollbenchError, RuntimeError) as error:  # CuPy's errors are RuntimeErrors
            reason = str(error)
    masked = topology is listed and os.environ.get("CUDA_VISIBLE_DEVICES")
    remark = f"CUDA_VISIBLE_DEVICES is not applied ({reason})" if masked else ""
    return topology.probed({}, otherwise=reason), remark


def _visible(cuda: Cuda) -> tuple[list[str], list[str]]:
    """Bus ids and UUIDs of the GPUs, in CUDA's order and as CUDA_VISIBLE_DEVICES has it; PlatformError if none."""
    with cuda.failing_as(PlatformError, "the GPUs could not be listed"):
        devices = range(cuda.count())
        return [cuda.runtime.deviceGetPCIBusId(device) for device in devices], [cuda.uuid(device) for device in devices]


def _probed(cuda: Cuda, devices: Sequence[int]) -> peers.Probed:
    """For each ordered pair of devices, whether the first can use the second's memory, and why (not)."""
    with cuda.failing_as(PlatformError, "peer access could not be probed"):
        return peers.probe(cuda, devices)
