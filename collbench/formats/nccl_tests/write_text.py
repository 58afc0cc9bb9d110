"""Writes the table of nccl-tests: a foreign test's rows as they were, others in the layout of version 2.19."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from collbench.cases import Case
from collbench.collectives import Collective, of_nccl_tests
from collbench.datatypes import NONE
from collbench.errors import UsageError
from collbench.formats.exported import (
    ExportLine,
    ExportSelection,
    Part,
    mean_seconds,
    other_figures,
    parts,
    rates,
    signature,
    texts,
    wrong_elements,
)
from collbench.formats.nccl_tests.settings import Settings, settings
from collbench.formats.source import clean
from collbench.results import Observed
from collbench.runfile.header import Device

PROGRAMS = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"}
"""Programs of nccl-tests that are not called as collbench calls the collective."""


def shrunk(value: float, width: int) -> str:
    """With as many of two decimals as fit, else with an exponent (getFloatStr of nccl-tests)."""
    for digits in (2, 1, 0):
        text = f"{value:.{digits}f}"
        if len(text) <= width:
            return text
    text = f"{value:.1e}"
    return text if len(text) <= width else f"{value:.0e}"


def code(version: str) -> int:
    """NCCL's version code from a version as people write it; 0 if it is none."""
    parts = [int(word) for word in version.split(".")[:3] if word.isascii() and word.isdigit() and len(word) < 5]
    if len(parts) < 3:
        return 0
    major, minor, patch = parts
    return major * (1000 if (major, minor) < (2, 9) else 10000) + minor * 100 + patch


def program(collective: Collective) -> str:
    """What nccl-tests calls the program."""
    return f"{PROGRAMS.get(collective.name, collective.name)}_perf"


def listed(selection: ExportSelection, ranks: int) -> list[str]:
    """A line for each rank; process, device and bus are 0 where the run file does not say them."""
    return [
        f"#  Rank {device['rank']:2d} Group {0:2d} Pid {0:6d} on {device['hostname']:>10} device {device['device']:2d} "
        f"[{device['device_hex'][:10]}] {device['device_info']}"
        for device in devices(selection, ranks)
    ]


def devices(selection: ExportSelection, ranks: int) -> list[dict[str, Any]]:
    """The same as fields, by the names of nccl-tests' JSON."""
    host = selection.header.environment.host or "unknown"
    topology = selection.header.topology
    known = topology.gpus or topology.sockets or (Device(),)
    name = _kind(topology.name or "unknown")
    numbers = _numbers(known)
    places = [place if 0 <= place < len(known) else 0 for place in topology.places]
    return [
        {
            "rank": rank,
            "group": 0,
            "pid": 0,
            "hostname": clean(known[at].host or host, 64).replace(" ", "_"),
            "device": numbers[at],
            "device_hex": _bus(known[at]),
            "device_info": clean(known[at].name or name, 64),
        }
        for rank in range(ranks)
        for at in (places[rank] if rank < len(places) else rank % len(known),)
    ]


def _numbers(known: Sequence[Device]) -> list[int]:
    """Of devices, counted node by node."""
    seen, numbers = Counter[str](), []
    for device in known:
        numbers.append(seen[device.host])
        seen[device.host] += 1
    return numbers


def _bus(device: Device) -> str:
    """Domain, bus and device, as nccl-tests writes them."""
    match = re.fullmatch(r"([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})\.[0-7]", device.bus_id)
    return match[1] if match else "0000:00:00"


def _kind(name: str) -> str:
    """What all ranks live on, from the topology's name: `8 x NVIDIA H100 on 2 nodes`."""
    match = re.fullmatch(r"\d{1,9} x ([^+]*?)(?: on \d+ nodes)?", name)
    return match[1] if match else name


NAME = "nccl-tests"
MISSING = f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}    N/A"
_COLUMNS = "    time   algbw   busbw  #wrong "
_UNITS = "    (us)  (GB/s)  (GB/s)         "
HEADER = (
    f"#{'':62}out-of-place{'':23}in-place          ",
    f"#       size         count      type   redop    root {_COLUMNS}{_COLUMNS}",
    f"#        (B)    (elements)                           {_UNITS}{_UNITS}",
)


