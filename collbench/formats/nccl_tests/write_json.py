"""Writes the JSON of nccl-tests: a foreign test as it was, others in the layout of version 3."""

from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from collbench import __version__
from collbench.errors import UsageError
from collbench.formats.exported import (
    ExportLine,
    ExportSelection,
    Part,
    mapping,
    mean_seconds,
    rates,
    texts,
    wrong_elements,
)
from collbench.formats.nccl_tests.loose_json import dump, restored
from collbench.formats.nccl_tests.settings import settings
from collbench.formats.nccl_tests.write_text import code, devices, fitting, program
from collbench.results import Measurement, Observed, Reported
from collbench.stats import percentile

NAME = "nccl-tests-json"
PLACES = ("out_of_place", "in_place")


def write(selection: ExportSelection) -> str:
    """One JSON object; UsageError if there are several tests, since the format holds one."""
    tests = fitting(selection)
    if len(tests) > 1:
        names = ", ".join(f"{part.lines[0].case.collective.name} on {part.lines[0].case.ranks}" for part in tests)
        raise UsageError(f"{NAME} holds one test a file, and this run has {len(tests)} ({names}); export nccl-tests")
    (part,) = tests
    made = _own(part) if part.test.format == NAME else _made(part, selection)
    return dump(made)


def _own(part: Part) -> dict[str, Any]:
    values = mapping(restored(part.test.layout.get("values")))
    entries = [_entry(line) for line in part.lines]
    keys = texts(part.test.layout.get("keys"))
    return {key: entries if key == "results" else values.get(key) for key in keys} | {"results": entries}


def _entry(line: ExportLine) -> dict[str, Any]:
    """Both places' parts of what the file had."""
    entry: dict[str, Any] = {}
    for place in line.places:
        if isinstance(place, Reported):
            entry |= mapping(restored(place.printed.get("entry")))
    keys = texts(line.printed.get("keys"))
    return {key: entry[key] for key in dict.fromkeys([*keys, *entry]) if key in entry}


def _made(part: Part, selection: ExportSelection) -> dict[str, Any]:
    first = part.lines[0].any
    results = [place for line in part.lines for place in line.places if place]
    bad = sum(bool(wrong_elements(result)) for result in results)
    buses = [rates(result)[1] for result in results if mean_seconds(result) > 0]
    return {
        "version": 3,
        "start_time": selection.header.started[:19].replace("T", " "),
        "args": [program(first.case.collective)],
        "env": [f"{name}={value}" for name, value in selection.header.environment.variables.items()],
        "nccl_version": code(selection.header.environment.versions.get("nccl", "")),
        "collbench": {
            "version": __version__,
            "implementation": first.implementation,
            "platform": first.platform,
            "ranks": first.case.ranks,
        },
        "config": _config(part, selection, all(wrong_elements(result) is not None for result in results)),
        "results": [_row(line) for line in part.lines],
        "out_of_bounds": {"count": bad, "okay": str(not bad).lower()},
        "average_bus_bandwidth": {"bandwidth": round(fmean(buses), 6) if buses else 0.0, "okay": "unchecked"},
        "errors": [],
        "end_time": "",
    }


def _config(part: Part, selection: ExportSelection, checked: bool) -> dict[str, Any]:
    """What the program would have been told on its command line."""
    ranks = part.lines[0].case.ranks
    sizes = sorted({line.case.nbytes for line in part.lines})
    said = settings(selection.header, ranks, sizes, part.test, iterations=part.iterations, checked=checked)
    of_process = max(1, said.threads * said.gpus)
    return said.config | {"devices": devices(selection, ranks)[::of_process]}  # one for each process, as there


def _row(line: ExportLine) -> dict[str, Any]:
    case = line.case
    root = case.root if case.collective.rooted else -1
    row: dict[str, Any] = {
        "size": case.nbytes,
        "count": case.block,
        "type": case.dtype.name,
        "redop": case.redop.name,
        "root": f"{root:6d}",
    }
    for name, place in zip(PLACES, line.places, strict=True):
        row[name] = _figures(place) if place else None
        if isinstance(place, Measurement) and place.launches == 1 and place.seconds:
            row[f"{name}_per_iter"] = _samples(place.seconds)
    return row | {"actual_iterations": len(line.any.times), "experiment_name": ""}


def _figures(result: Observed) -> Mapping[str, Any]:
    """Microseconds and GB/s with six decimals; "nan" where there is no time."""
    elements = wrong_elements(result)
    told = None if elements is None else float(elements)
    if mean_seconds(result) <= 0:
        return {"time": "nan", "alg_bw": "nan", "bus_bw": "nan", "nwrong": told}
    algbw, busbw = rates(result)
    return {
        "time": round(mean_seconds(result) * 1e6, 6),
        "alg_bw": round(algbw, 6),
        "bus_bw": round(busbw, 6),
        "nwrong": told,
    }


def _samples(seconds: Sequence[float]) -> Mapping[str, Any]:
    times = [second * 1e6 for second in seconds]
    mean, deviation = fmean(times), pstdev(times)
    figures = {f"p{percent}_us": percentile(times, percent) for percent in (50, 95, 99)}
    figures = {"min_us": min(times), "max_us": max(times), "avg_us": mean, **figures, "stdev_us": deviation}
    rounded = {name: round(value, 6) for name, value in (figures | {"cv_pct": deviation / mean * 100}).items()}
    return {"skipped_iterations": 0, **rounded, "times_us": [round(duration, 6) for duration in times]}
