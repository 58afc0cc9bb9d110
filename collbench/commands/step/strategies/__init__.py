"""Registry of synchronisation strategies: every module in this folder that defines STRATEGIES."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from collbench.cases import Case
from collbench.commands.step.strategies.trainer import Training
from collbench.commands.step.work import SgdJob
from collbench.errors import UsageError, unknown
from collbench.platforms.interface import Platform

PLATFORM = "cpu"
"""Platform of all strategies, which compute with NumPy."""


@dataclass(frozen=True)
class Strategy:
    """One way to train on many ranks."""

    name: str
    prepare: Callable[[Case, Platform, float, Callable[[], None]], Training]  # *Collective*; may raise Unsupported
    order: int  # place in tables
    uses: tuple[str, ...] = ()  # implementations of the all-reduce
    window_nbytes: Callable[[SgdJob], int] = lambda job: 0  # requested in each rank's window


@cache
def strategies() -> dict[str, Strategy]:
    """Return every strategy by name, in the order of tables."""
    records: list[Strategy] = []
    for module in pkgutil.iter_modules(__path__):
        records += getattr(importlib.import_module(f"{__name__}.{module.name}"), "STRATEGIES", ())
    return {record.name: record for record in sorted(records, key=lambda record: record.order)}


def choose(names: str) -> tuple[str, ...]:
    """Return the strategies of `--strategy` (`all`, or names with commas); UsageError if unknown or repeated."""
    words = [word.strip() for word in names.split(",")]
    for word in words:
        if word != "all" and word not in strategies():
            raise unknown("strategy", word, ["all", *strategies()])
    if len(set(words)) < len(words):
        raise UsageError(f"--strategy {names} names one twice; choose from: {', '.join(['all', *strategies()])}")
    return tuple(name for name in strategies() if name in words or "all" in words)
