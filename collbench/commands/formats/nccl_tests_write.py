"""Writers of the table and the JSON of nccl-tests, in the layout of version 2.19."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean
from typing import Any

from collbench import __version__
from collbench.cases import Case, SizeRange, Sweep
from collbench.collectives import Collective, of_nccl_tests
from collbench.commands.formats.importing import Exported, ExportSelection, mean_seconds, rates, wrong_elements
from collbench.commands.formats.words import clean, whole
from collbench.errors import UsageError
from collbench.properties import NCCL_TESTS
from collbench.results import Observed, Prediction, Reported
from collbench.runfile.schema import ForeignTest, Header
from collbench.topology.discovered import Gpu

TEXT, JSON = "nccl-tests", "nccl-tests-json"
PLACES = ("out_of_place", "in_place")
MOST_LISTED = 2**17  # most ranks of a test, since each has a line
PROGRAMS = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"}
"""Programs of nccl-tests with names that differ from collbench's."""
SETTINGS = {
    "nthreads": "threads",
    "ngpus": "gpus",
    "warmup_iters": "warmup",
    "iterations": "iters",
    "aggregated_iterations": "aggregated",
}
"""Keys of options in the JSON, and their names in a header."""

_COLUMNS = "    time   algbw   busbw  #wrong "
_UNITS = "    (us)  (GB/s)  (GB/s)         "
HEADER = (
    f"#{'':62}out-of-place{'':23}in-place          ",
    f"#       size         count      type   redop    root {_COLUMNS}{_COLUMNS}",
    f"#        (B)    (elements)                           {_UNITS}{_UNITS}",
)


def program(collective: Collective) -> str:
    """Return the name of nccl-tests' program."""
    return f"{PROGRAMS.get(collective.name, collective.name)}_perf"


def shrunk(value: float, width: int) -> str:
    """Write a number with at most two decimals in `width`, else with an exponent (getFloatStr of nccl-tests)."""
    for digits in (2, 1, 0):
        text = f"{value:.{digits}f}"
        if len(text) <= width:
            return text
    text = f"{value:.1e}"
    return text if len(text) <= width else f"{value:.0e}"


def version_code(version: str) -> int:
    """Return NCCL's version code of a version like 2.30.7; 0 if it is not valid."""
    words = [int(word) for word in version.split(".")[:3] if word.isascii() and word.isdigit() and len(word) < 5]
    if len(words) < 3:
        return 0
    major, minor, patch = words
    return major * (1000 if (major, minor) < (2, 9) else 10000) + minor * 100 + patch


Places = tuple[Observed | None, ...]
"""A row of the table: out of place and in place; one may be None."""


@dataclass(frozen=True)
class ExportedTest:
    """One test: its rows in order, and the fields of an imported test."""

    test: ForeignTest
    rows: tuple[Places, ...]

    @property
    def results(self) -> list[Observed]:
        """Every place of every row; all are of one collective, implementation and number of ranks."""
        return [place for row in self.rows for place in row if place]


def settings(header: Header, ranks: int, sizes: Sequence[int], **known: int) -> dict[str, Any]:
    """Return nccl-tests' options for these sizes by the keys of its JSON; `known` overrides the header."""
    factor = sizes[1] / sizes[0] if len(sizes) > 1 and sizes[0] else 2.0
    requested = header.sweep.requested or SizeRange(sizes[0], sizes[-1], factor)
    step: dict[str, float] = {"step_factor": round(requested.factor or factor, 2)}

    # Without a launcher, one command started all ranks.
    launched = header.processes or header.imported.tool or any(gpu.host for gpu in header.topology.gpus)
    return {
        "nthreads": 1,
        "ngpus": 1 if launched else ranks,
        "minimum_bytes": requested.first or sizes[0],
        "maximum_bytes": requested.last or sizes[-1],
        **({"step_bytes": requested.step} if requested.step else step),
        "warmup_iters": header.sweep.sampling.warmup,
        "iterations": 0,
        "aggregated_iterations": 1,
        "validation": 1,
        **_properties(header.sweep),
        "graph": int(header.topology.platform == "gpu" and header.sweep.sampling.graph),
    } | known


