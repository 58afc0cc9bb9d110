"""Say in one line whether this machine is right: measured briefly, checked, and compared with what is expected.

For example:
  collbench check
  collbench check --op allreduce,allgather --reference floors.toml
  collbench check --run run.jsonl --on dgx-h100
  collbench check --exit nagios --metrics /var/lib/node_exporter/collbench.prom
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

import click

from collbench.analysis.check import CheckedCurve, CheckResult, Status
from collbench.api.checking import check
from collbench.api.notices import is_leader
from collbench.cli.options import (
    NODES,
    PATH,
    STANDARD,
    TIME,
    JsonCommand,
    json_option,
    machine_option,
    option,
    share_option,
    shared,
    try_output,
    write_json,
)
from collbench.cli.progress import waiting
from collbench.cli.results_table import bus_cell
from collbench.cli.tables import Table
from collbench.errors import CollbenchError, StorageError, UsageError
from collbench.host import signals
from collbench.host.launcher import launched
from collbench.reports import verdicts
from collbench.runfile.store import Writer
from collbench.units import format_rate, format_seconds, format_size

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
    share_option("--slower", "How much slower than expected is too slow.  [default: 10%, on a CPU 20%]"),
    option(
        "--budget",
        "Time after which no further round begins, of three at least.",
        type=TIME,
        default="60s",
        show_default=True,
    ),
    option("--renew", "Begin the baseline anew with this run, if it is right.", is_flag=True),
    option("--out", "Folder to make for the run file.", type=PATH),
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


@click.command("check", cls=JsonCommand, params=_OPTIONS)
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
            result = _result(options)
        except KeyboardInterrupt as cause:
            click.echo("\ninterrupted: no verdict", err=True)
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
    if options["as_json"] != STANDARD:
        line = verdicts.drain_reason(result) if options["drain_reason"] else verdicts.line(result, options["exits"])
        click.echo(line, nl=bool(line))
    # Statuses for monitoring speak of the machine alone.
    return verdicts.EXITS[options["exits"]][result.status] or int(lost and options["exits"] == "plain")


def _try_places(options: Mapping[str, Any]) -> None:
    """Raise UsageError for what cannot be written to, before anything is measured; nothing there is changed."""
    if options["run"] and (options["out"] or options["renew"]):
        raise UsageError("--run measures nothing that could be stored; leave --out and --renew out")
    for name in ("as_json", *(output.option for output in verdicts.OUTPUTS)):
        try_output(options[name], f"--{name.removeprefix('as_')} FILE", options["out"])
    if options["out"] and is_leader(launched()):
        Writer(options["out"]).discard()


def _write_files(result: CheckResult, options: Mapping[str, Any]) -> bool:
    """Write all files, and return whether any was lost; the verdict is printed in any case."""
    writers: list[Callable[[], None]] = [
        partial(verdicts.write, output, options[output.option], result)
        for output in verdicts.OUTPUTS
        if options[output.option]
    ]
    writers.append(partial(write_json, options["as_json"], verdicts.document(result), allow_nan=False))
    lost = False
    for write in writers:
        try:
            write()
        except StorageError as error:
            click.echo(f"collbench: error: {error}", err=True)
            lost = True
    return lost


def _result(options: Mapping[str, Any]) -> CheckResult | None:
    words = {name: options[name] for name in signature(check).parameters if name != "each"}
    with waiting("" if options["run"] else "measuring"):
        return check(**words)


def _lines(result: CheckResult) -> Iterator[str]:
    """Yield the verdict at length: correctness first."""
    yield result.correctness.in_words("sizes")
    why = "; ".join(dict.fromkeys(curve.remark for curve in result.curves))
    yield f"compared with {result.compared or f'nothing: {why}'}"
    yield from (f"note: {remark}" for remark in result.remarks)
    for curve in result.curves:
        yield ""
        yield from _curve(curve if result.compared else replace(curve, remark=""))
    yield ""
    if result.disturbed:
        yield (
            f"disturbed: in {result.disturbed} of {result.rows} rows ranks were off their cores, and these do not "
            "count; end other programs"
        )
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
            time=format_seconds(size.row.typical),
            expected=format_seconds(size.expected) if known else "",
            ratio=f"{size.off:.2f}x" if known else "",
            busbw=bus_cell(format_rate(size.row.busbw), not size.row.note.shared),
            verdict=size.decision.value,
        )
    if curve.remark:
        yield f"{curve.status.value}: {curve.remark}"
    for number, (why, fix) in enumerate(curve.reasons, 1):
        yield from (f"  {number}. {why}", f"     {fix}")
    if not math.isnan(curve.resolution):
        yield f"less than {curve.resolution:.2f}x slower cannot be distinguished from healthy here"
