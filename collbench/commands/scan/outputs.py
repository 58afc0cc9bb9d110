"""The verdict of a scan for other programs: JSON, hosts to exclude, JUnit, metrics; and what to do about a fault."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from socket import gethostname
from typing import Any

from collbench.analysis.judgement import EXITS, Judgement, Word
from collbench.cli.options import UNMEASURED
from collbench.cli.verdicts import STATUS_METRIC, braced, gauges, head_of, host_lines, junit, junit_suite, line_of
from collbench.commands.scan.verdict import ScanFinding, ScanVerdict
from collbench.units import significant


def hosts(finding: ScanFinding, verdict: ScanVerdict) -> list[str]:
    """Return the hosts of a fault; none of a link, a rail or a switch, which no single host is to blame for."""
    kind, name, _ = finding.effect.fault
    nodes = next((level.units for level in verdict.members.levels if level.kind == "node"), ())
    if kind == "node":
        return [name]
    known = kind == "member" and any(nodes)  # of a process that holds all GPUs the host has no name
    return [nodes[member] for member in finding.effect.members] if known else []


def reason(finding: ScanFinding) -> str:
    """Return why a scheduler should drain the node, as `scontrol update ... Reason=` takes it."""
    seen = finding.effect
    return f"collbench scan: {significant(finding.slower, 3)}x slower in {seen.groups} of {seen.seen} groups"


def advice(finding: ScanFinding, verdict: ScanVerdict) -> Iterator[str]:
    """Yield what to look at next, and how to drain the node."""
    kind, name, _ = finding.effect.fault
    if finding.effect.often < 1:
        yield "it comes and goes: look for throttled clocks, links that retrain (`nvidia-smi -q`, `ibstat`, `dmesg`)"
    elif kind in ("link", "leaf", "spine", "rail"):
        yield "look at cables and ports there (`ibdiagnet`, `nvidia-smi nvlink -e`), then scan again"
    else:
        yield f"look at {name}: clocks, other programs, cards and lanes, as `collbench check` lists them"
    for host in hosts(finding, verdict):
        yield f'drain: scontrol update NodeName={host} State=DRAIN Reason="{reason(finding)}"'


def measured(verdict: ScanVerdict) -> bool:
    """Return whether ranks were measured, and not a model of a described system."""
    return verdict.members.platform != "model"  # collbench.measure.predicted.NAME, which takes a while to import


def document(verdict: ScanVerdict) -> dict[str, Any]:
    """Return the verdict for JSON."""
    findings = []
    for finding in verdict.findings:
        effect, (kind, name, way) = finding.effect, finding.effect.fault
        findings.append(
            {
                "kind": kind, "name": name, "way": way, "sure": finding in verdict.faulty,
                "probability": finding.probability, "share_of_rounds": effect.often,
                "hosts": hosts(finding, verdict), "drain": reason(finding), "advice": [*advice(finding, verdict)],
            } | finding.judgement.fields()
        )  # fmt: skip
    return head_of(verdict.judgement, gethostname(), measured(verdict)) | {
        "line": line_of("plain", verdict.word, f"scan: {verdict.words}"),
        "members": list(verdict.members.names),
        "findings": findings,
        "suspects": list(verdict.suspects),
        "not_cleared": list(verdict.uncleared),
        "sight": verdict.sight._asdict(),
        "rounds": verdict.rounds,
        "seconds": verdict.seconds,
        "rank_seconds": verdict.rank_seconds,
    }


def _junit(verdict: ScanVerdict) -> str:
    """Return JUnit's XML: the verdict, who is slow, and each member, which passes if cleared and else is skipped."""
    slow = {finding.name: finding.judgement for finding in verdict.faulty}
    doubtful = {member: each for each in verdict.findings if each.word is not Word.OK for member in each.effect.members}
    tests = [Judgement("verdict", "", verdict.word, verdict.words), *slow.values()]
    for number, name in enumerate(verdict.members.names):
        cleared = verdict.enough and not (verdict.caveats or verdict.lost or name in verdict.uncleared)
        if name not in slow and number in doubtful:
            tests.append(Judgement(name, "", Word.UNKNOWN, f"not cleared: {doubtful[number]}"))
        elif name not in slow:
            word, says = (Word.OK, "not slow") if cleared else (Word.UNKNOWN, "not cleared")
            tests.append(Judgement(name, "", word, says))
    if not measured(verdict):
        tests = [replace(test, word=Word.UNKNOWN, reason=f"{UNMEASURED}; {test.says}") for test in tests]
    return junit([junit_suite("collbench scan", "collbench.scan", tests)])


def _metrics(verdict: ScanVerdict) -> str:
    """Return metrics in Prometheus' text format."""
    mark = {} if measured(verdict) else {"measured": "false"}
    alone = braced(mark) if mark else ""
    slower = {braced({"name": finding.name} | mark): finding.slower for finding in verdict.faulty}
    families: Mapping[tuple[str, str], Mapping[str, float]] = {
        ("scan_slower_ratio", "How many times slower a slow member, link or switch is."): slower,
        ("scan_status", f"Verdict of the last scan: {STATUS_METRIC}."): {alone: EXITS["nagios"][verdict.word]},
        ("scan_rank_seconds", "What the last scan cost."): {alone: verdict.rank_seconds},
        ("scan_timestamp_seconds", "When the last scan ended."): {alone: math.floor(time.time())},
    }
    return gauges(families)


OUTPUTS: Mapping[str, Callable[[ScanVerdict], str]] = {
    "json": lambda verdict: json.dumps(document(verdict), indent=2, allow_nan=False),
    "exclude_file": lambda verdict: host_lines(host for each in verdict.faulty for host in hosts(each, verdict))[:-1],
    "junit": _junit,
    "metrics": _metrics,
}
"""What can be written into a file, by the name of its option."""
