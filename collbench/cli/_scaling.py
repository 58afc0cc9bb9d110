"""From the words of `collbench scale` to a session, measured or predicted."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from collbench.cases import Sweep
from collbench.cli._options import default_folder, left_aside, make_cases, make_sweep
from collbench.cli._predict import find_system
from collbench.cli._step_options import check_matrix, one_step, parse_ranks, parse_slow, parse_work, predicted_work
from collbench.cli._sweep_options import DEFAULTS
from collbench.errors import UsageError
from collbench.implementations import choose, libraries, needs
from collbench.launcher import launched
from collbench.measure.predicted_steps import ModelledScaling
from collbench.measure.scaled import MODES, Scaled, Scaling
from collbench.measure.session import Session
from collbench.platforms import find_platform, on_auto, platforms
from collbench.platforms.layout import Layout
from collbench.steps import Step
from collbench.topology.system import System
from collbench.units import parse_size

_NODES = 512  # of a described system, at most by default


def make_session(options: Mapping[str, Any]) -> Session:
    """The scaling that is wanted; UsageError for what cannot be."""
    if launched():
        raise UsageError("collbench scale starts its ranks itself, on several numbers of them; leave the launcher out")
    if not 0 < options["threshold"] <= 100:
        raise UsageError(f"--threshold {options['threshold']:g} is no efficiency; give per cent above 0, at most 100")
    modes = tuple(MODES) if options["mode"] == "both" else (options["mode"],)
    if system := find_system(options["on"]) if options["on"] not in ("auto", *platforms()) else None:
        return _predicted(system, options, modes)
    return _measured(options, modes)


def _measured(options: Mapping[str, Any], modes: tuple[str, ...]) -> Session:
    platform = on_auto() if options["on"] == "auto" else find_platform(options["on"]).name
    if remark := left_aside(options["on"], platform):
        click.echo(remark, err=True)
    ranks = parse_ranks(options["ranks"] or "1,2")
    slow = parse_slow(options["slow_rank"], ranks[-1])
    work = parse_work(options["compute"] or "10ms")
    size = check_matrix(options["matrix"], find_platform(platform).matrix)
    words = {"on": platform, "ranks": ranks[-1], "impl": options["impl"] or usual(platform)}
    _, sweep = make_sweep(of_sweep(options, "4M") | words, None)
    _refuse_too_large(replace(sweep, steps=(Step(1, size),)), ranks, platform)
    scaling = Scaling(replace(sweep, steps=(one_step(work, platform, size, slow),)), ranks, modes)
    return Session(Scaled(platform, scaling), scaling.sweep, None, options["out"] or _folder(sweep))


def _folder(sweep: Sweep, where: str = "") -> Any:
    return default_folder(sweep, f"scale-{where}" if where else "scale")


def of_sweep(options: Mapping[str, Any], gradients: str) -> dict[str, Any]:
    """What a sweep of one size is made of."""
    size = options["gradients"] or gradients
    given = {name: options[name] for name in ("datatype", "timeout", "spin", "budget")}
    return DEFAULTS | given | {"minbytes": size, "maxbytes": size}


def usual(platform: str) -> str:
    """The libraries that the ladder is compared with, and the rung that is expected to be fastest."""
    return ",".join([*(name for name in libraries() if name in choose("library", platform)), "auto"])


def _refuse_too_large(sweep: Sweep, ranks: tuple[int, ...], platform: str) -> None:
    """PlatformError if the memory of all ranks that are there at once does not fit."""
    layout = Layout.of(sweep, needs(sweep.implementations, sweep.ranks, platform))
    find_platform(platform).refuse_too_large(layout.nbytes, sum(ranks))


def _predicted(system: System, options: Mapping[str, Any], modes: tuple[str, ...]) -> Session:
    asked = parse_ranks(options["ranks"] or _all_of(system))
    ranks = tuple(dict.fromkeys((1, *asked)))  # one alone costs nothing here, and is what all others are held against
    work = predicted_work(options)
    names = choose(options["impl"] or "nccl", system.platform)
    words = of_sweep(options, "1G")
    sweep = make_cases(words, ranks[-1], names, parse_size(words["maxbytes"]))
    step = Step(0, 0, slow=(), seconds=work.seconds)
    scaling = Scaling(replace(sweep, steps=(step,)), ranks, modes)
    where = re.sub(r"[^a-z0-9]+", "-", f"{system.name} {ranks[-1]}".lower()).strip("-")
    on = ModelledScaling(system, scaling, options["noise"] / 100)
    return Session(on, scaling.sweep, None, options["out"] or _folder(sweep, where), modelled=True)


def _all_of(system: System) -> str:
    """One GPU to all, of as many nodes as the system may have, but not of too many."""
    most = system.gpus * (2 ** int(math.log2(max(system.nodes, _NODES))) if system.nics else 1)
    return f"1..{most}"
