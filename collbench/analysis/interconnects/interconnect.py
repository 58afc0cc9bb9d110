"""An interconnect: a described system or the machine of a run, and what is known of its times."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from collbench.cases import Case
from collbench.results import Measurement, Prediction, Timed, timed
from collbench.runfile.store import NAME, Run

Selected = Callable[[Case, str], bool] | None


@dataclass(frozen=True)
class Interconnect:
    """Ranks that something joins: a described system or the machine of a run, and what is known of its times."""

    name: str  # short, and no other's
    title: str  # what it is
    results: tuple[Timed, ...]
    remarks: tuple[str, ...] = ()  # what else must be said of it

    @property
    def origin(self) -> str:
        """`predicted`, `measured`, `imported`, or several of them."""
        return " and ".join(dict.fromkeys(map(origin, self.results))) or "nothing"

    @property
    def ranks(self) -> tuple[int, ...]:
        """All numbers of ranks that it has times for, in order."""
        return tuple(sorted({row.case.ranks for row in self.results}))


def origin(row: Timed) -> str:
    """How a time came to be known: `predicted`, `measured` here, or `imported` from what another tool printed."""
    if isinstance(row, Prediction):
        return "predicted"
    return "measured" if isinstance(row, Measurement) else "imported"


def of_run(name: str, run: Run, selected: Selected = None) -> Interconnect:
    """A run, of which only collectives with a time count; `selected(case, implementation)` leaves some out."""
    header = run.header
    where = header.topology.name or " ".join(filter(None, ["a log of", header.imported.tool or "another tool"]))
    rows = (row for row in timed(run.results) if row.typical > 0)  # another's clock may have seen no time pass
    rows = (row for row in rows if not selected or selected(row.case, row.implementation))
    return Interconnect(name, where, tuple(rows), (f"the run was {words}",) if (words := run.cut_off) else ())


def of_runs(runs: Sequence[Run], selected: Selected = None) -> list[Interconnect]:
    """Runs by the names of their folders; one that stands there twice counts once."""
    paths = dict.fromkeys(str(run.path) for run in runs)
    named = dict(zip(paths, short_names(list(paths)), strict=True))
    return [of_run(named.pop(path), run, selected) for run in runs if (path := str(run.path)) in named]


def short_names(words: Sequence[str]) -> list[str]:
    """Of systems and paths: the preset's, the file's or the run's folder's name, or all of it where two have one."""
    short = [_short(Path(word)) or word for word in words]
    return [name if short.count(name) == 1 else word for word, name in zip(words, short, strict=True)]


def _short(path: Path) -> str:
    return path.absolute().parent.name if path.name == NAME else path.stem
