"""Say why a run is slow: held against the model of the machine, with the likely reason.

For example:
  collbench diagnose results/runs/...
  collbench diagnose run.jsonl --on dgx-h100
"""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

import click

from collbench.analysis.judgement import EXITS
from collbench.cli.options import RUN, json_option, options_of, print_answer
from collbench.cli.verdicts import GATE
from collbench.commands.check import outputs
from collbench.commands.check.judge import CheckResult
from collbench.commands.check.library import CheckRequest, judge_run, only_run
from collbench.errors import UsageError
from collbench.requests.declared import Opt, Request, takes
from collbench.requests.words import RunOrPath, RunsMachine, RunsNodes


@dataclass(frozen=True)
class DiagnoseRequest(Request):
    """A run, and what machine it is of."""

    run: Annotated[RunOrPath, Opt("", "A run, or the path of one or of a log.")]
    on: RunsMachine = None
    _: KW_ONLY
    nodes: RunsNodes = None


@takes(DiagnoseRequest)
def diagnose(request: DiagnoseRequest) -> CheckResult:
    """Hold every curve of a run against the model, and say what may be the reason where it is slow.

    Returns:
        The judgement, as of `check`: `word`, `line`, and `curves` with all sizes, each curve with its `reasons`, best
        explained first, and what to do.

    Raises:
        UsageError: The run has no measurements, or the system does not exist.

    >>> import collbench
    >>> curve = collbench.diagnose("results/cpu-2-ranks").curves[0]
    >>> curve.implementation, curve.word.value
    ('mpi', 'UNKNOWN')

    """
    asked = CheckRequest(on=request.on, nodes=request.nodes)
    result = judge_run(asked, only_run(request.run, asked.imported), None)
    if result.no_verdict:
        raise UsageError(f"nothing to diagnose: {result.no_verdict}")
    return result


@click.command("diagnose", params=[RUN, *options_of(DiagnoseRequest), json_option("all of it"), GATE])
def command(run: Path, on: str | None, nodes: int | None, as_json: Path | None, gated: bool) -> int:
    """Judge a run or a log as `collbench check` does, which is its name now; without --gate the exit status is 0.

    Where a curve is slow, the likely reasons follow, best explained first.  Each reason is a changed machine; the line
    says how well its times fit.
    """
    result = diagnose(run, on, nodes=nodes)
    status = EXITS["plain"][result.word]
    if status and not gated:
        click.echo(f"the exit status is 0; with --gate, and of `collbench check {run}`, it is {status}", err=True)
    text = "\n".join((result.line, *outputs.lines(result))).rstrip()
    print_answer(lambda: click.echo(text), as_json, outputs.document(result))
    return status if gated else 0
