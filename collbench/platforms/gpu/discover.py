"""What `collbench topo` shows of the GPUs here: as NVML knows them, and as CUDA does if CuPy is there to ask it.

What the run file's header says of the GPUs: every rank's device and node, what joins them, and versions.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

from collbench.errors import CollbenchError, PlatformError
from collbench.platforms.gpu import nccl, peers, probe
from collbench.platforms.gpu.cuda import Cuda, load_cupy
from collbench.platforms.gpu.peers import VERIFIED, Probed
from collbench.platforms.gpu.placement import Placement
from collbench.platforms.processes import Team
from collbench.topology import discover_gpu
from collbench.topology.discovered import Gpu, Topology, join, named


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
    """Return what a sweep knows of the GPUs without NVML, for a reason; PlatformError if it could use none."""
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
    """Return for each ordered pair of devices whether the first can use the second's memory, and why (not)."""
    with cuda.failing_as(PlatformError, "peer access could not be probed"):
        return peers.probe(cuda, devices)


def of_run(team: Team, places: Placement, refusal: str, probed: Probed) -> dict[str, Any]:
    """*Collective*: from NVML, asked on every node by its first process; where it is missing, as CUDA has them.

    `probed` is what this process found out of its own GPUs, `refusal` why other processes' memory is out of reach.
    """
    mine = places.places[places.local[0]].node
    leads = places.local[0] == next(rank for rank, place in enumerate(places.places) if place.node == mine)
    nodes = list(filter(None, team.exchange(_of_node(places, mine) if leads else None)))
    order = [place.gpu for place in places.gpus]
    topology = join(nodes, [order.index(place.gpu) for place in places.places])
    if places.processes > 1 and not refusal:
        probed = dict.fromkeys(permutations(range(len(order)), 2), VERIFIED)
    return topology.probed(probed, refusal).to_json() | {"nodes": places.nodes}


def _of_node(places: Placement, node: tuple[str, str]) -> Topology:
    here = [place for place in places.gpus if place.node == node]
    try:
        topology = discover_gpu.discover(len(here), [place.bus_id for place in here], [place.uuid for place in here])
    except PlatformError as reason:
        topology = named([Gpu(place.name, place.bus_id, place.uuid) for place in here], str(reason))
    host = node[0] if places.processes > 1 else ""
    return replace(topology, gpus=tuple(replace(gpu, host=host) for gpu in topology.gpus))


def versions(cuda: Cuda, places: Placement) -> dict[str, str]:
    """CuPy and what it found; `cuda` is the runtime CuPy was built with, `driver` the newest CUDA it can run."""
    versions = {"cupy": cuda.cupy.__version__, "gpu": ", ".join(dict.fromkeys(place.name for place in places.gpus))}
    for name, number in (("cuda", cuda.runtime.runtimeGetVersion()), ("driver", cuda.runtime.driverGetVersion())):
        versions[name] = f"{number // 1000}.{number % 1000 // 10}"
    versions["nvrtc"] = ".".join(map(str, cuda.compiler_version()))
    return versions | ({"nccl": nccl.in_words(cuda.nccl.get_version())} if cuda.nccl.available else {})
