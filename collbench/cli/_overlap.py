"""From the words of `collbench overlap` to a session, measured or predicted."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from collbench.cli._options import default_folder, left_aside, make_cases, make_sweep
from collbench.cli._predict import find_system
from collbench.cli._scaling import of_sweep, usual
from collbench.cli._step_options import check_matrix, one_step, parse_buckets, parse_slow, parse_work, predicted_work
from collbench.errors import UsageError
from collbench.implementations import choose
from collbench.launcher import launched
from collbench.measure.overlapped import Overlapped, ways
from collbench.measure.predicted_steps import ModelledSteps
from collbench.measure.session import Session
from collbench.platforms import find_platform, on_auto, platforms
from collbench.steps import Step
from collbench.topology.system import System
from collbench.units import parse_size


def make_session(options: Mapping[str, Any]) -> Session:
    """The steps that are wanted; UsageError for what cannot be."""
    if launched():
        raise UsageError("collbench overlap starts its ranks itself; leave the launcher out")
    if system := find_system(options["on"]) if options["on"] not in ("auto", *platforms()) else None:
        return _predicted(system, options)
    platform = on_auto() if options["on"] == "auto" else find_platform(options["on"]).name
    if remark := left_aside(options["on"], platform):
        click.echo(remark, err=True)
    words = of_sweep(options, "8M") | {"on": platform, "ranks": options["ranks"]}
    _, sweep = make_sweep(words | {"impl": options["impl"] or usual(platform)}, None)
    if sweep.ranks < 2:
        raise UsageError("--ranks 1 has nothing to communicate; give at least 2")
    slow = parse_slow(options["slow_rank"], sweep.ranks)
    buckets = parse_buckets(options["buckets"], sweep.sizes[0])
    size = check_matrix(options["matrix"], find_platform(platform).matrix)
    step = one_step(parse_work(options["compute"] or "10ms"), platform, size, slow)
    sweep = replace(sweep, steps=ways(step, platform, buckets))
    return Session(Overlapped(platform, sweep), sweep, None, options["out"] or default_folder(sweep, "overlap"))


def _predicted(system: System, options: Mapping[str, Any]) -> Session:
    work = predicted_work(options)
    ranks = system.ranks if options["ranks"] is None else options["ranks"]
    if ranks < 2:
        raise UsageError(f"--ranks {ranks} has nothing to communicate; give at least 2")
    words = of_sweep(options, "1G")
    sweep = make_cases(words, ranks, choose(options["impl"] or "nccl", system.platform), parse_size(words["maxbytes"]))
    buckets = parse_buckets(options["buckets"], sweep.sizes[0])
    sweep = replace(sweep, steps=ways(Step(0, 0, seconds=work.seconds), system.platform, buckets))
    where = re.sub(r"[^a-z0-9]+", "-", f"overlap {system.name} {ranks}".lower()).strip("-")
    on = ModelledSteps(system, sweep, options["noise"] / 100)
    return Session(on, sweep, None, options["out"] or default_folder(sweep, where), modelled=True)
