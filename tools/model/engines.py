"""All-reduces of inference engines, published by NVIDIA, with NCCL's times on the same machines and predictions.

The data (one_node_nvidia.json) name the engine, not the kernel.  The kernel follows from the engines' sources:

* vLLM and SGLang before 0.5.14 (csrc/custom_all_reduce.cuh): one-shot up to 8 MiB on 2 ranks; one-shot below 512 and
  256 KiB on 4 and 8 ranks, two-shot above.  36 blocks have one load per thread in flight for each other rank, and only
  one in the second half of a two-shot.  Over PCIe for 2 ranks only.
* vLLM from 0.19 on H100 and B200 (all_reduce_utils.py, symm_mem.py): PyTorch's kernels from smaller sizes on, two-shot
  or by switches that add, between two copies.
* SGLang 0.5.14 with NVLink from Hopper on (custom_all_reduce_v2.py): pushed packets, each with its own flag in the
  data; above some size a kernel that reads, one-shot on 2 ranks, else two-shot; up to 16 MiB.
* TensorRT-LLM (customAllReduceUtils.h): packets with their flag in the data (Lamport's), then two-shot within the
  limits of its table and its workspace of 8 MB; NCCL over PCIe, and for large sizes.

Rows of NCCL or of an unknown kernel are left out.  A packet with its flag in the data moves half the bytes of ours, and
is compared with `one-shot-ll` of half the bytes.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

from collbench.algorithms import implementations
from collbench.cases import Case
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.model.handwritten import behind, hardware, host
from collbench.platforms.cost import Hardware
from collbench.topology.files import load
from collbench.topology.system import System
from collbench.units import format_size
from tools import block, table

DATA = Path(__file__).parent / "one_node_nvidia.json"
KIB, MIB = 1 << 10, 1 << 20
ALLREDUCE = COLLECTIVES["allreduce"]
MACHINES = {
    "a100_sxm": ("A100, NVSwitch", "dgx-a100"),
    "h100_sxm": ("H100, NVSwitch", "dgx-h100"),
    "b200_sxm": ("B200, NVSwitch", "dgx-b200"),
    "gb200": ("GB200, NVSwitch", "gb200-nvl72"),
    "l40s": ("L40S, PCIe 4", "pcie4-l40s"),
    "rtx_pro_6000_server": ("RTX PRO 6000, PCIe 5", "pcie5-rtx-pro-6000"),
}
"""Name in the tables, and preset, by the name in the data."""
OTHERS = {("l40s", "0.5.12"), ("rtx_pro_6000_server", "0.5.10"), ("rtx_pro_6000_server", "0.19.0")}
"""Runs on other machines with the same name, on which NCCL takes three times as long."""
LAUNCHES = {"graph": "graph", "eager": "torch"}
IN_FLIGHT = 36 * 512 * 16  # bytes in flight between two ranks of the older kernels
READ = {"sm80": 1.0e-6, "sm90": 1.12e-6, "sm100": 1.72e-6}
"""Seconds of a read from another GPU over NVLink, fitted with the rest; it limits the older kernels on Blackwell."""

HOSTS = {"PyTorch": 2.0, "SGLang, newer": 1.4}
"""Launch time over that of other engines: two more copies, and more Python code."""


class Kernel(NamedTuple):
    """A kernel of an engine, by our implementation of the same algorithm."""

    engine: str
    implementation: str
    copies: int = 0  # of the whole array, before and after it


class Published(NamedTuple):
    """The median time of a kernel over engines of a family; in bytes and seconds."""

    machine: str
    ranks: int
    launch: str  # of LAUNCHES
    kernel: Kernel
    nbytes: int
    seconds: float

    @property
    def system(self) -> System:
        return _system(self.machine, self.ranks, self.launch)


@cache
def _system(machine: str, ranks: int, launch: str) -> System:
    return replace(load(MACHINES[machine][1]).part(ranks), launch=LAUNCHES[launch])


class Gain(NamedTuple):
    """NCCL's time, and the time of the fastest hand-written kernel of any engine."""

    machine: str
    ranks: int
    launch: str
    nbytes: int
    nccl: float  # launched by nccl-tests, one operation after another, without a graph
    best: float
    kernel: Kernel

    @property
    def ratio(self) -> float:
        """The speed-up of the hand-written kernel."""
        return self.nccl / self.best


