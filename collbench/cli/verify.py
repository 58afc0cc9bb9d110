"""Check every implementation, collective, type, reduction and odd size; run it first on a new machine.

For example:
  collbench verify
  collbench verify --full
  collbench verify --op allreduce -d all -g 4
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from collbench.cli._sweep_options import DEFAULTS, HERE, shared

if TYPE_CHECKING:
    from collbench.analysis.conformance import Conformance
    from collbench.cases import Sweep

SIZES = (1, 28, 4012, 300_004)  # bytes: one element; few; no whole packs or chunks; several pieces

_FIXED = {"minbytes": str(SIZES[0]), "maxbytes": str(SIZES[-1]), "stepfactor": 2.0, "iters": 1, "warmup": 0}
_OPTIONS = [
    *shared(op="all", impl="all,narrow"),
    HERE,
    *shared("ranks", datatype="float", redop="sum", timeout=60.0),
    click.Option(["--full"], is_flag=True, help="All types and reductions: thousands of cases, minutes."),
    *shared("spin", "bind", "quiet"),
]


@click.command(context_settings={"show_default": True}, params=_OPTIONS)
@click.pass_context
def command(context: click.Context, /, full: bool, quiet: bool, **options: Any) -> int:
    """Check every implementation and collective at odd sizes, out of place and in place; run it first on a new machine.

    With floats that are added, which takes half a minute, or a minute where all kernels must be compiled first; --full
    has all types and reductions.
    """
    from collbench.analysis.conformance import Conformance
    from collbench.api.wanted import make_sweep
    from collbench.host.launcher import launched

    for name in ("datatype", "redop") if full else ():
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            options[name] = "all"
    platform, sweep = make_sweep(DEFAULTS | _FIXED | options, launched())
    sampling = replace(sweep.sampling, check_only=True)
    sweep = replace(sweep, sizes=SIZES, sampling=sampling, both_places=True)
    conformance = Conformance()
    if _check(platform, sweep, conformance, quiet):
        _show(conformance, sweep)
    return int(bool(conformance.bad))


def _check(platform: str, sweep: "Sweep", conformance: "Conformance", quiet: bool) -> bool:
    """Every case of a sweep; whether this process is the one that prints."""
    from collbench.cli._live_table import LiveTable
    from collbench.cli._progress import awaited, begun
    from collbench.cli._table import row
    from collbench.host.launcher import launched
    from collbench.measure.session import Session

    table = LiveTable(0 if quiet else len(list(sweep.cases())) * len(sweep.implementations))
    session = Session(platform, sweep, launched(), None)
    with begun(session, sweep.ranks, quiet):
        if session.leader and not quiet:
            click.echo(session.topology, err=True)
        for result in awaited(session.run(), quiet):
            conformance.add(result)
            if session.leader:
                case, bad = result.case.title, conformance.bad and conformance.bad[-1] is result
                table.show(case, "", [(result, f"{case}: {row(result, None)}")] if bad else [])
    if session.leader:
        table.close()
    return session.leader


def _show(conformance: "Conformance", sweep: "Sweep") -> None:
    from collbench.analysis.conformance import table
    from collbench.results import Outcome

    for line in table(conformance, (dtype.name for dtype in sweep.dtypes)):
        click.echo(line)
    click.echo()
    for name, reasons in conformance.reasons.items():
        for reason in sorted(reasons):
            click.echo(f"skipped, {name}: {reason}")
    words = {Outcome.OK: "right", Outcome.SKIPPED: "skipped", Outcome.WRONG: "wrong", Outcome.FAILED: "failed"}
    click.echo("\n" + ", ".join(f"{conformance.counts[outcome]} {word}" for outcome, word in words.items()))
    if left := _left_out(sweep):
        click.echo(left)


def _left_out(sweep: "Sweep") -> str:
    """What was not checked, and how it is."""
    from collbench.datatypes import DATATYPES, REDUCTIONS

    dtypes = [name for name in DATATYPES if name not in {dtype.name for dtype in sweep.dtypes}]
    redops = [name for name in REDUCTIONS if name not in {redop.name for redop in sweep.redops}]
    told = [f"{what} {', '.join(names)}" for what, names in (("types", dtypes), ("reductions", redops)) if names]
    return f"not checked: {'; '.join(told)} (--full, or -d and -o)" if told else ""
