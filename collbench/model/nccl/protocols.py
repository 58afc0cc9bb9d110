"""Which protocols NCCL may use on a system: two of three need bytes that arrive in order."""

from collbench.model.nccl.constants import PROTOCOLS, Release
from collbench.topology.architectures import capability
from collbench.topology.system import System


def protocols(system: System, release: Release, nvlink: bool) -> list[tuple[int, str]]:
    """Place in NCCL's tables and name of those that are there, or asked for; `nvlink`: all GPUs of a node have it.

    LL128 only over NVLink and past no host bridge, where its 128 bytes arrive at once.  LL neither where the network
    does not keep bytes in order: over EFA before Hopper or without GPUDirect, AWS's plugin sets NCCL_PROTO=simple
    (github.com/aws/aws-ofi-nccl, issues 76, 280 and 850).
    """
    whole = nvlink or (system.gpus == 1 and system.fabric not in ("pcie", "nvlink-pairs"))
    cards = system.nics if system.nodes > 1 else None
    tested = not release.ll128_on or capability(system.arch) in release.ll128_on
    ordered = not cards or cards.transport != "efa" or (capability(system.arch) >= 90 and cards.gdr)
    bridged = cards is not None and cards.transport == "tcp"
    usable = {"ll": ordered, "ll128": ordered and whole and not bridged and tested, "simple": True}
    return [(number, name) for number, name in enumerate(PROTOCOLS) if usable[name] or system.protocol == name]
