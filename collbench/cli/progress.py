"""Rows as they arrive, and a progress line below them.

rich shows progress on standard error, only on a terminal with escape codes.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic

import click

from collbench.cli._process import coloured, obeys
from collbench.host.launcher import launched
from collbench.present.columns import Row
from collbench.present.notices import SECONDS, is_leader, say
from collbench.present.terminal import Table
from collbench.results import Result, Skipped


@contextmanager
def waiting(what: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal the work that is waited for and its elapsed time, until the block ends.

    Yields a function that replaces the text.  Without a terminal, its first line is printed every few seconds.
    """
    waits = bool(what) and is_leader(launched())
    if waits and obeys(sys.stderr):
        from rich.progress import TextColumn, TimeElapsedColumn

        with _progress(TextColumn("{task.description}", markup=False), TimeElapsedColumn()) as progress:
            task = progress.add_task(what, total=None)
            yield lambda text: progress.update(task, description=text)
        return
    due = time.monotonic() + SECONDS

    def say_seldom(text: str) -> None:
        nonlocal due
        if waits and time.monotonic() > due:
            say(f"collbench: at work: {text.splitlines()[0]}")
            due = time.monotonic() + SECONDS

    yield say_seldom


def _progress(*columns: Any, live: bool = True) -> Any:
    """Return rich's progress line on standard error; the rows on standard output are not redirected."""
    from rich.console import Console
    from rich.progress import Progress

    console: Any = Console(stderr=True, highlight=False, markup=False, emoji=False)
    # Keep the cursor: a killed command could not show it again.
    console.show_cursor = lambda show=True: False
    return Progress(
        *columns,
        console=console,
        transient=True,
        auto_refresh=live,
        refresh_per_second=1,  # rarely, since ranks are measuring
        redirect_stdout=False,
        redirect_stderr=False,
    )


class LiveTable:
    """Rows as results arrive, with a heading above each case; wrong, failed and disturbed rows are red.

    A terminal shows the number of finished results of `total` and the remaining time, unless `total` is 0.
    """

    def __init__(self, total: int = 0) -> None:
        self._done = 0
        self._title = ""
        self._skips: set[tuple[object, ...]] = set()
        self._progress: Any = None
        if total > 0 and obeys(sys.stderr):
            from rich.progress import TextColumn, TimeRemainingColumn

            done = TextColumn("[{task.completed}/{task.total}] {task.description}", markup=False)
            self._progress = _progress(done, TimeRemainingColumn(compact=True), live=False)
            self._task = self._progress.add_task("", total=total)

    def begin(self) -> None:
        """Print the lines above all rows, after the ranks have started; by default none."""

    def add(self, result: Any) -> None:
        """Count a result, or a pair of results, as it arrives; subclasses print it, too."""
        self.show(result.case.title, "", [])

    def show(self, title: str, heading: str, rows: Sequence[tuple[Result, str]]) -> None:
        """Print the rows of one case, each with its result; a new title is printed with the heading above them.

        An empty heading prints rows alone.  A skipped row is printed once below a title; the run file has all.
        """
        self.close()
        if heading and title != self._title:
            click.echo(f"\n{title}\n{heading}")
        self._title = title
        if not self._skipped_before([result for result, _ in rows]):
            for result, line in rows:
                echo_row(line, alarming=result.outcome.alarming)
        self._done += 1
        if self._progress:
            self._progress.update(self._task, completed=self._done, description=title)
            self._progress.start()

    def close(self) -> None:
        """Remove the progress line."""
        if self._progress:
            self._progress.stop()

    def _skipped_before(self, results: Sequence[Result]) -> bool:
        reasons = [(result.implementation, result.reason) for result in results if isinstance(result, Skipped)]
        if len(reasons) < len(results):
            return False
        key = self._title, *reasons
        before = key in self._skips
        self._skips.add(key)
        return before


def echo_row(line: str, alarming: bool) -> None:
    """Print a row, in red if it is alarming and the terminal has colours."""
    if alarming and coloured():
        line = click.style(line, fg="red")
    click.echo(line)


class ResultTable(LiveTable, Generic[Row]):
    """A table with a row for each result, below the title of its case."""

    def __init__(
        self,
        title: Callable[[Result], str],
        table: Table[Row],
        row_of: Callable[[Any], Row] = lambda result: result,
        total: int = 0,
    ) -> None:
        super().__init__(total)
        self._title_of, self._table, self._row_of = title, table, row_of

    def add(self, result: Result) -> None:
        """Print a result."""
        row = self._table.row(self._row_of(result))
        self.show(self._title_of(result), self._table.heading(), [(result, row)])
