"""`collbench check` and `diagnose`: judge this machine, runs, logs or a fleet.

For example:
  collbench check
  collbench check --op allreduce,allgather --reference floors.toml
  collbench check all_reduce.log
  collbench check LOGS --on dgx-h100
  collbench check --fleet NIGHT --exclude-file exclude.txt
  collbench check --exit nagios --metrics /var/lib/node_exporter/collbench.prom
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from socket import gethostname
from typing import Any

import click

from collbench.analysis.judgement import EXITS
from collbench.cli.options import PATH, RUN, Renaming, json_option, made, option, options_of, print_answer
from collbench.cli.progress import waiting
from collbench.cli.verdicts import EXIT, GATE, METRICS, Destinations, errors_for, junit_option
from collbench.commands.check import fleet
from collbench.commands.check import outputs as verdicts
from collbench.commands.check.judge import CheckResult
from collbench.commands.check.library import CheckRequest, DiagnoseRequest, JudgedInput, diagnose, judge_inputs, measure
from collbench.errors import CollbenchError, UsageError
from collbench.host import signals
from collbench.host.launcher import launched
from collbench.measure.launcher_watchdog import WATCHDOG
from collbench.present.notices import is_leader, renamed
from collbench.runfile.store import Writer

_OPTIONS = [
    click.Argument(["inputs"], nargs=-1, type=PATH, metavar="[RUN|LOG|FOLDER]..."),
    *options_of(CheckRequest),
    EXIT,
    option("-q --quiet", "Print only the verdict line; a terminal also shows that it measures.", is_flag=True),
    option("-v --verbose", "Print the rows of each input, if several.", is_flag=True),
    json_option("all of it"),
    junit_option("a size"),
    METRICS,
    *fleet.OPTIONS,
]


@click.command("check", cls=Renaming, earlier="run", params=_OPTIONS)
def command(**options: Any) -> int:
    """Check that results are correct and as fast as expected: of this machine, of runs or of logs, in one line.

    Without an input, check measures this machine in rounds until the verdict is sure.  RUN is a run file or its folder.
    LOG is the output of another tool (`collbench import` lists the formats; `-` is standard input).  FOLDER holds runs
    or logs, also in subfolders.

    Times are compared with --reference.  Without it, they are compared with the model of a system: --on, the system
    that the topology matches, or each preset that fits a log.  Without a model, they are compared with the baseline of
    this machine, its earlier good runs.  A CPU without a baseline is compared with its own latency and copy speed.
    """
    with errors_for(options["exits"]):
        return fleet.show(options) if fleet.asked(options["fleet"]) else _check(options)


def _check(options: Mapping[str, Any]) -> int:
    """Measure or judge, print the verdict, write files, and return the exit status."""
    names = [str(path) for path in (*options["inputs"], options["run"]) if path is not None]
    if options["run"] is not None:
        renamed(f"check --run {options['run']}", f"check {options['run']}")
    if options["inputs"] and options["metrics"]:
        raise UsageError("--metrics is for a measurement of this machine; leave out --metrics or the inputs")
    leads = is_leader(launched())
    if names:
        WATCHDOG.stop()
        if not leads:  # only the first process of the launcher reads inputs
            return 0
    to = Destinations(options, verdicts.OUTPUTS)
    with to.aside():
        try:
            to.try_files(None if names else options["out"])
            if options["out"] and leads and not names:
                Writer(options["out"]).discard()
            with (
                _replacing_the_last_verdict(to if leads else None, options["op"] or "allreduce"),
                waiting("" if names else "measuring"),
            ):
                judged = _judged(names, options, quiet=to.brief or not leads)
        except KeyboardInterrupt as cause:
            click.echo("collbench: interrupted: no verdict", err=True)
            return signals.status(cause)
    if not judged:  # the first process of the launcher has it
        return 0
    lost = to.write(lambda name: verdicts.OUTPUTS[name](judged))  # before printing: a closed pipe ends the program
    with to.aside():
        if not to.brief:
            click.echo("\n".join(verdicts.shown(judged, options["verbose"])))
        elif judged[0].result.hint.startswith(("not stored", "run file")):
            click.echo(judged[0].result.hint, err=True)
    return to.end(verdicts.word(judged), verdicts.last_line(judged, to.exits), lost)


def _judged(names: Sequence[str], options: Mapping[str, Any], quiet: bool) -> list[JudgedInput]:
    """Measure this machine or judge the inputs; return [] on all but the first process of a launcher."""
    if names:
        said: list[str] = []
        judged = judge_inputs(names, made(CheckRequest, options, run=names[0]), said)
        for sentence in said:
            click.echo(sentence, err=True)
        return judged
    if not quiet:
        click.echo("measuring this machine")
    result = measure(made(CheckRequest, options))
    return [JudgedInput("", result)] if result else []


@contextmanager
def _replacing_the_last_verdict(to: Destinations | None, op: str) -> Iterator[None]:
    """Write that the check has started, and why it fails if it does: a check that dies leaves no earlier OK behind."""
    why = f"started at {datetime.now().astimezone():%F %T %z}, no verdict"
    host = gethostname()
    begun = CheckResult(host, "", (op,), (), host=host, rounds=0, no_verdict=why)

    def write(result: CheckResult) -> None:
        if to:
            to.write(lambda name: verdicts.OUTPUTS[name]([JudgedInput("", result)]), begun=True)

    write(begun)
    try:
        yield
    except CollbenchError as error:
        write(replace(begun, no_verdict=f"no verdict: {error}"))
        raise


@click.command("diagnose", params=[RUN, *options_of(DiagnoseRequest), json_option("all of it"), GATE])
def diagnosis(run: Path, on: str | None, nodes: int | None, as_json: Path | None, gated: bool) -> int:
    """Judge a run or a log: the earlier name of `collbench check`.  Without --gate the exit status is 0.

    A slow curve is followed by its likely reasons, the best fit first.  Each reason is a changed machine; its line says
    how well the times of that machine fit.
    """
    result = diagnose(run, on, nodes=nodes)
    status = EXITS["plain"][result.word]
    if status and not gated:
        click.echo(f"the exit status is 0; with --gate or `collbench check {run}` it is {status}", err=True)
    text = "\n".join((result.line, *verdicts.lines(result))).rstrip()
    print_answer(lambda: click.echo(text), as_json, verdicts.document(result))
    return status if gated else 0