def _properties(of: Case | Sweep) -> dict[str, int]:
    return {each.name: getattr(of, each.name) for each in NCCL_TESTS}


def _settings_of(part: ExportedTest, selection: ExportSelection) -> dict[str, Any]:
    sizes = sorted({result.case.nbytes for result in part.results})
    checked = all(wrong_elements(result) is not None for result in part.results)
    samples = min(len(result.times) for result in part.results)
    known = {"iterations": samples, "validation": int(checked), **_properties(part.results[0].case)}
    said = {key: whole(part.test.sweep.get(name)) for key, name in {**SETTINGS, "graph": "graph"}.items()}
    known |= {key: value for key, value in said.items() if value is not None}
    return settings(selection.header, part.results[0].case.ranks, sizes, **known)


def devices(header: Header, ranks: int) -> list[dict[str, Any]]:
    """Return the device of each rank by the keys of nccl-tests' JSON; unknown numbers are 0."""
    topology = header.topology
    known = topology.gpus or topology.sockets or (Gpu(),)
    name = re.sub(r"^\d{1,9} x ([^+]*?)(?: on \d+ nodes)?$", r"\1", topology.name)  # `8 x NVIDIA H100 on 2 nodes`
    seen, numbers = Counter[str](), []
    for device in known:
        numbers.append(seen[device.host])
        seen[device.host] += 1

    # An imported run has no names of hosts, only their numbers of ranks.
    hosts = topology.uneven or (ranks // max(1, topology.nodes),) * topology.nodes
    owners = [""] * ranks
    if len(hosts) > 1 and sum(hosts) == ranks:
        owners = [f"-{host}" for host, count in enumerate(hosts) for _ in range(count)]
    trimmed = header.imported.tool and not topology.nodes
    listed = []
    for rank in range(topology.listed if trimmed else ranks):
        at = rank % len(known)
        if rank < len(topology.places):
            at = topology.places[rank] if 0 <= topology.places[rank] < len(known) else 0
        host = clean(known[at].host or header.environment.host or "unknown", 64).replace(" ", "_")
        bus = re.fullmatch(r"([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})\.[0-7]", known[at].bus_id)
        listed.append(
            {
                "rank": rank,
                "group": 0,
                "pid": 0,
                "hostname": host if known[at].host else host + owners[rank],
                "device": numbers[at],
                "device_hex": bus[1] if bus else "0000:00:00",
                "device_info": clean(known[at].name or name or "unknown", 64),
            }
        )
    return listed


def exported_tests(selection: ExportSelection) -> list[ExportedTest]:
    """Return the results as tests of nccl-tests' programs; UsageError if none fits."""
    tests = defaultdict(ForeignTest, {str(at): test for at, test in enumerate(selection.header.imported.tests)})
    rows_of: dict[tuple[Any, ...], dict[Hashable, list[Observed | None]]] = {}
    seen = Counter[Hashable]()
    for result in selection.results:
        reason = _unfit(result)
        if reason or isinstance(result, Prediction):
            selection.left_out[reason] += 1
            continue
        case, printed = result.case, _printed(result)
        kind = case.collective.name, case.ranks, *_properties(case).values()
        key = (str(printed.get("test")), *kind, result.implementation, result.platform)

        # Both places of a case share a row; a repetition becomes another row.
        seen[key, case] += 1
        row = replace(case, in_place=False), str(printed.get("row", seen[key, case]))
        rows_of.setdefault(key, {}).setdefault(row, [None, None])[case.in_place] = result
    if not rows_of:
        raise UsageError(f"nothing to export: {', '.join(selection.left_out)}; choose --to csv")
    return [ExportedTest(tests[key[0]], tuple(map(tuple, rows.values()))) for key, rows in rows_of.items()]


def _unfit(result: Exported) -> str:
    """Return why nccl-tests cannot have this row, or an empty text."""
    if isinstance(result, Prediction):
        return "predictions are not measured"
    if result.case.collective not in of_nccl_tests():
        return f"nccl-tests has no {result.case.collective.name}"
    if isinstance(result, Reported) and not result.samples and result.figure != "mean":
        return "nccl-tests has only means"
    listed = result.case.ranks <= MOST_LISTED
    return "" if listed else f"nccl-tests would list more than {MOST_LISTED} ranks"


def write_text(selection: ExportSelection) -> str:
    """Write the text of a log with every test."""
    lines = [line for part in exported_tests(selection) for line in _text_of(part, selection)]
    return "\n".join(lines) + "\n"


def _text_of(part: ExportedTest, selection: ExportSelection) -> Iterator[str]:
    first, collective = part.results[0], part.results[0].case.collective
    yield signature(first.implementation, first.platform, first.case.ranks)
    yield from opening(collective, _settings_of(part, selection), selection.header, first.case.ranks)
    for places in part.rows:
        yield row(next(filter(None, places)).case, places)
    if part.test.complete:
        yield from footer(collective, part.results)


def signature(implementation: str, platform: str, ranks: int) -> str:
    """Return the comment that names the implementation, which nccl-tests' table lacks; `import` reads it."""
    return f"# collbench {__version__}: {implementation} on {platform}, {ranks} rank{'s' if ranks > 1 else ''}"


def opening(collective: Collective, options: Mapping[str, Any], header: Header, ranks: int) -> Iterator[str]:
    """Yield all lines before the rows."""
    yield f"# Collective test starting: {program(collective)}"
    step = f"{options['step_bytes']}(bytes)" if "step_bytes" in options else f"{options['step_factor']:.3g}(factor)"
    yield (
        f"# nThread {options['nthreads']} nGpus {options['ngpus']} minBytes {options['minimum_bytes']} "
        f"maxBytes {options['maximum_bytes']} step: {step} warmup iters: {options['warmup_iters']} "
        f"iters: {options['iterations']} agg iters: {options['aggregated_iterations']} "
        f"validation: {options['validation']} graph: {options['graph']}"
        + "".join(f" {each.name}: {options[each.name]}" for each in NCCL_TESTS)
    )
    yield "#"
    yield "# Using devices"
    for device in devices(header, ranks):
        place = f"on {device['hostname']:>10} device {device['device']:2d} [{device['device_hex'][:10]}]"
        yield f"#  Rank {device['rank']:2d} Group  0 Pid {0:6d} {place} {device['device_info']}"
    yield "#"
    yield from HEADER


def row(case: Case, places: Iterable[Observed | None]) -> str:
    """Write both places of a row side by side; a missing place has no numbers."""
    places = list(places)
    printed = (clean(_printed(place).get("redop", ""), 12) for place in places)
    redop = next(filter(None, printed), case.redop.name)
    start = f"{case.nbytes:12d}  {case.block:12d}  {case.dtype.name:>8}  {redop:>6}  {_root(case):>6d}"
    return start + "".join(map(_place, places))


def _root(case: Case) -> int:
    return case.root if case.collective.rooted else -1


def _printed(result: Observed | None) -> Mapping[str, Any]:
    return result.printed if isinstance(result, Reported) else {}


def _place(result: Observed | None) -> str:
    """Write one place in the original words of another tool, or from its numbers, which may lack a time."""
    words = _printed(result)
    time = algbw = busbw = wrong = "N/A"
    if words.keys() >= {"time", "algbw", "busbw", "#wrong"}:
        time, algbw, busbw, wrong = (clean(words[name], 12) for name in ("time", "algbw", "busbw", "#wrong"))
    elif result:
        elements = wrong_elements(result)
        if elements is not None:
            wrong = f"{elements:g}"
        if mean_seconds(result) > 0:
            time = shrunk(mean_seconds(result) * 1e6, 7)
            algbw, busbw = (shrunk(rate, 6) for rate in rates(result))
    # N/A of nccl-tests is one character narrower.
    wrong = f"{wrong:>7}" if wrong == "N/A" else f"  {wrong:>6}"
    return f"  {time:>7}  {algbw:>6}  {busbw:>6}{wrong}"


def average(results: Iterable[Observed]) -> float:
    """Return the mean bus bandwidth in GB/s of all rows and places, as in nccl-tests; 0 if there are none."""
    rates_ = [rates(result)[1] for result in results if mean_seconds(result) > 0]
    return fmean(rates_) if rates_ else 0.0


def footer(collective: Collective, results: Sequence[Observed], verdict: str = "") -> Iterator[str]:
    """Yield the lines below the rows; `verdict` is that on the average bandwidth, if a minimum was requested."""
    bad = sum(bool(wrong_elements(result)) for result in results)
    yield f"# Out of bounds values : {bad} {'FAILED' if bad else 'OK'}"
    yield f"# Avg bus bandwidth    : {average(results):g} {verdict}"
    yield "#"
    yield f"# Collective test concluded: {program(collective)}"
    yield "#"


def write_json(selection: ExportSelection) -> str:
    """Write the first test as a JSON object of version 3."""
    part, *others = exported_tests(selection)
    for other in others:
        selection.left_out[f"{JSON} holds only one test; {TEXT} holds all"] += len(other.results)
    first, header, options = part.results[0], selection.header, _settings_of(part, selection)
    bad = sum(bool(wrong_elements(result)) for result in part.results)
    per_process = max(1, options["nthreads"] * options["ngpus"])
    words = [(f"-{each.letter}", str(value)) for each, value in first.case.unusual if each.letter]
    record = {
        "version": 3,
        "start_time": header.started[:19].replace("T", " "),
        "args": [program(first.case.collective), *chain.from_iterable(words)],
        "env": [f"{name}={value}" for name, value in header.environment.variables.items()],
        "nccl_version": version_code(header.environment.versions.get("nccl", "")),
        "collbench": {
            "version": __version__,
            "implementation": first.implementation,
            "platform": first.platform,
            "ranks": first.case.ranks,
        },
        # As in nccl-tests, one device for each process.
        "config": options | {"devices": devices(header, first.case.ranks)[::per_process]},
        "results": [_entry(places) for places in part.rows],
        "out_of_bounds": {"count": bad, "okay": str(not bad).lower()},
        "average_bus_bandwidth": {"bandwidth": round(average(part.results), 6), "okay": "unchecked"},
        "errors": [],
        "end_time": "",
    }
    return json.dumps(record, indent=2) + "\n"


def _entry(places: Places) -> dict[str, Any]:
    result = next(filter(None, places))
    case = result.case
    return {
        "size": case.nbytes,
        "count": case.block,
        "type": case.dtype.name,
        "redop": case.redop.name,
        "root": f"{_root(case):6d}",
        **{name: _figures(place) for name, place in zip(PLACES, places, strict=True)},
        "actual_iterations": len(result.times),
        "experiment_name": "",
    }


def _figures(result: Observed | None) -> dict[str, Any] | None:
    """Microseconds and GB/s with six decimals; "nan" without a time."""
    if not result:
        return None
    figures: dict[str, Any] = dict.fromkeys(("time", "alg_bw", "bus_bw"), "nan")
    if mean_seconds(result) > 0:
        values = mean_seconds(result) * 1e6, *rates(result)
        figures = {name: round(value, 6) for name, value in zip(figures, values, strict=True)}
    wrong = wrong_elements(result)
    return figures | {"nwrong": None if wrong is None else float(wrong)}
