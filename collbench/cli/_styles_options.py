"""From the words of `collbench styles` to a sweep of training jobs; every wrong word is a UsageError."""

import math
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from collbench.api.patience import leads, say
from collbench.api.wanted import make_sweep
from collbench.cases import Job, Sweep
from collbench.errors import PlatformError, UsageError
from collbench.platforms import find_platform, platforms
from collbench.styles import choose, styles

FACTOR = 4.0  # by which a slow rank is slower, if nobody says
_MOST_SEEDS, _MOST_STEPS, _MOST_FACTOR = 1000, 10_000, 1000.0
_COPIES = 4  # of the weights of all updates on every rank: its own, all ranks', and those on their way
_LIMITS = (("seeds", 1, _MOST_SEEDS), ("steps", 1, _MOST_STEPS), ("every", 1, _MOST_STEPS), ("group", 1, _MOST_STEPS))


def here() -> str:
    """The name of this host."""
    return socket.gethostname()


def make_styles(options: Mapping[str, Any], launched: tuple[int, int] | None) -> tuple[str, Sweep]:
    """Platform and sweep: a case for each seed, which all styles carry out."""
    names = choose(options["style"])
    _refuse(options)
    job = Job(**{name: options[name] for name in ("steps", "every", "staleness", "group", "rate")})
    size = f"{job.nbytes}"
    fixed = {"impl": "ladder", "op": "allreduce", "minbytes": size, "maxbytes": size}
    platform, sweep = make_sweep({**options, **fixed, "on": _place(options["on"], names, launched)}, launched)
    job = replace(job, slow=_slow(options["slow_rank"], sweep.ranks), target=options["target"] or 0.0)
    _refuse_too_long(job, platform, sweep.ranks)
    seeds = range(1, options["seeds"] + 1)
    return platform, replace(sweep, implementations=names, jobs=tuple(replace(job, seed=seed) for seed in seeds))


def _place(on: str, names: Sequence[str], launched: tuple[int, int] | None) -> str:
    """Where the job is trained: `auto` is the first platform on which a style runs, and stderr says what it passes by.

    UsageError for a platform on which none does.
    """
    trains = {platform for name in names for platform in styles()[name].platforms}
    first = next(name for name in platforms() if name in trains)
    if on != "auto":
        if on in platforms() and on not in trains:
            raise UsageError(f"--on {on}: the job is computed by NumPy, on {first} alone; use --on {first}")
        return on
    before = takewhile(lambda name: name != first, platforms())
    if leads(launched) and (passed := [name for name in before if find_platform(name).installed()]):
        say(f"collbench: the job is computed by NumPy, so this is the {first}, and no {' or '.join(passed)} is used")
    return first


def _refuse(options: Mapping[str, Any]) -> None:
    for name, least, most in _LIMITS:
        if not least <= options[name] <= most:
            raise UsageError(f"--{name} {options[name]} is out of range; give a number from {least} to {most}")
    if not 0 <= options["staleness"] <= _MOST_STEPS:
        raise UsageError(
            f"--staleness {options['staleness']} is no number of steps; give 0, which is synchronous, to {_MOST_STEPS}"
        )
    for name in ("rate", "target"):
        if options[name] is not None and not 0 < options[name] < math.inf:
            raise UsageError(f"--{name} {options[name]} is not possible; give a number above 0")


def _refuse_too_long(job: Job, platform: str, ranks: int) -> None:
    """UsageError if the weights of all updates, which every rank keeps until they are checked, do not fit."""
    try:
        find_platform(platform).refuse_too_large(_COPIES * job.nbytes * job.steps * ranks, ranks)
    except PlatformError as error:
        raise UsageError(f"--steps {job.steps}: all weights are kept to be checked; {error}; lower --steps") from None


def _slow(words: tuple[str, ...], ranks: int) -> tuple[tuple[int, float], ...]:
    slow: dict[int, float] = {}
    for word in words:
        match = re.fullmatch(r"(\d{1,9})(?::(\d+(?:\.\d*)?))?", word.strip())
        if not match:
            raise UsageError(f"--slow-rank {word!r} is no rank; give R or R:FACTOR, such as 1 or 1:2.5")
        rank, factor = int(match[1]), float(match[2] or FACTOR)
        if rank >= ranks:
            raise UsageError(f"--slow-rank {rank} is none of the {ranks} ranks; choose from 0 to {ranks - 1}")
        if not 1 <= factor <= _MOST_FACTOR:
            raise UsageError(
                f"--slow-rank {word}: a slow rank is 1 to {_MOST_FACTOR:g} times as slow; give such a factor"
            )
        if rank in slow:
            raise UsageError(f"--slow-rank {rank} is given twice; give each rank once")
        slow[rank] = factor
    return tuple(sorted(slow.items()))
