"""Starts the ranks, sends them one case after another, and outlives whatever happens to them.

A worker that dies, hangs or wedges its device costs one implementation of one case a `failed` row; fresh workers go
on.  The supervisor itself never touches MPI or CUDA, so nothing can wedge it.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from collbench.cases import Case, Sampling, Sweep
from collbench.errors import Notice, PlatformError, RanksLost
from collbench.interrupts import held
from collbench.measure.greeting import Greeting
from collbench.measure.workers import Lost, Workers
from collbench.measurement import Failed, Result, Skipped
from collbench.platforms import find_platform
from collbench.platforms.cpu.mpi_libraries import Library
from collbench.runfile.environment import UNCHANGED, Setting

_TRIES = 2  # of a library's start, which takes most of --timeout where it hangs


@dataclass
class Supervisor:
    """The ranks of one run, restarted as needed; a context manager that leaves none behind.

    `setting` changes the environment of the ranks; the greeting tells of the variables that are `named` too.  On a CPU
    they load that MPI `library`, or the one that mpi4py finds.
    """

    platform: str
    sweep: Sweep
    setting: Setting = UNCHANGED
    named: tuple[str, ...] = ()
    library: Library | None = None
    greeting: Greeting = field(default_factory=Greeting)
    _workers: Workers | None = None
    _startless: Counter[str] = field(default_factory=Counter)  # how often an implementation's library did not start
    _wedged: int | None = None  # the number of a process that does not even end when it is killed

    def __enter__(self) -> Self:
        self.greeting = self._start()
        return self

    def _start(self) -> Greeting:
        """Fresh ranks and their greeting; PlatformError, and no ranks, if they cannot start."""
        if self._wedged:
            raise PlatformError(
                f"process {self._wedged} was killed and does not end, so a driver must hang: no more ranks start; "
                "reset the device (nvidia-smi --gpu-reset), or restart the machine"
            )
        try:
            with held():
                self._workers = Workers(self.platform, self.sweep, self.setting, self.library)
            return self._workers.greet(self.named, self._cores())
        except BaseException:
            self._kill()
            raise

    def _cores(self) -> tuple[int, ...]:
        """A core for each rank, the same whenever they are started."""
        return find_platform(self.platform).cores(self.sweep.ranks) if self.sweep.bind == "core" else ()

    def _start_again(self, implementation: str) -> None:
        """Fresh ranks where the first ones stood; RanksLost, before that implementation's turn, if there are none."""
        try:
            moved = self._start().moved(self.greeting)
        except PlatformError as error:
            raise RanksLost(error, implementation) from None
        if moved:
            self._kill()
            raise RanksLost(moved, implementation)

    def _kill(self) -> None:
        with held():
            if self._workers:
                self._wedged = self._workers.kill() or self._wedged
            self._workers = None

    def __exit__(self, *exception: object) -> None:
        with held():
            if self._workers and exception[0] is None:
                self._workers.stop()
            self._kill()

    def run(self) -> Iterator[Result]:
        """Yield every result of the sweep as it arrives; the last one says so where no ranks can be had any more."""
        for case in self.sweep.cases():
            try:
                yield from self.measure(case, self.sweep.implementations, self.sweep.sampling)
            except RanksLost as loss:
                yield Failed(case, loss.implementation, self.platform, f"{loss}; the run ends here")
                return

    def measure(
        self, case: Case, names: Sequence[str], sampling: Sampling, launches: Mapping[str, int] | None = None
    ) -> Iterator[Result]:
        """A result of each implementation; `launches` as for runner.measure.  RanksLost if no ranks can be had."""
        waiting = [name for name in names if self._startless[name] < _TRIES]
        for name in names:
            if name not in waiting:
                yield Skipped(case, name, self.platform, f"its library did not start, {_TRIES} times: tried no more")
        while waiting:
            if self._workers is None:
                self._start_again(waiting[0])
            assert self._workers
            try:
                for result in self._workers.measure(case, waiting, sampling, launches or {}):
                    waiting.remove(result.implementation)
                    yield result
                if waiting:
                    raise Lost("the ranks left it out")
            except Lost as loss:
                self._kill()
                if waiting:
                    culprit = loss.implementation if loss.implementation in waiting else waiting[0]
                    waiting.remove(culprit)
                    self._startless[culprit] += loss.start
                    yield Failed(case, culprit, self.platform, str(loss))
                else:
                    told = f"after the last result of {case.title}: {loss}; fresh ranks go on"
                    warnings.warn(told, Notice, stacklevel=2)
