"""A discovered machine as a System, so that the model can predict for it without a file."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, groupby

from collbench.errors import UsageError
from collbench.topology.discovered import Gpu, Kind, Link, Topology
from collbench.topology.products import ADDING, ARCHITECTURES, pcie_rate, pcie_spec
from collbench.topology.system import CUBE, CUBE_RINGS, System

UNDER_SWITCHES = ("through one PCIe switch", "through several PCIe switches")
FILE = "write a system's file, or choose a preset (`collbench list`)"
_WHOLE = "measure on whole GPUs (`nvidia-smi -mig 0`)"


def as_system(topology: Topology) -> System:
    """Return the machine's GPUs as a System; what the driver did not say and was assumed is in `guesses`.

    NUMA nodes stand for sockets.

    Raises:
        UsageError: Nothing can be assumed: of CPUs, ranks that share a GPU, MIG slices, GPUs that differ, unknown GPUs,
            GPUs without NVML, and several nodes, whose network cards are not discovered.

    """
    gpus = topology.gpus
    if not gpus:
        raise UsageError(f"the {topology.platform} platform has no GPUs to make a system of; fit its own measurements")
    if topology.shared:
        raise UsageError(f"{topology.name}: no system has several ranks on one GPU; give at most {len(gpus)} ranks")
    if topology.sliced:
        raise UsageError(f"{topology.name}: no system has MIG slices, which share a GPU's memory and slot; {_WHOLE}")
    if len({gpu.host for gpu in gpus}) > 1:
        raise UsageError(f"{topology.name}: the network between the nodes is not discovered; {FILE}")
    if len(gpus) > 1 and not topology.links:
        raise UsageError(f"{topology.name}: {topology.unseen or 'what joins the GPUs is not known'}; {FILE}")
    if len({gpu.name for gpu in gpus}) > 1:
        raise UsageError(f"{topology.name}: the GPUs differ, and a system's are all alike; {FILE}")
    return _Machine(topology).system()


class _Machine:
    """A node; `_guesses` grows while its facts are gathered."""

    def __init__(self, topology: Topology) -> None:
        self._gpus, self._links = topology.gpus, topology.links
        self._name = topology.name
        self._guesses: list[str] = []
        self._arch = self._architecture(topology.gpus[0])

    def system(self) -> System:
        fabric, links = self._fabric()
        generation, lanes = self._slot()
        gpu = ARCHITECTURES[self._arch]
        cpu = self._cpu()
        system = System(
            name=self._name,
            arch=self._arch,
            gpu=self._gpus[0].name,
            gpus=len(self._gpus),
            fabric=fabric,
            nvlinks=links,
            gpu_rate=gpu.nvlink * links or pcie_rate(generation, lanes),
            spec_rate=self._spec(links) or gpu.spec * links or pcie_spec(generation, lanes),
            p2p=self._p2p(fabric),
            multicast=fabric == "nvswitch" and self._arch in ADDING,
            cpu=cpu,
            pcie_generation=generation,
            pcie_lanes=lanes,
            switches=_switches(len(self._gpus), self._links),
            per_socket=self._per_socket(),
        )
        return replace(system, guesses=tuple(self._guesses))

    def _architecture(self, gpu: Gpu) -> str:
        if gpu.capability:
            arch = f"sm{gpu.capability.replace('.', '')}"
            if arch not in ARCHITECTURES:
                raise UsageError(f"{gpu.name} is {arch}, which no system may be; choices: {', '.join(ARCHITECTURES)}")
            return arch
        for arch, known in ARCHITECTURES.items():
            if known.products and re.search(known.products, gpu.name):
                self._guesses.append(f"{arch}, from the name {gpu.name}")
                return arch
        raise UsageError(f"the architecture of {gpu.name} is unknown, and its driver does not say it; {FILE}")

    def _fabric(self) -> tuple[str, int]:
        """Return what joins the GPUs, and how many NVLinks of each take part."""
        every = list(combinations(range(len(self._gpus)), 2))
        counts = {(link.a, link.b): link.nvlink.count if link.nvlink else None for link in self._links}
        kinds = {(link.a, link.b): link.kind for link in self._links}
        joined = [pair for pair in every if kinds.get(pair) == Kind.NVLINK]
        fewest = min((gpu.nvlink.count or 0 if gpu.nvlink else 0) for gpu in self._gpus)
        switched = all(kinds.get(pair) == Kind.NVSWITCH for pair in every)
        if not ARCHITECTURES[self._arch].nvlinks:
            return "pcie", 0
        if fewest and switched and (every or self._gpus[0].switch_links):
            return "nvswitch", fewest
        if not joined:
            return "pcie", 0
        if any(not counts[pair] for pair in joined):
            return self._hidden(joined == every, fewest)
        return self._direct({pair: counts[pair] or 0 for pair in joined}, every)

    def _hidden(self, everywhere: bool, fewest: int) -> tuple[str, int]:
        """NVLinks whose ends a virtual machine does not show."""
        links = fewest or ARCHITECTURES[self._arch].nvlinks
        if not everywhere:
            self._guesses.append("PCIe alone, since only some GPUs are joined by NVLinks, and how is hidden")
            return "pcie", 0
        size = len(self._gpus)
        fabric = "nvswitch"
        if size == 2:
            fabric = "nvlink-pairs"
        elif size <= 4 and links % (size - 1) == 0:
            fabric = "mesh"
        self._guesses.append(f"{fabric} with {links} NVLinks for each GPU, since where they lead is hidden")
        return fabric, links

    def _direct(self, counts: dict[tuple[int, int], int], every: Sequence[tuple[int, int]]) -> tuple[str, int]:
        """NVLinks from GPU to GPU."""
        size = len(self._gpus)
        if counts == _cube(size):
            return ("hybrid-cube", CUBE_RINGS[size]) if CUBE_RINGS[size] else ("pcie", 0)
        least = min(counts.values())
        if size % 2 == 0 and all(a ^ 1 == b for a, b in counts) and len(counts) == size // 2:
            return "nvlink-pairs", least
        if set(counts) == set(every):
            return "mesh", least * (size - 1)
        self._guesses.append("PCIe alone, since NVLinks join some GPUs only, in no known pattern")
        return "pcie", 0

    def _spec(self, links: int) -> float:
        """Return the rate that the driver states for so many of a GPU's NVLinks; 0 if none."""
        known = [gpu.nvlink for gpu in self._gpus if gpu.nvlink]
        rate = known[0].rate if known else None
        return rate / (known[0].count or 1) * links if rate else 0.0

    def _slot(self) -> tuple[int, int]:
        """The generation and lanes of the narrowest slot."""
        known = [gpu.pcie for gpu in self._gpus if gpu.pcie and gpu.pcie.rate]
        if not known:
            generation = ARCHITECTURES[self._arch].pcie
            self._guesses.append(f"PCIe {generation} x16, as {self._arch} has")
            return generation, 16
        slot = min(known, key=lambda pcie: pcie.rate or 0.0)
        return slot.max_generation or slot.generation or 0, slot.width or slot.max_width or 16

    def _p2p(self, fabric: str) -> bool:
        answers = {link.p2p for link in self._links}
        if "no" in answers:
            return False
        if fabric == "pcie" and "unprobed" in answers:
            able = "GeForce" not in self._gpus[0].name
            self._guesses.append(f"peer access {'works' if able else 'is refused'}, since nobody has tried it")
            return able
        return True

    def _cpu(self) -> str:
        if re.search(r"G[HB]\d00", self._gpus[0].name):
            return "arm"
        self._guesses.append("CPUs by Intel")
        return "intel"

    def _per_socket(self) -> int:
        """GPUs at each NUMA node, if they come evenly and in order."""
        nodes = [(node, len(list(gpus))) for node, gpus in groupby(gpu.numa for gpu in self._gpus)]
        apart = len({node for node, _ in nodes}) < len(nodes) or None in dict(nodes)
        return 0 if apart or len({count for _, count in nodes}) > 1 else nodes[0][1]


def _cube(size: int) -> dict[tuple[int, int], int]:
    """NVLinks between the first GPUs of a DGX-1 with V100."""
    return {(a, b): count for a in range(size) for b, count in CUBE[a].items() if a < b < size} if size <= 8 else {}


def _switches(gpus: int, links: Sequence[Link]) -> tuple[tuple[int, ...], ...]:
    """GPUs by the PCIe switches that they share; none if no two share one."""
    shared = [(link.a, link.b) for link in links if link.path in UNDER_SWITCHES]
    firsts = [min((a for a, b in shared if b == gpu), default=gpu) for gpu in range(gpus)]
    groups = (tuple(gpu for gpu in range(gpus) if firsts[gpu] == first) for first in dict.fromkeys(firsts))
    return tuple(groups) if shared else ()
