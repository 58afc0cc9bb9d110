"""The verdict of a check for other programs: exit statuses, JSON, JUnit, CTRF, Markdown, metrics, a drain reason.

Sources: Nagios plugin API and Monitoring Plugins guidelines (exit statuses, performance data); node-problem-detector
docs/custom_plugin_monitor.md; CTRF schema (github.com/ctrf-io/ctrf); Prometheus text format 0.0.4 and node_exporter's
collector/textfile.go; NCCL plugins/profiler/inspector/inspector_prom.cc for names and labels of metrics.
"""

import json
import math
import os
import re
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from collbench import __version__
from collbench.analysis.check import BANDWIDTH, CheckedSize, CheckResult, Status
from collbench.analysis.gate import escaped
from collbench.analysis.sequential import Decision
from collbench.errors import StorageError, writing
from collbench.results.base import CaseResult
from collbench.runfile.schema import case_fields
from collbench.units import format_size, printable

EXITS: Mapping[str, Mapping[Status, int]] = {
    "plain": {Status.OK: 0, Status.WARN: 0, Status.FAIL: 3, Status.UNKNOWN: 4},
    "nagios": {Status.OK: 0, Status.WARN: 1, Status.FAIL: 2, Status.UNKNOWN: 3},
    "npd": {Status.OK: 0, Status.WARN: 0, Status.FAIL: 1, Status.UNKNOWN: 2},
}
"""Exit statuses: those of `compare --gate`, of Nagios' plugins, and of node-problem-detector's."""
_NAGIOS = {Status.OK: "OK", Status.WARN: "WARNING", Status.FAIL: "CRITICAL", Status.UNKNOWN: "UNKNOWN"}
_NPD_LENGTH = 80  # bytes of a message that node-problem-detector keeps
_REASON_LENGTH = 100
_NOT_IN_A_REASON = re.compile(r"[^A-Za-z0-9 ._:@/#%-]+")


class Output(NamedTuple):
    """A file that a verdict can be written to."""

    option: str
    meaning: str
    metavar: str
    text: Callable[[CheckResult], str]
    appended: bool = False


def line(result: CheckResult, exits: str) -> str:
    """Return the line of a verdict as the program expects it that the exit status is for."""
    if exits == "nagios":
        words = result.line.partition(f" {result.status.value} ")[2].replace("|", "/")
        return f"COLLBENCH {_NAGIOS[result.status]}: {words} | {' '.join(_performance(result))}".rstrip(" |")
    if exits == "npd":
        return result.line.replace(f" {result.where}", "").encode()[:_NPD_LENGTH].decode(errors="ignore")
    return result.line


def _performance(result: CheckResult) -> Iterator[str]:
    """Yield Nagios' performance data; `430:` is an alarm below 430."""
    for size in result.sizes:
        case, implementation = size.row.case, size.row.implementation
        label = re.sub(r"[^A-Za-z0-9_.-]", "", f"{case.collective.name}_{format_size(case.nbytes)}_{implementation}")
        known = not math.isnan(size.expected)
        if case.nbytes < BANDWIDTH or not size.row.busbw:
            limit = f";;{size.expected * 1e6:.6g}" if known else ""
            yield f"{label}={size.row.typical * 1e6:.6g}us{limit}"
        else:
            limit = f";;{_expected_busbw(size) / 1e9:.6g}:" if known else ""
            yield f"{label}_GBps={size.row.busbw / 1e9:.6g}{limit}"


def _expected_busbw(size: CheckedSize) -> float:
    return size.row.busbw * size.row.typical / size.expected


def drain_reason(result: CheckResult) -> str:
    """Return a reason for `scontrol update State=DRAIN`, "" where there is none: ASCII, no quotes, 100 characters."""
    if result.status is not Status.FAIL:
        return ""
    words = result.line.replace(f" {result.where}:", "").replace(": FAIL ", ": ")
    return _NOT_IN_A_REASON.sub("", words)[:_REASON_LENGTH].strip()


# ------------------------------------------------------------------------------------------------------------ documents