def _older(ranks: int, nbytes: int) -> str:
    one_shot = ranks == 2 or nbytes < (512 if ranks == 4 else 256) * KIB
    return "one-shot" if one_shot else "two-shot"


def _vllm(version: str, machine: str, ranks: int, nbytes: int) -> Kernel | None:
    most, symmetric = 8 * MIB, 0
    if version >= "0.19" and machine in ("h100_sxm", "b200_sxm"):
        hopper = machine == "h100_sxm"
        most = ({2: 8, 4: 8, 8: 0.25} if hopper else {2: 2, 4: 2, 8: 1})[ranks] * MIB
        symmetric = ({2: 64, 4: 32, 8: 64} if hopper else {2: 8, 4: 32, 8: 128})[ranks] * MIB
    if machine == "gb200" and version == "0.14.0":
        most = 2 * MIB
    if nbytes < most:
        return Kernel("vLLM, SGLang", _older(ranks, nbytes))
    adds = ranks > (2 if machine == "h100_sxm" else 4)
    return Kernel("PyTorch", "nvls" if adds else "two-shot", copies=2) if nbytes <= symmetric else None


def _sglang(version: str, machine: str, ranks: int, nbytes: int) -> Kernel | None:
    if version != "0.5.14" or machine in ("l40s", "rtx_pro_6000_server"):
        return Kernel("vLLM, SGLang", _older(ranks, nbytes)) if nbytes <= 8 * MIB else None
    pushed = {2: 2048, 4: 384, 8: 160} if machine == "h100_sxm" else {2: 4096, 4: 2048, 8: 720}
    if nbytes <= pushed[ranks] * KIB:
        return Kernel("SGLang, newer", "one-shot-ll")
    return Kernel("SGLang, newer", "one-shot" if ranks == 2 else "two-shot") if nbytes <= 16 * MIB else None


def _tensorrt(version: str, machine: str, ranks: int, nbytes: int) -> Kernel | None:
    one, two = {
        "a100_sxm": {2: (1024, 0), 4: (1024, 0), 8: (512, 0)},
        "h100_sxm": {2: (4096, 0), 4: (1024, 4096), 8: (256, 4096)},
    }.get(machine, {2: (8192, 0), 4: (2048, 4096), 8: (1024, 4096)})[ranks]
    if version == "1.2.0rc5":  # another table
        two, one = 0, 32 if (machine, ranks) == ("h100_sxm", 4) else one
    if nbytes <= one * KIB:
        return Kernel("TensorRT-LLM", "one-shot-ll")
    return Kernel("TensorRT-LLM", "two-shot") if nbytes <= two * KIB else None


def _series() -> Iterator[dict[str, Any]]:
    for series in json.loads(DATA.read_text())["series"]:
        if series["op"] == "allreduce" and series["dtype"] in ("half", "bfloat16") and series["system"] in MACHINES:
            yield series


@cache
def published() -> tuple[Published, ...]:
    """Return every time of a hand-written kernel; repeated tables count once."""
    found: dict[tuple[str, int, str, Kernel, int], list[float]] = defaultdict(list)
    seen = set()
    for series in _series():
        machine, ranks, library, version = (series[name] for name in ("system", "nranks", "library", "folder"))
        kernel_of = {"vllm": _vllm, "sglang": _sglang, "trtllm": _tensorrt}.get(library)
        pcie = "PCIe" in MACHINES[machine][0]
        known = not pcie or (ranks == 2 and library != "trtllm" and (machine, version) not in OTHERS)
        label = machine, ranks, str(series["points"])
        if not kernel_of or not known or label in seen or (library, series["kernel"]) == ("sglang", "TRTLLM"):
            continue
        seen.add(label)
        launch = "eager" if series["kernel"].endswith("eager") else "graph"
        for nbytes, *times in series["points"]:
            if kernel := kernel_of(version, machine, ranks, nbytes):
                found[machine, ranks, launch, kernel, nbytes].append(median(times) * 1e-6)
    return tuple(Published(*key, median(times)) for key, times in sorted(found.items()))


