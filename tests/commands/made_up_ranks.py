"""Ranks in the supervisor's place whose times are made up: a sweep whose result no other work on this machine changes.

What they say is that of a machine that becomes slower from one case or round to the next, scatters by 1 % and is
disturbed now and then.  SLOW=1.1 in their environment makes ring-flags take 1.1 times as long.

`python -m tests.commands.made_up_ranks "sweep ..." "list" ...` carries out these commands with such ranks, one after
the other in the same terminal or pipe, with a form feed behind each.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Self

import numpy as np
import pytest

from collbench.cases import Case, Sampling
from collbench.cli import main
from collbench.measure import interleave, session
from collbench.measure.protocol import WorkerHello
from collbench.measure.supervisor import Supervisor
from collbench.results import Measurement, Result
from collbench.runfile.schema import changed


class MadeUpRanks(Supervisor):
    """A supervisor that starts nothing."""

    noise: ClassVar[np.random.Generator]
    passed: ClassVar[int]  # cases or rounds, of all ranks of a test
    hello: ClassVar[WorkerHello] = WorkerHello()

    def __enter__(self) -> Self:
        self.greeting = MadeUpRanks.hello
        return self

    def __exit__(self, *exception: object) -> None: ...

    def measure(
        self, case: Case, names: Sequence[str], sampling: Sampling, launches: Mapping[str, int] | None = None
    ) -> Iterator[Result]:
        MadeUpRanks.passed += 1
        slow = float(changed(os.environ, self.changes).get("SLOW", "1"))
        for name in names:
            usual = (1e-6 + case.nbytes / 1e9) * (1 + MadeUpRanks.passed / 100)
            seconds = usual * (slow if name == "ring-flags" else 1) * np.exp(0.01 * MadeUpRanks.noise.normal(size=24))
            seconds[0] *= 5  # something else wanted the core
            yield Measurement(case, name, self.platform, 1, tuple(map(float, seconds)))


@pytest.fixture
def made_up_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    _take_their_place(monkeypatch)


def _take_their_place(patch: pytest.MonkeyPatch) -> None:
    MadeUpRanks.noise, MadeUpRanks.passed = np.random.default_rng(1), 0
    for module in (interleave, session):
        patch.setattr(module, "Supervisor", MadeUpRanks)


if __name__ == "__main__":
    _take_their_place(pytest.MonkeyPatch())
    statuses = []
    for words in sys.argv[1:]:
        if not (child := os.fork()):
            sys.argv = ["collbench", *words.split()]
            main()
        statuses.append(os.waitpid(child, 0)[1])
        os.write(1, b"\f\n")
    sys.exit(any(statuses))
