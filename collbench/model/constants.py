"""The equation's constants that NCCL's table does not know, fitted to published sweeps.

Every value is one for a kind of hardware or algorithm, none for a machine; the comment beside it is its meaning in
docs/model.md, too.  They were fitted to all healthy
sweeps of tests/model/published by `make model-report`: least squares of softened logarithms of ratios, every
machine with the same weight.  docs/model.md has what is left when a machine is left out of the fit.
"""

from dataclasses import dataclass

from collbench.model.equation import Floats
from collbench.topology.architectures import ARCHITECTURES, capability
from collbench.topology.system import System


@dataclass(frozen=True)
class Constants:
    """Seconds, and factors without unit."""

    issue: float = 3.976e-06  # that a process needs to launch one GPU's kernel
    issue_old: float = 5.335e-06  # the same before Turing
    issue_channel: float = 1.486e-07  # that every channel of a kernel adds to it
    torch: float = 1.797e-05  # that PyTorch's bookkeeping adds to every operation
    eager: float = 3.205e-05  # that PyTorch needs at least from one operation to the next
    wait_new: float = 1.028e-05  # of every operation on Blackwell, above NCCL's own figure
    wait_old: float = 6.687e-06  # of every operation between nodes by RDMA, before Hopper
    start_ib: float = 4.406e-06  # of every operation between nodes, above NCCL's own figure: InfiniBand
    start_roce: float = 5.25e-06  # the same: RoCE
    start_slingshot: float = 1.738e-06  # the same: Slingshot
    hop_rdma: float = 1.037e-06  # of every step between nodes, above NCCL's own figure: InfiniBand and RoCE
    hop_slingshot: float = 1.017e-06  # the same: Slingshot
    hop_efa: float = 1.719e-05  # the same: EFA
    hop_efa_old: float = 3.831e-05  # the same: EFA with GPUs before Hopper, its first generation
    hop_tcpx: float = 4.873e-05  # the same: TCPX
    hop_tcp: float = 2.5e-05  # the same: TCP
    rendezvous: float = 9.192e-06  # of every step over Slingshot whose message waits for its receiver
    first: float = 1.143e-05  # until the first peer's bytes are there, sent straight to it: a kernel, and Simple's hop
    peer: float = 6.031e-07  # that every further peer in the node adds to a message sent straight
    post: float = 9.923e-07  # that every peer adds on the host
    post_net: float = 3.949e-06  # to start a message to one more rank of another node
    post_slingshot: float = 5.899e-06  # the same over Slingshot
    kappa_ring: float = 0.257  # filling a ring with Simple in one node: Hopper and later
    kappa_ring_old: float = 0.969  # the same before Hopper
    kappa_low: float = 0.05041  # filling with LL and LL128 in one node, whose packets need little: Hopper and later
    kappa_low_old: float = 1.145  # the same before Hopper
    kappa_ring_net: float = 0.05683  # filling a ring with Simple between nodes
    kappa_low_net: float = 0.4176  # filling with LL and LL128 between nodes: InfiniBand and RoCE
    kappa_low_cloud: float = 2.772  # the same: EFA, TCPX, TCP
    kappa_low_slingshot: float = 1.577  # the same: Slingshot
    kappa_tree: float = 0.6728  # filling a tree with Simple
    kappa_nvls: float = 1.033  # filling NVLS
    kappa_nvlstree: float = 1.065  # filling NVLSTree: by RDMA
    kappa_nvlstree_cloud: float = 1.522  # the same: EFA, TCPX, TCP
    kappa_pcie: float = 0.1966  # filling over PCIe
    kappa_host: float = 0.4872  # the same through the host's memory
    kappa_direct: float = 0.9417  # of messages sent straight to all
    kappa_pair: float = 2.298  # of a message to the next rank only, which has fewer channels
    eta_ring: float = 1.008  # of NCCL's rate that a ring in one node reaches
    eta_ll_old: float = 0.7603  # the same with LL before Hopper
    eta_ll128_old: float = 0.8671  # the same with LL128 before Hopper
    eta_net: float = 0.9397  # of what ports and cards could carry together
    eta_net_slingshot: float = 0.9001  # the same over Slingshot: Hopper and later
    eta_net_slingshot_old: float = 0.8465  # the same before Hopper
    eta_low_net: float = 0.9662  # of NCCL's own bound on LL and LL128 between nodes
    eta_ll_slingshot: float = 0.1763  # of the rate that LL has left over Slingshot
    crowd_slingshot: float = 374.8  # nodes from which on transfers over Slingshot hinder each other
    eta_tree: float = 1.0  # of NCCL's rate that a tree in one node reaches
    eta_nvls: float = 0.8666  # of a GPU's port where switches add: Hopper
    eta_nvls_new: float = 0.7644  # the same: Blackwell
    eta_rack: float = 0.6569  # of the ports of a rack's GPUs, against those of a board
    eta_pcie: float = 1.01  # of the slowest link over PCIe
    eta_host: float = 0.592  # of a slot, shared by what goes to the host's memory and what comes from it
    eta_host_one: float = 0.907  # the same where one GPU only sends and the other only receives
    eta_stage: float = 0.2548  # of a slot, between a card and its GPU through the host's memory
    eta_direct: float = 0.9392  # of the links in a node, for messages sent straight
    eta_direct_net: float = 0.9181  # of the cards, for messages sent straight to all
    eta_direct_slingshot: float = 0.6251  # the same over Slingshot
    eta_direct_host: float = 0.4001  # of a slot, for messages sent straight through the host's memory
    eta_pair_net: float = 0.5319  # of a card, for a message to the next rank only


