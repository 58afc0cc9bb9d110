"""A run inside processes that somebody else started (mpirun, srun): each is a rank, and rank 0 keeps the run file.

There is no supervisor to restart ranks here, so a case that fails ends the run.
"""

import os
import sys
from collections.abc import Iterator
from typing import Self

from collbench.cases import Sweep
from collbench.errors import CaseFailed, PlatformError
from collbench.implementations import implementations, needs
from collbench.measure.greeting import Greeting
from collbench.measure.installation import installation, refuse_other
from collbench.measure.runner import measure
from collbench.measure.tracing import explain
from collbench.measurement import Failed, Result
from collbench.platforms import open_platform
from collbench.platforms.cpu import installed
from collbench.platforms.processes import Processes
from collbench.platforms.roles import Platform
from collbench.runs.environment import variables
from collbench.runs.records import sweep_fields, to_sweep


def load_the_launchers_library() -> None:
    """Have mpi4py load the MPI library that belongs to the launcher of this process, not the one it would find."""
    if file := installed.of_launcher():
        os.environ[installed.LIBMPI] = str(file)


class Joined:
    """The counterpart of Supervisor under an outside launcher; every process iterates over the same results."""

    def __init__(self, platform: str, sweep: Sweep) -> None:
        load_the_launchers_library()
        self._world = Processes.of_world()
        self._world.local(sweep.ranks)  # refuses another number of processes
        self._refuse_others()
        # Memory and GPUs may differ between nodes: what rank 0 found is what all do, or fail together in opening.
        self._name, fields = self._world.broadcast((platform, sweep_fields(sweep)))
        self._sweep = to_sweep(fields)
        self._platform: Platform | None = None
        self.greeting = Greeting()

    def _refuse_others(self) -> None:
        """PlatformError on all processes if they have different code, as nodes with installs of their own may."""
        first, *others = self._world.exchange(installation())
        try:
            for rank, other in enumerate(others, 1):
                refuse_other(f"rank {rank}", other, "rank 0", first)
        except PlatformError as error:
            error.agreed = True
            raise

    def __enter__(self) -> Self:
        wanted = needs(self._sweep.implementations, self._sweep.ranks, self._name)
        self._platform = open_platform(self._sweep, wanted, self._name, self._world)
        self.greeting = Greeting(self._platform.topology(), self._platform.versions(), variables())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object = None, *rest: object) -> None:
        if kind is not None and self._world.size > 1 and not getattr(error, "agreed", False):
            if issubclass(kind, Exception):  # what the abort would leave unsaid
                sys.stderr.write(f"collbench: rank {self._world.rank}: {kind.__name__}: {error}\n")
            self._world.abort()  # the others may wait for this rank for ever
        elif self._platform:
            self._platform.close()

    def run(self) -> Iterator[Result]:
        """Yield every result of the sweep on every process."""
        assert self._platform
        current = [""]
        carry_out = explain if self._sweep.sampling.traced else measure
        for case in self._sweep.cases():
            chosen = [implementations()[name] for name in self._sweep.implementations]
            try:
                yield from carry_out(
                    case,
                    chosen,
                    self._platform,
                    self._sweep.sampling,
                    lambda name: current.__setitem__(0, name),
                )
            except CaseFailed as reason:
                yield Failed(case, current[0], self._name, f"{reason}; the run ends here")
                return
