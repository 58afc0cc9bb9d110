"""Which ranks this process holds, on which GPU each rank of the run lives, and what follows where ranks share one.

Rank by rank, the processes of a node are dealt its GPUs in turn, and so are the ranks of a process that holds several.
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from collbench.platforms.gpu.cuda import Cuda
from collbench.platforms.gpu.probe import too_large
from collbench.platforms.processes import Team, node_name
from collbench.results.facts import Sharing
from collbench.topology.discover_cpu import cpu_list, read_text
from collbench.units import format_size


@dataclass(frozen=True)
class GpuPlace:
    """The GPU under one rank."""

    node: tuple[str, str]  # name of the host, and which boot of which machine that is
    bus_id: str
    name: str
    multiprocessors: int
    cache: int  # bytes of the L2 cache
    uuid: str = ""  # as far as CUDA says it; a MIG slice has its own, and the bus id of the GPU that it is a slice of

    @property
    def gpu(self) -> tuple[tuple[str, str], str, str]:
        """The same for two ranks if they share it."""
        return *self.slot, self.uuid

    @property
    def slot(self) -> tuple[tuple[str, str], str]:
        """What NCCL before 2.30 compares: the same for two ranks on slices of one GPU, too."""
        return self.node, self.bus_id


@dataclass(frozen=True)
class Placement:
    """Every rank's place, the same on every process, and the ranks that this process holds."""

    local: Sequence[int]
    device: dict[int, int]  # of each local rank, as CUDA counts them in this process
    places: tuple[GpuPlace, ...]
    processes: int

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices that this process uses, each once."""
        return tuple(dict.fromkeys(self.device.values()))

    def on(self, device: int) -> list[int]:
        """The local ranks of a device."""
        return [rank for rank in self.local if self.device[rank] == device]

    def sharing(self, device: int) -> int:
        """How many ranks of all processes live on a device of this one."""
        return Counter(place.gpu for place in self.places)[self.places[self.on(device)[0]].gpu]

    def refuse_too_large(self, cuda: Cuda, nbytes: int) -> None:
        """PlatformError if so many bytes for each rank are more than a device of this process has free."""
        for device in self.devices:
            cuda.runtime.setDevice(device)
            free, total = cuda.runtime.memGetInfo()
            if (needed := self.sharing(device) * nbytes) > free:
                raise too_large(device, needed, f"has {format_size(free)} of {format_size(total)} free")

    @property
    def most_sharing(self) -> int:
        """How many ranks live on the most crowded GPU."""
        return max(Counter(place.gpu for place in self.places).values())

    @property
    def sliced(self) -> bool:
        """Whether ranks live on MIG slices of one GPU."""
        return len({place.slot for place in self.places}) < len(self.gpus)

    @property
    def multiprocessors(self) -> int:
        """Of the smallest GPU: what every rank can count on, and so the same for all."""
        return min(place.multiprocessors for place in self.places)

    @property
    def one_device(self) -> bool:
        """Whether all ranks live on one GPU in one process, so that one program's threads wait for each other.

        PTX's scope of a GPU is for threads of one program; that it serves processes which share a GPU, nothing says.
        """
        return self.processes == 1 and len(self.devices) == 1

    @property
    def gpus(self) -> tuple[GpuPlace, ...]:
        """Every GPU once, node by node, as the place of the first rank on it."""
        nodes = list(dict.fromkeys(place.node for place in self.places))
        first: dict[object, GpuPlace] = {}
        for place in sorted(self.places, key=lambda place: nodes.index(place.node)):
            first.setdefault(place.gpu, place)
        return tuple(first.values())

    @property
    def nodes(self) -> int:
        """How many there are."""
        return len({place.node for place in self.places})

    @property
    def shared(self) -> Sharing | None:
        """Whether ranks share GPUs: processes do so in turns."""
        gpus = len(self.gpus)
        return None if gpus == len(self.places) else Sharing(len(self.places), gpus, processes=self.processes > 1)


def place_ranks(cuda: Cuda, team: Team, ranks: int) -> Placement:
    """*Collective*: deal the GPUs."""
    local, node = team.local(ranks), node_name()
    nodes = team.exchange(node)

    # The processes of a node are dealt its GPUs in turn, by their ranks.
    first = nodes[: team.rank].count(node)
    count = cuda.count()
    device = {rank: (first + index) % count for index, rank in enumerate(local)}
    mine = []
    for gpu in device.values():
        bus_id, name = cuda.runtime.deviceGetPCIBusId(gpu), cuda.name(gpu)
        mine.append(GpuPlace(node, bus_id, name, cuda.multiprocessors(gpu), cuda.cache(gpu), cuda.uuid(gpu)))
    places = tuple(chain.from_iterable(team.exchange(mine)))
    return Placement(local, device, places, team.size)


def bind_near(team: Team, places: Placement, root: Path = Path("/")) -> None:
    """*Collective*: keep this process on the cores next to its GPU, where no launcher bound those of its node."""
    cores, gpu = os.sched_getaffinity(0), places.places[places.local[0]]
    everyone = zip(places.places, team.exchange(cores), strict=True)
    alike = all(others == cores for place, others in everyone if place.node == gpu.node)

    # Linux says of each PCI device which cores are near (Documentation/PCI/sysfs-pci.rst): all, with one NUMA node.
    near = cores & {*cpu_list(read_text(root / f"sys/bus/pci/devices/{gpu.bus_id.lower()}/local_cpulist"))}
    if alike and near:
        os.sched_setaffinity(0, near)
