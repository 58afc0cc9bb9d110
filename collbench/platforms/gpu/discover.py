"""What `collbench topo` shows of the GPUs here: as NVML knows them, and as CUDA does if CuPy is there to ask it."""

import os
from collections.abc import Sequence
from dataclasses import replace

from collbench.errors import CollbenchError, PlatformError
from collbench.platforms.gpu import peers, probe
from collbench.platforms.gpu.cuda import Cuda, load_cupy
from collbench.topology import discover_gpu
from collbench.topology.discovered import Gpu, Topology, named


def discover(ranks: int | None) -> tuple[Topology, str]:
    """In CUDA's order with peer access probed, or else as one of NVML and CUDA has them; and a remark for the user."""
    try:
        topology = listed = discover_gpu.discover(ranks)  # first: it is quick, and knows whether there is a GPU at all
    except PlatformError as error:
        return _named(ranks, str(error)), ""
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


def _named(ranks: int | None, reason: str) -> Topology:
    """Without NVML, for a reason: what a sweep knows of the GPUs; PlatformError if it could use none."""
    if probe.missing() or not probe.available():
        raise PlatformError(f"no GPU can be used: {reason}, or choose --on cpu")
    cuda = Cuda(load_cupy())
    gpus = [Gpu(cuda.name(device), *both) for device, both in enumerate(zip(*_visible(cuda), strict=True))]
    return replace(named(gpus[:ranks], reason), ranks=ranks or len(gpus))


def _visible(cuda: Cuda) -> tuple[list[str], list[str]]:
    """Bus ids and UUIDs of the GPUs, in CUDA's order and as CUDA_VISIBLE_DEVICES has it; PlatformError if none."""
    with cuda.failing_as(PlatformError, "the GPUs could not be listed"):
        devices = range(cuda.count())
        return [cuda.runtime.deviceGetPCIBusId(device) for device in devices], [cuda.uuid(device) for device in devices]


def _probed(cuda: Cuda, devices: Sequence[int]) -> peers.Probed:
    """For each ordered pair of devices, whether the first can use the second's memory, and why (not)."""
    with cuda.failing_as(PlatformError, "peer access could not be probed"):
        return peers.probe(cuda, devices)
