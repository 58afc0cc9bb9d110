"""The system behind each published sweep, as its source describes the hardware and the launch; never from its numbers.

NVLink rates are what NCCL's search takes for the links (20.0, 20.0, 20.6, 40.1 GB/s a link for sm70, sm80, sm90,
sm100), PCIe's likewise (12, 24, 48 GB/s for generations 3, 4, 5), cards are at line rate.  The second word of a name
groups sweeps of one machine: a machine is left out as a whole.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from collbench.collectives import COLLECTIVES
from collbench.topology.system import Nics, System

FOLDER = Path(__file__).parent / "published"
ONE_NODE = Path(__file__).parent / "one_node_nvidia.json"
G = 1e9


def _nvswitch(arch: str, rate: float, gpus: int = 8, **other: object) -> System:
    multicast = arch in ("sm90", "sm100")
    return System(arch, arch, gpus, "nvswitch", rate * G, multicast=multicast, **other)  # type: ignore[arg-type]


def _pcie(arch: str, gpus: int, rate: float, p2p: bool, **other: object) -> System:
    return System(arch, arch, gpus, "pcie", rate * G, p2p=p2p, **other)  # type: ignore[arg-type]


def _over(system: System, nodes: int, per_node: int, rate: float, transport: str, gdr: bool = True) -> System:
    return replace(system, nodes=nodes, nics=Nics(per_node, rate * G, transport, gdr))


V100_SWITCH = _nvswitch("sm70", 120, 16, launch="single-process", nccl="2.21")
A100 = _nvswitch("sm80", 240, cpu="amd", nccl="2.21")
H100 = _nvswitch("sm90", 370.8)
H100_PAIR = System("H100 NVL", "sm90", 2, "nvlink-pairs", 247.2 * G, cpu="amd")
A3_HIGH = replace(H100, algorithm="ring", protocol="simple")  # as Google's guide sets them
P5 = replace(H100, cpu="amd")
H800 = replace(_nvswitch("sm90", 164.8, launch="single-process"), nccl="2.21")
B200 = _nvswitch("sm100", 721.8)
TOGETHER = replace(B200, nccl="2.28", launch="single-process")


def _ring(system: System) -> System:
    return replace(system, algorithm="ring", nvls=False)


def _sharp(system: System) -> System:
    assert system.nics
    return replace(system, algorithm="collnet", nvls=False, nics=replace(system.nics, sharp=True))


TOGETHER_RUNS: dict[str, Callable[[System], System]] = {
    "allgather": _ring,
    "allreduce_togetherA0711": lambda system: replace(system, nccl="2.30"),
    "allreduce_togetherA_nvlsdefault": lambda system: system,
    "allreduce_togetherA_ring0509": _ring,
    "allreduce_togetherA_collnet": _sharp,
}
P6_B300 = _over(replace(B200, arch="sm103", pcie_generation=6), 2, 16, 50, "efa")
POLARIS = System("polaris", "sm80", 4, "mesh", 240 * G, cpu="amd", nccl="2.18")
NVL72 = _nvswitch("sm100", 721.8, 72, cpu="arm", nccl="2.26")
GB300 = replace(NVL72, arch="sm103", gpus=64, pcie_generation=6, nccl="2.28")
GJ_AION = _over(replace(H100, nccl="2.26"), 2, 8, 50, "ib")
TRAYS_GB200 = _over(replace(NVL72, gpus=4), 4, 4, 50, "efa")
TRAYS_GB300 = _over(replace(GB300, gpus=4), 8, 4, 100, "roce")
CRE = ("allreduce", "allgather", "alltoall")
PARTITIONS = _over(replace(NVL72, gpus=8, nvls=False, nccl="2.27"), 3, 8, 50, "ib")
MI300X = System("MI300X", "gfx942", 8, "mesh", 336 * G, cpu="amd", nvlinks=7, nccl="2.22")
MI355X = replace(MI300X, name="MI355X", arch="gfx950", gpu_rate=420 * G, nccl="2.27")
G8_MI300X, G8_MI355X = (replace(system, launch="single-process") for system in (MI300X, MI355X))
V100_CUBE = System("DGX-1V", "sm70", 8, "hybrid-cube", 120 * G, nccl="2.0")
ALPS = System("Alps", "sm90", 4, "mesh", 370.8 * G, cpu="arm", nccl="2.23")
SOPHIA = _over(A100, 2, 8, 25, "ib")
RTX4090 = _pcie("sm89", 8, 24, False, cpu="amd", launch="single-process")
RTX2080TI = _pcie("sm75", 2, 12, False, launch="single-process", nccl="2.21")
RTXPRO = _pcie("sm120", 8, 48, True, cpu="amd")
G7E = replace(RTXPRO, gpus=1, cpu="intel", protocol="simple")
L40S = _pcie("sm89", 2, 24, True)
PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7))
RTX_SERVER = _pcie("sm120", 8, 48, True, cpu="intel", per_socket=4, switches=PAIRS, socket_rate=24 * G)
"""As the preset pcie5-rtx-pro-6000-server."""

SOCKETS = ("a100sxm40_32gpu_8n_allgather_polaris_s1", "a100sxm40_32gpu_8n_allreduce_polaris_s1", "v100sxm3_2gpu_2n")
"""Those that are called less than healthy because NCCL took sockets there; they are as TCP is."""
SYSTEMS: dict[str, tuple[str, System]] = {  # start of a sweep's name: machine, system
    "a100sxm40_16gpu_2n_allreduce_oci": ("oci-a100", _over(A100, 2, 16, 12.5, "roce")),
    "a100sxm40_16gpu_2n_allreduce_p4d": ("p4d", _over(replace(A100, cpu="intel"), 2, 4, 12.5, "efa")),
    "a100sxm80_16gpu_2n_allreduce_p4de": ("p4de", _over(replace(A100, cpu="intel"), 2, 4, 12.5, "efa")),
    **{f"a100sxm40_16gpu_2n_{op}_sophia": ("sophia", SOPHIA) for op in ("allgather", "allreduce", "alltoall")},
    **dict.fromkeys(SOCKETS[:2], ("polaris-tcp", _over(POLARIS, 8, 2, 25, "tcp"))),
    "a100sxm40_32gpu_8n": ("polaris", _over(POLARIS, 8, 2, 25, "slingshot")),
    "a100sxm40_8gpu_2n": ("polaris", _over(POLARIS, 2, 2, 25, "slingshot")),
    "a100sxm40_8gpu_1n": ("superbench", replace(A100, launch="single-process")),
    "a100sxm80_8gpu_1n_allreduce_stas00": ("stas-a100", replace(A100, launch="torch")),
    "a100sxm80_32gpu_4n_allreduce_coreweave": ("coreweave-a100", _over(A100, 4, 8, 25, "ib")),
    "a100sxm_16gpu_2n_allreduce_aks": ("ndv4", _over(A100, 2, 8, 25, "ib")),
    "a100sxm_8gpu_1n_sendrecv": ("liplus", replace(A100, launch="single-process")),
    "a40_2gpu": ("a40", _pcie("sm86", 2, 24, False, launch="single-process", nccl="2.21")),
    "a40_4gpu": ("a40", _pcie("sm86", 4, 24, False, launch="single-process", nccl="2.21")),
    "a800sxm_24gpu": ("a800", _over(_nvswitch("sm80", 160, 2, nccl="2.21"), 12, 1, 50, "ib")),
    "b200_16gpu_2n_allreduce_lambda": ("lambda-b200", _over(replace(B200, nccl="2.26"), 2, 8, 50, "ib")),
    "b200_16gpu_2n": ("gke-a4", _over(B200, 2, 8, 50, "roce")),
    "b200sxm_8gpu_1n_allreduce_gke": ("gke-a4", B200),
    **{
        f"b200sxm_{8 * nodes}gpu_{nodes}n_{run}": ("together-b200", how(_over(TOGETHER, nodes, 8, 50, "ib")))
        for nodes in (4, 8, 16, 32, 48, 60, 64)
        for run, how in TOGETHER_RUNS.items()
    },
    "b200sxm_32gpu_4n": ("p6-b200", _over(replace(B200, launch="torch", nccl="2.27"), 4, 8, 50, "efa")),
    "b300_16gpu_2n": ("p6-b300", P6_B300),
    **{f"b300sxm_{8 * nodes}gpu": ("p6-b300", replace(P6_B300, nodes=nodes)) for nodes in (4, 8, 16, 32)},
    "b200sxm_8gpu_1n_allreduce_stas00": ("p6-b200", replace(B200, launch="torch", nccl="2.27")),
    "g4dn_2gpu": ("g4dn", _over(_pcie("sm75", 1, 12, True, nccl="2.21"), 2, 1, 12.5, "efa", gdr=False)),
    "gb10_2gpu_2n": ("spark", _over(System("GB10", "sm120", 1, "pcie", 24 * G, cpu="arm"), 2, 1, 25, "roce")),
    "gb200_72gpu": ("coreweave-gb200", NVL72),
    "gb200_1440gpu": ("coreweave-gb200", _over(NVL72, 20, 72, 50, "ib")),
    "gb200_8gpu_2n": ("oci-gb200", replace(NVL72, gpus=8)),
    "gb200_24gpu_6n_allreduce_nccl1801_ring": ("nccl1801", replace(PARTITIONS, algorithm="ring")),
    "gb200_24gpu_6n_allreduce_nccl1801_tree": ("nccl1801", replace(PARTITIONS, algorithm="tree")),
    "gb200_128gpu": ("oke-gb200", _over(replace(NVL72, gpus=64, nccl="2.29"), 2, 64, 50, "roce")),
    "gb200_144gpu": ("coreweave-gb200", _over(NVL72, 2, 72, 50, "ib")),
    **{f"gb200_16gpu_4n_{op}_nvcre_aws_mnnvl": ("cre-gb200", replace(NVL72, gpus=16)) for op in CRE},
    **{f"gb200_16gpu_4n_{op}_nvcre_aws_no": ("cre-gb200", TRAYS_GB200) for op in CRE},
    **{f"gb300_32gpu_8n_{op}_nvcre_aws_mnnvl": ("cre-gb300", replace(GB300, gpus=32)) for op in CRE},
    **{f"gb300_32gpu_8n_{op}_nvcre_aws_no": ("cre-gb300", TRAYS_GB300) for op in CRE},
    "gb200_64gpu": ("oke-gb200", replace(NVL72, gpus=64, nccl="2.29")),
    "gb300_64gpu": ("oci-gb300", GB300),
    "gb300_128gpu": ("oci-gb300", _over(GB300, 2, 128, 50, "roce")),
    "gh200_4gpu": ("alps", ALPS),
    **{f"gh200_{4 * n}gpu": ("alps", _over(ALPS, n, 4, 25, "slingshot")) for n in (2, 4, 8, 16, 32, 64, 128, 256, 512)},
    "h100nvl_4gpu_2n": ("h100nvl", _over(H100_PAIR, 2, 1, 25, "slingshot")),
    "h100sxm_16gpu_2n_allgather_a3high": ("a3high", _over(A3_HIGH, 2, 4, 25, "tcpx")),
    "h100sxm_16gpu_2n_allgather_a3mega": ("a3mega-gcp", _over(H100, 2, 8, 25, "tcpx")),
    "h100sxm_16gpu_2n_allreduce_a3mega": ("a3mega-ztan", _over(H100, 2, 8, 25, "tcpx")),
    "h100sxm_16gpu_2n_allreduce_nccltests309gj": ("gj-aion", replace(GJ_AION, algorithm="ring")),
    "h100sxm_16gpu_2n_allreduce_nccltests309": ("xe9680", _over(replace(H100, nccl="2.26"), 2, 8, 50, "ib")),
    "h100sxm_16gpu_2n_allreduce_oci": ("oci-h100", _over(replace(H100, nccl="2.23"), 2, 16, 25, "roce")),
    "h100sxm_16gpu_2n_allreduce_p5_aws": ("p5", _over(P5, 2, 32, 12.5, "efa")),
    "h100sxm_16gpu_2n_allreduce_p5_keitaw": ("p5-keitaw", _over(replace(P5, nccl="2.22"), 2, 32, 12.5, "efa")),
    "h100sxm_1024gpu": (
        "nccltests322",
        _over(replace(H100, algorithm="ring", protocol="ll128", nvls=False), 128, 8, 50, "roce"),
    ),
    "h100sxm_32gpu_4n_allreduce_nccltests309gj": ("gj-aion", replace(GJ_AION, nodes=4)),
    "h100sxm_64gpu_8n_allreduce_nccltests309gj_min": ("gj-aion", replace(GJ_AION, nodes=8)),
    "h100sxm_96gpu": ("coreweave-h100", _over(H100, 12, 8, 50, "ib")),
    "h100sxm_128gpu": ("nccl1469", _over(replace(H100, nccl="2.20"), 16, 8, 50, "ib")),
    "h100sxm_20gpu": ("xxrjun", _over(replace(H100, gpus=2), 10, 2, 50, "ib")),
    "h100sxm_32gpu_4n_allreduce_oci": ("oci-h100", _over(replace(H100, nccl="2.19"), 4, 16, 25, "roce")),
    "h100sxm_32gpu_4n": ("xe9680", _over(replace(H100, nccl="2.26"), 4, 8, 50, "ib")),
    "h100sxm_64gpu_8n": ("gj-aion", replace(GJ_AION, nodes=8)),
    "h100sxm_4gpu_1n": ("xxrjun", replace(H100, gpus=4)),
    "h100sxm_8gpu_1n_allreduce_awsbatch": ("awsbatch", P5),
    "h100sxm_8gpu_1n": ("xxrjun", H100),
    "h100sxm_80gpu": ("xxrjun", _over(H100, 10, 8, 50, "ib")),
    "h200sxm_16gpu_2n_allreduce_1nic": ("h200-1nic", _over(replace(H100, nccl="2.27"), 2, 1, 50, "ib")),
    "h200sxm_8gpu_1n": ("stas-h200", replace(H100, launch="torch", nccl="2.27")),
    "h800sxm_8gpu": ("h800", H800),
    "l40s_2gpu_2n": ("l40s", _over(replace(L40S, gpus=1, nccl="2.27", algorithm="ring"), 2, 1, 50, "tcp")),
    "l40s_4gpu_2n": ("l40s", _over(replace(L40S, nccl="2.27", algorithm="ring"), 2, 1, 50, "tcp")),
    "mi300x_8gpu_1n_allreduce_aac8": ("aac8", MI300X),
    "mi300x_8gpu_1n_allreduce_rocmblog": ("rocmblog", MI300X),
    "mi300x_8gpu_1n_allreduce_amdvalidation": ("amdvalidation", G8_MI300X),
    "mi300x_8gpu_1n_allreduce_azure": ("nd-mi300x", G8_MI300X),
    "mi300x_16gpu_2n_allreduce_oci": ("oci-mi300x", _over(MI300X, 2, 8, 50, "roce")),
    "mi300x_16gpu_2n_allreduce_aac10": ("aac10", _over(MI300X, 2, 8, 50, "roce")),
    "mi300x_16gpu_2n_allreduce_ainic": ("ainic", _over(MI300X, 2, 8, 50, "roce")),
    **{
        f"mi325x_{8 * n}gpu": ("aac11", _over(replace(MI300X, algorithm="ring"), n, 8, 50, "roce"))
        for n in (1, 2, 4, 8)
    },
    **{f"mi355x_8gpu_1n_{op}_aliyun": ("aliyun-mi355x", G8_MI355X) for op in ("allreduce", "alltoall")},
    **{f"mi355x_8gpu_1n_{op}_oci": ("oci-mi355x", G8_MI355X) for op in ("allreduce", "alltoall")},
    "mi355x_8gpu": ("orcd", replace(G8_MI355X, nccl="2.30")),
    "mi355x_16gpu_2n_allreduce_aac14": ("aac14", _over(MI355X, 2, 8, 50, "roce")),
    "mi355x_16gpu": ("aliyun-mi355x", _over(MI355X, 2, 8, 50, "roce")),
    "rtx2080ti_2gpu_1n_allreduce_ncrh": ("ncrh", RTX2080TI),
    "rtx2080ti_2gpu": ("autodl", replace(RTX2080TI, switches=((0, 1),))),
    "rtx2080ti_8gpu": ("jungpu", replace(RTX2080TI, gpus=8, per_socket=4, switches=PAIRS)),
    "rtx4090_2gpu_1n_allreduce_busy": ("busy-4090", replace(RTX4090, gpus=2)),
    "rtx4090_2gpu_1n_allreduce_shm": ("tg45", replace(RTX4090, gpus=2)),
    "rtx4090_4gpu": ("kalavai", replace(RTX4090, gpus=4)),
    "rtx4090_6gpu": ("tinybox", replace(RTX4090, gpus=6, p2p=True)),
    "rtx4090_8gpu_1n_allreduce_nop2p": ("chlc", RTX4090),
    "rtx4090_8gpu_1n_allreduce_p2p": ("chlc", replace(RTX4090, p2p=True)),
    "rtx5880ada": ("rtx5880", replace(RTX4090, p2p=True, cpu="intel")),
    "rtxpro6000_2gpu_2n": ("g7e", _over(G7E, 2, 1, 12.5, "efa", gdr=False)),
    "rtxpro6000_8gpu": ("cpayne", RTXPRO),
    "v100pcie16_2gpu": ("gpuserver2", _pcie("sm70", 2, 12, False, launch="single-process", nccl="2.21")),
    "v100pcie32_2gpu": ("sw53", _over(_pcie("sm70", 1, 12, True, nccl="2.21"), 2, 1, 1.25, "ib")),
    "v100sxm2_16gpu_2n": ("p3dn", _over(V100_CUBE, 2, 1, 12.5, "efa", gdr=False)),
    "v100sxm2_64gpu_8n": ("p3dn", _over(V100_CUBE, 8, 1, 12.5, "efa", gdr=False)),
    "v100sxm2_8gpu": ("hybridcube", replace(V100_CUBE, launch="single-process", nccl="2.21")),
    "v100sxm3_2gpu": ("bcm", _over(_pcie("sm70", 1, 12, True, nccl="2.21"), 2, 1, 1.25, "tcp")),
    "v100sxm3_dgx2": ("wohlbier", replace(V100_SWITCH, gpus=12)),
}
OPERATORS = {
    "amd": ("aac8", "aac10", "aac11", "aac14", "rocmblog", "amdvalidation", "ainic"),
    "amazon": ("p4d", "p4de", "p5", "p5-keitaw", "p6-b200", "p6-b300", "p3dn", "g4dn", "g7e", "awsbatch", "cre-gb200"),
    "argonne": ("polaris", "polaris-tcp", "sophia"),
    "coreweave": ("coreweave-a100", "coreweave-gb200", "coreweave-h100"),
    "google": ("a3high", "a3mega-gcp", "a3mega-ztan", "gke-a4"),
    "microsoft": ("ndv4", "ncrh", "superbench", "nd-mi300x"),
    "oracle": ("oci-a100", "oci-h100", "oci-gb200", "oke-gb200", "oci-gb300", "oci-mi300x", "oci-mi355x"),
    "stas00": ("stas-a100", "stas-h200"),
    "nvidia": (
        "cre-gb300",
        "nvidia-a100",
        "nvidia-h100",
        "nvidia-b200",
        "nvidia-gb200",
        "nvidia-rtx-pro-6000",
        "nvidia-l40s",
    ),
}
"""Whose clusters are built, set up and measured alike: machines by operator; all others are their own."""
NVIDIA: dict[str, tuple[str, System]] = {
    "a100_sxm": ("nvidia-a100", A100),
    "h100_sxm": ("nvidia-h100", H100),
    "b200_sxm": ("nvidia-b200", B200),
    "gb200": ("nvidia-gb200", replace(NVL72, gpus=4)),
    "rtx_pro_6000_server": ("nvidia-rtx-pro-6000", RTX_SERVER),
    "l40s": ("nvidia-l40s", replace(L40S, gpus=8)),
}
"""Systems of one_node_nvidia.json: machine, system."""
SICK = ("l40s",)
"""Those that are slower than their hardware: 14 times at 8 ranks, though not at 2."""
UNDESCRIBED = ("unknown_32gpu",)  # whose source does not name its hardware


@dataclass(frozen=True)
class Published:
    """A sweep with the system it was measured on; out-of-place rows as (bytes, seconds)."""

    name: str
    machine: str
    system: System
    collective: str
    quality: str  # "healthy", "care" (below its class, or doubts about the hardware), "degraded"
    rows: tuple[tuple[int, float], ...]
    in_place: tuple[tuple[int, float], ...]

    @property
    def operator(self) -> str:
        """Who runs the machine, with others that are alike."""
        return next((name for name, machines in OPERATORS.items() if self.machine in machines), self.machine)


def _seconds(rows: list[list[float]], factor: float) -> Iterator[tuple[int, float]]:
    """A bus bandwidth printed with two decimals stands for a time only if it is not too small."""
    for nbytes, microseconds, *rest in rows:
        if microseconds is not None:
            yield int(nbytes), microseconds * 1e-6
        elif rest[0] >= 0.1:
            yield int(nbytes), nbytes * factor / (rest[0] * G)


def published() -> list[Published]:
    """Every sweep whose hardware is known."""
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        if path.stem.startswith(UNDESCRIBED):
            continue
        machine, system = next(SYSTEMS[start] for start in SYSTEMS if path.stem.startswith(start))
        sweep = json.loads(path.read_text())
        assert (system.ranks, sweep["op"]) == (sweep["ranks"], sweep["op"]), path.stem
        factor = COLLECTIVES[sweep["op"]].bus_factor(sweep["ranks"])
        quality = "healthy" if path.stem.startswith(SOCKETS) else sweep["quality"]
        rows, in_place = (tuple(_seconds(sweep[name], factor)) for name in ("rows", "rows_inplace"))
        found.append(Published(path.stem, machine, system, sweep["op"], quality, rows, in_place))
    return [*found, *one_node()]


def one_node() -> Iterator[Published]:
    """NVIDIA's curves of one node by NCCL; a release that is not said is taken for the oldest of the others."""
    for series in json.loads(ONE_NODE.read_text())["series"]:
        if series["library"] != "nccl":
            continue
        machine, system = NVIDIA[series["system"]]
        release = series["version"] or "2.27.5"
        ranks, collective = series["nranks"], series["op"]
        rows = tuple((int(nbytes), median(times) * 1e-6) for nbytes, *times in series["points"])
        name = f"{series['system']}_{ranks}gpu_1n_{collective}_{series['dtype']}_{release}_{series['folder']}"
        part = replace(system.part(ranks) if ranks < system.gpus else system, nccl=release)
        if series["dtype"] == "int8" and COLLECTIVES[collective].reduces:  # which switches do not add
            part = replace(part, nvls=False)
        quality = ("degraded" if ranks > 2 else "care") if series["system"] in SICK else "healthy"
        yield Published(name, machine, part, collective, quality, rows, ())
