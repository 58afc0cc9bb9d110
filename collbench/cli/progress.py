"""A terminal's contents while a command works: rows as they arrive, and below them how far it is.

Progress is on standard error, by rich, and only on a terminal that understands escape codes; a pipe has none of it.
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
    """Say on a terminal what is waited for and for how long; taken away before what follows.

    Yields a function that replaces it by lines of the work at hand; without a terminal their first is printed every few
    seconds.
    """
    waits = bool(what) and is_leader(launched())
    if waits and obeys(sys.stderr):
        from rich.progress import TextColumn, TimeElapsedColumn

        with _progress(TextColumn("{task.description}", markup=False), TimeElapsedColumn()) as progress:
            task = progress.add_task(what, total=None)
            yield lambda words: progress.update(task, description=words)
        return
    due = time.monotonic() + SECONDS

    def say_seldom(words: str) -> None:
        nonlocal due
        if waits and time.monotonic() > due:
            say(f"collbench: at work: {words.splitlines()[0]}")
            due = time.monotonic() + SECONDS

    yield say_seldom


def _progress(*columns: Any, live: bool = True) -> Any:
    """Return a progress line of rich on standard error; standard output, which has the rows, is left alone."""
    from rich.console import Console
    from rich.progress import Progress

    console: Any = Console(stderr=True, highlight=False, markup=False, emoji=False)
    # A command that is killed must not leave the terminal without its cursor.
    console.show_cursor = lambda show=True: False
    return Progress(
        *columns,
        console=console,
        transient=True,
        auto_refresh=live,
        refresh_per_second=1,  # ranks measure meanwhile
        redirect_stdout=False,
        redirect_stderr=False,
    )


class LiveTable:
    """Rows as results arrive, with the names of the columns where a new part begins.

    Rows that are wrong, failed or disturbed are red.  Below them a terminal shows how many of `total` results are there
    and how long the others take, unless the total is 0.
    """

    def __init__(self, total: int = 0) -> None:
        self._done = 0
        self._title = ""
        self._skips: set[tuple[object, ...]] = set()
        self._progress: Any = None
        if total > 0 and obeys(sys.stderr):
            from rich.progress import TextColumn, TimeRemainingColumn

            words = TextColumn("[{task.completed}/{task.total}] {task.description}", markup=False)
            self._progress = _progress(words, TimeRemainingColumn(compact=True), live=False)
            self._task = self._progress.add_task("", total=total)

    def begin(self) -> None:
        """Print what stands above all rows, once the ranks are there; nothing, where every part has its heading."""

    def add(self, result: Any) -> None:
        """Print a result, or a pair of them, as it arrives; here, where there are no rows, only count it."""
        self.show(result.case.title, "", [])

    def show(self, title: str, heading: str, rows: Sequence[tuple[Result, str]]) -> None:
        """Print the rows of one case, each with its result, below title and heading where the title is a new one.

        Without a heading there are rows alone.  A skipped row is printed once for a title; the run file has all.
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
        """Take the line of progress away."""
        if self._progress:
            self._progress.stop()

    def _skipped_before(self, results: Sequence[Result]) -> bool:
        """Return whether all are skipped for reasons that were printed before."""
        reasons = [(result.implementation, result.reason) for result in results if isinstance(result, Skipped)]
        if len(reasons) < len(results):
            return False
        key = self._title, *reasons
        before = key in self._skips
        self._skips.add(key)
        return before


def echo_row(line: str, alarming: bool) -> None:
    """Print a row, in red where it is alarming and the terminal has colours."""
    if alarming and coloured():
        line = click.style(line, fg="red")
    click.echo(line)


class ResultTable(LiveTable, Generic[Row]):
    """A table with a row for each result, below the title of its part."""

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
