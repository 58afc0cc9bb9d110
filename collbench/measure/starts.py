"""Several sets of ranks for one sweep, started one after the other: what another start would give is in every interval.

Where the memory of a process happens to lie changes a small message's time by a tenth or more, for as long as the
process lives.  No number of samples from one start shows that.  So ranks are started a few times, all starts measure
every case in turn, and a row's interval comes from how far its starts are apart.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from statistics import median
from typing import Any, Self, cast

from collbench.cases import USUAL_STARTS, Case, Sampling, Sweep
from collbench.errors import PlatformError, RanksLost
from collbench.measure.greeting import Greeting
from collbench.measure.supervisor import Supervisor
from collbench.measure.turns import Tally, shares
from collbench.platforms import find_platform
from collbench.results import Failed, Measurement, Result
from collbench.stats import Pool

QUICK = 2.0  # seconds that a start may take for ranks to be started several times unasked


class Starts:
    """The ranks of a sweep, as a Session needs them: `sweep.starts` sets of them, or as many as are usual (0)."""

    def __init__(self, platform: str, sweep: Sweep) -> None:
        self._sweep, self._platform = sweep, platform
        self._starts = [Supervisor(platform, sweep)]
        self._open = ExitStack()
        self._pools: dict[tuple[str, Case], Pool] = {}  # by curve
        self.greeting = Greeting()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            begun = time.monotonic()
            stack.enter_context(self._starts[0])
            more = self._more(time.monotonic() - begun)
            with suppress(PlatformError) if not self._sweep.starts else ExitStack():
                for _ in range(more):
                    another = Supervisor(self._platform, self._sweep)
                    stack.enter_context(another)
                    self._starts.append(another)
            self._open = stack.pop_all()
        self.greeting = replace(self._starts[0].greeting, starts=len(self._starts))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)

    def _more(self, seconds: float) -> int:
        """How many sets of ranks to start after the first, which took so many seconds."""
        if self._sweep.starts:
            return self._sweep.starts - 1
        return USUAL_STARTS - 1 if seconds < QUICK and find_platform(self._platform).process_per_rank else 0

    def run(self) -> Iterator[Result]:
        """Yield every result of the sweep, those of a case once all starts have measured it.

        A start whose ranks end and cannot be had again is left out from then on; the last result says so where that was
        the last start.
        """
        if len(self._starts) == 1:
            yield from self._starts[0].run()
            return
        for case in self._sweep.cases():
            tally = Tally(case, self._platform, {name: [] for name in self._sweep.implementations})
            parts = shares(self._sweep.sampling, len(self._starts))
            lost = None
            for ranks, share in zip(tuple(self._starts), parts, strict=False):
                try:
                    tally.measure(ranks, share)
                except RanksLost as error:
                    self._starts.remove(ranks)
                    lost = error
                if tally.disturbed:
                    break  # the other starts would meet the same program on the same cores
            yield from map(self._with_spread, tally.merged())
            if lost and not self._starts:
                yield Failed(case, lost.implementation, self._platform, f"{lost}; the run ends here")
                return

    def _with_spread(self, result: Result) -> Result:
        """The result with what its starts and those of smaller sizes say of how far starts are apart."""
        if not isinstance(result, Measurement) or not result.right or len(result.rounds) < 2:
            return result
        pool = self._pools.setdefault((result.implementation, result.case.kind), Pool())
        return replace(result, spread=pool.add([median(samples) for samples in result.by_round()]))


class Rotation:
    """The ranks of one arm of an interleaved run, started several times: each round is measured by the next start."""

    def __init__(self, starts: Sequence[Supervisor]) -> None:
        self._starts = starts
        self._open = ExitStack()
        self._round = (0, cast(Case | None, None))
        self.greeting = Greeting()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for ranks in self._starts:
                stack.enter_context(ranks)
            self._open = stack.pop_all()
        self.greeting = replace(self._starts[0].greeting, starts=len(self._starts))
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)

    def measure(
        self, case: Case, names: Sequence[str], sampling: Sampling, launches: Mapping[str, int] | None = None
    ) -> Iterator[Result]:
        """Yield a result for each of the named implementations, by the start whose round of that case it is."""
        number, before = self._round
        number = number + 1 if case == before else 0
        self._round = number, case
        return self._starts[number % len(self._starts)].measure(case, names, sampling, launches)
