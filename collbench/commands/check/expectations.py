"""A check's expectation: a run that was right, floors in a TOML file, or a CPU's own latency and copy speed.

An expectation answers for a measured row, not for a case: where the cores of ranks lie changes a small message's time
three times, from one start to the next on a virtual machine.  A barrier that every row carries tells these states
apart, so a row is held against rounds of the run in the same state.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta, Struct

from collbench.algorithms import find
from collbench.collectives import find_collective
from collbench.errors import UsageError
from collbench.host import sanitize
from collbench.platforms import platforms
from collbench.platforms.cost import FITTED
from collbench.results import Measurement, Observed, Reported, by_key, family
from collbench.runfile.store import Run
from collbench.units import parse_size

BETWEEN_RUNS = {"cpu": 0.03}
BETWEEN_OTHERS = 0.02
"""What two runs of a healthy machine differ by besides their rounds: standard deviations (docs/checking.md)."""
SAME_STATE = math.log(1.5)
"""How far barriers may be apart in one state of the machine; between states they were three times as long."""
FITTED_BARRIER = 128e-9
"""Seconds of a barrier by flags on the CPU that hand-written costs are fitted to: there, 8 bytes by packets take 77 ns,
and on two states of another CPU 0.6 of a barrier."""
CALIBRATED_ERROR = 0.4
"""Standard deviation of the logarithm of times over calibrated costs (docs/checking.md)."""
IN_CACHES = 4 * 2**20
"""Bytes up to which a message is taken to stay in the caches, unless the copies of the row were timed."""
NEAR_FLOOR = 0.02
"""A time is surely above or below a floor if it is so by this share."""


class ExpectedTime(NamedTuple):
    """What a row should take."""

    seconds: float
    error: float = 0.0  # standard deviation of its logarithm, the same in every round
    rounds: float = math.inf  # that it is the median of
    near: float = 0.0  # share about a floor that somebody set, within which a time is not surely above or below it


class Expectation(NamedTuple):
    """The reference of times, in words, and the expected time of a measured row; None where that is unknown."""

    name: str
    of: Callable[[Observed], ExpectedTime | None]
    releases: Sequence[str] = ()  # of NCCL that it was measured with
    first: bool = False  # whether it is only what a CPU's own speed comes to


def expect_run(name: str, rows: Iterable[Observed], runs: Iterable[Run] = ()) -> Expectation:
    """Return what rows of runs say, of the same case in the same state of the machine.

    Only right and undisturbed rows count.  Of rounds in that state the median is expected.
    """
    right = (row for row in rows if row.right and not row.disturbed and row.typical > 0)
    every = by_key(right, lambda row: (row.case, row.implementation, row.note.shared))
    known = {}  # the logarithms of the times of all rounds, and of the barrier of each one's row
    for key, rounds in every.items():
        known[key] = np.array([(math.log(time), _barrier(row)) for row in rounds for time in row.round_times]).T

    def of(row: Observed) -> ExpectedTime | None:
        alike = known.get((row.case, row.implementation, row.note.shared))
        # A log with several settings may be held against a run with one, which has no name for it.
        if alike is None and isinstance(row, Reported):
            alike = known.get((row.case, family(row.implementation), row.note.shared))
        if alike is None:
            return None
        logs, barriers = alike
        logs = logs[~(np.abs(barriers - _barrier(row)) >= SAME_STATE)]  # also where a barrier is not known
        error = BETWEEN_RUNS.get(row.platform, BETWEEN_OTHERS)
        return ExpectedTime(math.exp(np.median(logs)), error, len(logs)) if len(logs) else None

    releases = dict.fromkeys(run.header.environment.versions.get("nccl", "") for run in runs)
    return Expectation(name, of, tuple(filter(None, releases)))


def _barrier(row: Observed) -> float:
    """Return the logarithm of a row's barrier; NaN where none is known."""
    return math.log(row.barrier) if isinstance(row, Measurement) and row.barrier else math.nan


def first_of(name: str, parts: Sequence[Expectation]) -> Expectation:
    """Return several expectations as one: for each row the first counts that knows it."""
    releases = tuple(chain.from_iterable(part.releases for part in parts))
    return Expectation(name, lambda row: next(filter(None, (part.of(row) for part in parts)), None), releases)


