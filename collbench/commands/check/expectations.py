"""Expected times of a check: a good run, floors in a TOML file, or a CPU's own speed.

An expectation belongs to a measured row, not to a case.  On a virtual machine the placement of ranks on cores changes
the time of a small message by a factor of three from one start to the next.  The barrier time of each row tells these
states apart, so a row is compared with rounds in the same state.
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
"""Standard deviations between two runs of a healthy machine, without the scatter of rounds (docs/checking.md)."""
SAME_STATE = math.log(1.5)
"""Largest logarithmic ratio of barrier times in one state of the machine; between states the ratio was 3."""
FITTED_BARRIER = 128e-9
"""Seconds of a barrier by flags on the CPU of the fitted costs.  There, 8 bytes by packets take 77 ns; on two states of
another CPU they take 0.6 of a barrier."""
CALIBRATED_ERROR = 0.4
"""Standard deviation of the logarithm of times over calibrated costs (docs/checking.md)."""
IN_CACHES = 4 * 2**20
"""Largest message in bytes that is assumed to stay in the caches if the row has no timed copies."""
NEAR_FLOOR = 0.02
"""Share by which a time must differ from a floor to count as above or below it."""


class ExpectedTime(NamedTuple):
    """The expected time of a row."""

    seconds: float
    error: float = 0.0  # standard deviation of the logarithm, the same in every round
    rounds: float = math.inf  # number of rounds in the median
    near: float = 0.0  # of a floor: share within which a time is neither above nor below it


class Expectation(NamedTuple):
    """A reference for times: its name, and a function from a measured row to its expected time or None."""

    name: str
    of: Callable[[Observed], ExpectedTime | None]
    releases: Sequence[str] = ()  # of NCCL, of the reference's runs
    first: bool = False  # whether it is only a CPU's own speed


def expect_run(name: str, rows: Iterable[Observed], runs: Iterable[Run] = ()) -> Expectation:
    """Return the medians of correct, undisturbed rounds of a case in the same state of the machine as expectation."""
    right = (row for row in rows if row.right and not row.disturbed and row.typical > 0)
    every = by_key(right, lambda row: (row.case, row.implementation, row.note.shared))
    logarithms = {}  # of the time of each round, and of the barrier of its row
    for key, rounds in every.items():
        logarithms[key] = np.array([(math.log(time), _barrier(row)) for row in rounds for time in row.round_times]).T

    def of(row: Observed) -> ExpectedTime | None:
        alike = logarithms.get((row.case, row.implementation, row.note.shared))
        # A log with several settings names each of them; a run with one setting has only the implementation's name.
        if alike is None and isinstance(row, Reported):
            alike = logarithms.get((row.case, family(row.implementation), row.note.shared))
        if alike is None:
            return None
        logs, barriers = alike
        logs = logs[~(np.abs(barriers - _barrier(row)) >= SAME_STATE)]  # keeps rounds with an unknown barrier (NaN)
        error = BETWEEN_RUNS.get(row.platform, BETWEEN_OTHERS)
        return ExpectedTime(math.exp(np.median(logs)), error, len(logs)) if len(logs) else None

    releases = dict.fromkeys(run.header.environment.versions.get("nccl", "") for run in runs)
    return Expectation(name, of, tuple(filter(None, releases)))


def _barrier(row: Observed) -> float:
    """Return the logarithm of a row's barrier time; NaN if unknown."""
    return math.log(row.barrier) if isinstance(row, Measurement) and row.barrier else math.nan


def first_of(name: str, parts: Sequence[Expectation]) -> Expectation:
    """Chain expectations: each row takes the first expected time that is known."""
    releases = tuple(chain.from_iterable(part.releases for part in parts))
    return Expectation(name, lambda row: next(filter(None, (part.of(row) for part in parts)), None), releases)


class Floor(Struct, forbid_unknown_fields=True):
    """The least bus bandwidth or longest time of a case: a value with tolerances, as in ReFrame's references."""

    collective: str
    size: str | int
    value: Annotated[float, Meta(gt=0)]
    unit: Literal["GB/s", "us", "ms", "s"]  # GB/s: bus bandwidth in 1e9 bytes per second
    lower: Annotated[float, Meta(ge=-1, le=0)] = 0.0  # tolerance of a bandwidth, as a share of the value
    upper: Annotated[float, Meta(ge=0)] = 0.0  # tolerance of a time, as a share of the value
    ranks: Annotated[int, Meta(ge=1)] | None = None  # None: any number
    implementation: str = ""  # empty: any

    def takes(self, row: Observed) -> bool:
        """Return whether the floor applies to a row."""
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
    r"""Read floors from a TOML file; UsageError names the file, the field and the fix.

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


def _calibrated(row: Observed) -> ExpectedTime | None:
    """Return the expected time of a hand-written implementation on a CPU, from the row's barrier and copies.

    Operations are counted by platforms/cost.py.  Returns None for a library, or without a barrier time.
    """
    implementation, platform = find(row.note.picked or row.implementation), platforms().get(row.platform)
    if not implementation or not implementation.cost or not platform or not platform.fitted:
        return None
    if not isinstance(row, Measurement) or not row.barrier or not (row.floor or row.case.nbytes <= IN_CACHES):
        return None
    cost = implementation.cost(row.case)

    # Waits for another rank, and packets, scale with the barrier.
    slower = row.barrier / FITTED_BARRIER
    waits = cost.steps * FITTED.waits.get(cost.wait, math.inf) * slower
    moved = row.case.nbytes * max(cost.memory / FITTED.memory, cost.packets / FITTED.packets * slower)
    # Beyond the caches, the row's timed copies give the time per byte of memory.
    if row.floor:
        least = sum(row.case.traffic) / row.case.ranks / row.case.nbytes
        moved = max(moved, row.floor * cost.memory / least)
    return ExpectedTime(waits + moved, CALIBRATED_ERROR)


CALIBRATED = Expectation("this CPU's own latency and copy speed", _calibrated, first=True)
