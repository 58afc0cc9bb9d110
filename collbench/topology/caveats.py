"""Sentences on what spoils numbers measured on a topology: shared GPUs, narrow slots, too few cores."""

from collections.abc import Iterator

from collbench.topology.devices import Host
from collbench.topology.topology import Topology
from collbench.units import format_size

SMALL_SHM = 2**28  # bytes of /dev/shm; containers get 64 MiB unless told otherwise


def caveats(topology: Topology) -> tuple[str, ...]:
    """One sentence each, the ones that spoil most numbers first."""
    sentences = [*filter(None, [topology.unseen]), *_sharing(topology), *_peers(topology), *_gpus(topology)]
    if topology.host:
        sentences += _host(topology, topology.host)
    return tuple(sentences)


def _sharing(topology: Topology) -> Iterator[str]:
    if topology.shared:
        count = len(topology.gpus)
        yield (
            f"{topology.ranks} ranks share {count} GPU{'s' if count > 1 else ''}: "
            "bus bandwidth means nothing between ranks of one GPU; read algbw"
        )


def _peers(topology: Topology) -> Iterator[str]:
    if topology.gpus and any(link.p2p == "no" for link in topology.links):
        yield "GPUs without peer access copy through the host's memory, at a fraction of the rate given here"
    narrow = [str(i) for i, gpu in enumerate(topology.gpus) if gpu.pcie and gpu.pcie.narrow]
    if narrow:
        yield f"GPU {', '.join(narrow)}: fewer PCIe lanes in use than slot and GPU allow; check the riser"


def _gpus(topology: Topology) -> Iterator[str]:
    most = max((gpu.nvlink.count or 0 for gpu in topology.gpus if gpu.nvlink), default=0)
    for i, gpu in enumerate(topology.gpus):
        count = gpu.nvlink.count or 0 if gpu.nvlink else 0
        if count < most:
            yield f"GPU {i} has {count} active NVLinks, others have {most}; check `nvidia-smi nvlink -s`"
        if gpu.mig:
            yield f"GPU {i} is in MIG mode: ranks get a slice of it, without peer access or NVLink"
        if gpu.fabric and gpu.fabric.state != "completed":
            yield f"GPU {i} has not joined its fabric ({gpu.fabric.state}); check nvidia-fabricmanager"


def _host(topology: Topology, host: Host) -> Iterator[str]:
    cores = sum(socket.cores or 0 for socket in topology.sockets)
    if topology.ranks > host.capacity:
        usable = f"{host.capacity} usable CPU{'s' if host.capacity > 1 else ''}"
        yield f"{topology.ranks} ranks on {usable}: they take turns, and times include the scheduler's"
    elif 0 < cores < topology.ranks:
        yield f"{topology.ranks} ranks on {cores} cores: some share one core's units and caches"
    if host.cpu_limit is not None and host.cpu_limit < len(host.usable):
        yield f"the control group allows {host.cpu_limit:.3g} CPUs' worth of time: ranks that spin get paused"
    if host.shm_free is not None and host.shm_free < SMALL_SHM:
        free = format_size(host.shm_free)
        yield f"only {free} free in /dev/shm, where MPI libraries share memory; in Docker: --shm-size=1g"
