"""From the words of `collbench scale` to a session, measured or predicted."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from collbench.algorithms import choose, needs
from collbench.api.wanted import default_folder, make_cases, make_sweep
from collbench.cases import Step, Sweep
from collbench.cli._step_options import check_matrix, one_step, parse_ranks, parse_slow, parse_work, predicted_work
from collbench.cli._step_session import described, of_sweep, place_name, platform_of, refuse_launcher, usual
from collbench.errors import UsageError
from collbench.measure.predicted_steps import ModelledScaling
from collbench.measure.scaled import MODES, Scaled, Scaling
from collbench.measure.session import Session
from collbench.platforms import find_platform
from collbench.platforms.layout import Layout
from collbench.topology.system import System
from collbench.units import parse_size

_NODES = 512  # of a described system, at most by default


def make_session(options: Mapping[str, Any]) -> Session:
    """The scaling that is wanted; UsageError for what cannot be."""
    refuse_launcher("scale", ", on several numbers of them")
    if not 0 < options["threshold"] <= 100:
        raise UsageError(f"--threshold {options['threshold']:g} is no efficiency; give per cent above 0, at most 100")
    modes = tuple(MODES) if options["mode"] == "both" else (options["mode"],)
    if system := described(options["on"]):
        return _predicted(system, options, modes)
    return _measured(options, modes)


def _measured(options: Mapping[str, Any], modes: tuple[str, ...]) -> Session:
    platform = platform_of(options["on"])
    ranks = parse_ranks(options["ranks"] or "1,2")
    slow = parse_slow(options["slow_rank"], ranks[-1])
    work = parse_work(options["compute"] or "10ms")
    size = check_matrix(options["matrix"], find_platform(platform).matrix)
    words = {"on": platform, "ranks": ranks[-1], "impl": options["impl"] or usual(platform)}
    _, sweep = make_sweep(of_sweep(options, "4M") | words, None)
    _refuse_too_large(replace(sweep, steps=(Step(1, size),)), ranks, platform)
    scaling = Scaling(replace(sweep, steps=(one_step(work, platform, size, slow),)), ranks, modes)
    return Session(Scaled(platform, scaling), scaling.sweep, None, options["out"] or default_folder(sweep, "scale"))


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
    on = ModelledScaling(system, scaling, options["noise"] / 100)
    folder = options["out"] or default_folder(sweep, f"scale-{place_name(system, ranks[-1])}")
    return Session(on, scaling.sweep, None, folder, modelled=True)


def _all_of(system: System) -> str:
    """One GPU to all, of as many nodes as the system may have, but not of too many."""
    most = system.gpus * (2 ** int(math.log2(max(system.nodes, _NODES))) if system.nics else 1)
    return f"1..{most}"
