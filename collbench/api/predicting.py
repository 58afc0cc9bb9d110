"""A sweep on a described system as a function: which part of it, which cases, and the session that predicts them."""

import re
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from collbench.algorithms import choose
from collbench.api.carrying import Size, as_options, carried_out
from collbench.api.wanted import make_cases
from collbench.cases import Sweep
from collbench.errors import UsageError, unknown
from collbench.host.launcher import launched
from collbench.measure.predicted import Modelled
from collbench.measure.session import Session
from collbench.platforms import platforms
from collbench.runfile.store import Run
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


def predicting(
    system: System, options: Mapping[str, Any], folder: Path | None, what_ifs: Sequence[str] = ()
) -> Session:
    """The session that predicts the sweep of these options, in that new folder or in none."""
    part, sweep = make_prediction(system, options)
    return predicted(Modelled(part, sweep, tuple(what_ifs)), sweep, folder)


def predicted(on: Modelled, sweep: Sweep, folder: Path | None) -> Session:
    """The session of a sweep that a model carries out."""
    return Session(on, sweep, launched(), folder, modelled=True)


def stem(system: System) -> str:
    """What a folder of predictions of a system is called."""
    return re.sub(r"[^a-z0-9]+", "-", f"{system.name} {system.ranks}".lower()).strip("-")


def predict(
    system: str,
    op: str | Sequence[str] = "allreduce",
    *,
    impl: str | Sequence[str] = "library",
    ranks: int | None = None,
    nodes: int | None = None,
    ranks_per_node: int | None = None,
    minbytes: Size = 8,
    maxbytes: Size | None = None,
    stepfactor: float = 4.0,
    stepbytes: Size | None = None,
    datatype: str | Sequence[str] = "float",
    redop: str | Sequence[str] = "sum",
    root: int = 0,
    in_place: bool = False,
    what_if: Sequence[str] = (),
    out: Path | str | None = None,
) -> Run:
    """What collectives should take on a described system (a preset or FILE.toml), as `collbench predict` says.

    Rows are Predictions: `seconds`, and `low` to `high`, between which nine of ten measurements should lie.  `what_if`
    are changes of the network between nodes, such as "oversubscription=4".  Nothing runs.  Options as of `sweep`.

    Errors: UsageError for what does not exist, or is more than the system has.

    >>> import collbench
    >>> run = collbench.predict("dgx-h100", nodes=4, minbytes="128M", maxbytes="128M")
    >>> row = run.results[0]
    >>> row.algorithm, row.low < row.seconds < row.high
    ('nvlstree', True)
    """
    options, folder = as_options(locals()), Path(out) if out else None
    described = find_system(system, ())
    assert described  # there is nothing else that it could be
    return carried_out(predicting(described, options, folder, what_if))
