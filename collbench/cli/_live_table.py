"""Rows of a table shown as results arrive, with the names of the columns wherever a new part begins."""

from collections.abc import Sequence

import click

from collbench.cli._progress import Status
from collbench.cli._streams import coloured
from collbench.results import Result, Skipped


class LiveTable:
    """What is wrong, failed or disturbed is red; on a terminal stderr says how many of `total` cases are done."""

    def __init__(self, total: int = 0) -> None:
        self._status = Status(total)
        self._done = 0
        self._title = ""
        self._skips: set[tuple[object, ...]] = set()

    def show(self, title: str, heading: str, rows: Sequence[tuple[Result, str]]) -> None:
        """The rows of one case, each with its result, below title and heading where the title is a new one.

        Without a heading there are rows alone.  What is skipped is said once for all cases of a title; the run file has
        every one.
        """
        self._status.clear()
        if heading and title != self._title:
            click.echo(f"\n{title}\n{heading}")
        self._title = title
        for result, line in () if self._said([result for result, _ in rows]) else rows:
            click.echo(click.style(line, fg="red") if result.outcome.alarming and coloured() else line)
        self._done += 1
        self._status.show(self._done, title)

    def close(self) -> None:
        """Take the line about progress away."""
        self._status.clear()

    def _said(self, results: Sequence[Result]) -> bool:
        """Whether all are skipped for reasons that were said before."""
        reasons = [(result.implementation, result.reason) for result in results if isinstance(result, Skipped)]
        if len(reasons) < len(results):
            return False
        key = self._title, *reasons
        said = key in self._skips
        self._skips.add(key)
        return said
