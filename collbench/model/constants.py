"""The equation's constants that NCCL's table does not know, fitted to published sweeps.

Every value holds for a kind of hardware or algorithm, none for a single machine; the comment next to it is its meaning
in docs/model.md, too.  `make model-report` fits them to all healthy sweeps of tools/model/published: least squares of
softened logarithms of ratios, every machine with the same weight.  docs/model.md has the errors that are left when a
machine is left out of the fit.
"""

from dataclasses import dataclass

from collbench.model.equation import Floats
from collbench.topology.products import ARCHITECTURES, capability
from collbench.topology.system import System


@dataclass(frozen=True)
class Constants:
    """Seconds, and factors without unit."""

    issue: float = 3.976e-06  # that a process needs to launch one GPU's kernel
    issue_old: float = 5.335e-06  # the same before Turing
    issue_channel: float = 1.486e-07  # that every channel of a kernel adds to it
    torch: float = 1.803e-05  # that PyTorch's bookkeeping adds to every operation
    eager: float = 3.197e-05  # that PyTorch needs at least from one operation to the next
    wait_new: float = 1.024e-05  # of every operation on Blackwell, above NCCL's own figure
    wait_old: float = 7.767e-06  # of every operation between nodes by RDMA, before Hopper
    start_ib: float = 4.815e-06  # of every operation between nodes, above NCCL's own figure: InfiniBand
    start_roce: float = 4.844e-06  # the same: RoCE
    start_slingshot: float = 1.814e-06  # the same: Slingshot
    hop_rdma: float = 9.631e-07  # of every step between nodes, above NCCL's own figure: InfiniBand and RoCE
    hop_slingshot: float = 1.035e-06  # the same: Slingshot
    hop_efa: float = 2.222e-05  # of every step between nodes, all of it: EFA
    hop_tcpx: float = 5.016e-05  # of every step between nodes, above NCCL's own figure: TCPX
    hop_tcp: float = 2.5e-05  # the same: TCP
    rendezvous: float = 8.905e-06  # of every step over Slingshot whose message waits for its receiver
    first: float = 1.141e-05  # until the first peer's bytes are there, sent straight to it: a kernel, and Simple's hop
    peer: float = 6.021e-07  # that every further peer in the node adds to a message sent straight
    post: float = 9.923e-07  # that every peer adds on the host
    post_net: float = 3.793e-06  # to start a message to one more rank of another node
    post_slingshot: float = 5.875e-06  # the same over Slingshot
    kappa_ring: float = 0.257  # filling a ring with Simple in one node: Hopper and later
    kappa_ring_old: float = 0.9689  # the same before Hopper
    kappa_low: float = 0.05042  # filling with LL and LL128 in one node, whose packets need little: Hopper and later
    kappa_low_old: float = 1.144  # the same before Hopper
    kappa_ring_net: float = 0.06106  # filling a ring with Simple between nodes
    kappa_low_net: float = 0.411  # filling with LL and LL128 between nodes: InfiniBand and RoCE
    kappa_low_cloud: float = 2.806  # the same: EFA, TCPX, TCP
    kappa_low_slingshot: float = 1.663  # the same: Slingshot
    kappa_tree: float = 0.9649  # filling a tree with Simple: in a node and by RDMA
    kappa_tree_cloud: float = 0.7704  # the same: EFA, TCPX, TCP
    kappa_nvls: float = 1.033  # filling NVLS
    kappa_nvlstree: float = 1.065  # filling NVLSTree: by RDMA
    kappa_nvlstree_cloud: float = 1.86  # the same: EFA, TCPX, TCP
    kappa_pcie: float = 0.1966  # filling over PCIe
    kappa_host: float = 0.4872  # the same through the host's memory
    kappa_direct: float = 0.9415  # of messages sent straight to all
    kappa_pair: float = 2.299  # of a message to the next rank only, which has fewer channels
    eta_ring: float = 1.008  # of NCCL's rate that a ring in one node reaches
    eta_ll_old: float = 0.7604  # the same with LL before Hopper
    eta_ll128_old: float = 0.8671  # the same with LL128 before Hopper
    eta_net: float = 0.9396  # of what ports and cards could carry together
    eta_net_slingshot: float = 0.9006  # the same over Slingshot: Hopper and later
    eta_net_slingshot_old: float = 0.8463  # the same before Hopper
    eta_low_net: float = 0.9621  # of NCCL's own bound on LL and LL128 between nodes
    eta_ll_slingshot: float = 0.1593  # of the rate that LL has left over Slingshot
    crowd_slingshot: float = 376.4  # nodes from which on transfers over Slingshot hinder each other
    eta_tree: float = 1.0  # of NCCL's rate that a tree in one node reaches
    eta_nvls: float = 0.867  # of a GPU's port where switches add: Hopper
    eta_nvls_new: float = 0.7625  # the same: Blackwell
    eta_rack: float = 0.6701  # of the ports of a rack's GPUs, against those of a board
    eta_pcie: float = 1.01  # of the slowest link over PCIe
    eta_host: float = 0.592  # of a slot, shared by what goes to the host's memory and what comes from it
    eta_host_one: float = 0.907  # the same where one GPU only sends and the other only receives
    eta_stage: float = 0.2474  # of a slot, between a card and its GPU through the host's memory
    eta_direct: float = 0.9391  # of the links in a node, for messages sent straight
    eta_direct_net: float = 0.9181  # of the cards, for messages sent straight to all
    eta_direct_slingshot: float = 0.6249  # the same over Slingshot
    eta_direct_host: float = 0.4  # of a slot, for messages sent straight through the host's memory
    eta_pair_net: float = 0.5319  # of a card, for a message to the next rank only


