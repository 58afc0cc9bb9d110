"""System: a described cluster, with its GPUs, their fabric, network cards and switches.

Read from small TOML files (files.py, presets/*.toml).  Bytes, seconds, bytes per second of one direction, always.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

from collbench.errors import UsageError
from collbench.topology.products import (
    ARCHITECTURES,
    SOCKET_LINKS,
    Product,
    pcie_rate,
    pcie_spec,
    product_named,
    usual_product,
)

Fabric = Literal["nvswitch", "mesh", "hybrid-cube", "nvlink-pairs", "pcie"]
"""How a node's GPUs are joined: by switches; each to each by NVLink; V100's cube; bridges between pairs; PCIe alone."""
Transport = Literal["ib", "roce", "slingshot", "efa", "tcpx", "tcp"]
Routing = Literal["adaptive", "ecmp"]
Launch = Literal["process-per-gpu", "single-process", "torch"]
Cpu = Literal["intel", "amd", "arm", "power"]
Algorithm = Literal["auto", "ring", "tree", "collnet", "nvls", "nvlstree", "pat"]
Protocol = Literal["auto", "ll", "ll128", "simple"]
FABRICS: tuple[str, ...] = get_args(Fabric)
ALGORITHMS: tuple[str, ...] = get_args(Algorithm)
PROTOCOLS: tuple[str, ...] = get_args(Protocol)
BOARD = 16
"""GPUs behind the NVSwitches of one board or two."""
MOST_NODES = 1_000_000

CUBE = (
    {1: 1, 2: 1, 3: 2, 4: 2},
    {0: 1, 2: 2, 3: 1, 5: 2},
    {0: 1, 1: 2, 3: 2, 6: 1},
    {0: 2, 1: 1, 2: 2, 7: 1},
    {0: 2, 5: 1, 6: 1, 7: 2},
    {1: 2, 4: 1, 6: 2, 7: 1},
    {2: 1, 4: 1, 5: 2, 7: 2},
    {3: 1, 4: 2, 5: 1, 6: 2},
)
"""NVLinks from each GPU of a DGX-1 with V100 to each other GPU, as `nvidia-smi topo -m` shows them there."""
CUBE_RINGS = {1: 0, 2: 1, 3: 2, 4: 4, 5: 0, 6: 2, 7: 4, 8: 6}
"""How many rings of NVLinks, all at full rate, go through the first GPUs of the cube; every GPU sends on each."""


@dataclass(frozen=True)
class Nics:
    """Network cards of a node."""

    per_node: int
    rate: float  # of each
    transport: str  # a Transport
    gdr: bool = True  # whether cards read and write the GPUs' memory (GPUDirect RDMA); else all goes through the host's


@dataclass(frozen=True)
class Tier:
    """A layer of switches above the nodes; the topmost joins whatever is below it."""

    name: str
    radix: int = 0  # nodes (or switches of the tier below) under one of its switches, on each rail; 0: all there are
    oversubscription: float = 1.0  # what comes from below over what goes up
    routing: str = "adaptive"  # a Routing
    paths: int = 1  # equal paths between two switches below
    flows: int = 1  # that a transfer is split into, so that they may take different paths (queue pairs)


@dataclass(frozen=True)
class System:
    """GPUs of `nodes` equal nodes."""

    platform: ClassVar[str] = "gpu"  # what its ranks would run on

    name: str
    arch: str  # "sm70", "sm80", "sm86", "sm89", "sm90", "sm100", "sm120": a key of ARCHITECTURES
    gpus: int  # of a node
    fabric: str  # a Fabric
    gpu_rate: float  # out of a GPU into the node's fabric: all its NVLinks, or its PCIe slot; as NCCL counts it
    p2p: bool = True  # whether GPUs may use each other's memory (over PCIe: not on many consumer cards)
    multicast: bool = False  # whether its switches add (NVLS)
    cpu: str = "intel"  # a Cpu
    nics: Nics | None = None
    tiers: tuple[Tier, ...] = ()
    nodes: int = 1
    launch: str = "process-per-gpu"  # a Launch: what starts the collectives
    nccl: str = "2.29"
    calibration: str = ""  # a file whose [calibration] has factors, as `collbench fit` writes; from the working folder
    gpu: str = ""  # the product's name
    nvlinks: int = 0  # of a GPU, all together
    spec_rate: float = 0.0  # what the data sheet promises of `gpu_rate`; 0: unknown
    pcie_generation: int = 0  # of the GPUs' slots; 0: unknown
    pcie_lanes: int = 16
    switches: tuple[tuple[int, ...], ...] = ()  # the GPUs under each PCIe switch; none: each at its CPU
    per_socket: int = 0  # GPUs at each CPU socket, in order; 0: all at one
    socket_rate: float = 0.0  # between two sockets; 0: unknown
    nvls: bool = True  # whether NCCL may use multicast where there is any (NCCL_NVLS_ENABLE)
    algorithm: str = "auto"  # an Algorithm (NCCL_ALGO)
    protocol: str = "auto"  # a Protocol (NCCL_PROTO)
    flops: float = 0.0  # of a GPU, on 16 bits; 0 here and in the next three: as its product's data sheet says
    flops_fp8: float = 0.0
    memory: float = 0.0  # bytes of a GPU
    memory_rate: float = 0.0
    guesses: tuple[str, ...] = ()  # what a discovered machine did not say and was assumed

    @property
    def ranks(self) -> int:
        """Number of ranks: one for every GPU."""
        return self.gpus * self.nodes

    @property
    def title(self) -> str:
        """Title of plots and tables: `DGX H100, 2 nodes of 8 GPUs`."""
        gpus = f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}"
        return f"{self.name}, {self.nodes:,} nodes of {gpus}" if self.nodes > 1 else f"{self.name}, {gpus}"

    @property
    def adds(self) -> bool:
        """Whether NCCL lets the switches add."""
        return self.multicast and self.nvls

    @property
    def pcie_rate(self) -> float:
        """What a GPU can send over its slot, as NCCL counts it; an unknown slot is that of its architecture."""
        return pcie_rate(self.pcie_generation or ARCHITECTURES[self.arch].pcie, self.pcie_lanes)

    @property
    def meets_over_pcie(self) -> bool:
        """Whether some of a node's GPUs reach each other over PCIe, which then sets the pace of all."""
        return self.fabric == "pcie" or (self.fabric == "nvlink-pairs" and self.gpus > 2)

    @property
    def pace(self) -> float:
        """What each GPU can send while all of a node take part: `gpu_rate`, but between bridged pairs PCIe."""
        return self.pcie_rate if self.fabric == "nvlink-pairs" and self.gpus > 2 else self.gpu_rate

    @property
    def to_next(self) -> float:
        """What a GPU can send to the next GPU alone: of links from each to each only those that lead there."""
        apart = {"mesh": self.gpus - 1, "hybrid-cube": self.nvlinks}.get(self.fabric, 1)
        return self.pace / max(1, apart)

    @property
    def promised(self) -> float:
        """What data sheets promise of `pace`; `pace` itself where they are not known."""
        if self.pace == self.gpu_rate:
            return self.spec_rate or self.gpu_rate
        return pcie_spec(self.pcie_generation, self.pcie_lanes) if self.pcie_generation else self.pace

    @property
    def is_rack(self) -> bool:
        """Whether its NVLinks join the GPUs of a rack: more than one board or two have."""
        return self.gpus > BOARD

    @property
    def sharing(self) -> int:
        """Largest number of GPUs that share the uplink of a PCIe switch."""
        return max((len(group) for group in self.switches), default=1)

    @property
    def sockets(self) -> int:
        """CPU sockets of a node that have GPUs."""
        return -(-self.gpus // (self.per_socket or self.gpus))

    @property
    def between_sockets(self) -> float:
        """Bytes/s between two sockets: what the system says, or what links of its kind of CPU carry."""
        return self.socket_rate or SOCKET_LINKS[self.cpu]

    def socket(self, gpu: int) -> int:
        """Return the CPU socket of a GPU of a node."""
        return gpu // (self.per_socket or self.gpus)

    def nvlinks_between(self, a: int, b: int) -> int:
        """Return the NVLinks that lead from GPU `a` of a node straight to GPU `b`; 0 where a switch is between."""
        if a == b or self.fabric in ("nvswitch", "pcie"):
            return 0
        if self.fabric == "mesh":
            return self.nvlinks // (self.gpus - 1)
        if self.fabric == "nvlink-pairs":
            return self.nvlinks if a ^ 1 == b else 0
        return CUBE[a].get(b, 0)

    def of(self, nodes: int) -> "System":
        """Return a system of so many of the same nodes; UsageError if nothing joins them."""
        if nodes < 1:
            raise UsageError(f"{self.name} cannot have {nodes} nodes; give 1 or more")
        if nodes > MOST_NODES:
            raise UsageError(f"{self.name} cannot have {nodes} nodes; give at most {MOST_NODES}")
        if nodes > 1 and not self.nics:
            raise UsageError(f"{self.name} has no network cards to join {nodes} nodes; add [nic] in a file of your own")
        return replace(self, nodes=nodes)

    def part(self, ranks: int) -> "System":
        """Return the part of the system that so many ranks use: some GPUs of one node, or whole nodes.

        Some GPUs are the first of the node, in CUDA's order, with the NVLinks that join them to each other and their
        share of the network cards.

        Raises:
            UsageError: The ranks fill neither.

        """
        if ranks < 1 or ranks > self.ranks or (ranks > self.gpus and ranks % self.gpus):
            raise UsageError(
                f"{self.title}, has no part of {ranks} ranks; give 1 to {self.gpus}"
                + (f", or whole nodes up to {self.ranks}" if self.nodes > 1 else "; more are on more nodes")
            )
        if ranks >= self.gpus:
            return replace(self, nodes=ranks // self.gpus)
        inside = [tuple(gpu for gpu in group if gpu < ranks) for group in self.switches]
        some = replace(
            self,
            gpus=ranks,
            nodes=1,
            switches=tuple(filter(None, inside)),
            per_socket=min(self.per_socket, ranks),
            nics=self.nics and replace(self.nics, per_node=-(-self.nics.per_node * ranks // self.gpus)),
        )
        return some._joined(self)

    def _joined(self, whole: "System") -> "System":
        """Return this part of a node with only those of the whole node's NVLinks that stay between its GPUs."""
        if self.fabric not in ("mesh", "hybrid-cube", "nvlink-pairs"):
            return self
        links = self.nvlinks
        if self.fabric == "mesh":
            links = whole.nvlinks * (self.gpus - 1) // (whole.gpus - 1)
        if self.fabric == "hybrid-cube":
            links = CUBE_RINGS[self.gpus]
        if links and self.gpus > 1:
            share = links / self.nvlinks
            return replace(self, nvlinks=links, gpu_rate=self.gpu_rate * share, spec_rate=self.spec_rate * share)
        # No ring of NVLinks goes through all of them (nor through one alone), so NCCL takes PCIe.
        promised = pcie_spec(self.pcie_generation, self.pcie_lanes) if self.pcie_generation else 0.0
        return replace(self, fabric="pcie", nvlinks=0, gpu_rate=self.pcie_rate, spec_rate=promised)


def product_of(system: System) -> Product:
    """Return what a GPU of the system can do: by its file, its product, or its architecture, in that order."""
    known = product_named(system.gpu) or usual_product(system.arch)
    doubled = 2 * system.flops if known.flops_fp8 > known.flops else system.flops
    return Product(
        system.flops or known.flops,
        system.flops_fp8 or doubled or known.flops_fp8,
        system.memory or known.memory,
        system.memory_rate or known.memory_rate,
    )


def is_named(system: System) -> bool:
    """Return whether the product is known, and not only its architecture."""
    return product_named(system.gpu) is not None
