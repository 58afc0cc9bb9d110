"""From the words of `collbench overlap` to a session, measured or predicted."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from collbench.algorithms import choose
from collbench.api.wanted import default_folder, make_cases, make_sweep
from collbench.cases import Step
from collbench.cli._step_options import (
    check_matrix,
    one_step,
    parse_buckets,
    parse_ctas,
    parse_slow,
    parse_work,
    predicted_work,
)
from collbench.cli._step_session import described, of_sweep, place_name, platform_of, refuse_launcher, usual
from collbench.errors import UsageError
from collbench.measure.overlapped import Overlapped, ways
from collbench.measure.predicted_steps import ModelledSteps
from collbench.measure.session import Session
from collbench.platforms import find_platform
from collbench.topology.system import System
from collbench.units import parse_size


def make_session(options: Mapping[str, Any]) -> Session:
    """The steps that are wanted; UsageError for what cannot be."""
    refuse_launcher("overlap")
    if system := described(options["on"]):
        return _predicted(system, options)
    platform = platform_of(options["on"])
    words = of_sweep(options, "8M") | {"on": platform, "ranks": options["ranks"]}
    _, sweep = make_sweep(words | {"impl": options["impl"] or usual(platform)}, None)
    if sweep.ranks < 2:
        raise UsageError("--ranks 1 has nothing to communicate; give at least 2")
    slow = parse_slow(options["slow_rank"], sweep.ranks)
    buckets = parse_buckets(options["buckets"], sweep.sizes[0])
    size = check_matrix(options["matrix"], find_platform(platform).matrix)
    step = one_step(parse_work(options["compute"] or "10ms"), platform, size, slow)
    ctas = parse_ctas(options["ctas"], sweep.implementations)
    sweep = replace(sweep, steps=ways(step, platform, buckets, ctas))
    return Session(Overlapped(platform, sweep), sweep, None, options["out"] or default_folder(sweep, "overlap"))


def _predicted(system: System, options: Mapping[str, Any]) -> Session:
    work = predicted_work(options)
    ranks = system.ranks if options["ranks"] is None else options["ranks"]
    if ranks < 2:
        raise UsageError(f"--ranks {ranks} has nothing to communicate; give at least 2")
    words = of_sweep(options, "1G")
    sweep = make_cases(words, ranks, choose(options["impl"] or "nccl", system.platform), parse_size(words["maxbytes"]))
    buckets = parse_buckets(options["buckets"], sweep.sizes[0])
    parse_ctas(options["ctas"], ())
    sweep = replace(sweep, steps=ways(Step(0, 0, seconds=work.seconds), system.platform, buckets))
    where = f"overlap-{place_name(system, ranks)}"
    on = ModelledSteps(system, sweep, options["noise"] / 100)
    return Session(on, sweep, None, options["out"] or default_folder(sweep, where), modelled=True)