def document(result: CheckResult) -> dict[str, Any]:
    """Return the verdict and all that it rests on, for JSON."""
    return {
        "status": result.status.value,
        "line": result.line,
        "where": result.where,
        "compared_with": result.compared,
        "rounds": result.rounds,
        "seconds": _number(result.seconds),
        "disturbed": result.disturbed,
        "wrong_or_failed": [_row_fields(row) | {"problem": row.problem} for row in result.correctness.faults],
        "curves": [
            {
                "implementation": curve.implementation,
                "status": curve.status.value,
                "remark": curve.remark,
                "resolution": _number(curve.resolution),
                "reasons": [{"why": why, "fix": fix} for why, fix in curve.reasons],
                "sizes": [_size_fields(size) for size in curve.sizes],
            }
            for curve in result.curves
        ],
    }


def _row_fields(row: CaseResult) -> dict[str, Any]:
    return case_fields(row.case) | {"implementation": row.implementation}


def _size_fields(size: CheckedSize) -> dict[str, Any]:
    return _row_fields(size.row) | {
        "seconds": size.row.typical,
        "busbw": size.row.busbw,
        "expected_seconds": _number(size.expected),
        "ratio": _number(size.off),
        "verdict": size.decision.value,
        "rounds": size.rounds,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def as_json(result: CheckResult) -> str:
    """Return the document as text."""
    return json.dumps(document(result), indent=2, allow_nan=False)


class _Test(NamedTuple):
    """A size as a test of continuous integration."""

    name: str
    state: str  # passed, failed or other
    message: str
    seconds: float


def _tests(result: CheckResult) -> Iterator[_Test]:
    states = {Decision.AS_EXPECTED: "passed", Decision.SLOW: "failed", Decision.UNDECIDED: "other"}
    for row in result.correctness.faults:
        yield _Test(_name(row), "failed", printable(row.problem), 0.0)
    for size in result.sizes:
        yield _Test(_name(size.row), states[size.decision], f"{size.figure}, {size.decision.value}", size.row.typical)


def _name(row: CaseResult) -> str:
    return printable(f"{row.case.title}, {format_size(row.case.nbytes)}, {row.implementation}")


def junit(result: CheckResult) -> str:
    """Return JUnit's XML: a size that is slow or wrong fails, an undecided one is skipped."""
    tests = list(_tests(result))
    counts = {state: sum(test.state == state for test in tests) for state in ("failed", "other")}
    suite = ElementTree.Element("testsuite", name=printable(f"collbench check: {result.where}"))
    numbers = {"tests": len(tests), "failures": counts["failed"], "errors": 0, "skipped": counts["other"]}
    suite.attrib.update({key: str(value) for key, value in numbers.items()})
    for test in tests:
        case = ElementTree.SubElement(suite, "testcase", name=test.name, classname="collbench.check")
        if test.state == "passed":
            ElementTree.SubElement(case, "system-out").text = test.message
        else:
            ElementTree.SubElement(case, "failure" if test.state == "failed" else "skipped", message=test.message)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def ctrf(result: CheckResult) -> str:
    """Return the JSON of the Common Test Report Format."""
    tests = list(_tests(result))
    stop = round(time.time() * 1000)
    summary = {state: sum(test.state == state for test in tests) for state in ("passed", "failed", "other")}
    entries = []
    for test in tests:
        state = {"rawStatus": "undecided"} if test.state == "other" else {}
        entry = {
            "name": test.name,
            "status": test.state,
            "duration": round(test.seconds * 1000),
            "message": test.message,
        }
        entries.append(entry | state)
    report = {
        "reportFormat": "CTRF",
        "specVersion": "0.0.0",
        "results": {
            "tool": {"name": "collbench", "version": __version__},
            "summary": summary
            | {"tests": len(tests), "skipped": 0, "pending": 0}
            | {"start": stop - round(1000 * (_number(result.seconds) or 0.0)), "stop": stop},
            "tests": entries,
            "extra": {"status": result.status.value, "line": result.line},
        },
    }
    return json.dumps(report, indent=2)


def summary(result: CheckResult) -> str:
    """Return Markdown, as in GitHub's step summaries."""
    lines = ["## collbench check", "", f"**{escaped(result.line)}**", "", escaped(result.correctness.in_words("sizes"))]
    if result.compared:
        lines += ["", f"compared with {escaped(result.compared)}"]
    lines += ["", "| case | figure | verdict |", "|---|---|---|"]
    lines += [f"| {escaped(test.name)} | {escaped(test.message)} | {test.state} |" for test in _tests(result)]
    return "\n".join(lines)


# -------------------------------------------------------------------------------------------------------------- metrics

_INSPECTOR = {
    "allreduce": "AllReduce",
    "allgather": "AllGather",
    "reducescatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "alltoall": "AlltoAll",
    "gather": "Gather",
    "scatter": "Scatter",
    "sendrecv": "SendRecv",
}
"""Collectives by the names that NCCL's Inspector writes."""


def metrics(result: CheckResult) -> str:
    """Return metrics in Prometheus' text format, for node_exporter's text-file collector.

    Bus bandwidth has the name and the labels of NCCL's Inspector, so that its dashboards show it.
    """
    sizes: dict[str, CheckedSize] = {}
    for size in result.sizes:
        if size.row.busbw:
            sizes.setdefault(_labels(size, result), size)  # of two sizes in one bucket the first
    known = {labels: size for labels, size in sizes.items() if not math.isnan(size.expected)}
    measured = [(labels, size.row.busbw / 1e9) for labels, size in sizes.items()]
    expected = [(labels, _expected_busbw(size) / 1e9) for labels, size in known.items()]
    wrong = len(result.correctness.faults)
    node = f'{{node="{_quoted(socket.gethostname())}"}}'
    code = EXITS["nagios"][result.status]
    families: tuple[tuple[str, str, list[tuple[str, float]]], ...] = (
        ("nccl_bus_bandwidth_gbs", "Bus bandwidth in GB/s.", measured),
        ("collbench_expected_bus_bandwidth_gbs", "Bus bandwidth in GB/s that is expected here.", expected),
        ("collbench_check_status", "Verdict of the last check: 0 OK, 1 WARN, 2 FAIL, 3 UNKNOWN.", [(node, code)]),
        (
            "collbench_check_wrong_sizes",
            "Sizes with a wrong result, or none.",
            [(node, wrong)],
        ),
        ("collbench_check_timestamp_seconds", "When the last check ended.", [(node, time.time())]),
        ("collbench_check_duration_seconds", "How long the last check took.", [(node, _number(result.seconds) or 0)]),
    )
    return "\n".join(_families(families))


def _families(families: Iterable[tuple[str, str, list[tuple[str, float]]]]) -> Iterator[str]:
    for name, meaning, samples in families:
        if samples:
            yield f"# HELP {name} {meaning}"
            yield f"# TYPE {name} gauge"
            yield from (f"{name}{labels} {value:.10g}" for labels, value in samples)


def _labels(size: CheckedSize, result: CheckResult) -> str:
    case = size.row.case
    pairs = {
        "slurm_job_id": os.environ.get("SLURM_JOB_ID", "unknown"),
        "node": socket.gethostname(),
        "n_nodes": str(result.nodes),
        "nranks": str(case.ranks),
        "collective": _INSPECTOR.get(case.collective.name, case.collective.name),
        "message_size": message_size(case.nbytes),
        "implementation": size.row.implementation,
    }
    return "{" + ",".join(f'{name}="{_quoted(value)}"' for name, value in pairs.items()) + "}"


def message_size(nbytes: int) -> str:
    """Return the bucket of a size as NCCL's Inspector names it: `1-2GB` of 1 GiB.

    >>> message_size(2**30), message_size(8192), message_size(4)
    ('1-2GB', '8-9KB', '4-5B')

    """
    size, unit = float(nbytes), 0
    while size >= 1024 and unit < 4:
        size, unit = size / 1024, unit + 1
    return f"{math.floor(size)}-{math.floor(size) + 1}{('B', 'KB', 'MB', 'GB', 'TB')[unit]}"


def _quoted(value: str) -> str:
    return printable(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


# ---------------------------------------------------------------------------------------------------------------- files

OUTPUTS = (
    Output("junit", "Write a JUnit test case a size.", "FILE.xml", junit),
    Output("ctrf", "Write a test a size in the Common Test Report Format.", "FILE.json", ctrf),
    Output("summary", "Append a summary in Markdown, as for GitHub.", "FILE.md", summary, appended=True),
    Output("metrics", "Write metrics for node_exporter's text-file collector.", "FILE.prom", metrics),
)


def write(output: Output, path: Path, result: CheckResult) -> None:
    """Write a verdict into a file, whole or not at all; StorageError if it cannot be written."""
    text = f"{output.text(result)}\n"
    with writing(path, f"--{output.option} FILE", StorageError):
        if output.appended:
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
            return
        # A reader never meets half a file; the other name does not end in .prom, or it would be read too.
        handle, half = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(half).chmod(0o644)
            Path(half).replace(path)
        except BaseException:
            Path(half).unlink(missing_ok=True)
            raise
