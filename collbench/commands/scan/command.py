"""Name the slow rank, link, node or leaf of many, in rounds of disjoint groups, or by a table of pairs.

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
    option("--pairs", "Measure every pair, print matrices and judge them.", is_flag=True),
    *options_of(PairsRequest, " ".join(_OF_PAIRS)),
    verdicts.EXIT,
    QUIET,
    json_option("all of it"),
    option("--exclude-file", "Write the hosts of slow nodes, a line each.", type=PATH, metavar="FILE"),
    verdicts.junit_option("a member"),
    verdicts.METRICS,
]


@click.command(params=_OPTIONS)
def command(**options: Any) -> int:
    """Find out who of many ranks or nodes is slow: pairs exchange messages, all at once, and are dealt anew each round.

    A slow rank is told from a slow link, node or leaf switch, with an interval of how much.  It ends once everybody is
    cleared or found slow, after 36 to 80 rounds.  TABLE is CSV of sender, receiver and GB/s; RUN is an earlier scan or
    what --pairs measured: nothing is measured then.  An OK says what it would have seen.

    The exit status is 0 if nobody is slow, 3 if somebody is, 4 if somebody is suspected.
    """
    to = Destinations(options, OUTPUTS)
    with to.aside(), verdicts.errors_for(to.exits):
        to.try_files(options["out"])
        for name, path in to.paths.items():
            if options["file"] and path.resolve() in {(options["file"] / each).resolve() for each in ("", NAME)}:
                raise UsageError(f"--{name.replace('_', '-')} {path} is what is judged; give another file")
        verdict = _verdict(to, options)
        if not isinstance(verdict, ScanVerdict):
            return verdict
        for line in () if to.brief else _lines(verdict):
            click.echo(line)
    lost = to.write(lambda name: OUTPUTS[name](verdict))
    mark = "" if measured(verdict) or to.exits == "plain" else f"{UNMEASURED}; "
    return to.end(verdict.word, line_of(to.exits, verdict.word, f"scan: {mark}{verdict.words}"), lost)


def _verdict(to: Destinations, options: dict[str, Any]) -> ScanVerdict | int:
    """Return the verdict, or the exit status of what has none: an interruption, or another process than the first."""
    words, pairs, quiet = given(), options["pairs"], options["quiet"]
    if wrong := [words[name] for name in (_OF_ROUNDS if pairs else _OF_PAIRS) if name in words]:
        them = format_list(word if word.startswith("-") else "TABLE|RUN" for word in wrong)
        raise UsageError(f"--pairs and {them}: leave out either" if pairs else f"{them}: add --pairs, or leave it out")
    request = made(ScanRequest, options)
    if request.file is not None:
        return judge_stored(request)
    where = socket.gethostname() if request.measured else Path(request.on).stem
    new = None if request.resume else options["out"] or new_folder(["pairs" if pairs else "scan"], where)
    if pairs:
        size = options["size"] if "size" in words else PairsRequest.size
        session = pairs_session(made(PairsRequest, options | {"ranks": request.usual_ranks, "size": size}), new)
        refuse_few(session.sweep.ranks)
    else:
        session = scan_session(request, new)
    for path in to.paths.values() if session.leader else ():  # those of a scan that dies keep no earlier verdict
        if path.is_file():
            path.unlink()
    with redirect_stdout(sys.stdout if to.exits == "plain" else sys.stderr):  # others read one line
        interrupted = run_session(session, LiveTable(0), quiet=quiet)
        if interrupted or not session.leader:
            return interrupted
        if not quiet:
            click.echo("".join(f"{line}\n" for line in lines(session.results)), nl=False)
            say_where(session, plot=pairs)
    return judge_run(session.as_run(), None if request.slower is None else request.share(""))


def _lines(verdict: ScanVerdict) -> Iterator[str]:
    """Yield what is to be said besides the line of the verdict."""
    for finding in verdict.findings:
        if finding.word is Word.OK:
            yield f"note: {finding}, which is less than --slower"
    if 2 * verdict.empty > verdict.rounds:
        yield f"note: other programs had the cores in {verdict.empty} of {verdict.rounds} rounds: end them, scan again"
    for finding in verdict.faulty:
        yield f"{finding}: >99.9 % sure"  # by SURE, below which nobody is named
        yield from (f"  {line}" for line in advice(finding, verdict))


@click.command("pairs", params=[*options_of(PairsRequest), json_option("the rows of the run file")])
def pairs(as_json: Path | None, out: Path | None, **options: Any) -> int:
    """Measure every pair of ranks as `collbench scan --pairs` does, which is its name now; the exit status is 0."""
    try_output(as_json, "--json FILE", out)
    session = pairs_session(made(PairsRequest, options), out or new_folder(["pairs"], socket.gethostname()))

    def show() -> None:
        click.echo("\n".join(lines(session.results)))
        say_where(session)

    return measure_and_answer(session, show, as_json)


# For other programs: JSON, hosts to exclude, JUnit, metrics; and what to do about a fault.


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
    return verdicts.junit([verdicts.junit_suite("collbench scan", "collbench.scan", tests)])


def _metrics(verdict: ScanVerdict) -> str:
    """Return metrics in Prometheus' text format."""
    mark = {} if measured(verdict) else {"measured": "false"}
    alone = verdicts.braced(mark) if mark else ""
    slower = {verdicts.braced({"name": finding.name} | mark): finding.slower for finding in verdict.faulty}
    families: Mapping[tuple[str, str], Mapping[str, float]] = {
        ("scan_slower_ratio", "How many times slower a slow member, link or switch is."): slower,
        ("scan_status", f"Verdict of the last scan: {verdicts.STATUS_METRIC}."): {alone: EXITS["nagios"][verdict.word]},
        ("scan_rank_seconds", "What the last scan cost."): {alone: verdict.rank_seconds},
        ("scan_timestamp_seconds", "When the last scan ended."): {alone: math.floor(time.time())},
    }
    return verdicts.gauges(families)


OUTPUTS: Mapping[str, Callable[[ScanVerdict], str]] = {
    "json": lambda verdict: json.dumps(document(verdict), indent=2, allow_nan=False),
    "exclude_file": lambda verdict: host_lines(host for each in verdict.faulty for host in hosts(each, verdict))[:-1],
    "junit": _junit,
    "metrics": _metrics,
}
"""What can be written into a file, by the name of its option."""
