"""Name the slow rank, link, node or leaf of many, in rounds of disjoint groups, or by a table of pairs.

For example:
  collbench scan
  srun --ntasks-per-node 1 collbench scan --exclude-file slow-nodes.txt
  collbench scan --on dgx-h100 --nodes 1024 --inject node=37:0.9,leaf=3:0.7
  collbench scan --pairs --ranks 4
  collbench scan pairs.csv
"""

import socket
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from collbench.analysis.judgement import Word
from collbench.cli.options import PATH, QUIET, UNMEASURED, given, json_option, made, option, options_of
from collbench.cli.progress import LiveTable
from collbench.cli.running import run_session, say_where
from collbench.cli.verdicts import EXIT, METRICS, Destinations, errors_for, junit_option, line_of
from collbench.commands.scan.library import ScanRequest, judge_stored, scan_session
from collbench.commands.scan.matrices import PairsRequest, lines, pairs_session
from collbench.commands.scan.outputs import OUTPUTS, advice, measured
from collbench.commands.scan.tables import judge_run
from collbench.commands.scan.verdict import ScanVerdict, refuse_few
from collbench.errors import UsageError
from collbench.requests.sweeps import new_folder
from collbench.runfile.store import NAME
from collbench.units import format_list

_OF_PAIRS = "impl", "alone", "patterns"
_OF_ROUNDS = "nodes", "inject", "seed", "slow_rank", "budget", "resume", "file"
_OPTIONS = [
    click.Argument(["file"], required=False, type=PATH, metavar="[TABLE|RUN]"),
    *options_of(ScanRequest),
    option("--pairs", "Measure every pair, print matrices and judge them.", is_flag=True),
    *options_of(PairsRequest, " ".join(_OF_PAIRS)),
    EXIT,
    QUIET,
    json_option("all of it"),
    option("--exclude-file", "Write the hosts of slow nodes, a line each.", type=PATH, metavar="FILE"),
    junit_option("a member"),
    METRICS,
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
    with to.aside(), errors_for(to.exits):
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
