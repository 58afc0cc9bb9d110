"""The one line on stderr that says how far a sweep is; only on a terminal."""

import shutil
import sys
import time

import click


class Status:
    """Progress with the time still to go, unless the total is 0; cleared before anything else is printed."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._started = time.monotonic()
        self._live = total > 0 and sys.stderr.isatty()

    def show(self, done: int, what: str) -> None:
        """Draw the line anew."""
        if not self._live:
            return
        elapsed = time.monotonic() - self._started
        left = f", {_clock(elapsed / done * (self._total - done))} left" if done else ""
        width = shutil.get_terminal_size().columns
        text = f"[{done}/{self._total}] {what}{left}"
        click.echo(f"\r\033[K{text[: width - 1]}", err=True, nl=False)

    def clear(self) -> None:
        """Take the line away."""
        if self._live:
            click.echo("\r\033[K", err=True, nl=False)


def _clock(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 99 else f"{seconds / 60:.0f} min"
