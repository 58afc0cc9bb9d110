"""Kinds of figures and sections of a report: of modules here that define KINDS, and as the records of commands say.

`draw` draws runs.  Another kind of figure is a file here, or `figures` of a command's record: it says which results it
draws, and yields the figures of a run.  Commands and `collbench plot` draw by the same function, so a run file gives
the same pictures again.  A section (`part` of a record) is a part of the page, with its results' rows for the table of
all rows.
"""

import pkgutil
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from collbench.errors import UsageError
from collbench.host.sanitize import text
from collbench.plots.axes import heading
from collbench.presence import PACKAGE, parts
from collbench.present.columns import Column, Row
from collbench.present.figures import COLOURED, SCREEN, Figure, Style, save
from collbench.results import Outcome
from collbench.runfile.store import Run, why_none


class PlotRequest(NamedTuple):
    """The figures to draw of the runs, and their looks."""

    views: Sequence[str] = ("bandwidth", "latency")  # names of views.VIEWS, or "all"
    style: Style = SCREEN
    overlay: bool = False  # all topologies of a figure in one panel
    implementations: Collection[str] = ()  # only these; empty: all
    machine: str | None = None  # the system that measured runs are of; None: as their files say
    coloured: int = COLOURED  # lines with a colour; more are grey

    def shows(self, implementation: str) -> bool:
        """Return whether results of that implementation are drawn."""
        return not self.implementations or implementation in self.implementations


_LONGEST = 40  # characters of a run's name in a picture
PLAIN = PlotRequest()
Say = Callable[[str], None]
Named = Iterator[tuple[str, Figure]]
"""Figures, each after the name of its file without the suffix."""


@dataclass(frozen=True)
class Kind:
    """One kind of figure."""

    order: int  # place among the figures of a run
    rows: tuple[type, ...]  # the results that it may be drawn of
    needs: str  # of which of them it is drawn, after "NAME is drawn of"
    figures: Callable[[Sequence[Run], PlotRequest, Say], Named]  # Say gets each figure left out, and why
    styled: bool = False  # whether it has the plot style of the request; else it is for the screen


def run_by_run(drawn: Callable[[Run, PlotRequest], Named]) -> Callable[[Sequence[Run], PlotRequest, Say], Named]:
    """Return a function that draws each run by itself; names of the second run's figures end in -2, and so on."""

    def figures(runs: Sequence[Run], request: PlotRequest, say: Say) -> Named:
        for place, run in enumerate(runs, 1):
            for stem, figure in drawn(run, request):
                yield f"{stem}-{place}" if place > 1 else stem, figure

    return figures


@cache
def kinds(rows: frozenset[str] = frozenset()) -> dict[str, Kind]:
    """Return every kind by its name, in the order of the figures.

    With names of types of results, figures of commands of none of them are not imported, since some take long.
    """
    known: dict[str, Kind] = {}
    for module in pkgutil.iter_modules([str(PACKAGE / "plots")], "collbench.plots."):
        known |= getattr(import_module(module.name), "KINDS", {})
    for figures in parts("figures", rows or None):
        known |= figures
    return dict(sorted(known.items(), key=lambda item: item[1].order))


def draw(
    runs: Sequence[Run],
    folder: Path,
    formats: Sequence[str] = ("png",),
    request: PlotRequest = PLAIN,
    say: Say = lambda reason: None,
) -> list[Path]:
    """Write every figure of every kind of these runs into `folder` and return the files; none if there is nothing.

    The same runs give the same bytes, whatever the user's Matplotlib configuration.
    """
    paths: list[Path] = []
    for stem, figure, look in _drawn(runs, request, say):
        paths += save(figure, folder, stem, formats, look)
    return paths


def draw_file(runs: Sequence[Run], file: Path, request: PlotRequest, say: Say) -> list[Path]:
    """Write the figure of these runs, if any, into that file; return it.  UsageError if there are several."""
    drawn = list(_drawn(runs, request, say))
    if len(drawn) > 1:
        names = ", ".join(stem for stem, *_ in drawn)
        raise UsageError(
            f"--out {file} is one file, and these are {len(drawn)} figures: {names}; "
            "give a folder, or choose one with --view"
        )
    if not drawn:
        return []
    _, figure, look = drawn[0]
    return save(figure, file.parent, file.stem, [file.suffix[1:]], look)


