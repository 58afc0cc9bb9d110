"""What the run file's header says of the GPUs: every rank's device and node, what joins them, and versions."""

from dataclasses import replace
from itertools import permutations
from typing import Any

from collbench.errors import PlatformError
from collbench.platforms.gpu import nccl
from collbench.platforms.gpu.cuda import Cuda
from collbench.platforms.gpu.peers import VERIFIED, Probed
from collbench.platforms.gpu.placement import Placement
from collbench.platforms.processes import Team
from collbench.topology.discover_gpu import discover
from collbench.topology.discovered import Gpu, Topology, join, named


def topology(team: Team, places: Placement, refusal: str, probed: Probed) -> dict[str, Any]:
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
        topology = discover(len(here), [place.bus_id for place in here], [place.uuid for place in here])
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
