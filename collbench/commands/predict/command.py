"""Predict what a collective should take on a described system, and fit the model to measured runs.

For example:
  collbench predict dgx-h100 --nodes 4 -b 8 -f 64
  collbench predict dgx-h100 --nodes 64 -b 64M -f 16 --what-if oversubscription=4
  collbench predict --fit results/runs/... --on dgx-h100 -o machine.toml
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from collbench.cli import sweeping
from collbench.cli.options import (
    QUIET,
    completed,
    csv_option,
    given,
    json_option,
    made,
    option,
    options_of,
    print_basis,
)
from collbench.cli.progress import LiveTable
from collbench.cli.results_table import remarks, row
from collbench.cli.running import Outputs, software
from collbench.cli.sweeping import PLOT, print_end, show_prediction
from collbench.commands.predict import fitted
from collbench.errors import UsageError
from collbench.present.columns import Column
from collbench.present.terminal import Table
from collbench.requests.declared import takes
from collbench.requests.sessions import predicting_session, run_to_end
from collbench.requests.sweeps import (
    PredictRequest,
    SweepRequest,
    default_folder,
    find_system,
    folder_name,
    predicted_sweep,
    split_names,
)
from collbench.results import Prediction, Result
from collbench.runfile.schema import record
from collbench.runfile.store import Run
from collbench.topology.system import System, launched_in_graph
from collbench.units import format_list, format_range, format_seconds, format_size

CHANGE_LEGEND = "takes: time with the change over time without it"
CHANGE: Table[tuple[Any, Any]] = Table(
    (
        Column("size", lambda row: row[1].case.nbytes, format_size, form=">9"),
        Column("", lambda row: row[1].implementation, form="<16"),
        Column("as it is", lambda row: row[0].seconds, format_seconds, 2, ">9"),
        Column("what if", lambda row: row[1].seconds, format_seconds, form=">9"),
        Column("takes", lambda row: row[1].seconds / row[0].seconds, "{:.2f}x".format, form=">8"),
        Column("algorithm", lambda row: row[1].method, importance=1, form="<16"),
        Column("", lambda row: remarks("predicted", row[1])),
    )
)
_SYSTEMS = "topology.files.names"
_OPTIONS = [
    *options_of(PredictRequest),
    QUIET,
    json_option("the results"),
    PLOT,
    click.Argument(["system"], default="", metavar="[SYSTEM|FILE.toml[,...]]", shell_complete=completed(_SYSTEMS)),
    *fitted.OPTIONS,
    option("--graph", "Predict replays of a CUDA graph, not separate launches.", is_flag=True),
    csv_option("size of several systems"),
]


class _Command(click.Command):
    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every what-if; the model is slow to import, so only this help loads it."""
        from collbench.model.predict import WHAT_IFS

        super().format_epilog(context, formatter)
        with formatter.section("What-ifs"):
            formatter.write_dl([(what_if.form, what_if.meaning) for what_if in WHAT_IFS.values()])


@click.command(cls=_Command, context_settings={"show_default": True}, params=_OPTIONS)
def command(system: str, graph: bool, **options: Any) -> int:
    """Predict what a collective should take on a described system; nothing runs, no GPU is needed.

    SYSTEM is a preset, or FILE.toml for a system of your own; --impl all adds the hand-written kernels.  Several
    systems (dgx-h100,ethernet-100g-tcp) are compared on --ranks, by default the most that all of them have.

    --fit prints latency, bandwidth and crossovers of measured curves with intervals.  With -o FILE.toml it also fits
    the model of the machine (--on, or SYSTEM) to all curves; later predictions accept this file as SYSTEM.
    """
    runs, on = options.pop("fit"), options.pop("on")
    if runs:
        return _fit(runs, system, on, options)
    if options["out"] and options["out"].suffix == ".toml":
        raise UsageError(f"--out {options['out']} must be a folder; to write a calibration, give --fit RUN")
    if on:
        raise UsageError("--on names the machine of measured runs; give them with --fit RUN")
    if not system:
        raise UsageError("no SYSTEM is given; choose one of `collbench list systems`, FILE.toml, or --fit RUN")
    names = split_names(system)
    if len(names) > 1:
        return sweeping.side_by_side(names, options, options["what_if"], graph)
    if options["as_csv"]:
        raise UsageError("--csv needs several systems; for one, give --json FILE, or - for standard output")
    described = find_system(names[0])
    if graph:
        described = launched_in_graph(described)
    request = made(SweepRequest, options, on=names[0])
    outputs = Outputs.of(options)
    with outputs.aside():
        if options["what_if"]:
            return _compare(described, request, options["what_if"], outputs)
        return show_prediction(described, request, outputs)


