"""A whole run: ranks from here, from an outside launcher or of a model, and each result on disk before the next."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from collbench import __version__
from collbench.algorithms import find
from collbench.cases import Sweep
from collbench.interrupts import behind, held, status
from collbench.labels import labelled
from collbench.measure.greeting import Opened
from collbench.measure.launched import Joined
from collbench.measure.starts import Starts
from collbench.measure.supervisor import Supervisor
from collbench.measure.watchdog import WATCHDOG
from collbench.measurement import Result
from collbench.platforms.cpu.mpi_libraries import short_name
from collbench.runfile.environment import describe
from collbench.runfile.file import Writer
from collbench.runfile.header import Header, SweepPart, TopologyPart
from collbench.runfile.records import sweep_fields


class Ranks(Opened, Protocol):
    """Who carries a sweep out."""

    def run(self) -> Iterator[Result]:
        """Yield every result of the sweep."""


class Session:
    """One sweep, on the platform of that name or by other ranks; iterate over `run()` inside `with`.

    Without a folder nothing is stored.  `modelled` says that nothing is measured.
    """

    def __init__(
        self,
        on: str | Ranks,
        sweep: Sweep,
        launched: tuple[int, int] | None,
        folder: Path | None,
        modelled: bool = False,
    ) -> None:
        self.sweep = sweep
        self.modelled = modelled
        self._ranks: Ranks = _ranks(on, sweep, launched) if isinstance(on, str) else on
        self.leader = launched is None or launched[0] == 0
        with self._agreeing():
            self._writer = Writer(folder) if self.leader and folder else None
        self.path = self._writer.path if self._writer else None
        self.results: list[Result] = []
        self.topology = ""
        self.header = Header()  # of the run file, once the ranks are there
        self.labels: list[str] = []  # what rows are called, as far as the ranks have said it

    def __enter__(self) -> "Session":
        try:
            self._ranks.__enter__()
        except BaseException:
            self.discard()
            raise
        self.header = header = self._header()
        self.topology = header.topology.name
        self.labels = [_label(name, header.environment.versions) for name in self.sweep.implementations]
        try:
            with self._agreeing():
                if self._writer:
                    self._writer.header(header)
        except BaseException:
            with held():
                self._ranks.__exit__(*sys.exc_info())
                self.discard()
            raise
        if isinstance(self._ranks, Joined):
            WATCHDOG.last_words = self._hung
        return self

    def _agreeing(self) -> AbstractContextManager[None]:
        """Around what one process of a launcher may fail at alone."""
        return self._ranks.agreeing() if isinstance(self._ranks, Joined) else nullcontext()

    def _hung(self, reason: str) -> str:
        """Note that the run ends since nothing goes on; nobody but this thread does anything any more."""
        if not self._writer or not isinstance(self._ranks, Joined):
            return ""
        self._writer.append(self._ranks.failed(f"{reason}; the run ends here"))
        self._writer.end(_now(), 1)
        return f"; what was measured is in {self.path}"

    def discard(self) -> None:
        """Remove the run file, if nothing could be started."""
        if self._writer:
            self._writer.discard()

    def _header(self) -> Header:
        greeting = self._ranks.greeting
        return Header(
            collbench=__version__,
            command=("collbench", *sys.argv[1:]),
            started=_now(),
            processes=self.sweep.ranks if isinstance(self._ranks, Joined) else 0,
            environment=describe(greeting.versions, greeting.variables),
            topology=TopologyPart.from_json(greeting.topology),
            sweep=SweepPart.from_json(sweep_fields(replace(self.sweep, starts=greeting.starts))),
            interleaved=greeting.interleaved,
        )

    @property
    def cores(self) -> tuple[int, ...]:
        """The core of each rank, where ranks are bound."""
        return self._ranks.greeting.cores

    def run(self) -> Iterator[Result]:
        """Yield each result once it is on disk."""
        for result in self._ranks.run():
            self.results.append(result)
            if self._writer:
                self._writer.append(result)
            yield result

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None = None, *rest: object) -> None:
        signal = error if isinstance(error, KeyboardInterrupt) else behind(error)
        with held(), self._writer or nullcontext():
            if signal and self._writer:  # before the ranks' end, with which an outside launcher may end this too
                self._writer.end(_now(), status(signal))
            self._ranks.__exit__(kind, error, *rest)
            if kind is None and self._writer:
                self._writer.end(_now(), exit_status(self.results))


def _ranks(platform: str, sweep: Sweep, launched: tuple[int, int] | None) -> Ranks:
    if launched:
        return Joined(platform, sweep)
    return Supervisor(platform, sweep) if sweep.starts == 1 else Starts(platform, sweep)


def _label(name: str, versions: Mapping[str, str]) -> str:
    """What rows of that name will be called, by what the ranks say of their MPI library."""
    way, (_, at, suffix) = find(name), name.partition("@")
    said = versions.get(f"mpi{at}{suffix}", "") if way and way.library and "cpu" in way.platforms else ""
    return labelled(name, short_name(said)) if said else name


def exit_status(results: Sequence[Result]) -> int:
    """0 if everything measured is right, 1 if something is wrong or failed."""
    return int(any(result.outcome.bad for result in results))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