def predicted(row: Published, links: Hardware | None = None, read: float | None = None) -> float:
    """Return the predicted seconds of the kernel, in a graph or launched by the host."""
    system, (engine, name, copies) = row.system, row.kernel
    links = links or hardware(system)
    case = Case(ALLREDUCE, row.nbytes, DATATYPES["bfloat16"], REDUCTIONS["sum"], 0, row.ranks, in_place=False)
    count = implementations()[name].cost
    assert count
    cost = count(case)
    if name == "one-shot-ll":
        half = {name: getattr(cost, name) / 2 for name in ("link", "memory", "packets")}
        cost = replace(cost, blocks=math.inf, **half)
    if engine == "vLLM, SGLang" and system.arch in READ:
        rate, each = links.reach * links.link, IN_FLIGHT / (read or READ[system.arch])
        shots = [row.ranks - 1, 1][: 1 + (name == "two-shot")]
        rate = len(shots) / sum(1 / min(rate, each * loads) for loads in shots)
        links = replace(links, link=rate, reach=1.0)
    issued = host(system) * HOSTS.get(engine, 1.0)
    copies += row.launch == "eager" and not copies  # a copy into memory that others can read, by a copy engine
    copying = copies * (links.launch + 2 * row.nbytes / links.memory)
    return behind(issued, links.seconds(cost, row.nbytes) + copying)


def off(row: Published) -> float:
    return predicted(row) / row.seconds - 1


def error_table() -> list[str]:
    """Return a table of mean errors by machine and launch, and by kernel, with the range of nine of ten times."""
    heads = ("machine", "launch", "kernels", "times", "mean error, %", "bias, %")
    rows = []
    for *key, found in classes():
        errors = [off(row) for row in found]
        mean, bias = 100 * fmean(map(abs, errors)), 100 * fmean(errors)
        low, high = np.quantile([1 / (1 + error) for error in errors], (0.05, 0.95))
        rows.append([*key, str(len(found)), f"{mean:.1f}", f"{bias:+.1f}", f"{low:.2f} to {high:.2f}"])
    return table((*heads, "published over predicted, 5 % to 95 %"), rows)


def classes() -> Iterator[tuple[str, str, str, Sequence[Published]]]:
    """Yield rows by machine and launch; then of all machines by engine, and in graphs by kernel."""
    rows: dict[tuple[str, str, str], list[Published]] = defaultdict(list)
    for row in published():
        rows[MACHINES[row.machine][0], row.launch, "all"].append(row)
    for row in published():
        kernel = f"`{row.kernel.implementation}`, " if row.launch == "graph" else ""
        rows["all", row.launch, kernel + row.kernel.engine].append(row)
    yield from ((*key, found) for key, found in rows.items())


def _nccl() -> dict[tuple[str, int, int], float]:
    """Return the seconds of NCCL's newest release by machine, ranks and bytes."""
    found: dict[tuple[str, int, int], float] = {}
    for series in sorted(_series(), key=lambda series: str(series["version"])):
        if series["library"] == "nccl":
            found |= {(series["system"], series["nranks"], size): 1e-6 * time for size, time, *_ in series["points"]}
    return found


@cache
def gains() -> tuple[Gain, ...]:
    """Return NCCL's time and the fastest hand-written one, wherever both are published."""
    nccl = _nccl()
    best: dict[tuple[str, int, str, int], Published] = {}
    for row in sorted(published(), key=lambda row: -row.seconds):
        best[row.machine, row.ranks, row.launch, row.nbytes] = row
    found = (
        Gain(machine, ranks, launch, nbytes, nccl[machine, ranks, nbytes], row.seconds, row.kernel)
        for (machine, ranks, launch, nbytes), row in best.items()
        if (machine, ranks, nbytes) in nccl
    )
    order = list(MACHINES)
    return tuple(sorted(found, key=lambda gain: (order.index(gain.machine), gain.ranks, gain.launch, gain.nbytes)))


class InGraph(NamedTuple):
    """NCCL's time in a stream and in a CUDA graph, from an engine that used NCCL for an operation."""

    machine: str
    ranks: int
    nbytes: int
    stream: float
    graph: float


@cache
def nccl_in_graphs() -> tuple[InGraph, ...]:
    """Return NCCL's times in graphs below 1 MiB: over PCIe, and for TensorRT-LLM 1.2 on 4 H100 from 64 to 256 KiB."""
    plain, found = _nccl(), set()
    for series in _series():
        machine, ranks, library, version = (series[name] for name in ("system", "nranks", "library", "folder"))
        least, most = (64 * KIB, 512 * KIB) if machine == "h100_sxm" else (0, MIB)
        left = {"h100_sxm": ranks == 4 and version == "1.2.0rc5", "l40s": ranks == 2 and library == "trtllm"}
        left["rtx_pro_6000_server"] = version != "1.3.0rc10" and (ranks > 2 or library == "trtllm")
        if library == "nccl" or series["kernel"].endswith("eager") or not left.get(machine):
            continue
        for nbytes, *times in series["points"]:
            if least <= nbytes < most and (before := plain.get((machine, ranks, nbytes))):
                found.add(InGraph(machine, ranks, nbytes, before, 1e-6 * median(times)))
    return tuple(sorted(found))


