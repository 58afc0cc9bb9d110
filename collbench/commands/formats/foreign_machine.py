"""The machine of a foreign test, from its list of ranks and GPUs."""

import re
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collbench.commands.formats.words import MOST_RANKS, clean
from collbench.errors import UsageError
from collbench.results.facts import Sharing
from collbench.runfile.schema import TopologyPart, variables
from collbench.topology.discovered import Gpu
from collbench.topology.products import TRAYS

BUS_ID = re.compile(r"(?!0[0x:]*$)(?:[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}|0x[0-9a-f]{2})")


@dataclass(frozen=True)
class Device:
    """A rank and its GPU, as a tool lists them."""

    rank: int
    host: str
    name: str
    group: int = 0
    number: int = 0  # of the device in its process
    bus_id: str = ""  # 0000:0a:00; older versions have only 0x0a
    pid: int = 0

    @property
    def gpu(self) -> Hashable:
        """A key of the GPU; None if unknown, as for MIG slices, which share the bus id of their GPU."""
        if not BUS_ID.fullmatch(self.bus_id) or re.search(r"\bMIG\b", self.name):
            return None
        if not self.bus_id.startswith("0x"):
            return self.host, self.bus_id

        # A bus number alone is ambiguous: all GH200 of a host share it, and all GPUs of an Azure machine have 0.
        return None if re.search(r"\bG[BH]\d", self.name) else (self.host, self.bus_id, self.number)


class ForeignMachine(TopologyPart, frozen=True, kw_only=True):
    """The machine of a test; tests of one machine may share a run file."""

    platform: str = "gpu"
    hostname: str = ""
    sharing: Sharing | None = None  # of GPUs by ranks
    versions: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


def machine_of(
    devices: Sequence[Device], ranks: int, platform: str, versions: Mapping[str, str], environment: Mapping[str, str]
) -> ForeignMachine:
    """Return the machine of a list of devices; `nodes` is 0 if the list lacks ranks or the hosts are trays."""
    communicator = [device for device in devices if device.group == devices[0].group]
    is_whole = len(communicator) >= ranks
    hosts = Counter(device.host for device in communicator)
    trays = len(hosts) > 1 and any(re.search(TRAYS, device.name) for device in devices)
    nodes = 0 if trays or not is_whole else len(hosts)
    facts: dict[str, Any] = {"hosts": tuple(hosts) if len(hosts) > 1 else ()}
    if nodes and len(set(hosts.values())) > 1:
        facts["uneven"] = tuple(hosts.values())
    if not is_whole:
        facts["listed"] = len(communicator)

    gpus = {device.gpu or number: device for number, device in enumerate(devices)}
    names = Counter(gpu.name or "GPU" for gpu in gpus.values())
    sharing = Sharing(len(devices), len(gpus)) if len(gpus) < len(devices) else None
    if len(names) == 1 and not sharing:  # the list may lack ranks
        names = Counter({next(iter(names)): max(ranks, len(devices))})
    what = " + ".join(f"{count} x {name}" for name, count in names.items()) or f"{ranks} x unknown GPU"
    if sharing:
        listed = "" if is_whole else f", {sharing.ranks} of them"
        what = f"{ranks} ranks{listed} sharing {what}"

    # The places of ranks matter only if ranks share GPUs, and need a whole list.
    if sharing and is_whole:
        by_rank = sorted(devices, key=lambda device: device.rank)
        shown = {device.gpu or device.rank: device for device in by_rank}
        order = list(shown)
        facts["places"] = tuple(order.index(device.gpu or device.rank) for device in by_rank)
        facts["gpus"] = tuple(Gpu(name=gpu.name, host=gpu.host, bus_id=f"{gpu.bus_id}.0") for gpu in shown.values())
    return ForeignMachine(
        ranks=ranks,
        platform=platform,
        name=what + on_nodes(nodes),
        hostname=next(iter(hosts), ""),
        nodes=nodes,
        shared=sharing is not None,
        sharing=sharing,
        versions=tuple(sorted((name, version) for name, version in versions.items() if version)),
        variables=relevant_variables(environment),
        **facts,
    )


def on_nodes(nodes: int | None) -> str:
    """Return the suffix of the name of a machine with several nodes."""
    return f" on {nodes} nodes" if nodes and nodes > 1 else ""


def relevant_variables(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables of an environment that change measurements."""
    return tuple((clean(name), clean(value, 1000)) for name, value in variables(environment).items())


def dotted_version(code: int) -> str:
    """Return the version of NCCL's version code: 23007 is 2.30.7, 2708 is 2.7.8."""
    if not 1000 <= code < 10**7:
        return ""
    major, rest = divmod(code, 10000 if code >= 10000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def require_ranks(name: str, ranks: int | None, why: str) -> int:
    """Return the number of ranks; UsageError if it is unknown or not valid."""
    if ranks is None:
        raise UsageError(f"{name}: {why}; give --ranks N")
    if not 1 <= ranks <= MOST_RANKS:
        raise UsageError(f"{name}: {ranks} is not a valid number of ranks; give --ranks N")
    return ranks
