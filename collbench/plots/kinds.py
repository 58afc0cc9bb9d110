"""Kinds of figures: every module of this folder that defines KIND, found by its presence; and drawing what runs hold.

Another kind is one file dropped in: it says of which results it is drawn, and yields the figures of a run.  A command
that measures and `collbench plot` draw by the same function, so a run file gives the same pictures again.
"""

import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from collbench import plots
from collbench.host.sanitize import text
from collbench.plots.pictures import save
from collbench.plots.styles import COLOURED, SCREEN, Style
from collbench.plots.views import DEFAULT
from collbench.results import Result
from collbench.runfile.store import Run, why_none

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Wanted(NamedTuple):
    """What to draw of the runs, and how."""

    views: Sequence[str] = DEFAULT  # names of views.QUANTITIES, or "all"
    style: Style = SCREEN
    overlay: bool = False  # all topologies of a figure in one panel
    implementations: Collection[str] = ()  # those alone; none: all
    machine: str | None = None  # the system that measured runs are of, if their files are not to say
    apart: bool = False  # predictions in panels of their own, not laid over measurements
    linear: bool = False  # bandwidth from zero on a linear axis
    coloured: int = COLOURED  # lines with a colour; more are grey

    def shows(self, implementation: str) -> bool:
        """Whether what is of that implementation is drawn."""
        return not self.implementations or implementation in self.implementations


_LONGEST = 40  # characters of a run's name in a picture
PLAIN = Wanted()
Say = Callable[[str], None]
Named = Iterator[tuple[str, "Figure"]]
"""Figures, each after the file name that it should have but for the suffix."""


def _silent(reason: str) -> None:
    """Nobody asked why something is left out."""


@dataclass(frozen=True)
class Kind:
    """One kind of figure.

    `figures(runs, wanted, say)` yields all of them; `say` is told of each that has to be left out, and why.
    """

    order: int  # place among the figures of a run
    rows: tuple[type, ...]  # the results that it may be drawn of
    needs: str  # of which of them it is drawn, after "NAME is drawn of"
    figures: Callable[[Sequence[Run], Wanted, Say], Named]
    styled: bool = False  # whether it has the style that is wanted; else it is for the screen

    def concerns(self, result: Result) -> bool:
        """Whether it may be drawn of this result, which is right."""
        return isinstance(result, self.rows) and not result.outcome.bad


def run_by_run(drawn: Callable[[Run, Wanted], Named]) -> Callable[[Sequence[Run], Wanted, Say], Named]:
    """Of each run by itself; names of the second run's figures end in -2, and so on."""

    def of_all(runs: Sequence[Run], wanted: Wanted, say: Say) -> Named:
        for place, run in enumerate(runs, 1):
            for stem, figure in drawn(run, wanted):
                yield f"{stem}-{place}" if place > 1 else stem, figure

    return of_all


@cache
def kinds() -> dict[str, Kind]:
    """Every kind by the name of its module, in the order in which figures are listed."""
    names = [module.name for module in pkgutil.iter_modules(plots.__path__)]
    modules = {name: importlib.import_module(f"{__package__}.{name}") for name in names}
    known: dict[str, Kind] = {name: module.KIND for name, module in modules.items() if hasattr(module, "KIND")}
    return dict(sorted(known.items(), key=lambda item: item[1].order))


def draw(
    runs: Sequence[Run],
    folder: Path,
    formats: Sequence[str] = ("png",),
    wanted: Wanted = PLAIN,
    say: Say = _silent,
) -> list[Path]:
    """Write every figure of every kind of these runs into `folder` and say which files; none if there is nothing.

    The same runs give the same bytes, whatever the user's Matplotlib configuration.
    """
    return [
        path
        for kind in kinds().values()
        for stem, figure in kind.figures(runs, wanted, say)
        for path in save(_marked(figure, runs), folder, stem, formats, wanted.style if kind.styled else SCREEN)
    ]


def _marked(figure: "Figure", runs: Sequence[Run]) -> "Figure":
    """With a line below its title that says which runs were cut off."""
    cut = [(text(run.path.parent.name, _LONGEST), words) for run in runs if (words := run.cut_off)]
    if below := "\n".join(f"{name}: {words}" if len(runs) > 1 else words for name, words in cut):
        title = next((words for words in figure.texts if words.get_text() == figure.get_suptitle()), None)
        if title:
            title.set_text(f"{title.get_text()}\n{below}")
        else:
            figure.suptitle(below, x=0.01, ha="left", fontsize="small")
    return figure


def lacking(runs: Sequence[Run]) -> str:
    """Why nothing can be drawn of these runs, in one line."""
    results = [result for run in runs for result in run.results]
    needs = [f"{name} is drawn of {kind.needs}" for name, kind in kinds().items() if any(map(kind.concerns, results))]
    return f"{', '.join(str(run.path) for run in runs)}: {'; '.join(needs)}" if needs else why_none(runs)
