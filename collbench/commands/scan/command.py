"""`collbench scan`: find the slow rank, link, node or leaf among many, by timing disjoint pairs or from a table.

For example:
  collbench scan
  srun --ntasks-per-node 1 collbench scan --exclude-file slow-nodes.txt
  collbench scan --on dgx-h100 --nodes 1024 --inject node=37:0.9,leaf=3:0.7
  collbench scan --pairs --ranks 4
  collbench scan pairs.csv
"""

import json
import math
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from collbench.analysis.judgement import EXITS, Judgement, Word
from collbench.cli import verdicts
from collbench.cli.options import PATH, QUIET, UNMEASURED, given, json_option, made, option, options_of, try_output
from collbench.cli.progress import LiveTable
from collbench.cli.running import measure_and_answer, run_session, say_where
from collbench.cli.verdicts import Destinations, host_lines, line_of
from collbench.commands.scan.library import ScanRequest, judge_run, judge_stored, scan_session
from collbench.commands.scan.matrices import PairsRequest, lines, pairs_session
from collbench.commands.scan.verdict import ScanFinding, ScanVerdict, refuse_few
from collbench.errors import UsageError
from collbench.requests.sweeps import new_folder
from collbench.runfile.store import NAME
from collbench.units import format_list, significant

_OF_PAIRS = "impl", "alone", "patterns"
_OF_ROUNDS = "nodes", "inject", "seed", "slow_rank", "budget", "resume", "file"
_OPTIONS = [
    click.Argument(["file"], required=False, type=PATH, metavar="[TABLE|RUN]"),
    *options_of(ScanRequest),
    option("--pairs", "Measure all pairs, print matrices and judge them.", is_flag=True),
    *options_of(PairsRequest, " ".join(_OF_PAIRS)),
    verdicts.EXIT,
    QUIET,
    json_option("all of it"),
    option("--exclude-file", "Write the hosts of slow nodes, one per line.", type=PATH, metavar="FILE"),
    verdicts.junit_option("a member"),
    verdicts.METRICS,
]


@click.command(params=_OPTIONS)
def command(**options: Any) -> int:
    """Find the slow rank, link, node or leaf among many, by timing disjoint pairs.

    In each round new pairs exchange messages, all pairs at once.  The scan tells slow ranks from slow links, nodes and
    leaf switches, and prints each slowdown with an interval.  It ends after 36 to 80 rounds, when each member is
    cleared or found slow.  An OK names the smallest slowdown that the scan would have seen.

    A TABLE or RUN is judged without a measurement: TABLE is CSV of sender, receiver and GB/s; RUN is an earlier scan or
    a run of --pairs.

    The exit status is 0 if no member is slow, 3 if one is slow, 4 if one is suspected.
    """
    to = Destinations(options, OUTPUTS)
    with to.aside(), verdicts.errors_for(to.exits):
        to.try_files(options["out"])
        for name, path in to.paths.items():
            if options["file"] and path.resolve() in {(options["file"] / each).resolve() for each in ("", NAME)}:
                raise UsageError(f"--{name.replace('_', '-')} {path} is the input; give another file")
        verdict = _verdict(to, options)
        if not isinstance(verdict, ScanVerdict):
            return verdict
        for line in () if to.brief else _lines(verdict):
            click.echo(line)
    lost = to.write(lambda name: OUTPUTS[name](verdict))
    mark = "" if measured(verdict) or to.exits == "plain" else f"{UNMEASURED}; "
    return to.end(verdict.word, line_of(to.exits, verdict.word, f"scan: {mark}{verdict.words}"), lost)


def _verdict(to: Destinations, options: dict[str, Any]) -> ScanVerdict | int:
    """Return the verdict; after an interruption, and on all but the first process, return the exit status."""
    spellings, pairs, quiet = given(), options["pairs"], options["quiet"]
    if wrong := [spellings[name] for name in (_OF_ROUNDS if pairs else _OF_PAIRS) if name in spellings]:
        names = format_list(word if word.startswith("-") else "TABLE|RUN" for word in wrong)
        alone = f"{names} needs --pairs; add it, or leave {names} out"
        raise UsageError(f"{names} does not go with --pairs; leave one of them out" if pairs else alone)
    request = made(ScanRequest, options)
    if request.file is not None:
        return judge_stored(request)
    where = socket.gethostname() if request.measured else Path(request.on).stem
    new = None if request.resume else options["out"] or new_folder(["pairs" if pairs else "scan"], where)
    if pairs:
        size = options["size"] if "size" in spellings else PairsRequest.size
        session = pairs_session(made(PairsRequest, options | {"ranks": request.usual_ranks, "size": size}), new)
        refuse_few(session.sweep.ranks)
    else:
        session = scan_session(request, new)
    for path in to.paths.values() if session.leader else ():  # a scan that dies leaves no earlier verdict behind
        if path.is_file():
            path.unlink()
    with redirect_stdout(sys.stdout if to.exits == "plain" else sys.stderr):  # other programs read one line
        interrupted = run_session(session, LiveTable(0), quiet=quiet)
        if interrupted or not session.leader:
            return interrupted
        if not quiet:
            click.echo("".join(f"{line}\n" for line in lines(session.results)), nl=False)
            say_where(session, plot=pairs)
    return judge_run(session.as_run(), None if request.slower is None else request.share(""))


