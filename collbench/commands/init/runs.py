"""Fresh ranks for every number of them and every start, one set after the other."""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path

from collbench.cases import USUAL_STARTS, Sweep
from collbench.commands.init.rows import InitTimes
from collbench.errors import PlatformError
from collbench.measure.protocol import Ranks, WorkerHello
from collbench.measure.supervisor import Supervisor
from collbench.results import Failed, Result
from collbench.units import counted

_QUICK = 2.0  # seconds that a start may take for ranks to be started several times unasked


class FreshRanks(Ranks):
    """The ranks of several sweeps of one case, as a Session needs them; a library starts once in a process.

    `starts` of the last sweep, which has the most ranks, holds for all; 0 is as often as is usual.
    """

    def __init__(self, platform: str, sweeps: Sequence[Sweep], folder: Path | None) -> None:
        self._platform, self._sweeps, self._folder = platform, sweeps, folder
        self._starts = sweeps[-1].starts

    def start(self, stack: ExitStack) -> WorkerHello:
        """Start the most ranks, whose hello holds for all; they measure last."""
        begun = time.monotonic()
        self._greeted = stack.enter_context(self._ranks(self._sweeps[-1]))
        quick = time.monotonic() - begun < _QUICK
        self._starts = self._starts or (USUAL_STARTS if quick else 1)
        return replace(self._greeted.greeting, starts=self._starts)

    def _ranks(self, sweep: Sweep) -> Supervisor:
        return Supervisor(self._platform, sweep, folder=self._folder)

    def run(self) -> Iterator[Result]:
        """Yield a row for every number of ranks."""
        return map(self._measured, self._sweeps)

    def _measured(self, sweep: Sweep) -> Result:
        """Return what all starts of so many ranks took, or what became of the first that did not go well."""
        (case,), (name,) = sweep.cases(), sweep.implementations
        sampling = replace(sweep.sampling, budget=sweep.sampling.budget / self._starts)
        rows: list[InitTimes] = []
        for number in range(self._starts):
            fresh: AbstractContextManager[Supervisor] = self._ranks(sweep)
            if sweep is self._sweeps[-1] and not number:
                fresh = nullcontext(self._greeted)
            try:
                with fresh as ranks:
                    turn = f"{counted(sweep.ranks, 'rank')}, start {number + 1} of {self._starts}"
                    ranks.tell = lambda phase, turn=turn: self.tell(f"{turn}: {phase}")
                    (row,) = ranks.measure(case, [name], sampling)
            except PlatformError as error:
                row = Failed(case, name, self._platform, str(error))
            if not isinstance(row, InitTimes) or not row.right:
                return row
            rows.append(row)
        return rows[-1].joined(rows)
