"""From the words of `collbench predict A,B,...` to interconnects side by side: systems to predict, runs among them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from collbench.algorithms import choose
from collbench.analysis.interconnects import Chosen, Interconnect, common_ranks, left_out, of_run, short_names, tables
from collbench.api.patience import leads
from collbench.api.predicting import make_prediction, predicted
from collbench.cases import Sweep
from collbench.cli._carried_out import say_where
from collbench.cli._interconnects_table import FORMATS
from collbench.cli._json import STANDARD, into
from collbench.datatypes import NONE
from collbench.errors import UsageError, unknown
from collbench.host.launcher import launched
from collbench.measure.predicted import Modelled
from collbench.results import Timed, Untimed, timed
from collbench.runfile.store import Run, read, why_none
from collbench.topology import files
from collbench.topology.system import System

_OF_RUNS: Mapping[tuple[str, ...], Callable[[Sequence[Timed]], dict[str, Any]]] = {
    ("op",): lambda rows: {"collectives": tuple(dict.fromkeys(row.case.collective for row in rows))},
    ("datatype",): lambda rows: {"dtypes": tuple(dict.fromkeys(row.case.dtype for row in rows))},
    ("redop",): lambda rows: {
        "redops": tuple(dict.fromkeys(row.case.redop for row in rows if row.case.redop != NONE)) or (NONE,)
    },
    ("root",): lambda rows: {"root": max(row.case.root for row in rows)},
    ("in_place",): lambda rows: {"in_place": all(row.case.in_place for row in rows)},
    ("minbytes", "maxbytes", "stepfactor", "stepbytes"): lambda rows: {
        "sizes": tuple(sorted({row.case.nbytes for row in rows}))
    },
}
"""By options: what systems beside runs are predicted at where the command line has none of them."""


def side_by_side(words: Sequence[str], options: Mapping[str, Any], what_ifs: tuple[str, ...], form: str) -> int:
    """Predict every system, read every run, and print them as one table a kind of case; the exit status."""
    asked = _named(words)
    runs = {name: what for name, what in asked.items() if isinstance(what, Run)}
    rows = [row for run in runs.values() for row in timed(run.results) if row.case.nbytes]
    if runs and not rows:
        raise UsageError(why_none(list(runs.values())))
    ranks = _ranks(asked, options)
    every = [
        of_run(name, what)
        if isinstance(what, Run)
        else _predicted(name, *_sweep(what, ranks, rows, options), options, what_ifs, form == "table")
        for name, what in asked.items()
    ]
    found = tables(every, _wanted(options))
    reasons = left_out(every, found)
    if not found:
        raise UsageError(f"nothing to compare: {'; '.join(reasons)}")
    if leads(launched()):
        for line in (_placed(ranks, options), *(f"left out: {reason}" for reason in reasons)):
            click.echo(line, err=True)
        FORMATS[form](found)
        if options["as_json"] not in (None, STANDARD):
            with into(options["as_json"]):
                FORMATS["json"](found)
    return 0


def _placed(ranks: int | None, options: Mapping[str, Any]) -> str:
    """How many ranks each has, and how to have others."""
    if options["nodes"] or options["ranks"] or options["ranks_per_node"]:
        return "ranks as they were asked for"
    if ranks is None:
        return "no number of ranks is possible on all: each has its own; --ranks for another"
    return f"{ranks} ranks on each, the most that all can have of what one of them has; --ranks for another number"


def _named(words: Sequence[str]) -> dict[str, System | Run]:
    """By the preset's, the file's or the run's folder's name, or by the whole word where two would have the same."""
    if twice := next((word for word in words if words.count(word) > 1), ""):
        raise UsageError(f"{twice} is named twice; name each once")
    return {name: _found(word) for word, name in zip(words, short_names(words), strict=True)}


def _found(word: str) -> System | Run:
    if word in files.names() or word.endswith(".toml"):
        return files.load(word)
    if not word or not Path(word).exists():
        raise unknown("system", word, (*files.names(), "FILE.toml", "the path of a run"))
    return read(Path(word))


def _ranks(asked: Mapping[str, System | Run], options: Mapping[str, Any]) -> int | None:
    """The number of ranks that all are to have: the wanted one, or the largest own one that all can have, if any."""
    if options["nodes"] or options["ranks_per_node"]:
        return None
    if options["ranks"]:
        return int(options["ranks"])
    measured = [{row.case.ranks for row in timed(what.results)} for what in asked.values() if isinstance(what, Run)]
    return common_ranks([what for what in asked.values() if isinstance(what, System)], measured)


def _sweep(
    system: System, ranks: int | None, rows: Sequence[Timed], options: Mapping[str, Any]
) -> tuple[System, Sweep]:
    """The part of the system with so many ranks, or as the options say, and the cases: those of runs beside it."""
    if ranks:
        options = {**options, "ranks": ranks, "nodes": -(-ranks // system.gpus)}
    part, sweep = make_prediction(system, options)
    for names, of_runs in _OF_RUNS.items():
        if rows and not any(_given(name) for name in names):
            sweep = replace(sweep, **of_runs(rows))
    return part, sweep


def _given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _predicted(
    name: str, system: System, sweep: Sweep, options: Mapping[str, Any], what_ifs: tuple[str, ...], told: bool
) -> Interconnect:
    """Its predictions; with `--out` also as a run file in a folder of its name there."""
    folder = options["out"] / name.replace("/", "-") if options["out"] else None
    session = predicted(Modelled(system, sweep, what_ifs), sweep, folder)
    with session:
        results = list(session.run())
    if session.leader and folder and told:
        say_where(session, ("png",) if options["plot"] else ())
    skipped = dict.fromkeys(
        f"{one.implementation} skipped: {one.reason}" for one in results if isinstance(one, Untimed)
    )
    return Interconnect(name, session.topology, tuple(timed(results)), tuple(skipped))


def _wanted(options: Mapping[str, Any]) -> Chosen | None:
    """Those that `--impl` names; without it an interconnect is as fast as its library."""
    if not _given("impl"):
        return None
    names = {name for platform in ("gpu", "cpu") for name in _chosen(options["impl"], platform)}
    return lambda implementation: implementation in names or implementation.partition("@")[0] in names


def _chosen(names: str, platform: str) -> tuple[str, ...]:
    try:
        return choose(names, platform)
    except UsageError:
        return ()
