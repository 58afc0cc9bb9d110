"""Check every implementation, collective, type, reduction and odd size; run it first on a new machine.

For example:
  collbench verify
  collbench verify --full
  collbench verify --op allreduce -d all -g 4
"""

from dataclasses import replace
from typing import Any

import click

from collbench.algorithms import implementations
from collbench.analysis.conformance import ABSENT, Conformance, matrix
from collbench.api.requests import measured_sweep
from collbench.cases import Sweep
from collbench.cli._process import coloured
from collbench.cli.options import HERE, given, option, shared, sweep_request
from collbench.cli.progress import LiveTable
from collbench.cli.results_table import row
from collbench.cli.running import run_session
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.host.launcher import launched
from collbench.measure.session import Session, exit_status
from collbench.results import Outcome, family

SIZES = (1, 28, 4012, 300_004)  # bytes: one element; few; no whole packs or chunks; several pieces

_OPTIONS = [
    *shared(op="all", impl="all,narrow"),
    HERE,
    *shared("ranks", datatype="float", redop="sum", timeout="60s"),
    option("--full", "All types and reductions: thousands of cases, minutes.", is_flag=True),
    *shared("rendezvous", "spin", "bind", "quiet"),
]


@click.command(context_settings={"show_default": True}, params=_OPTIONS)
def command(full: bool, quiet: bool, **options: Any) -> int:
    """Check every implementation and collective at odd sizes, out of place and in place; run it first on a new machine.

    Sums of floats: half a minute, a minute where kernels are compiled first; --full: all types and reductions.
    """
    for name in ("datatype", "redop"):
        if full and name not in given():
            options[name] = "all"
    fixed = {"minbytes": SIZES[0], "maxbytes": SIZES[-1], "iters": 1, "warmup": 0, "starts": 1}
    platform, sweep = measured_sweep(sweep_request(options, **fixed), launched())
    sampling = replace(sweep.sampling, check_only=True)
    sweep = replace(sweep, sizes=SIZES, sampling=sampling, both_places=True)
    session = Session(platform, sweep, launched(), None)
    total = 0 if quiet else len(list(sweep.cases())) * len(sweep.implementations)
    interrupted = run_session(session, LiveTable(total), quiet=quiet)
    checked = Conformance(session.results)
    if interrupted:
        _print_failures(checked)
        return interrupted
    if session.leader:
        click.echo("\n".join(matrix(checked)))
        _print_counts(checked, sweep)
        _print_failures(checked)
    return exit_status(session.results)


def _print_counts(checked: Conformance, sweep: Sweep) -> None:
    """Print how many cases are right, what should be there and is not, and what was not asked for."""
    words = {Outcome.OK: "right", Outcome.WRONG: "wrong", Outcome.FAILED: "failed", Outcome.SKIPPED: "skipped"}
    click.echo(", ".join(f"{checked.counts[outcome]} {word}" for outcome, word in words.items()))
    for (name, collective), reason in checked.reasons.items():
        if checked.cell((name, collective)) == ABSENT and collective in implementations()[family(name)].collectives:
            click.echo(f"not checked: {name} {collective}, {reason}")
    if len(sweep.dtypes) < len(DATATYPES) or len(sweep.redops) < len(REDUCTIONS):
        names = (*(dtype.name for dtype in sweep.dtypes), *(redop.name for redop in sweep.redops))
        click.echo(f"checked with {', '.join(names)}; --full: all types and reductions")


def _print_failures(checked: Conformance) -> None:
    """Print what is wrong or failed, a row each."""
    for results, more in checked.failures():
        for result in results:
            line = f"{result.case.title}: {row(result).strip()}"
            click.echo(click.style(line, fg="red") if coloured() else line)
        if more:
            click.echo(f"... and {more:,} more of {results[0].implementation}")