def _fit(runs: Sequence[Path], system: str, on: str | None, options: Mapping[str, Any]) -> int:
    """Fit the runs to the machine of SYSTEM or --on; UsageError for options of a prediction."""
    if system and on:
        raise UsageError(f"--on {on} and SYSTEM {system} both name the machine of the runs; leave one out")
    if system and not options["out"]:
        raise UsageError(f"SYSTEM {system} names the machine of a calibration; give --out FILE.toml as well")
    if others := [
        word for name, word in given().items() if name not in ("system", "fit", "on", "nodes", "out", "as_json")
    ]:
        raise UsageError(f"--fit fits measured runs and predicts nothing; leave {format_list(others)} out")
    return fitted.show_fits(runs, options["out"], on or system or None, options["nodes"], options["as_json"])


def _compare(system: System, request: SweepRequest, what_ifs: tuple[str, ...], outputs: Outputs) -> int:
    """Predict the request with and without changes of the network; print the comparison and its reasons."""
    from collbench.measure.predicted import Modelled
    from collbench.model.predict import changed, network_effect, pattern_of

    part, sweep = predicted_sweep(system, request)
    session = predicting_session(
        system, request, lambda part, sweep: default_folder(sweep, folder_name(part)), what_ifs
    )
    with session, Modelled(part, sweep) as unchanged:
        pairs = list(zip(unchanged.run(), session.run(), strict=True))
    if not session.leader:
        return 0
    print_basis(session.topology, [] if outputs.quiet else software(session))
    answer = _answer(pairs, what_ifs)
    click.echo(f"answer: {answer}")
    table = LiveTable()
    for before, after in pairs:
        table.show(after.case.title, CHANGE.heading(), [(after, change_row(before, after))])
    click.echo()
    predictions = [result for result in session.results if isinstance(result, Prediction)]
    algorithms = {(result.case.collective.name, result.algorithm) for result in predictions}

    # Algorithms with the same pattern between nodes are limited by the same links, and share a line.
    reasons = {}
    for collective, algorithm in sorted(algorithms):
        effect = network_effect(changed(part, what_ifs), collective, algorithm, what_ifs)
        reasons[pattern_of(collective, algorithm)] = effect.explanation
    for pattern, reason in reasons.items():
        click.echo(f"{pattern}: {reason}")
    print_end(session, [CHANGE_LEGEND], outputs)
    outputs.write(session, answer=answer, as_it_is=[record(before) for before, _ in pairs])
    return 0


def _answer(pairs: Sequence[tuple[Result, Result]], what_ifs: Sequence[str]) -> str:
    """Return one line: the range of time ratios with the change, and the case that changes most."""
    ratios = {}
    for before, after in pairs:
        if isinstance(before, Prediction) and isinstance(after, Prediction):
            ratios[after.seconds / before.seconds] = (before, after)
    if not ratios:
        return "none; no case has a predicted time"
    span = format_range(min(ratios), max(ratios), "{:.2f}x".format)
    if span == "1.00x":
        return f"{', '.join(what_ifs)} changes none of these times"

    # Logarithms, so that half as long counts as much as twice as long.
    before, after = ratios[max(ratios, key=lambda ratio: abs(math.log(ratio)))]
    most = f"{after.case.collective.name} of {format_size(after.case.nbytes)} by {after.implementation}"
    times = f"{format_seconds(before.seconds)} -> {format_seconds(after.seconds)}"
    return f"with {', '.join(what_ifs)} operations should take {span} as long; largest change: {most}, {times}"


def change_row(before: Result, after: Result) -> str:
    """Return the table row of a prediction before and after the change."""
    if not isinstance(before, Prediction) or not isinstance(after, Prediction):
        return row(after)
    return CHANGE.row((before, after))


@takes(PredictRequest)
def predict(request: PredictRequest) -> Run:
    """Predict what collectives should take on a described system, as `collbench predict` does; nothing runs.

    Returns:
        A run of Predictions: `seconds`, and `low` to `high`, between which nine of ten measurements should lie.

    Raises:
        UsageError: A name does not exist, or the system is too small.

    >>> import collbench
    >>> run = collbench.predict("dgx-h100", nodes=4, minbytes="128M", maxbytes="128M")
    >>> row = run.results[0]
    >>> row.algorithm, row.low < row.seconds < row.high
    ('nvlstree', True)

    """
    return run_to_end(predicting_session(find_system(request.system), request.sweep, what_ifs=request.what_if))
