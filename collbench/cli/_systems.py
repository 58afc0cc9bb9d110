"""From the words of the command line to a described system and the cases to predict on it."""

from collections.abc import Mapping
from math import ceil
from typing import Any

from collbench.cases import Sweep
from collbench.cli._options import make_cases
from collbench.errors import UsageError, unknown
from collbench.implementations import choose
from collbench.platforms import PLATFORMS
from collbench.topology import files
from collbench.topology.system import System
from collbench.units import parse_size

LAST = 8 * 2**30  # bytes: the largest size by default, where published sweeps end; nothing has to fit in memory
RANKS_ON = "gpu"  # a described system is one of GPUs


def find_system(on: str, others: tuple[str, ...] = ("auto", *PLATFORMS)) -> System | None:
    """The system that `--on` names, or None for one of the `others`; UsageError with all choices if it is neither."""
    if on in others:
        return None
    if not on.endswith(".toml") and on not in files.names():
        raise unknown("--on" if others else "system", on, (*others, *files.names(), "FILE.toml"))
    return files.load(on)


def make_prediction(system: System, options: Mapping[str, Any]) -> tuple[System, Sweep]:
    """The part of the system, or as many of its nodes, that is wanted, and the cases on its ranks."""
    if options["nodes"] is not None:
        if options["nodes"] < 1:
            raise UsageError(f"--nodes {options['nodes']} is too few; give at least 1")
        system = system.of(options["nodes"])
    ranks = system.ranks if options["ranks"] is None else options["ranks"]
    if ranks < 1:
        raise UsageError(f"--ranks {ranks} is too few; give at least 1")
    if ranks > system.ranks:
        raise UsageError(
            f"--ranks {ranks} is more than the {system.ranks} GPUs of {system.name}; "
            f"give fewer, or --nodes {ceil(ranks / system.gpus)}"
        )
    last = parse_size(options["maxbytes"]) if options["maxbytes"] else LAST
    return system.part(ranks), make_cases(options, ranks, choose(options["impl"], RANKS_ON), last)