CONSTANTS = Constants()

OLD = tuple(arch for arch, gpus in ARCHITECTURES.items() if gpus.nvlinks and capability(arch) < 90)
"""Architectures before Hopper, of those with NVLink."""


EAGER = 4096
"""Bytes from which on Slingshot's messages wait for their receiver (a published figure, not fitted)."""
RDMA = ("ib", "roce", "slingshot")
"""Transports whose cards read and write memory by themselves, with little to do for the host."""


def transport(system: System) -> str:
    """Return what carries messages between nodes; TCP where no cards are described."""
    return system.nics.transport if system.nics else "tcp"


def alpha_net(
    system: System, hops: float, constants: Constants = CONSTANTS, counted: float = 0.0
) -> tuple[float, float]:
    """Return the seconds that steps between nodes take longer than NCCL counts: of eager messages, and of others.

    `counted` is what NCCL counts for the steps.  It takes LL's for much shorter than
    Simple's; over EFA they last as long.
    """
    kind = transport(system)
    start = float(getattr(constants, f"start_{kind}")) if kind in RDMA else 0.0
    place = "rdma" if kind in ("ib", "roce") else kind
    start += constants.wait_old if system.arch in OLD and kind in ("ib", "roce") else 0.0
    steps = hops * float(getattr(constants, f"hop_{place}"))
    eager = start + (max(0.0, steps - counted) if kind == "efa" else steps)
    return eager, eager + (hops * constants.rendezvous if kind == "slingshot" else 0.0)


def issue(system: System, channels: Floats, constants: Constants = CONSTANTS) -> Floats:
    """Return the seconds from one operation's start to the next's on the host.

    The host launches a kernel for each of its GPUs; `channels` is how many channels each kernel has.
    """
    kernel = constants.issue_old if capability(system.arch) < 75 else constants.issue
    if system.launch == "torch":
        kernel = constants.eager
    return (kernel + constants.issue_channel * channels) * driven(system)


def driven(system: System) -> int:
    """Return the number of GPUs that a process launches kernels for."""
    return system.gpus if system.launch == "single-process" else 1


def wait(system: System, constants: Constants = CONSTANTS) -> float:
    """Return the seconds that every operation takes longer than NCCL counts, by the architecture."""
    return constants.wait_new if capability(system.arch) in (100, 103) else 0.0


def launch(system: System, constants: Constants = CONSTANTS) -> float:
    """Return the seconds that starting an operation adds, not hidden behind the operation before."""
    return constants.torch if system.launch == "torch" else 0.0


def kappa(system: System, algorithm: str, protocol: str, constants: Constants = CONSTANTS) -> float:
    """Return the factor on what filling an algorithm's pipeline costs."""
    if system.meets_over_pcie and system.nodes == 1:
        return constants.kappa_pcie if system.p2p else constants.kappa_host
    if protocol != "simple":
        return float(getattr(constants, f"kappa_low{_place(system)}"))
    if algorithm in ("nvls", "nvlstree", "tree"):
        cloud = "_cloud" if _place(system) == "_cloud" and algorithm != "nvls" else ""
        return float(getattr(constants, f"kappa_{algorithm}{cloud}"))
    return float(getattr(constants, "kappa_ring" + ("_net" if system.nodes > 1 else _place(system))))


def _place(system: System) -> str:
    """Suffix of the constants for where packets travel."""
    if system.nodes == 1:
        return "_old" if system.arch in OLD else ""
    kind = transport(system)
    if kind == "slingshot":
        return "_slingshot"
    return "_net" if kind in RDMA else "_cloud"
