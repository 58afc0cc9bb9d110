"""Check every implementation, collective, type, reduction and odd size; run it first on a new machine."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from collbench.cli._sweep_options import DEFAULTS, HERE, shared

if TYPE_CHECKING:
    from collbench.analysis.conformance import Conformance
    from collbench.cases import Sweep

SIZES = (1, 28, 4012, 300_004)  # bytes: one element; few; no whole packs or chunks; several pieces

_FIXED = {"minbytes": str(SIZES[0]), "maxbytes": str(SIZES[-1]), "stepfactor": 2.0, "iters": 1, "warmup": 0}
_OPTIONS = [
    *shared(op="all", impl="all,narrow"),
    HERE,
    *shared("ranks", datatype="all", redop="all", timeout=60.0),
    *shared("spin"),
]


@click.command(context_settings={"show_default": True}, params=_OPTIONS)
def command(**options: Any) -> int:
    """Check every implementation, collective, type, reduction and odd size; run it first on a new machine."""
    from collbench.analysis.conformance import Conformance
    from collbench.cli._options import make_sweep
    from collbench.launcher import launched

    platform, sweep = make_sweep(DEFAULTS | _FIXED | options, launched())
    sampling = replace(sweep.sampling, check_only=True)
    sweep = replace(sweep, sizes=SIZES, sampling=sampling)
    conformance = Conformance()
    leaders = [_check(platform, replace(sweep, in_place=place), conformance) for place in (False, True)]
    if all(leaders):
        _show(conformance, sweep)
    return int(bool(conformance.bad))


def _check(platform: str, sweep: "Sweep", conformance: "Conformance") -> bool:
    """Every case of a sweep; whether this process is the one that prints."""
    from collbench.cli._live_table import LiveTable
    from collbench.cli._patience import started
    from collbench.cli._table import row
    from collbench.launcher import launched
    from collbench.measure.session import Session

    table = LiveTable(len(list(sweep.cases())) * len(sweep.implementations))
    session = Session(platform, sweep, launched(), None)
    with started(session):
        if session.leader and not sweep.in_place:
            click.echo(session.topology, err=True)
        for result in session.run():
            conformance.add(result)
            if session.leader:
                case, bad = result.case.title, conformance.bad and conformance.bad[-1] is result
                table.show(case, "", [(result, f"{case}: {row(result, None)}")] if bad else [])
    if session.leader:
        table.close()
    return session.leader


def _show(conformance: "Conformance", sweep: "Sweep") -> None:
    from collbench.analysis.conformance import table
    from collbench.outcome import Outcome

    for line in table(conformance, (dtype.name for dtype in sweep.dtypes)):
        click.echo(line)
    click.echo()
    for name, reasons in conformance.reasons.items():
        for reason in sorted(reasons):
            click.echo(f"skipped, {name}: {reason}")
    words = {Outcome.OK: "right", Outcome.SKIPPED: "skipped", Outcome.WRONG: "wrong", Outcome.FAILED: "failed"}
    click.echo("\n" + ", ".join(f"{conformance.counts[outcome]} {word}" for outcome, word in words.items()))
