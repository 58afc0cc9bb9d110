"""Check every implementation, collective, type, reduction and odd size; run it first on a new machine.

For example:
  collbench verify
  collbench verify --full
  collbench verify --op allreduce -d all -g 4
"""

from dataclasses import replace
from typing import Any

import click
from click.core import ParameterSource

from collbench.analysis.conformance import Conformance, table
from collbench.api.requests import measured_sweep
from collbench.cases import Sweep
from collbench.cli.options import HERE, option, shared, sweep_request
from collbench.cli.progress import LiveTable
from collbench.cli.results_table import row
from collbench.cli.running import run_session
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.host.launcher import launched
from collbench.measure.session import Session
from collbench.results import Outcome, Result

SIZES = (1, 28, 4012, 300_004)  # bytes: one element; few; no whole packs or chunks; several pieces

_OPTIONS = [
    *shared(op="all", impl="all,narrow"),
    HERE,
    *shared("ranks", datatype="float", redop="sum", timeout=60.0),
    option("--full", "All types and reductions: thousands of cases, minutes.", is_flag=True),
    *shared("spin", "bind", "quiet"),
]


@click.command(context_settings={"show_default": True}, params=_OPTIONS)
@click.pass_context
def command(context: click.Context, /, full: bool, quiet: bool, **options: Any) -> int:
    """Check every implementation and collective at odd sizes, out of place and in place; run it first on a new machine.

    With floats that are added, which takes half a minute, or a minute where all kernels must be compiled first; --full
    has all types and reductions.
    """
    for name in ("datatype", "redop"):
        if full and context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            options[name] = "all"
    fixed = {"minbytes": SIZES[0], "maxbytes": SIZES[-1], "iters": 1, "warmup": 0, "starts": 1}
    platform, sweep = measured_sweep(sweep_request(options, **fixed), launched())
    sampling = replace(sweep.sampling, check_only=True)
    sweep = replace(sweep, sizes=SIZES, sampling=sampling, both_places=True)
    session = Session(platform, sweep, launched(), None)
    table = _BadRows(0 if quiet else len(list(sweep.cases())) * len(sweep.implementations))
    if interrupted := run_session(session, table, quiet=quiet):
        return interrupted
    if session.leader:
        _print_summary(table.conformance, sweep)
    return int(any(result.outcome.bad for result in session.results))


class _BadRows(LiveTable):
    """The results that are wrong or failed, below each other; all of them count for the summary."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self.conformance = Conformance()

    def add(self, result: Result) -> None:
        """Print a result if it is bad."""
        before = len(self.conformance.bad)
        self.conformance.add(result)
        title = result.case.title
        bad = len(self.conformance.bad) > before
        self.show(title, "", [(result, f"{title}: {row(result, None)}")] if bad else [])


def _print_summary(conformance: Conformance, sweep: Sweep) -> None:
    """Print which implementation is right for what, what was skipped and why, and what was not checked."""
    for line in table(conformance, (dtype.name for dtype in sweep.dtypes)):
        click.echo(line)
    click.echo()
    for name, reasons in conformance.reasons.items():
        for reason in sorted(reasons):
            click.echo(f"skipped, {name}: {reason}")
    words = {Outcome.OK: "right", Outcome.SKIPPED: "skipped", Outcome.WRONG: "wrong", Outcome.FAILED: "failed"}
    click.echo("\n" + ", ".join(f"{conformance.counts[outcome]} {word}" for outcome, word in words.items()))
    dtypes = [name for name in DATATYPES if name not in {dtype.name for dtype in sweep.dtypes}]
    redops = [name for name in REDUCTIONS if name not in {redop.name for redop in sweep.redops}]
    left = [f"{what} {', '.join(names)}" for what, names in (("types", dtypes), ("reductions", redops)) if names]
    if left:
        click.echo(f"not checked: {'; '.join(left)} (--full, or -d and -o)")
