"""The visible GPUs: links, peer access, and the placement of ranks.

The facts come from NVML and from CUDA through CuPy, for `collbench topo` and the headers of run files.

Peer access is tested before it is used: some drivers offer it where it silently loses data (an active IOMMU, consumer
cards, virtual machines). The test writes and reads back a pattern in both directions, by a kernel's stores, a
kernel's loads and a copy. The processes of a node take its GPUs in turn, and so do the ranks of a process.
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, permutations
from pathlib import Path
from typing import Any

import numpy as np

from collbench.datatypes import DATATYPES, NONE, Array, recipe
from collbench.errors import CollbenchError, PlatformError
from collbench.platforms import checking, compiler
from collbench.platforms.gpu import probe
from collbench.platforms.gpu.cuda import Cuda, DeviceMemory, Stream, compile_kernel, load_cupy, why
from collbench.platforms.gpu.probe import too_large
from collbench.platforms.processes import Team, node_name
from collbench.results.facts import Sharing
from collbench.runfile.schema import TopologyPart
from collbench.topology import discover_gpu
from collbench.topology.discover_cpu import cpu_list, read_text
from collbench.topology.discovered import Gpu, Probed, Topology, join, named
from collbench.units import format_size

_COUNT = 2**16  # elements of the pattern
_WORD = DATATYPES["uint32"]
NBYTES = _COUNT * _WORD.itemsize  # of the pattern
VERIFIED = True, "stores, loads and a copy verified"
_ALREADY_ENABLED = 704  # cudaErrorPeerAccessAlreadyEnabled


@dataclass(frozen=True)
class GpuPlace:
    """The GPU under one rank."""

    node: tuple[str, str]  # name of the host, and which boot of which machine that is
    bus_id: str
    name: str
    multiprocessors: int
    cache: int  # bytes of the L2 cache
    uuid: str = ""  # as reported by CUDA; a MIG slice has its own, with the bus id of its GPU

    @property
    def gpu(self) -> tuple[tuple[str, str], str, str]:
        """The same for two ranks if they share it."""
        return *self.slot, self.uuid

    @property
    def slot(self) -> tuple[tuple[str, str], str]:
        """The identity that NCCL before 2.30 compares: the same for two ranks on slices of one GPU, too."""
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
        """Raise PlatformError if `nbytes` for each rank exceed the free memory of a device of this process."""
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

    def hidden(self, cuda: Cuda, rank: int) -> str:
        """Return how to make a rank's GPU, on this node, visible to this process; "" if it is."""
        bus_id, visible = self.places[rank].bus_id, [cuda.runtime.deviceGetPCIBusId(gpu) for gpu in range(cuda.count())]
        if bus_id in visible:
            return ""
        gpus = len({place.bus_id for place in self.places})
        return (
            f"its process does not see GPU {bus_id}: let each process see all GPUs of its node, under Slurm by "
            f"--gpus-per-node={gpus} --gpu-bind=none without --gpus-per-task or --gpu-bind=single"
        )

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


def discover(ranks: int | None) -> tuple[Topology, str]:
    """Return the GPUs in CUDA's order with probed peer access, or as NVML or CUDA alone tell; and a remark."""
    # NVML first: it is quick, and knows whether there is a GPU at all.
    try:
        topology = listed = discover_gpu.discover(ranks)
    except PlatformError as error:
        return _named(ranks, str(error)), ""
    if needed := probe.missing():
        reason = f"needs {needed}"
    else:
        try:
            cuda = Cuda(load_cupy())
            topology = discover_gpu.discover(ranks, *_visible(cuda))
            with cuda.failing_as(PlatformError, "peer access could not be probed"):
                probed = probe_peers(cuda, range(len(topology.gpus)))
            return topology.probed(probed), ""
        except (CollbenchError, RuntimeError) as error:  # CuPy's errors are RuntimeErrors
            reason = str(error)
    masked = topology is listed and os.environ.get("CUDA_VISIBLE_DEVICES")
    remark = f"CUDA_VISIBLE_DEVICES is not applied ({reason})" if masked else ""
    return topology.probed({}, otherwise=reason), remark


def _named(ranks: int | None, reason: str) -> Topology:
    """Return what a sweep knows of the GPUs without NVML, for a reason; PlatformError if it could use none."""
    if probe.missing() or not probe.available():
        raise PlatformError(f"no GPU can be used: {reason}, or choose cpu (--on cpu)")
    cuda = Cuda(load_cupy())
    gpus = []
    for device, (bus_id, uuid) in enumerate(zip(*_visible(cuda), strict=True)):
        gpus.append(Gpu(cuda.name(device), bus_id, uuid))
    return replace(named(gpus[:ranks], reason), ranks=ranks or len(gpus))


def _visible(cuda: Cuda) -> tuple[list[str], list[str]]:
    """Bus ids and UUIDs of the GPUs, in CUDA's order and as CUDA_VISIBLE_DEVICES has it; PlatformError if none."""
    with cuda.failing_as(PlatformError, "the GPUs could not be listed"):
        devices = range(cuda.count())
        return [cuda.runtime.deviceGetPCIBusId(device) for device in devices], [cuda.uuid(device) for device in devices]


