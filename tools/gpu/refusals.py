"""Just reasons for a refusal on a GPU: an implementation that must work and refuses has failed.

A reason without a record, or with a condition that does not hold here, is a defect.  A new limit is one record.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch

from collbench.platforms.gpu import nccl
from collbench.platforms.gpu import platform as gpu

SHARING_NCCL = 23000  # NCCL's number of 2.30.0, the first release with ranks that share a GPU


@dataclass(frozen=True)
class Here:
    """The facts that decide whether a refusal is just."""

    ranks: int
    gpus: int  # of all ranks
    processes: int = 1
    nccl: int = 0  # NCCL's number of its version; 0 without NCCL
    peers: bool = True  # whether every GPU can access every other one's memory

    @property
    def shared(self) -> bool:
        return self.gpus < self.ranks


@dataclass(frozen=True)
class Refusal:
    """A pattern of reasons for implementations of a name (`narrow-*`), or for all if the name is empty."""

    implementation: str
    reason: str
    just: Callable[[Here], bool] = lambda here: True


ALLOWED = (
    Refusal("", r"carries out nothing of the kind|estimates nothing of the kind|carries out [\w, ]+ only"),
    Refusal("", r"has no in-place form"),
    Refusal("", r"once is enough"),
    Refusal("", r"GPU \d+ cannot use the memory of GPU \d+", lambda here: not here.peers),
    Refusal("", r"needs ranks that share a GPU", lambda here: not here.shared),
    Refusal("ring-host", r"the host drives it, and cannot enqueue products at the same time"),
    Refusal("nccl", r"cannot share a buffer"),
    Refusal("nccl", r"a library cannot be looked into"),
    Refusal("nccl", r"CuPy found no NCCL", lambda here: not here.nccl),
    Refusal("nccl", r"has no ranks that share a GPU", lambda here: here.shared and here.nccl < SHARING_NCCL),
    Refusal("nccl", r"has no estimates", lambda here: here.nccl < nccl.VERSION),
    Refusal("one-shot", r"would overwrite the input that others still read"),
    Refusal("one-shot-ll", r"inboxes hold messages up to"),
    Refusal("ring-events", r"events order streams of one process only", lambda here: here.processes > 1),
    Refusal("narrow-*", r"wires are narrower than float, and carry nothing else"),
    Refusal("narrow-*", r"the bound on what wires lose is proved for sum only"),
    Refusal("nvls", r"the switch has no instruction for"),
    Refusal("nvls", r"two GPUs or more", lambda here: here.gpus < 2),
    Refusal("nvls", r"ranks share a GPU, and a switch adds one input of each", lambda here: here.shared),
    Refusal("nvls", r"made by one process that holds all ranks", lambda here: here.processes > 1),
    Refusal("nvls", r"NVRTC [\d.]+ lacks the instructions|needs? sm_\d+ or newer|has no multicast"),
)


def unjust(implementation: str, reason: str, here: Here) -> str:
    """Return the defect of a refusal; empty if a record allows it here."""
    for refusal in ALLOWED:
        named = fnmatch(implementation, refusal.implementation or "*")
        if named and re.search(refusal.reason, reason) and refusal.just(here):
            return ""
    return f"{implementation} must work here and refuses: {reason}"


def here_of(platform: gpu.GpuPlatform) -> Here:
    cuda, devices = platform._cuda, platform._places.devices
    reaches = cuda.runtime.deviceCanAccessPeer
    return Here(
        ranks=platform.ranks,
        gpus=len(devices),
        processes=platform._places.processes,
        nccl=nccl_version(cuda.nccl),
        peers=all(reaches(one, other) for one in devices for other in devices if one != other),
    )


def nccl_version(nccl: object) -> int:
    """Return NCCL's number of its version; 0 if CuPy found no NCCL."""
    available, version = getattr(nccl, "available", False), getattr(nccl, "get_version", int)
    return int(version()) if available else 0