def write(selection: ExportSelection) -> str:
    """The text of a log with every test."""
    tests = [_own(part) if part.test.format == NAME else _made(part, selection) for part in fitting(selection)]
    return "\n".join(line for lines in tests for line in lines) + "\n"


def fitting(selection: ExportSelection) -> list[Part]:
    """The tests that nccl-tests has a program for; UsageError if there is none."""
    tests, known = parts(selection), of_nccl_tests()
    for part in tests:
        if part.lines[0].case.collective not in known:
            selection.leave(f"nccl-tests has no {part.lines[0].case.collective.name}")
    kept = [part for part in tests if part.lines[0].case.collective in known]
    if tests and not kept:
        names = ", ".join(dict.fromkeys(part.lines[0].case.collective.name for part in tests))
        raise UsageError(f"nothing to export: nccl-tests has no {names}; choose --to osu or csv")
    return kept


def _own(part: Part) -> Iterator[str]:
    """As it was, without what other programs printed in between."""
    yield from texts(part.test.layout.get("before"))
    for line in part.lines:
        yield str(line.printed.get("line", ""))
    yield from texts(part.test.layout.get("after"))


def _made(part: Part, selection: ExportSelection) -> Iterator[str]:
    first = part.lines[0].any
    yield signature(first)
    yield from other_figures(place for line in part.lines for place in line.places if place)
    sizes = sorted({line.case.nbytes for line in part.lines})
    checked = all(wrong_elements(place) is not None for line in part.lines for place in line.places if place)
    ranks, iterations = first.case.ranks, part.iterations
    said = settings(selection.header, ranks, sizes, part.test, iterations=iterations, checked=checked)
    yield from opening(first.case.collective, said, listed(selection, ranks))
    yield from map(row, part.lines)
    if part.test.complete:
        yield from footer(first.case.collective, [place for line in part.lines for place in line.places if place])


def opening(collective: Collective, said: Settings, devices_: Sequence[str]) -> Iterator[str]:
    """All lines before the rows; the last lines are those of `listed`."""
    yield f"# Collective test starting: {program(collective)}"
    yield str(said)
    yield from ("#", "# Using devices", *devices_, "#", *HEADER)


def row(line: ExportLine) -> str:
    """Both places of a row, side by side."""
    return start(line.case) + "".join(_place(place) if place else MISSING for place in line.places)


def start(case: Case) -> str:
    """What a row says of its case."""
    root = case.root if case.collective.rooted else -1
    redop = case.redop.name if case.redop is not NONE else "none"
    return f"{case.nbytes:12d}  {case.block:12d}  {case.dtype.name:>8}  {redop:>6}  {root:>6d}"


def _place(result: Observed) -> str:
    """Without a time it may still say how many elements are wrong."""
    seconds, elements = mean_seconds(result), wrong_elements(result)
    told = "    N/A" if elements is None else f"  {elements:6g}"
    if seconds <= 0:
        return f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}{told}"
    algbw, busbw = rates(result)
    return f"  {shrunk(seconds * 1e6, 7):>7}  {shrunk(algbw, 6):>6}  {shrunk(busbw, 6):>6}{told}"


def average(results: Iterable[Observed]) -> float:
    """Bus bandwidth in GB/s, the mean of all rows and places, as nccl-tests has it; 0 without any."""
    buses = [rates(result)[1] for result in results if mean_seconds(result) > 0]
    return sum(buses) / len(buses) if buses else 0.0


def footer(collective: Collective, results: Sequence[Observed], verdict: str = "") -> Iterator[str]:
    """All lines behind the rows; the verdict is that on the average, where a least one was wanted."""
    bad = sum(bool(wrong_elements(result)) for result in results)
    yield f"# Out of bounds values : {bad} {'FAILED' if bad else 'OK'}"
    yield f"# Avg bus bandwidth    : {average(results):g} {verdict}"
    yield "#"
    yield f"# Collective test concluded: {program(collective)}"
    yield "#"
