"""How often `collbench check` is wrong: rounds are drawn with the noise of published repeats, and judged as checks are.

`python -m tools.check_errors` prints the table of docs/checking.md.  A round is a start of the ranks: of each size it
has what the start did to that size (a normal core, and now and then an excess), and what it did to all sizes of a
regime.  Figures of GPUs are fitted to pairs and repeats of published sweeps, those of CPUs to samples of results/ and
of a quiet virtual machine (docs/checking.md says of which).
"""

import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from collbench.cases import Case
from collbench.collectives import COLLECTIVES
from collbench.commands.check.expectations import expect_run
from collbench.commands.check.judge import CheckedCurve, Status, judge_rounds
from collbench.commands.check.library import OF_A_BASELINE, SURE
from collbench.commands.check.sequential import FEWEST, Decision, SequentialTest, usual_slower
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.results import Measurement
from collbench.results.base import Observed

SMALL, MIDDLE, LARGE = "small", "middle", "large"


@dataclass(frozen=True)
class Noise:
    """What a start does to a size's time: standard deviations of logarithms."""

    start: float  # the same for all sizes of a regime
    core: float
    excess: float  # how often it takes more
    mean: float  # of that excess, a logarithm


@dataclass(frozen=True)
class Machine:
    """Noise by regime, and how many rounds a budget has time for."""

    name: str
    noise: Mapping[str, Noise]
    sizes: Sequence[tuple[int, str]]
    most: int
    platform: str = "gpu"
    day: float = 0.01  # by which sizes differ between two runs besides their starts, a standard deviation: assumed


_SIZES = [(8 * 8**power, SMALL if power < 4 else MIDDLE if power < 8 else LARGE) for power in range(10)]
MACHINES = (
    Machine(
        "1 node of GPUs",
        {SMALL: Noise(0.006, 0.0065, 0.025, 0.07), MIDDLE: Noise(0.003, 0.0055, 0.028, 0.14)}
        | {LARGE: Noise(0.0015, 0.0009, 0.006, 0.10)},
        _SIZES,
        8,
    ),
    Machine(
        "1 node of B200",
        {SMALL: Noise(0.025, 0.02, 0.025, 0.07), MIDDLE: Noise(0.010, 0.015, 0.028, 0.14)}
        | {LARGE: Noise(0.002, 0.0009, 0.006, 0.10)},
        _SIZES,
        8,
    ),
    Machine(
        "2 nodes and more",
        {SMALL: Noise(0.03, 0.007, 0.11, 0.28), MIDDLE: Noise(0.008, 0.008, 0.11, 0.12)}
        | {LARGE: Noise(0.003, 0.0015, 0.04, 0.12)},
        _SIZES,
        8,
    ),
    Machine(
        "2 cores of a quiet CPU",
        {SMALL: Noise(0.01, 0.04, 0.05, 0.10), MIDDLE: Noise(0.02, 0.06, 0.05, 0.10)},
        _SIZES[:7],
        30,
        "cpu",
        0.02,
    ),
)
TRIALS = 400


def rounds(machine: Machine, slower: Mapping[str, float], draw: random.Random) -> Iterator[list[Observed]]:
    """Yield rounds of a run for ever; `slower` has by regime how many times as long operations take."""
    days = {nbytes: draw.gauss(0, machine.day) for nbytes, _ in machine.sizes}
    while True:
        shared = {regime: draw.gauss(0, noise.start) for regime, noise in machine.noise.items()}
        rows: list[Observed] = []
        for nbytes, regime in machine.sizes:
            noise = machine.noise[regime]
            log = days[nbytes] + shared[regime] + draw.gauss(0, noise.core)
            if draw.random() < noise.excess:
                log += draw.expovariate(1 / noise.mean)
            seconds = (1e-6 + nbytes / 1e11) * slower.get(regime, 1.0) * math.exp(log)
            rows.append(Measurement(_case(nbytes), "nccl", machine.platform, 1, (seconds,)))
        yield rows


def _case(nbytes: int) -> Case:
    return Case(COLLECTIVES["allreduce"], nbytes, DATATYPES["float"], REDUCTIONS["sum"], 0, 8, False)


def checked(machine: Machine, slower: Mapping[str, float], draw: random.Random) -> tuple[CheckedCurve, int]:
    """Return the verdict of a check against an earlier run of the same machine, and the rounds that it took."""
    earlier: list[Observed] = []
    for count, rows in enumerate(rounds(machine, {}, draw), 1):
        earlier += rows
        if count == min(OF_A_BASELINE, machine.most):
            break
    expectation = expect_run("", earlier)
    found: list[Observed] = []
    for count, rows in enumerate(rounds(machine, slower, draw), 1):
        found += rows
        if count < FEWEST:
            continue
        curve = judge_rounds(found, expectation, SequentialTest(usual_slower(machine.platform)))[0]
        decided = all(size.decision is not Decision.UNDECIDED for size in curve.sizes)
        sure = count >= SURE if curve.status is Status.FAIL else decided
        if sure or count >= machine.most:
            return curve, count
    raise AssertionError("rounds do not end")


def shares(machine: Machine, slower: Mapping[str, float], trials: int, seed: int = 1) -> dict[str, float]:
    """Return the share of each verdict in so many checks, and the median of their rounds."""
    draw = random.Random(seed)
    verdicts = [checked(machine, slower, draw) for _ in range(trials)]
    counted = {status.value: sum(curve.status is status for curve, _ in verdicts) / trials for status in Status}
    return counted | {"rounds": median(count for _, count in verdicts)}


def lines(trials: int) -> Iterator[str]:
    """Yield the table in Markdown: the share of each verdict by what is slower."""
    slower = ("nothing", "all by 10 %", "all by 20 %", "all by 30 %", "large by 20 %")
    yield f"| noise of | {' | '.join(slower)} |"
    yield f"|---|{'---|' * len(slower)}"
    for machine in MACHINES:
        regimes = list(machine.noise)
        kinds = ({}, *(dict.fromkeys(regimes, 1 + share) for share in (0.1, 0.2, 0.3)), {regimes[-1]: 1.2})
        cells = []
        for kind in kinds:
            found = shares(machine, kind, trials)
            named = [f"{name} {100 * found[name]:.3g} %" for name in ("OK", "FAIL", "UNKNOWN") if found[name]]
            cells.append(f"{', '.join(named)}; {found['rounds']:.0f}")
        yield f"| {machine.name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    for text in lines(int(sys.argv[1]) if len(sys.argv) > 1 else TRIALS):
        print(text, flush=True)
