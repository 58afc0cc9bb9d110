"""Runs made safe to calculate with: a run file may come from anywhere, and hold whatever JSON can.

Texts are sanitised where a file is read (host/sanitize.py).  What was checked and not timed is set aside.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from collbench.host.sanitize import text
from collbench.results import Observed, Result
from collbench.runfile.store import NAME, Run

_MOST_UNREAD = 100  # rows of a file that are no results, which are shown
_LONGEST = 300  # characters of a text


@dataclass(frozen=True)
class SafeRun:
    """A run with its usable results; the others with what is wrong with them."""

    label: str  # tells it from the other runs of the report
    run: Run
    odd: tuple[Result, ...]  # results that were checked, and not timed
    every: tuple[Result, ...]  # usable and odd results, in the file's order

    @property
    def unread(self) -> tuple[str, ...]:
        """Line and reason of rows that were no results at all, as many as can be looked at."""
        return self.run.left_out[:_MOST_UNREAD]

    @property
    def machine(self) -> str:
        """Name of the machine in the header."""
        return self.run.header.topology.name or "unknown topology"


def safe_text(value: object, longest: int = _LONGEST) -> str:
    """Return any value as text of one line: cut where it is long, without characters that no text should hold."""
    try:
        return text(value if isinstance(value, str) else repr(value), longest)
    except (ValueError, RecursionError):  # integers of more digits than Python writes; nests too deep
        return "(not shown)"


def safe_runs(runs: Sequence[Run]) -> list[SafeRun]:
    """Return the runs of a report, in its order, each under a label of its own.

    A label is the name of the folder, or of a file that is called otherwise; numbered where two are alike.
    """
    paths = [run.path.resolve() for run in runs]
    names = [safe_text(path.parent.name if path.name == NAME else path.stem, 60) or "run" for path in paths]
    found = []
    for place, (run, name) in enumerate(zip(runs, names, strict=True)):
        label = f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name
        every = tuple(_named(result) for result in run.results)
        observed = [row for row in every if isinstance(row, Observed)]
        odd = tuple(row for row in observed if not row.wrong and not any(row.times))
        unusable = set(map(id, odd))
        usable = tuple(result for result in every if id(result) not in unusable)
        found.append(SafeRun(label, replace(run, results=usable), odd, every))
    return found


def _named(result: Result) -> Result:
    """Return a result under a name that a column has room for."""
    return replace(result, implementation=safe_text(result.implementation, 60) or "(no name)")