def in_graphs_table() -> list[str]:
    """Return a table of NCCL's time in a graph over its time in a stream."""
    rows = []
    for machine, ranks in sorted({(row.machine, row.ranks) for row in nccl_in_graphs()}):
        found = [row for row in nccl_in_graphs() if (row.machine, row.ranks) == (machine, ranks)]
        sizes = f"{format_size(found[0].nbytes)} to {format_size(found[-1].nbytes)}"
        ratio = median(row.graph / row.stream for row in found)
        rows.append([MACHINES[machine][0], str(ranks), sizes, f"{ratio:.2f}"])
    return table(("machine", "ranks", "sizes", "in a graph over in a stream, median"), rows)


SHOWN = (1 * KIB, 64 * KIB, 1 * MIB, 8 * MIB)


def gains_table() -> list[str]:
    """Return a table of gains by machine, number of ranks and launch: NCCL over hand-written at some sizes."""
    curves: dict[tuple[str, int, str], dict[int, Gain]] = defaultdict(dict)
    for gain in gains():
        curves[gain.machine, gain.ranks, gain.launch][gain.nbytes] = gain
    rows = []
    for (machine, ranks, launch), by_size in curves.items():
        cells = [_cell(by_size.get(nbytes)) for nbytes in SHOWN]
        rows.append([MACHINES[machine][0], str(ranks), launch, *cells, _faster(list(by_size.values()))])
    return table(("machine", "ranks", "launch", *map(format_size, SHOWN), "hand-written is faster"), rows)


def _cell(gain: Gain | None) -> str:
    return f"{1e6 * gain.nccl:.3g} / {1e6 * gain.best:.3g} us, {gain.ratio:.2g}x" if gain else "NCCL only"


def _faster(curve: Sequence[Gain]) -> str:
    """Return the sizes between which the hand-written kernel is at least 5 % faster."""
    sizes = [gain.nbytes for gain in curve if gain.ratio > 1.05]
    return f"{format_size(sizes[0])} to {format_size(sizes[-1])}" if sizes else "nowhere"


FITTED = (["a100_sxm"], ["h100_sxm"], ["b200_sxm", "gb200"], ["l40s"], ["rtx_pro_6000_server"])
"""Machines whose costs are fitted together."""


def fitted(machines: Sequence[str]) -> dict[str, float]:
    """Return launch, barrier, fence, `adds` (as in gpu_costs.toml) and the read that fit these machines best."""
    from scipy.optimize import least_squares

    rows = [row for row in published() if row.launch == "graph" and row.machine in machines]
    bases = [hardware(row.system) for row in rows]
    arch = rows[0].system.arch
    start = np.array([2.0, 1.2, 1.0, 0.8, 1.2])

    def residuals(at: np.ndarray) -> list[float]:
        launch, barrier, fence, adds, read = at
        logs = []
        for row, base in zip(rows, bases, strict=True):
            waits = {
                wait: 1e-6 * barrier if wait.name == "BARRIER" else seconds for wait, seconds in base.waits.items()
            }
            more = 0.1e-6 * max(0, row.ranks - 2)
            links = replace(base, launch=1e-6 * launch + more, waits=waits, fence=1e-6 * fence * row.ranks, adds=adds)
            logs.append(np.log(predicted(row, links, 1e-6 * read) / row.seconds))
        return logs

    best = least_squares(residuals, start, loss="soft_l1", f_scale=0.1, bounds=(0.05, 10), x_scale=start).x
    return dict(zip((f"{arch}.{name}" for name in ("launch", "barrier", "fence", "adds", "read")), best, strict=True))


def written() -> Iterator[tuple[Path, str]]:
    yield block("docs/model.md", "engine errors", error_table())
    yield block("docs/model.md", "engines", gains_table())
    yield block("docs/model.md", "nccl in graphs", in_graphs_table())


if __name__ == "__main__":  # prints the fitted costs for gpu_costs.toml
    for machines in FITTED:
        print(machines, {name: round(float(value), 3) for name, value in fitted(machines).items()})
