"""The equation's constants that NCCL's table does not know, fitted to published sweeps.

Every value is one for a kind of hardware or algorithm, none for a machine.  They were fitted to all healthy
sweeps of tests/model/published by `make model-report`: least squares of softened logarithms of ratios, every
machine with the same weight.  docs/model.md has what is left when a machine is left out of the fit.
"""

from dataclasses import dataclass

from collbench.topology.architectures import ARCHITECTURES, capability
from collbench.topology.system import System


@dataclass(frozen=True)
class Constants:
    """Seconds, and factors without unit."""

    issue: float = 4.128e-06  # that a process needs to launch one GPU's kernel
    torch: float = 1.551e-05  # that PyTorch's bookkeeping adds to every operation
    eager: float = 2.848e-05  # that PyTorch needs at least from one operation to the next
    net_ib: float = 4.18e-06  # of every hop between nodes, above NCCL's own figure
    net_roce: float = 5.58e-06
    net_efa: float = 2.169e-05
    net_efa_old: float = 7.148e-05  # EFA with GPUs before Hopper: its first generation
    net_tcpx: float = 5.727e-05
    net_tcp: float = 2.5e-05
    post_net: float = 4.572e-06  # to start a message to one more rank of another node
    kappa_ring: float = 0.287  # Simple in one node, Hopper and later
    kappa_ring_old: float = 0.9897  # all protocols in one node, before Hopper
    kappa_ring_net: float = 0.0532
    kappa_low: float = 0.05007  # LL and LL128 in one node, whose packets need no filling
    kappa_low_net: float = 0.9875  # and between nodes
    kappa_tree: float = 0.668
    kappa_nvls: float = 1.117  # in the switch, alone or under a tree of nodes
    kappa_pcie: float = 0.299
    kappa_host: float = 0.8017
    eta_ring: float = 0.9998
    eta_low_old: float = 0.7083  # LL and LL128 in one node, before Hopper
    eta_ring_net: float = 0.9011
    eta_tree: float = 1.077
    eta_nvls: float = 1.027
    eta_nvlstree: float = 0.8552  # of what ports and cards could carry together, not of NCCL's figure
    eta_pcie: float = 1.0
    eta_host: float = 0.9545  # of a slot, shared by what goes to the host's memory and what comes from it


CONSTANTS = Constants()

OLD = tuple(arch for arch, gpus in ARCHITECTURES.items() if gpus.nvlinks and capability(arch) < 90)
"""Architectures before Hopper, of those with NVLink."""


def alpha_net(system: System, constants: Constants = CONSTANTS) -> float:
    """Seconds that a hop between nodes takes longer than NCCL counts, by the transport."""
    if not system.nics:
        return constants.net_tcp
    old = "_old" if system.nics.transport == "efa" and system.arch in OLD else ""
    return float(getattr(constants, f"net_{system.nics.transport}{old}"))


def issue(system: System, constants: Constants = CONSTANTS) -> float:
    """Seconds from one operation's start to the next's on the host, which launches a kernel for each of its GPUs."""
    if system.launch == "torch":
        return constants.eager
    return constants.issue * (system.gpus if system.launch == "single-process" else 1)


def launch(system: System, constants: Constants = CONSTANTS) -> float:
    """Seconds that an operation takes longer for how it is started, not hidden behind the one before."""
    return constants.torch if system.launch == "torch" else 0.0


def shape(system: System, algorithm: str, protocol: str, constants: Constants = CONSTANTS) -> tuple[float, float]:
    """(kappa, eta): what filling an algorithm's pipeline costs, and what it reaches of the rate taken for it."""
    if system.meets_over_pcie and system.nodes == 1:
        return (constants.kappa_pcie, constants.eta_pcie) if system.p2p else (constants.kappa_host, constants.eta_host)
    kind = algorithm if algorithm in ("nvls", "nvlstree") else "ring" if algorithm in ("ring", "pat") else "tree"
    place = "ring_net" if kind == "ring" and system.nodes > 1 else kind
    eta = float(getattr(constants, f"eta_{place}"))
    low = protocol != "simple"
    if place == "ring" and system.arch in OLD:
        return constants.kappa_ring_old, constants.eta_low_old if low else eta
    if low:
        return constants.kappa_low if system.nodes == 1 else constants.kappa_low_net, eta
    return float(getattr(constants, f"kappa_{place.removesuffix('tree') or place}")), eta
