"""The model's constants that are fitted to published sweeps.

Every value holds for a kind of hardware or algorithm, none for a single machine; the comment next to it explains it.
`make model-report` fits them to all healthy sweeps of tools/model/published, by least squares of softened logarithms
of ratios. Every machine has the same weight. docs/model.md has the remaining errors of machines left out of the fit.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from collbench.model.equation import Floats
from collbench.topology.products import ARCHITECTURES, capability, is_amd
from collbench.topology.system import System

Constants = Mapping[str, float]  # seconds, and factors without unit, by name; their meaning is in constants.toml
CONSTANTS: Constants = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

OLD = tuple(arch for arch, gpus in ARCHITECTURES.items() if gpus.nvlinks and capability(arch) < 90 and not is_amd(arch))
"""Architectures before Hopper, of those with NVLink."""


def amd_constants(constants: Constants) -> Constants:
    """Return the constants of AMD's GPUs, with `_xgmi` behind their names, and NVIDIA's of all that AMD's lack."""
    own = {name.removesuffix("_xgmi"): value for name, value in constants.items() if name.endswith("_xgmi")}
    return {**constants, **own, **{f"{name}_old": value for name, value in own.items()}}


EAGER = 4096  # bytes from which Slingshot's messages wait for their receiver (published, not fitted)
RDMA = ("ib", "roce", "slingshot")
"""Transports with RDMA cards, which need little work from the host."""


def transport(system: System) -> str:
    """Return the transport between nodes; TCP if no cards are described."""
    return system.nics.transport if system.nics else "tcp"


def alpha_net(
    system: System, hops: float, constants: Constants = CONSTANTS, counted: float = 0.0
) -> tuple[float, float]:
    """Return the seconds of steps between nodes beyond NCCL's estimate: for eager messages, and for others.

    `counted` is NCCL's estimate.
    """
    kind = transport(system)
    network = "rdma" if kind in ("ib", "roce") else kind
    eager = hops * constants[f"hop_{network}{_later(system)}"]
    if kind == "efa":
        # NCCL takes LL's steps for much shorter than Simple's; over EFA they last as long.
        eager = max(0.0, eager - counted)
    if kind in RDMA:
        eager += constants[f"start_{network}"]
    if system.arch in OLD and network == "rdma":
        eager += constants["wait_old"]
    later = eager
    if kind == "slingshot":
        later += hops * constants["rendezvous"]
    return eager, later


def issue(system: System, channels: Floats, constants: Constants = CONSTANTS) -> Floats:
    """Return the seconds from one operation's start to the next's on the host.

    The host launches a kernel for each of its GPUs; `channels` is how many channels each kernel has.
    """
    if system.launch == "graph":
        return 0 * channels
    kernel = constants["issue_old" if capability(system.arch) < 75 else "issue"]
    if system.launch == "torch":
        kernel = constants["eager"]
    return (kernel + constants["issue_channel"] * channels) * driven(system)


def driven(system: System) -> int:
    """Return the number of GPUs that a process launches kernels for."""
    return system.gpus if system.launch == "single-process" else 1


def wait(system: System, constants: Constants = CONSTANTS) -> float:
    """Return the seconds of every operation beyond NCCL's estimate, by architecture."""
    return constants["wait_new"] if capability(system.arch) in (100, 103) else 0.0


def launch(system: System, constants: Constants = CONSTANTS) -> float:
    """Return the seconds of an operation's start that the previous operation does not hide."""
    # In a CUDA graph kernels follow each other faster on Blackwell; elsewhere NCCL takes as long.
    if system.launch == "graph" and place(system) == "_new":
        return -constants["graph_new"]
    return constants["torch"] if system.launch == "torch" else 0.0


def kappa(system: System, algorithm: str, protocol: str, constants: Constants = CONSTANTS) -> float:
    """Return the factor on the cost of filling an algorithm's pipeline."""
    if protocol != "simple":
        return constants[f"kappa_low{_net_place(system)}"] if system.nodes > 1 else 0.0
    if algorithm == "tree" and _net_place(system) == "_slingshot":
        return constants["kappa_tree_slingshot"]
    if algorithm == "nvls" and system.is_rack:
        return constants["kappa_rack"]
    if algorithm == "collnet":
        return constants["kappa_nvlstree"]
    if algorithm in ("nvls", "nvlstree", "tree"):
        return constants[f"kappa_{algorithm}"]
    return constants["kappa_ring" + ("_net" if system.nodes > 1 else place(system))]


def place(system: System) -> str:
    """Suffix of the constants for the generation of GPUs, or within a node without NVLinks for how they meet."""
    if system.meets_over_pcie and system.nodes == 1:
        return "_pcie" if system.p2p else "_host"
    if capability(system.arch) < 90:
        return "_old"
    return "_new" if capability(system.arch) >= 100 else ""


def _net_place(system: System) -> str:
    """Suffix of the constants for what is between nodes."""
    kind = transport(system)
    if kind == "slingshot":
        return "_slingshot"
    return "_net" if kind in RDMA else f"_cloud{_later(system)}"


def _later(system: System) -> str:
    """Suffix of the constants for EFA's later generations, of hosts that have Blackwell."""
    return "_new" if transport(system) == "efa" and capability(system.arch) >= 100 else ""