def of_run(team: Team, places: Placement, refusal: str, probed: Probed) -> TopologyPart:
    """*Collective*: return the GPUs of all nodes, from NVML; where it is missing, as CUDA has them.

    `probed` is what this process found out of its own GPUs, `refusal` why other processes' memory is out of reach.
    """
    # NVML is asked on every node by its first process.
    node = places.places[places.local[0]].node
    first = [place.node for place in places.places].index(node)
    nodes = list(filter(None, team.exchange(_of_node(places, node) if places.local[0] == first else None)))
    order = [place.gpu for place in places.gpus]
    topology = join(nodes, [order.index(place.gpu) for place in places.places])
    if places.processes > 1 and not refusal:
        probed = dict.fromkeys(permutations(range(len(order)), 2), VERIFIED)
    return TopologyPart.of(topology.probed(probed, refusal), nodes=places.nodes)


def _of_node(places: Placement, node: tuple[str, str]) -> Topology:
    gpus = [place for place in places.gpus if place.node == node]
    try:
        topology = discover_gpu.discover(len(gpus), [gpu.bus_id for gpu in gpus], [gpu.uuid for gpu in gpus])
    except PlatformError as reason:
        topology = named([Gpu(gpu.name, gpu.bus_id, gpu.uuid) for gpu in gpus], str(reason))
    host = node[0] if places.processes > 1 else ""
    return replace(topology, gpus=tuple(replace(gpu, host=host) for gpu in topology.gpus))


def probe_peers(cuda: Cuda, devices: Sequence[int]) -> Probed:
    """Return for each ordered pair whether the first can use the second's memory, and why (not); access stays on."""
    pairs = list(permutations(devices, 2))
    if not pairs:
        return {}
    memory = DeviceMemory(cuda, devices, NBYTES + checking.VERDICT.itemsize)
    try:
        prober = _Prober(cuda, devices, memory.base)
        return {pair: prober.pair(*pair) for pair in pairs}
    finally:
        memory.free()


class Hand:
    """Writes patterns with kernels of one GPU wherever that GPU reaches, and looks for them there."""

    def __init__(self, cuda: Cuda, device: int, verdict_at: int, functions: tuple[Any, ...]) -> None:
        self._runtime = cuda.runtime
        self._own_stream = Stream(cuda, device)
        self._verdict = verdict_at  # in this GPU's memory
        self._fill, self._compare = functions

    def write(self, target: int, seed: int) -> None:
        """Store the pattern of that number."""
        self._run(self._fill, (np.uint64(target), np.uint64(_COUNT), _recipe(seed), np.uint32(0), np.uint64(0)))

    def holds(self, source: int, seed: int) -> bool:
        """Load it, and whether it is that of this number."""
        verdict, target = checking.CLEAN.copy(), self._verdict
        stream, to_device = self._own_stream.enter(), self._runtime.memcpyHostToDevice
        self._runtime.memcpyAsync(target, verdict.ctypes.data, verdict.nbytes, to_device, stream.ptr)
        expected = _recipe(seed), np.int32(0), np.uint64(0), np.uint32(0)  # of rank 0 from the start, and no tolerance
        self._run(self._compare, (np.uint64(source), np.uint64(_COUNT), *expected, np.uint64(target)))
        self._own_stream.fetch(target, verdict)
        return bool(verdict["seen"] == _COUNT and not verdict["wrong"])

    def copy(self, target: int, source: int) -> None:
        """Have the driver copy a pattern."""
        stream = self._own_stream.enter()
        self._runtime.memcpyAsync(target, source, NBYTES, self._runtime.memcpyDefault, stream.ptr)
        stream.synchronize()

    def _run(self, function: Any, arguments: tuple[Any, ...]) -> None:
        stream = self._own_stream.enter()
        function((_COUNT // 256,), (256,), arguments, stream=stream)
        stream.synchronize()


def pattern_kernels(cuda: Cuda, devices: Sequence[int]) -> list[tuple[Any, ...]]:
    """Return for each device the kernels of kernels/check.cu that write and compare a pattern."""
    fill = compile_kernel(cuda, devices, compiler.JUDGE, "fill", _WORD, NONE)
    compare = compile_kernel(cuda, devices, compiler.JUDGE, "compare", _WORD, NONE)
    return list(zip(fill.functions, compare.functions, strict=True))


def _recipe(seed: int) -> Array:
    return checking.packed(recipe(_WORD, NONE, 1, seed))


class _Prober:
    """A buffer with a verdict behind it on each device, and a hand there."""

    def __init__(self, cuda: Cuda, devices: Sequence[int], buffers: Sequence[int]) -> None:
        self._cuda = cuda
        self._buffer = dict(zip(devices, buffers, strict=True))
        self._hands = {
            device: Hand(cuda, device, self._buffer[device] + NBYTES, functions)
            for device, functions in zip(devices, pattern_kernels(cuda, devices), strict=True)
        }
        self._seed = 0

    def pair(self, first: int, second: int) -> tuple[bool, str]:
        """Return whether `first` can use the memory of `second`, and why (not)."""
        runtime = self._cuda.runtime
        if not runtime.deviceCanAccessPeer(first, second):
            return False, "the driver offers no peer access"
        try:
            runtime.setDevice(first)
            try:
                runtime.deviceEnablePeerAccess(second)
            except runtime.CUDARuntimeError as error:
                if error.status != _ALREADY_ENABLED:
                    raise
            here, there = self._buffer[first], self._buffer[second]

            # Drivers offer peer access where it silently loses data, so each way to use it is tried.
            for what, writer, target, reader in (
                ("a kernel's stores", first, there, second),
                ("a kernel's loads", second, there, first),
                ("a copy", first, here, second),
            ):
                self._seed += 1
                self._hands[writer].write(target, self._seed)
                if what == "a copy":
                    self._hands[first].copy(there, here)
                if not self._hands[reader].holds(there, self._seed):
                    return False, f"{what} gave wrong data"
        except self._cuda.errors as error:
            return False, why(error)
        return VERIFIED
