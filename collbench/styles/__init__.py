"""One file a way in which ranks that train together keep their weights in step; each defines STYLE, found here."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from collbench import algorithms
from collbench.cases import Job
from collbench.errors import Unsupported, UsageError, unknown
from collbench.learning.seat import Seat
from collbench.learning.trail import Kept
from collbench.platforms.layout import Needs


@dataclass(frozen=True)
class Training:
    """Training that goes on for a while whenever it is told to, as styles take turns."""

    go: Callable[[int], None]
    """*Collective*: until the ranks together have made so many times their number of steps, from the first on."""
    trail: Callable[[], Sequence[Kept]]
    """What this rank has done to the weights."""


@dataclass(frozen=True)
class Style:
    """One way to train on many ranks."""

    name: str
    summary: str  # one line
    prepare: Callable[[Seat], Training]
    """*Collective*; Unsupported where that cannot be."""
    order: int  # place in tables
    platforms: tuple[str, ...] = ("cpu",)
    uses: tuple[str, ...] = ()  # implementations of the all-reduce
    fifo: Callable[[Job], int] = lambda job: 0  # bytes that it wants in each rank's window
    behind: Callable[[Job], int] = lambda job: 0  # steps of other ranks that shared weights may lack when they are read

    def refuse(self, platform: str) -> None:
        """Unsupported if it does not run there."""
        if platform not in self.platforms:
            raise Unsupported(f"the job is computed by NumPy, so {self.name} runs on {', '.join(self.platforms)} only")


@cache
def styles() -> dict[str, Style]:
    """Every style by name, in the order of tables."""
    records: list[Style] = [
        importlib.import_module(f"{__name__}.{module.name}").STYLE for module in pkgutil.iter_modules(__path__)
    ]
    return {record.name: record for record in sorted(records, key=lambda record: record.order)}


def choose(names: str) -> tuple[str, ...]:
    """Styles for `--style`: names with commas between, or `all`; UsageError with the choices."""
    words = [word.strip() for word in names.split(",")]
    for word in words:
        if word != "all" and word not in styles():
            raise unknown("style", word, ["all", *styles()])
    if len(set(words)) < len(words):
        raise UsageError(f"--style {names} names one twice; choose from: {', '.join(['all', *styles()])}")
    return tuple(name for name in styles() if name in words or "all" in words)


def needs(names: Iterable[str], jobs: Iterable[Job], ranks: int, platform: str) -> Needs:
    """What these want of memory, each for itself and for the implementations that it uses."""
    chosen = [styles()[name] for name in names if platform in styles()[name].platforms]
    used = sorted({name for style in chosen for name in style.uses})
    own = {style.name: max(map(style.fifo, jobs)) for style in chosen}
    wanted = algorithms.needs(used, ranks, platform)
    return Needs({**wanted.fifos, **{name: nbytes for name, nbytes in own.items() if nbytes}}, wanted.multicast)
