"""Say in one line whether this machine is right: measured briefly, checked, and compared with what is expected.

For example:
  collbench check
  collbench check --op allreduce,allgather --reference floors.toml
  collbench check --run run.jsonl --on dgx-h100
  collbench check --exit nagios --metrics /var/lib/node_exporter/collbench.prom
"""

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from datetime import datetime
from inspect import signature
from pathlib import Path
from socket import gethostname
from typing import Any

import click

from collbench.analysis.check import CheckedCurve, CheckResult, Status
from collbench.api.checking import check
from collbench.api.notices import is_leader
from collbench.cli.options import (
    NODES,
    PATH,
    SHARE,
    STANDARD,
    TIME,
    folder_option,
    json_option,
    machine_option,
    option,
    shared,
    try_output,
)
from collbench.cli.progress import waiting
from collbench.cli.results_table import bus_cell
from collbench.cli.tables import Table
from collbench.errors import CollbenchError, StorageError
from collbench.host import signals
from collbench.host.launcher import launched
from collbench.measure.disturbance import left_out_in_words
from collbench.reports import verdicts
from collbench.runfile.store import Writer
from collbench.units import format_rate, format_seconds, format_size, significant

_SIZE = Table("{size:>9} {time:>9} {expected:>9} {ratio:>7}{busbw}  {verdict}", ("busbw", "expected"), {"verdict": ""})
_OPTIONS = [
    *shared("op"),
    option(
        "--impl", "Implementations.  [default: the library on GPUs, auto on a CPU]", default="", metavar="NAME[,NAME]"
    ),
    *shared("ranks", "minbytes"),
    option("-e --maxbytes", "Largest message; default: 2M on a CPU, else 128M or what memory allows.", metavar="SIZE"),
    *shared("rendezvous", stepfactor=8.0),
    option("--run", "Judge this run instead of measuring.", type=PATH, metavar="RUN"),
    option("--reference", "Compare with a run that was right, or with floors.", type=PATH, metavar="RUN|FILE.toml"),
    machine_option("what the topology matches", "The system to compare with."),
    NODES,
    option("--slower", "How much slower than expected is too slow.  [default: 10%, on a CPU 20%]", type=SHARE),
    option("--budget", "Time after which no more rounds begin; three do.", type=TIME, default="60s", show_default=True),
    option("--renew", "Begin the baseline anew with this run, if it is right.", is_flag=True),
    folder_option("the run file"),
    option(
        "--exit exits",
        "Whom the exit status is for: plain 0 (OK, WARN), 3 FAIL, 4 UNKNOWN; nagios 0, 1, 2, 3; npd 0, 0, 1, 2.",
        type=click.Choice(list(verdicts.EXITS)),
        default="plain",
        show_default=True,
    ),
    option("--drain-reason", "Print a reason for Slurm, or nothing unless it is FAIL; and no more.", is_flag=True),
    option("-q --quiet", "Print the line of the verdict and no more.", is_flag=True),
    json_option("all of it"),
    *(option(f"--{output.option}", output.meaning, type=PATH, metavar=output.metavar) for output in verdicts.OUTPUTS),
]


@click.command("check", params=_OPTIONS)
def command(**options: Any) -> int:
    """Measure in rounds until it is sure whether everything is right and as fast as expected, and say so in one line.

    Expected is what --reference has; else what the model says of the system that the topology matches, or of --on; else
    what earlier good runs of this machine took, its baseline; on a CPU without those, what its own latency and copy
    speed come to.
    """
    brief = options["quiet"] or options["drain_reason"] or options["exits"] != "plain"
    with redirect_stdout(sys.stderr if options["as_json"] == STANDARD else sys.stdout):
        try:
            _try_places(options)
            words = {name: options[name] for name in signature(check).parameters if name != "each"}
            with _replacing_the_last_verdict(options), waiting("" if options["run"] else "measuring"):
                result = check(**words)
        except KeyboardInterrupt as cause:
            click.echo("collbench: interrupted: no verdict", err=True)
            return signals.status(cause)
        except CollbenchError as error:
            if options["exits"] != "plain":  # its reader reads standard output, and would take 2 for a verdict
                error.exit_status = verdicts.EXITS[options["exits"]][Status.UNKNOWN]
                click.echo(verdicts.line_of(options["exits"], Status.UNKNOWN, str(error)))
            raise
        if result and not brief:
            click.echo("\n".join(_lines(result)))
        elif result and result.hint.startswith("not stored"):
            click.echo(result.hint, err=True)
    if not result:  # the first process of the launcher has it
        return 0
    lost = _write_files(result, options)
    line = verdicts.drain_reason(result) if options["drain_reason"] else verdicts.line(result, options["exits"])
    if options["as_json"] == STANDARD:
        line = verdicts.JSON.text(result)
    click.echo(line, nl=bool(line))
    # Statuses for monitoring speak of the machine alone.
    return verdicts.EXITS[options["exits"]][result.status] or int(lost and options["exits"] == "plain")


