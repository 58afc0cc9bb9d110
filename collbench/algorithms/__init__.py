"""The implementations: each module defines IMPLEMENTATION or IMPLEMENTATIONS.

Records next to kernels are implementations too (records.py).  Libraries come first, then the hand-written ones in the
order in which the lessons introduce them.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from collbench.cases import Case
from collbench.datatypes import LEARNT, Wire
from collbench.errors import Unsupported, UsageError, unknown
from collbench.platforms.cost import Cost
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.layout import Needs
from collbench.results import family

_GROUPS = "all", "library", "ladder", "narrow", "paths"  # of implementations, as `--impl` names them


@dataclass(frozen=True)
class Implementation:
    """An implementation of collectives.

    `supports(case)` raises Unsupported with the reason; so may `home` and `prepare(case, platform)`, depending on the
    hardware.
    """

    name: str
    summary: str  # one line for `collbench list`
    prepare: Callable[[Case, Platform], Prepared]
    platforms: tuple[str, ...] = ("gpu", "cpu")  # a kernel runs on both
    collectives: tuple[str, ...] = ("allreduce",)
    supports: Callable[[Case], None] = lambda case: None
    home: Callable[[Platform, Case], Platform] = lambda platform, case: platform  # with the memory that it works in
    order: int = 0  # of hand-written implementations, in which lists show them; 0 for a library
    fifo: Callable[[int, str], int] = lambda ranks, platform: 0  # bytes that it needs in each window
    cost: Callable[[Case], Cost] | None = None  # cost of a supported case, if known
    uses: Callable[[], tuple[str, ...]] = tuple  # the implementations it hands cases to, whose FIFOs it needs
    neighbours_only: bool = False  # a rank sends to one other, so without a switch it uses only the links to that one
    multicast: bool = False  # needs multicast memory on all ranks
    wire: Wire | None = None  # wire format, if narrower than the arrays: results are not exact
    reference: bool = False  # whether hand-written ones are also compared with this path
    shared_without: str = ""  # its handicap if ranks share a GPU, a note for ratios to it
    estimates: tuple[str, ...] = ()  # collectives with its own estimate (Prepared.estimate)

    @property
    def path(self) -> bool:
        """Whether it is a library's fast path with its own row, as `nccl@symmetric`."""
        return family(self.name) != self.name

    @property
    def library(self) -> bool:
        """Whether it is a library, with which hand-written implementations are compared."""
        return self.order == 0

    def refuse(self, case: Case) -> None:
        """Raise Unsupported if the implementation does not support the case on any hardware."""
        if case.collective.name not in self.collectives:
            raise Unsupported(f"{self.name} carries out {', '.join(self.collectives)} only")
        if case.ranks < case.collective.least_ranks:
            raise Unsupported(f"{case.collective.name} needs {case.collective.least_ranks} ranks or more")
        if case.in_place and case.collective.in_place is None:
            raise Unsupported(f"{case.collective.name} has no in-place form")
        self.supports(case)


@cache
def implementations() -> dict[str, Implementation]:
    """Return every implementation by name, libraries first; UsageError if a record is wrong."""
    records: list[Implementation] = []
    for file in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{file.name}")
        records += getattr(module, "IMPLEMENTATIONS", ())
        if hasattr(module, "IMPLEMENTATION"):
            records.append(module.IMPLEMENTATION)
    recorded = importlib.import_module(f"{__name__}.records").recorded
    records += recorded({record.name for record in records} | set(_GROUPS))
    return {record.name: record for record in sorted(records, key=lambda record: (record.order, record.name))}


def libraries() -> list[str]:
    """Return the names of the libraries that hand-written implementations are compared with."""
    return [name for name, way in implementations().items() if way.library and not way.path]


def references() -> list[str]:
    """Return the libraries, and the paths with which hand-written implementations are compared as well."""
    return [*libraries(), *(name for name, way in implementations().items() if way.reference)]


def is_library(name: str) -> bool:
    """Return whether it is a library, in any copy (`mpi@openmpi`)."""
    return family(name) in libraries()


def is_path(name: str) -> bool:
    """Return whether it is a library's fast path, in any copy."""
    way = find(name)
    return way is not None and way.path


def find(name: str) -> Implementation | None:
    """Return the implementation of that name, with any library; None for another tool's."""
    return implementations().get(apart(name)[0]) or implementations().get(family(name))


def apart(row: str) -> tuple[str, str]:
    """Split a row's name into implementation and library, "" for the default library.

    For `mpi@openmpi` they are `mpi` and `openmpi`, for `nccl@symmetric@2.30.7` `nccl@symmetric` and `2.30.7`.
    """
    # An implementation's own name may have an @.
    name, at, library = row.rpartition("@")
    return (name, library) if at and row not in implementations() else (row, "")


def needs(names: Iterable[str], ranks: int, platform: str) -> Needs:
    """Return the memory needs of implementations; names of others need nothing.

    Each has its own FIFO, so that one's leftovers cannot pass for another's packets.
    """
    used: set[str] = set()
    for name in implementations().keys() & set(names):
        used.update((name, *implementations()[name].uses()))
    chosen = [way for name, way in implementations().items() if name in used and platform in way.platforms]
    return Needs(
        {way.name: way.fifo(ranks, platform) for way in chosen},
        LEARNT * 4 if any(way.wire for way in chosen) else 0,
    )


def choose(names: str, platform: str) -> tuple[str, ...]:
    """Return the implementations named by `--impl`: names or groups, separated by commas, of a platform ("": of any).

    `all` is `library` and `ladder` (the hand-written ones), with exact results; `narrow` has the inexact ones.
    `paths` are fast paths of a library, for which ranks hold their buffers twice.
    """
    here = {name: way for name, way in implementations().items() if platform in ("", *way.platforms)}
    groups: dict[str, list[str]] = {group: [] for group in _GROUPS}

    # Results of narrow wires are not exact, and paths take memory, so `all` leaves them out.
    for name, way in here.items():
        if way.wire or way.path:
            groups["narrow" if way.wire else "paths"].append(name)
        else:
            groups["all"].append(name)
            groups["library" if way.library else "ladder"].append(name)
    groups = {group: members for group, members in groups.items() if members}
    chosen: set[str] = set()
    for word in names.split(","):
        name = word.strip()
        if name in groups:
            chosen.update(groups[name])
        elif name in here:
            chosen.add(name)
        elif name in implementations() or name in _GROUPS:
            raise UsageError(f"{name} does not run on {platform}; choose from: {', '.join([*groups, *here])}")
        elif lacks := importlib.import_module(f"{__name__}.records").lacking(name):
            raise UsageError(lacks)
        else:
            raise unknown("implementation", name, [*groups, *here])
    return tuple(name for name in here if name in chosen)