def _drawn(runs: Sequence[Run], request: PlotRequest, say: Say) -> Iterator[tuple[str, Figure, Style]]:
    """Yield every figure of every kind, with the name of its file before it and its plot style behind."""
    rows = frozenset(type(result).__name__ for run in runs for result in run.results)
    for kind in kinds(rows).values():
        for stem, figure in kind.figures(runs, request, say):
            _mark_cut_off(figure, runs)
            yield stem, figure, request.style if kind.styled else SCREEN


def _mark_cut_off(figure: Figure, runs: Sequence[Run]) -> None:
    """Add a line below the title that says which runs were cut off."""
    cut = [run for run in runs if run.cut_off]
    lines = [f"{text(run.path.parent.name, _LONGEST)}: {run.cut_off}" if len(runs) > 1 else run.cut_off for run in cut]
    if not lines:
        return
    title = next((words for words in figure.texts if words.get_text() == figure.get_suptitle()), None)
    if title:
        title.set_text("\n".join([title.get_text(), *lines]))
    else:
        heading(figure, "\n".join(lines), fontsize="small")


def lacking(runs: Sequence[Run]) -> str:
    """Return why nothing can be drawn of these runs, in one line."""
    right = [result for run in runs for result in run.results if not result.outcome.bad]
    needs = []
    for name, kind in kinds().items():
        if any(isinstance(result, kind.rows) for result in right):
            needs.append(f"{name} is drawn of {kind.needs}")
    whole = [result for result in right if result.outcome in (Outcome.OK, Outcome.PREDICTED)]
    if whole and not needs:
        names = ", ".join(dict.fromkeys(str(type(result).__struct_config__.tag) for result in whole))
        needs.append(f"no figure is drawn of rows of the kind {names}; `collbench report` has their tables")
    return f"{', '.join(str(run.path) for run in runs)}: {'; '.join(needs)}" if needs else why_none(runs)


MOST = 60
"""Rows of a table, and sentences and tables of a run."""
_LONGEST_CELL = 120  # characters of a cell


class TextTable(NamedTuple):
    """A caption, the names of the columns, and rows of texts unless the template knows better.

    Shares by name, which add up to 1, are a bar.
    """

    caption: str
    heading: Sequence[str]
    rows: Sequence[Any]
    linked: bool = False  # whether the page has a link to it

    @classmethod
    def of(cls, caption: str, columns: Sequence[Column[Row]], rows: Sequence[Row]) -> "TextTable":
        """Return the table of the first rows, whose texts may come from any file."""
        cells = []
        for row in rows[:MOST]:
            cells.append(tuple(text(column.cell(row), _LONGEST_CELL) for column in columns))
        return cls(text(caption, _LONGEST_CELL), [column.name or column.key for column in columns], cells)

    @property
    def dense(self) -> "TextTable":
        """The table without columns in which no row has anything; the first, which names the rows, always stays."""
        filled = {0}
        for row in self.rows:
            filled |= {column for column, cell in enumerate(row) if cell}
        shown = sorted(filled)
        rows = [tuple(row[column] for column in shown) for row in self.rows]
        return self._replace(heading=[self.heading[column] for column in shown], rows=rows)


class Picture(NamedTuple):
    """A figure as the page holds it."""

    address: str  # that holds all of it
    words: str
    anchor: str


class PagePart(NamedTuple):
    """A part of the page about a run; nothing of it need be there."""

    words: Sequence[str] = ()
    tables: Sequence[Any] = ()  # a TextTable each
    pictures: Sequence[Picture] = ()
    left_out: int = 0  # for which there is no room
    notes: Sequence[str] = ()


class Cells(NamedTuple):
    """The cells of a result in the table of all rows."""

    numbers: tuple[str, ...]  # the time, then its interval
    check: str
    status: str = "ok"  # or plain


@dataclass(frozen=True)
class Section:
    """A command's section about its results."""

    name: str  # by which its part can be linked to
    title: str
    order: int  # place among the sections
    rows: tuple[type, ...]  # the results that it is of; its figures are those that are drawn of these alone
    part: Callable[[Sequence[Any]], PagePart]  # of all results of a run
    cells: Callable[[Any], Cells]  # of one of its results, which is right
    note: str = ""  # below the part
    drawn: bool = True  # whether figures of its results stand there
    legend: Sequence[str] = ()  # names of the shares in its bars
    subject: str = ""  # of its results in the page's title; empty: their collective


def sections(rows: Collection[str]) -> list[Section]:
    """Return the sections of results of these types in the page's order; others are not imported."""
    return sorted(parts("part", rows), key=lambda section: section.order)


def section_of(result: object, among: Sequence[Section]) -> Section | None:
    """Return the section that a result belongs to."""
    return next((section for section in among if isinstance(result, section.rows)), None)
