"""One file a way of carrying a case out; each defines IMPLEMENTATION, or several, found here by the file's presence.

Library implementations come first, then the ladder of hand-written ones in the order of their `rung`.
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
from collbench.platforms.layout import Needs
from collbench.platforms.roles import Launching, Prepared
from collbench.results import family


@dataclass(frozen=True)
class Implementation:
    """One way to carry cases out.

    `supports(case)` raises Unsupported with the reason, as `prepare(case, platform)` may, once it sees the hardware.
    """

    name: str
    summary: str  # one line for `collbench list`
    platforms: tuple[str, ...]
    collectives: tuple[str, ...]
    prepare: Callable[[Case, Launching], Prepared]
    supports: Callable[[Case], None] = lambda case: None
    rung: int = 0  # place on the ladder; 0 for a library
    calls: str = ""  # the library that it calls in another way, which is what the ladder is compared with instead
    fifo: Callable[[int, str], int] = lambda ranks, platform: 0  # bytes that it wants in each rank's window
    cost: Callable[[Case], Cost] | None = None  # what a case that it supports spends, if that is known
    uses: Callable[[], tuple[str, ...]] = tuple  # the implementations it hands cases to, whose FIFOs it needs
    neighbours_only: bool = False  # a rank sends to one other: without a switch it has the links to that one only
    multicast: bool = False  # a switch must know the memory of all ranks
    wire: Wire | None = None  # what its ranks exchange, if that is narrower than their arrays: results are not exact
    estimates: tuple[str, ...] = ()  # collectives of which it may say itself how long they take (Prepared.estimate)

    @property
    def library(self) -> bool:
        """Somebody else's product, which the ladder is compared with."""
        return self.rung == 0

    def refuse(self, case: Case) -> None:
        """Raise Unsupported if this case is not for this implementation, whatever the hardware."""
        if case.collective.name not in self.collectives:
            raise Unsupported(f"{self.name} carries out {', '.join(self.collectives)} only")
        if case.ranks < case.collective.least_ranks:
            raise Unsupported(f"{case.collective.name} takes {case.collective.least_ranks} ranks")
        if case.in_place and case.collective.in_place is None:
            raise Unsupported(f"{case.collective.name} has no in-place form")
        self.supports(case)


@cache
def implementations() -> dict[str, Implementation]:
    """Every implementation by name, libraries first, then up the ladder."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    records: list[Implementation] = [
        record for module in modules for record in getattr(module, "IMPLEMENTATIONS", ()) or (module.IMPLEMENTATION,)
    ]
    return {record.name: record for record in sorted(records, key=lambda record: (record.rung, record.name))}


def libraries() -> list[str]:
    """Those that the hand-written ones are compared with."""
    return [name for name, way in implementations().items() if way.library and not way.calls]


def is_library(name: str) -> bool:
    """Whether the hand-written ones are compared with it, whichever library of its kind it calls (`mpi@openmpi`)."""
    return family(name) in libraries()


def find(name: str) -> Implementation | None:
    """The implementation of that name, whichever library of its kind it calls; None for what another tool ran."""
    return implementations().get(family(name))


def needs(names: Iterable[str], ranks: int, platform: str) -> Needs:
    """What these want of memory, each a FIFO of its own: what one leaves there must not pass for another's packets."""
    known = implementations()
    wanted = {used for name in names for used in (name, *known[name].uses())}
    chosen = [way for name, way in known.items() if name in wanted and platform in way.platforms]
    return Needs(
        {way.name: way.fifo(ranks, platform) for way in chosen},
        tuple(way.name for way in chosen if way.multicast),
        LEARNT * 4 if any(way.wire for way in chosen) else 0,
    )


def choose(names: str, platform: str) -> tuple[str, ...]:
    """Implementations for `--impl`: names with commas between, or a group's name, of one platform.

    `all` is `library` and `ladder`, whose results are exact; `narrow` are those that are not.
    """
    ways = {name: way for name, way in implementations().items() if platform in way.platforms}
    known = list(ways)
    groups = {
        "all": [name for name, way in ways.items() if not way.wire],
        "library": [name for name, way in ways.items() if way.library],
        "ladder": [name for name, way in ways.items() if not way.library and not way.wire],
        "narrow": [name for name, way in ways.items() if way.wire],
    }
    chosen: list[str] = []
    for word in names.split(","):
        name = word.strip()
        if name not in groups and name not in known:
            if name in implementations():
                raise UsageError(f"{name} does not run on {platform}; choose from: {', '.join([*groups, *known])}")
            raise unknown("implementation", name, [*groups, *known])
        chosen += [group for group in groups.get(name, [name]) if group not in chosen]
    return tuple(name for name in known if name in chosen)