def _try_places(options: Mapping[str, Any]) -> None:
    """Raise UsageError for what cannot be written to, before anything is measured; nothing there is changed."""
    for output, path in _files(options).items():
        try_output(path, f"--{output.option} FILE", options["out"])
    if options["out"] and is_leader(launched()):
        Writer(options["out"]).discard()


def _files(options: Mapping[str, Any]) -> dict[verdicts.Output, Path]:
    """Return the files that this process is to write the verdict to."""
    asked = {output: options[output.option] for output in verdicts.OUTPUTS} | {verdicts.JSON: options["as_json"]}
    mine = is_leader(launched())
    return {output: path for output, path in asked.items() if mine and path not in (None, STANDARD)}


@contextmanager
def _replacing_the_last_verdict(options: Mapping[str, Any]) -> Iterator[None]:
    """Write that the check has started, and if it fails, why: the files of one that dies keep no earlier OK."""
    why = f"started at {datetime.now().astimezone():%F %T %z}, no verdict"
    begun = CheckResult(gethostname(), "", (options["op"],), (), rounds=0, no_verdict=why)
    _write_files(begun, options)
    try:
        yield
    except CollbenchError as error:
        _write_files(replace(begun, no_verdict=f"no verdict: {error}"), options)
        raise


def _write_files(result: CheckResult, options: Mapping[str, Any]) -> bool:
    """Write all files, and return whether any was lost; the verdict is printed in any case."""
    lost = False
    for output, path in _files(options).items():
        try:
            verdicts.write(output, path, result)
        except StorageError as error:
            click.echo(f"collbench: error: {error}", err=True)
            lost = True
    return lost


def _lines(result: CheckResult) -> Iterator[str]:
    """Yield the verdict at length: correctness first."""
    yield result.correctness.in_words()
    why = "; ".join(dict.fromkeys(curve.remark for curve in result.curves)) or result.no_verdict
    yield f"compared with {result.compared or f'nothing: {why}'}"
    yield from (f"note: {remark}" for remark in result.remarks)
    for curve in result.curves:
        yield ""
        yield from _curve(curve if result.compared else replace(curve, remark=""))
    yield ""
    if result.disturbed:
        yield left_out_in_words(result.disturbed, result.rows)
    if result.hint:
        yield result.hint


def _curve(curve: CheckedCurve) -> Iterator[str]:
    case = curve.sizes[0].row.case
    yield f"{case.title}, {curve.implementation}"
    yield _SIZE.heading(busbw=bus_cell("busbw", not curve.sizes[0].row.note.shared))
    for size in curve.sizes:
        known = not math.isnan(size.expected)
        yield _SIZE.row(
            size=format_size(size.row.case.nbytes),
            time=format_seconds(size.seconds),
            expected=format_seconds(size.expected) if known else "",
            ratio=f"{size.off:.2f}x" if known else "",
            busbw=bus_cell(format_rate(size.row.busbw * size.row.typical / size.seconds), not size.row.note.shared),
            verdict=size.decision.value,
        )
    if curve.remark:
        yield f"{curve.status.value}: {curve.remark}"
    for number, (why, fix) in enumerate(curve.reasons, 1):
        yield from (f"  {number}. {why}", f"     {fix}")
    if not math.isnan(curve.resolution):
        slower = significant(curve.resolution, 3 if curve.resolution < 2 else 2)
        yield f"This check would not notice a machine up to {slower}x too slow."
