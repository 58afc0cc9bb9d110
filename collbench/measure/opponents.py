"""One sweep with several MPI libraries: ranks for each, started by its own launcher, take turns at every case.

The first library's ranks measure all implementations, the others' only those that call the library.  A row is called
after its library by `@`, as in `mpi@openmpi`, unless that is the one that mpi4py loads by itself: then it is `mpi`, as
in a sweep that names no library, so that rows of one name are always of one library.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self

from collbench.algorithms import implementations
from collbench.cases import Case, Sweep
from collbench.errors import UsageError
from collbench.measure.greeting import Greeting
from collbench.measure.supervisor import Supervisor
from collbench.measure.turns import Measures, Side, Turns
from collbench.measurement import Result
from collbench.platforms.cpu.mpi_libraries import Library

PLATFORM = "cpu"  # whose ranks an MPI library starts and measures


def suffixes(libraries: Sequence[Library]) -> list[str]:
    """What tells the rows of these libraries apart: nothing, or `@` and a kind, with a number where a kind comes again.

    UsageError if one is there twice.
    """
    names: list[str] = []
    seen: set[Any] = set()
    for library in libraries:
        file = library.file.resolve() if library.file else None
        if file in seen:
            raise UsageError(f"--mpi names {library.kind.name} twice ({file}); leave one out")
        seen.add(file)
        name = f"@{library.kind.key}"
        same = sum(other.split("-")[0] == name for other in names)
        names.append("" if library.own else f"{name}-{same + 1}" if same else name)
    return names


def _supervised(sweep: Sweep, library: Library) -> Measures:
    return Supervisor(PLATFORM, sweep, library=library)


class Opponents:
    """The ranks of a sweep with these libraries, as a Session needs them; `sweep` has the names of all rows."""

    def __init__(
        self, sweep: Sweep, libraries: Sequence[Library], start: Callable[[Sweep, Library], Measures] | None = None
    ) -> None:
        known = implementations()
        calling = [name for name in sweep.implementations if known[name].library]
        if len(libraries) > 1 and not calling:
            names = ",".join(sweep.implementations)
            raise UsageError(f"--impl {names} calls no MPI library, so there is nothing to compare; add mpi")
        self._suffixes = suffixes(libraries)
        share = replace(sweep.sampling, budget=sweep.sampling.budget * len(calling) / len(sweep.implementations))
        other = replace(sweep, implementations=tuple(calling), sampling=share)
        sweeps = [sweep, *[other] * (len(libraries) - 1)]
        self._sides = [
            Side((start or _supervised)(own, library), own, f"--mpi {library.kind.key}")
            for own, library in zip(sweeps, libraries, strict=True)
        ]
        self._asked = sweep
        self._turns = Turns(PLATFORM, self._sides)
        self._open = ExitStack()
        self.greeting = Greeting()

    @property
    def sweep(self) -> Sweep:
        """As it was asked for, with the name of every row."""
        return replace(self._asked, implementations=tuple(name for name, _, _ in self._rows()))

    def _rows(self) -> Iterator[tuple[str, int, str]]:
        """Of a case, in the order of the table: name, side, and what the implementation is called there."""
        for name in self._asked.implementations:
            for place, side in enumerate(self._sides):
                if name in side.sweep.implementations:
                    library = implementations()[name].library
                    yield name + (self._suffixes[place] if library else ""), place, name

    def __enter__(self) -> Self:
        self._open.enter_context(self._turns)
        first = self._sides[0].ranks.greeting
        versions = {name: said for name, said in first.versions.items() if name != "mpi"}
        for suffix, side in zip(self._suffixes, self._sides, strict=True):
            versions[f"mpi{suffix}"] = side.ranks.greeting.versions["mpi"]
        pids = tuple(pid for side in self._sides for pid in side.ranks.greeting.pids)
        self.greeting = replace(first, versions=versions, pids=pids)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._open.__exit__(*exception)

    def run(self) -> Iterator[Result]:
        """Yield every result of the sweep: of a case those of all libraries, before the next."""
        for number, case in enumerate(self._asked.cases()):
            yield from self._together(number) if len(self._sides) > 1 else self._alone(case)

    def _together(self, number: int) -> Iterator[Result]:
        results = [{one.implementation: one for one in self._turns.results(number, place)} for place in self._places]
        for name, place, own in self._rows():
            yield replace(results[place][own], implementation=name)

    @property
    def _places(self) -> range:
        return range(len(self._sides))

    def _alone(self, case: Case) -> Iterator[Result]:
        """Of one library, as they come."""
        names = {own: name for name, _, own in self._rows()}
        for result in self._sides[0].ranks.measure(case, self._asked.implementations, self._asked.sampling):
            yield replace(result, implementation=names[result.implementation])
