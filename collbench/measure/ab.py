"""Two settings of the environment measured in turn: NCCL and MPI read most variables once in the life of a process."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Self

from collbench.cases import Sweep
from collbench.measure.greeting import Greeting
from collbench.measure.session import Session
from collbench.measure.starts import Rotation
from collbench.measure.supervisor import Supervisor
from collbench.measure.turns import Side, Turns
from collbench.results import Measurement, Result
from collbench.runfile.environment import Setting
from collbench.runfile.header import Interleaved

COPIES = 2  # sets of ranks, which hold memory at the same time


def ratios(base: Measurement, other: Measurement) -> list[float]:
    """The time of `other` over that of `base` in each round that both took part in: medians of its samples."""
    return [median(theirs) / median(ours) for ours, theirs in zip(base.by_round(), other.by_round(), strict=False)]


class _Half:
    """One setting of a pair, which is open already: what a Session needs of its ranks."""

    def __init__(self, pair: Turns, place: int, interleaved: Interleaved) -> None:
        self._pair, self._place, self._interleaved = pair, place, interleaved
        self.greeting = Greeting()

    def __enter__(self) -> Self:
        said = self._pair.sides[self._place].ranks.greeting
        self.greeting = replace(said, interleaved=replace(self._interleaved, cores=said.cores))
        return self

    def __exit__(self, *exception: object) -> None:
        """The pair ends the ranks."""

    def run(self) -> Iterator[Result]:
        """Yield every result of the setting, in the order of the table."""
        for number, _ in enumerate(self._pair.sides[self._place].sweep.cases()):
            yield from self._pair.results(number, self._place)


class PairedSession:
    """A sweep under two settings, and a run file of each; iterate over `run()` inside `with`.

    `settings` are each a change of the environment, what to call it in the header, and the folder of its run file.
    """

    def __init__(self, platform: str, sweep: Sweep, settings: Sequence[tuple[Setting, str, Path]]) -> None:
        named = tuple({name: None for setting, _, _ in settings for name in setting.names})
        first, second = (
            Rotation([Supervisor(platform, sweep, setting, named) for _ in range(sweep.starts)])
            for setting, _, _ in settings
        )
        names = settings[0][1], settings[1][1]
        self.sweep = sweep
        self._pair = Turns(platform, (Side(first, sweep, names[0]), Side(second, sweep, names[1])))
        self._open = ExitStack()
        run = str(uuid.uuid4())
        self.sessions: list[Session] = []
        for place, (_, name, folder) in enumerate(settings):
            try:
                side = _Half(self._pair, place, Interleaved(id=run, setting=name))
                self.sessions.append(Session(side, sweep, None, folder))
            except BaseException:
                self._discard()
                raise

    def _discard(self) -> None:
        for session in reversed(self.sessions):
            session.discard()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            try:
                stack.enter_context(self._pair)
            except BaseException:
                self._discard()
                raise
            for session in self.sessions:
                stack.enter_context(session)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)

    def run(self) -> Iterator[tuple[Result, Result]]:
        """Yield the results of the two settings for each case and implementation once they are on disk."""
        first, second = self.sessions
        yield from zip(first.run(), second.run(), strict=True)