# ------------------------------------------------------------------------------------------------------------- floors


class Floor(Struct, forbid_unknown_fields=True):
    """The least bus bandwidth or the longest time of a case: a value with tolerances, as in ReFrame's references."""

    collective: str
    size: str | int
    value: Annotated[float, Meta(gt=0)]
    unit: Literal["GB/s", "us", "ms", "s"]  # GB/s: of bus bandwidth, 1e9 bytes
    lower: Annotated[float, Meta(ge=-1, le=0)] = 0.0  # share of the value by which a bandwidth may be less
    upper: Annotated[float, Meta(ge=0)] = 0.0  # share of the value by which a time may be longer
    ranks: Annotated[int, Meta(ge=1)] | None = None  # None: any number
    implementation: str = ""  # none: any

    def takes(self, row: Observed) -> bool:
        """Return whether the floor is of that row."""
        same = row.case.collective is find_collective(self.collective) and row.case.nbytes == parse_size(str(self.size))
        return same and self.ranks in (None, row.case.ranks) and self.implementation in ("", row.implementation)

    def longest(self, row: Observed) -> float:
        """Return the seconds that the row may take."""
        if self.unit == "GB/s":
            least = self.value * (1 + self.lower) * 1e9
            return row.case.nbytes * row.case.collective.bus_factor(row.case.ranks) / least
        return self.value * (1 + self.upper) * _SECONDS[self.unit]


class FloorFile(Struct, forbid_unknown_fields=True):
    """A file of floors."""

    floor: Annotated[list[Floor], Meta(min_length=1)]


_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def read_floors(path: Path) -> Expectation:
    r"""Read floors from a TOML file; UsageError names the file, the place in it and what belongs there.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "floors.toml"
    >>> _ = file.write_text('[[floor]]\ncollective="allreduce"\nsize="1G"\nvalue=440\nlower=-0.05\nunit="GB/s"')
    >>> read_floors(file).name.endswith("floors.toml")
    True
    """
    try:
        floors = msgspec.convert(sanitize.read_toml(path, UsageError), FloorFile).floor
        for floor in floors:
            find_collective(floor.collective)
            parse_size(str(floor.size))
    except (msgspec.ValidationError, UsageError) as error:
        where = "" if str(path) in str(error) else f"{path}: "
        raise UsageError(f"{where}{error}; docs/checking.md shows a file of floors") from None

    def of(row: Observed) -> ExpectedTime | None:
        longest = next((floor.longest(row) for floor in floors if floor.takes(row)), None)
        return None if longest is None else ExpectedTime(longest, near=NEAR_FLOOR)

    return Expectation(f"the floors of {path}", of)


# --------------------------------------------------------------------------------------------------------------- CPUs


def _calibrated(row: Observed) -> ExpectedTime | None:
    """Return the cost of a hand-written implementation on this CPU, by its own barrier and its own copies.

    Its operations are counted (platforms/cost.py).  None for a library, or without the time of a barrier.
    """
    implementation, platform = find(row.note.picked or row.implementation), platforms().get(row.platform)
    if not implementation or not implementation.cost or not platform or not platform.fitted:
        return None
    if not isinstance(row, Measurement) or not row.barrier or not (row.floor or row.case.nbytes <= IN_CACHES):
        return None
    cost = implementation.cost(row.case)

    # What waits for another rank takes as much longer as the barrier does, and so do packets.
    slower = row.barrier / FITTED_BARRIER
    waits = cost.steps * FITTED.waits.get(cost.wait, math.inf) * slower
    moved = row.case.nbytes * max(cost.memory / FITTED.memory, cost.packets / FITTED.packets * slower)
    # Beyond the caches, the copies that were timed meanwhile tell what a byte of memory takes.
    if row.floor:
        least = sum(row.case.traffic) / row.case.ranks / row.case.nbytes
        moved = max(moved, row.floor * cost.memory / least)
    return ExpectedTime(waits + moved, CALIBRATED_ERROR)


CALIBRATED = Expectation("this CPU's own latency and copy speed", _calibrated, first=True)
