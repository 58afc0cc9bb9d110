"""Kinds of figures, and sections of reports.

A kind is in KINDS of a module here, or in `figures` of a command's record: it names the results that it draws, and
yields figures of runs.  Commands and `collbench plot` both call `draw`, so a run file always gives the same figures.  A
section (`part` of a record) is a part of the page, and has the cells of its results for the table of all rows.
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
    machine: str | None = None  # system of the measured runs; None: as in their files
    coloured: int = COLOURED  # lines with a colour; the others are grey

    def shows(self, implementation: str) -> bool:
        """Return whether to draw results of an implementation."""
        return not self.implementations or implementation in self.implementations


_LONGEST = 40  # characters of a run's name in a picture
PLAIN = PlotRequest()
Say = Callable[[str], None]
Named = Iterator[tuple[str, Figure]]
"""Pairs of a file name without suffix and a figure."""


@dataclass(frozen=True)
class Kind:
    """One kind of figure."""

    order: int  # place among the figures of a run
    rows: tuple[type, ...]  # types of the drawn results
    needs: str  # the drawn results in words, after "NAME is drawn of"
    figures: Callable[[Sequence[Run], PlotRequest, Say], Named]  # Say gets a reason for each figure left out
    styled: bool = False  # whether it follows the request's plot style; else it is for the screen


def run_by_run(drawn: Callable[[Run, PlotRequest], Named]) -> Callable[[Sequence[Run], PlotRequest, Say], Named]:
    """Return a function that draws each run separately; names of the second run's figures end in -2, and so on."""

    def figures(runs: Sequence[Run], request: PlotRequest, say: Say) -> Named:
        for place, run in enumerate(runs, 1):
            for stem, figure in drawn(run, request):
                yield f"{stem}-{place}" if place > 1 else stem, figure

    return figures


@cache
def kinds(rows: frozenset[str] = frozenset()) -> dict[str, Kind]:
    """Return every kind by name, in the order of the figures.

    `rows`, names of types of results, limits the imported commands, since some imports take long.
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
    """Write every figure of these runs into `folder`, and return the files.

    The same runs give the same bytes, whatever the user's Matplotlib configuration.
    """
    paths: list[Path] = []
    for stem, figure, look in _drawn(runs, request, say):
        paths += save(figure, folder, stem, formats, look)
    return paths


def draw_file(runs: Sequence[Run], file: Path, request: PlotRequest, say: Say) -> list[Path]:
    """Write the single figure of these runs, if any, and return its file; UsageError if there are several."""
    drawn = list(_drawn(runs, request, say))
    if len(drawn) > 1:
        names = ", ".join(stem for stem, *_ in drawn)
        raise UsageError(
            f"--out {file} is one file, but there are {len(drawn)} figures: {names}; "
            "give a folder, or choose one with --view"
        )
    if not drawn:
        return []
    _, figure, look = drawn[0]
    return save(figure, file.parent, file.stem, [file.suffix[1:]], look)


def _drawn(runs: Sequence[Run], request: PlotRequest, say: Say) -> Iterator[tuple[str, Figure, Style]]:
    rows = frozenset(type(result).__name__ for run in runs for result in run.results)
    for kind in kinds(rows).values():
        for stem, figure in kind.figures(runs, request, say):
            _mark_cut_off(figure, runs)
            yield stem, figure, request.style if kind.styled else SCREEN


def _mark_cut_off(figure: Figure, runs: Sequence[Run]) -> None:
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
    """Return a line on the reasons why nothing can be drawn of these runs."""
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
    """A table: caption, names of columns, and rows, usually of texts.

    A mapping of names to shares, which add up to 1, is drawn as a bar.
    """

    caption: str
    heading: Sequence[str]
    rows: Sequence[Any]
    linked: bool = False  # whether the page has a link to it

    @classmethod
    def of(cls, caption: str, columns: Sequence[Column[Row]], rows: Sequence[Row]) -> "TextTable":
        """Return a table of the first rows, with sanitised texts."""
        cells = []
        for row in rows[:MOST]:
            cells.append(tuple(text(column.cell(row), _LONGEST_CELL) for column in columns))
        return cls(text(caption, _LONGEST_CELL), [column.name or column.key for column in columns], cells)

    @property
    def dense(self) -> "TextTable":
        """The table without empty columns; the first, which names the rows, always stays."""
        filled = {0}
        for row in self.rows:
            filled |= {column for column, cell in enumerate(row) if cell}
        shown = sorted(filled)
        rows = [tuple(row[column] for column in shown) for row in self.rows]
        return self._replace(heading=[self.heading[column] for column in shown], rows=rows)


class Picture(NamedTuple):
    """A figure in the page."""

    address: str  # data URL
    words: str
    anchor: str


class PagePart(NamedTuple):
    """A part of the page about a run; all fields are optional."""

    words: Sequence[str] = ()
    tables: Sequence[Any] = ()  # usually TextTable
    pictures: Sequence[Picture] = ()
    left_out: int = 0  # items without room
    notes: Sequence[str] = ()


class Cells(NamedTuple):
    """The cells of a result in the table of all rows."""

    numbers: tuple[str, ...]  # the time, then its interval
    check: str
    status: str = "ok"  # or plain


@dataclass(frozen=True)
class Section:
    """A command's section about its results."""

    name: str  # anchor of its part
    title: str
    order: int  # place among the sections
    rows: tuple[type, ...]  # types of its results; it shows the figures of these alone
    part: Callable[[Sequence[Any]], PagePart]  # of all results of a run
    cells: Callable[[Any], Cells]  # of one right result
    note: str = ""  # below the part
    drawn: bool = True  # whether it shows figures
    legend: Sequence[str] = ()  # names of the shares in its bars
    subject: str = ""  # of its results in the page's title; empty: their collective


def sections(rows: Collection[str]) -> list[Section]:
    """Return the sections for results of these types in the page's order, without importing others."""
    return sorted(parts("part", rows), key=lambda section: section.order)


def section_of(result: object, among: Sequence[Section]) -> Section | None:
    """Return the section that a result belongs to."""
    return next((section for section in among if isinstance(result, section.rows)), None)
