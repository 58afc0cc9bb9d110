"""Arguments and options that are paths, as several commands take them."""

import os
from copy import copy
from pathlib import Path
from typing import Any

import click

_LONGEST, _LONGEST_NAME = 4000, 255  # characters of a path, bytes of a name in it


class _Named(click.Path):
    """A path that can be shown; a name that is no UTF-8 can, with a sign for what is none."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """The path, unless a terminal would obey its name, or no file can have it."""
        shown = os.fspath(value).encode(errors="replace").decode()
        if not shown.isprintable():
            self.fail(f"{shown!r} holds signs that no name should; rename it", parameter, context)
        if len(shown) > _LONGEST or max(len(name.encode()) for name in shown.split("/")) > _LONGEST_NAME:
            self.fail(f"{shown!r} is longer than any name of a file", parameter, context)
        return super().convert(value, parameter, context)


class Where(click.Option):
    """`--out`, where a command writes; -o and --output, of before, still do, but -o is the reduction elsewhere."""

    def get_help_record(self, context: click.Context) -> tuple[str, str] | None:
        """By its one name."""
        shown = copy(self)
        shown.opts = ["--out"]
        return click.Option.get_help_record(shown, context)


PATH = _Named(path_type=Path)
PICTURE = _Named(dir_okay=False, path_type=Path)
RUN = click.argument("run", metavar="RUN", type=PATH)
RUNS = click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=PATH)
FORMATS = click.Choice(["png", "svg", "pdf"])  # of pictures