def _lines(verdict: ScanVerdict) -> Iterator[str]:
    """Yield the text before the line of the verdict: notes, faults and advice."""
    for finding in verdict.findings:
        if finding.word is Word.OK:
            yield f"note: {finding}, which is less than --slower"
    if 2 * verdict.empty > verdict.rounds:
        rounds = f"{verdict.empty} of {verdict.rounds} rounds"
        yield f"note: other programs ran on the cores in {rounds}; end them, and scan again"
    for finding in verdict.faulty:
        yield f"{finding}: >99.9 % sure"  # SURE is the limit
        yield from (f"  {line}" for line in advice(finding, verdict))


@click.command("pairs", params=[*options_of(PairsRequest), json_option("the rows of the run file")])
def pairs(as_json: Path | None, out: Path | None, **options: Any) -> int:
    """Measure all pairs of ranks: the earlier name of `collbench scan --pairs`.  The exit status is 0."""
    try_output(as_json, "--json FILE", out)
    session = pairs_session(made(PairsRequest, options), out or new_folder(["pairs"], socket.gethostname()))

    def show() -> None:
        click.echo("\n".join(lines(session.results)))
        say_where(session)

    return measure_and_answer(session, show, as_json)


def hosts(finding: ScanFinding, verdict: ScanVerdict) -> list[str]:
    """Return the hosts of a fault; none for a link, a rail or a switch."""
    kind, name, _ = finding.effect.fault
    nodes = next((level.units for level in verdict.members.levels if level.kind == "node"), ())
    if kind == "node":
        return [name]
    named = kind == "member" and any(nodes)  # a single process with all GPUs gives its host no name
    return [nodes[member] for member in finding.effect.members] if named else []


def reason(finding: ScanFinding) -> str:
    """Return the reason to drain the node, for `scontrol update ... Reason=`."""
    seen = finding.effect
    return f"collbench scan: {significant(finding.slower, 3)}x slower in {seen.groups} of {seen.seen} groups"


def advice(finding: ScanFinding, verdict: ScanVerdict) -> Iterator[str]:
    """Yield the next steps: parts to inspect, and the command that drains the node."""
    kind, name, _ = finding.effect.fault
    if finding.effect.often < 1:
        yield "intermittent: look for throttled clocks and retraining links (`nvidia-smi -q`, `ibstat`, `dmesg`)"
    elif kind in ("link", "leaf", "spine", "rail"):
        yield "check its cables and ports (`ibdiagnet`, `nvidia-smi nvlink -e`), then scan again"
    else:
        yield f"check {name}: clocks, other programs, cards and lanes, as `collbench check` lists them"
    for host in hosts(finding, verdict):
        yield f'drain: scontrol update NodeName={host} State=DRAIN Reason="{reason(finding)}"'


def measured(verdict: ScanVerdict) -> bool:
    """Return whether ranks were measured, rather than the model of a described system."""
    return verdict.members.platform != "model"  # collbench.measure.predicted.NAME, without its slow import


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
    return verdicts.head_of(verdict.judgement, socket.gethostname(), measured(verdict)) | {
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
    """Return JUnit's XML: tests of the verdict, of each fault, and of each member (skipped unless cleared)."""
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
    return verdicts.junit([verdicts.junit_suite("collbench scan", "collbench.scan", tests)])


def _metrics(verdict: ScanVerdict) -> str:
    mark = {} if measured(verdict) else {"measured": "false"}
    alone = verdicts.braced(mark) if mark else ""
    slower = {verdicts.braced({"name": finding.name} | mark): finding.slower for finding in verdict.faulty}
    families: Mapping[tuple[str, str], Mapping[str, float]] = {
        ("scan_slower_ratio", "Slowdown of a slow member, link or switch, as a ratio."): slower,
        ("scan_status", f"Verdict of the last scan: {verdicts.STATUS_METRIC}."): {alone: EXITS["nagios"][verdict.word]},
        ("scan_rank_seconds", "Cost of the last scan in rank-seconds."): {alone: verdict.rank_seconds},
        ("scan_timestamp_seconds", "When the last scan ended."): {alone: math.floor(time.time())},
    }
    return verdicts.gauges(families)


OUTPUTS: Mapping[str, Callable[[ScanVerdict], str]] = {
    "json": lambda verdict: json.dumps(document(verdict), indent=2, allow_nan=False),
    "exclude_file": lambda verdict: host_lines(host for each in verdict.faulty for host in hosts(each, verdict))[:-1],
    "junit": _junit,
    "metrics": _metrics,
}
"""Writers of files by the names of their options."""