CONSTANTS = Constants()

OLD = tuple(arch for arch, gpus in ARCHITECTURES.items() if gpus.nvlinks and capability(arch) < 90)
"""Architectures before Hopper, of those with NVLink."""


EAGER = 4096
"""Bytes from which on Slingshot's messages wait for their receiver (the one published figure that is not of a fit)."""
RDMA = ("ib", "roce", "slingshot")
"""Transports whose cards read and write memory by themselves, with little to do for the host."""


def transport(system: System) -> str:
    """What carries messages between nodes; sockets where no cards are described."""
    return system.nics.transport if system.nics else "tcp"


def alpha_net(system: System, hops: float, constants: Constants = CONSTANTS) -> tuple[float, float]:
    """Seconds that steps between nodes, one after the other, take longer than NCCL counts: eager ones, and others."""
    kind = transport(system)
    start = float(getattr(constants, f"start_{kind}")) if kind in RDMA else 0.0
    place = "rdma" if kind in ("ib", "roce") else kind + ("_old" if kind == "efa" and system.arch in OLD else "")
    start += constants.wait_old if system.arch in OLD and kind in ("ib", "roce") else 0.0
    eager = start + hops * float(getattr(constants, f"hop_{place}"))
    return eager, eager + (hops * constants.rendezvous if kind == "slingshot" else 0.0)


def issue(system: System, channels: Floats, constants: Constants = CONSTANTS) -> Floats:
    """Seconds from one operation's start to the next's on the host, which launches a kernel for each of its GPUs.

    `channels`: how many each kernel has.
    """
    one = constants.issue_old if capability(system.arch) < 75 else constants.issue
    if system.launch == "torch":
        one = constants.eager
    return (one + constants.issue_channel * channels) * driven(system)


def driven(system: System) -> int:
    """GPUs that a process launches kernels for."""
    return system.gpus if system.launch == "single-process" else 1


def wait(system: System, constants: Constants = CONSTANTS) -> float:
    """Seconds that every operation takes longer than NCCL counts, by the architecture."""
    return constants.wait_new if capability(system.arch) in (100, 103) else 0.0


def launch(system: System, constants: Constants = CONSTANTS) -> float:
    """Seconds that an operation takes longer for how it is started, not hidden behind the one before."""
    return constants.torch if system.launch == "torch" else 0.0


def kappa(system: System, algorithm: str, protocol: str, constants: Constants = CONSTANTS) -> float:
    """What filling an algorithm's pipeline costs."""
    if system.meets_over_pcie and system.nodes == 1:
        return constants.kappa_pcie if system.p2p else constants.kappa_host
    if protocol != "simple":
        return float(getattr(constants, f"kappa_low{_place(system)}"))
    if algorithm == "nvlstree" and _place(system) == "_cloud":
        return constants.kappa_nvlstree_cloud
    if algorithm in ("nvls", "nvlstree", "tree"):
        return float(getattr(constants, f"kappa_{algorithm}"))
    return float(getattr(constants, "kappa_ring" + ("_net" if system.nodes > 1 else _place(system))))


def _place(system: System) -> str:
    """Where packets travel: the suffix of its constants."""
    if system.nodes == 1:
        return "_old" if system.arch in OLD else ""
    kind = transport(system)
    return "_slingshot" if kind == "slingshot" else "_net" if kind in RDMA else "_cloud"
