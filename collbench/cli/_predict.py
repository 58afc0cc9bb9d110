"""Sweeps on described systems, and comparisons of one with what a change of the network makes of it."""

import re
from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

import click
from click.core import ParameterSource

from collbench.cases import Sweep
from collbench.cli._live_table import LiveTable
from collbench.cli._options import default_folder, make_cases
from collbench.cli._sweep_table import carry_out, close
from collbench.cli._table import CHANGE_LEGEND, change_heading, change_row
from collbench.errors import UsageError, unknown
from collbench.implementations import choose
from collbench.launcher import launched
from collbench.measure.predicted import Modelled
from collbench.measure.session import Session
from collbench.measurement import Prediction, Result
from collbench.model.network.on_network import network_effect
from collbench.model.network.what_if import pattern_of
from collbench.platforms import platforms
from collbench.topology import files
from collbench.topology.system import System
from collbench.units import parse_size

MOST = 2**30  # ranks of any system
LAST = 8 * 2**30  # bytes: the largest size by default, where published sweeps end; nothing has to fit in memory


def find_system(on: str, others: tuple[str, ...] = ("auto", *platforms())) -> System | None:
    """The system that `--on` names, or None for one of the `others`; UsageError with all choices if it is neither."""
    if on in others:
        return None
    if not on.endswith(".toml") and on not in files.names():
        raise unknown("--on" if others else "system", on, (*others, *files.names(), "FILE.toml"))
    return files.load(on)


def make_prediction(system: System, options: Mapping[str, Any]) -> tuple[System, Sweep]:
    """The part of the system, or as many of its nodes, that is wanted, and the cases on its ranks."""
    for name in ("nodes", "ranks", "ranks_per_node"):
        if options[name] is not None and options[name] < 1:
            raise UsageError(f"--{name.replace('_', '-')} {options[name]} is too few; give at least 1")
        if options[name] is not None and options[name] > MOST:
            raise UsageError(f"--{name.replace('_', '-')} {options[name]} is too many; give at most {MOST}")
    place = _ranks_a_node if options["ranks_per_node"] else _all_of_a_node
    part = place(system, options["nodes"], options["ranks"], options["ranks_per_node"])
    last = parse_size(options["maxbytes"]) if options["maxbytes"] else LAST
    return part, make_cases(options, part.ranks, choose(options["impl"], part.platform), last)


def _all_of_a_node(system: System, nodes: int | None, ranks: int | None, _: None) -> System:
    """Whole nodes, or some GPUs of one."""
    whole = system.of(nodes) if nodes else system
    if ranks is None:
        return whole
    if ranks > whole.ranks:
        raise UsageError(
            f"--ranks {ranks} is more than the {whole.ranks} GPUs of {whole.name}; "
            f"give fewer, or --nodes {ceil(ranks / whole.gpus)}"
        )
    if nodes is not None and nodes > 1 and ranks < whole.ranks:
        choices = [f"--ranks {whole.ranks} for all"]
        choices += [f"--nodes {ceil(ranks / whole.gpus)} for as few"] if ranks % whole.gpus in (0, ranks) else []
        choices += [f"--ranks-per-node {ranks // nodes} for some of each node"] if ranks % nodes == 0 else []
        less = f"--ranks {ranks} is less than the {whole.ranks} GPUs of --nodes {nodes}"
        raise UsageError(f"{less}; give {', or '.join(choices)}")
    return whole.part(ranks)


def _ranks_a_node(system: System, nodes: int | None, ranks: int | None, own: int) -> System:
    """The same GPUs of every node."""
    if own > system.gpus:
        raise UsageError(
            f"--ranks-per-node {own} is more than the {system.gpus} GPUs of a node of {system.name}; "
            f"choose from 1 to {system.gpus}"
        )
    count = nodes or (ceil(ranks / own) if ranks else system.nodes)
    if ranks not in (None, count * own):
        raise UsageError(
            f"--ranks {ranks} is not --ranks-per-node {own} on {count} node{'s' if count > 1 else ''}; "
            f"give --ranks {count * own}, or leave it out"
        )
    return system.of(1).part(own).of(count)


def predict(system: System, options: Mapping[str, Any], measuring: Iterable[str] = ()) -> int:
    """Predict and print the sweep of these options; those called `measuring` are of no use, which is said."""
    useless = _given(click.get_current_context(), measuring)
    remarks = [f"nothing is measured, so without effect: {', '.join(useless)}"] if useless else []
    part, sweep = make_prediction(system, options)
    return carry_out(_session(Modelled(part, sweep), sweep, options), remarks, False, options["plot"])


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
    close(session, CHANGE_LEGEND, options["plot"])
    return 0


def _reasons(system: System, results: Iterable[Result], what_ifs: tuple[str, ...]) -> dict[str, str]:
    """For each pattern that the algorithms make between the nodes, what the network does to it."""
    ways = {(result.case.collective.name, result.algorithm) for result in results if isinstance(result, Prediction)}
    return {pattern_of(*way): network_effect(system, *way, what_ifs).explanation for way in sorted(ways)}


def _session(on: Modelled, sweep: Sweep, options: Mapping[str, Any]) -> Session:
    name = re.sub(r"[^a-z0-9]+", "-", f"{on.system.name} {on.system.ranks}".lower()).strip("-")
    return Session(on, sweep, launched(), options["out"] or default_folder(sweep, name), modelled=True)


def _given(context: click.Context, names: Iterable[str]) -> list[str]:
    """Those of the named options that stand on the command line, as they are spelled at length."""
    named = {option.name: max(option.opts, key=len) for option in context.command.params}
    return [named[name] for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
