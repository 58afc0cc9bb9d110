"""Sweeps on described systems, and comparisons of one with what a change of the network makes of it."""

from collections.abc import Iterable, Mapping
from typing import Any

import click
from click.core import ParameterSource

from collbench.api.predicting import make_prediction, predicted, stem
from collbench.api.wanted import default_folder
from collbench.cases import Sweep
from collbench.cli._live_table import LiveTable
from collbench.cli._outputs import Outputs
from collbench.cli._sweep_table import carry_out, close
from collbench.cli._table import CHANGE_LEGEND, change_heading, change_row
from collbench.measure.predicted import Modelled
from collbench.measure.session import Session
from collbench.model.predict import network_effect
from collbench.model.what_if import pattern_of
from collbench.results import Prediction, Result
from collbench.topology.system import System


def predict(system: System, options: Mapping[str, Any], outputs: Outputs, measuring: Iterable[str] = ()) -> int:
    """Predict and print the sweep of these options; those called `measuring` are of no use, which is said."""
    useless = _given(click.get_current_context(), measuring)
    remarks = [f"nothing is measured, so without effect: {', '.join(useless)}"] if useless else []
    part, sweep = make_prediction(system, options)
    return carry_out(_session(Modelled(part, sweep), sweep, options), remarks, False, outputs)


def compare(system: System, options: Mapping[str, Any], what_ifs: tuple[str, ...]) -> int:
    """Predict and print the sweep of these options with and without changes of the network, and what they do to it."""
    part, sweep = make_prediction(system, options)
    session = _session(Modelled(part, sweep, what_ifs), sweep, options)
    with session, Modelled(part, sweep) as unchanged:
        pairs = list(zip(unchanged.run(), session.run(), strict=True))
    if not session.leader:
        return 0
    click.echo(session.topology, err=True)
    table = LiveTable()
    for before, after in pairs:
        table.show(after.case.title, change_heading(), [(after, change_row(before, after))])
    click.echo()
    for pattern, reason in _reasons(part, session.results, what_ifs).items():
        click.echo(f"{pattern}: {reason}")
    close(session, CHANGE_LEGEND, Outputs.of(options))
    return 0


def _reasons(system: System, results: Iterable[Result], what_ifs: tuple[str, ...]) -> dict[str, str]:
    """For each pattern that the algorithms make between the nodes, what the network does to it."""
    ways = {(result.case.collective.name, result.algorithm) for result in results if isinstance(result, Prediction)}
    return {pattern_of(*way): network_effect(system, *way, what_ifs).explanation for way in sorted(ways)}


def _session(on: Modelled, sweep: Sweep, options: Mapping[str, Any]) -> Session:
    return predicted(on, sweep, options["out"] or default_folder(sweep, stem(on.system)))


def _given(context: click.Context, names: Iterable[str]) -> list[str]:
    """Those of the named options that stand on the command line, as they are spelled at length."""
    named = {option.name: max(option.opts, key=len) for option in context.command.params}
    return [named[name] for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
