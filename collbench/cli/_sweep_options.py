"""Options that several commands take: those of `collbench sweep`, and where pictures go."""

from copy import copy
from typing import Any

import click

from collbench.cli import sweep
from collbench.cli._paths import FORMATS, PATH
from collbench.platforms import platforms

_OPTIONS = {str(param.name): param for param in sweep.command.params if isinstance(param, click.Option)}
DEFAULTS: dict[str, Any] = sweep.command.make_context("sweep", []).params | {"starts": 1}
"""What a sweep is made of where a command has no option for it."""

HERE = click.Option(
    ["--on"],
    default="auto",
    metavar="|".join(("auto", *platforms())),
    help="Where the ranks live.",
    show_default=True,
)  # and not on a described system


def writes(what: str) -> list[click.Parameter]:
    """In which formats pictures are written, and the folder to make for all that is."""
    formats = click.Option(["--format", "formats"], type=FORMATS, multiple=True, default=["png"])
    return [formats, click.Option(["--out"], type=PATH, help=f"Folder to make for {what}.")]


def shared(*names: str, **defaults: Any) -> list[click.Parameter]:
    """These options, in the order of `sweep`; those in `defaults` with another default than there."""
    return [_with(option, defaults) for name, option in _OPTIONS.items() if name in names or name in defaults]


def _with(option: click.Option, defaults: dict[str, Any]) -> click.Parameter:
    changed = copy(option)
    if option.name in defaults:
        changed.default = defaults[option.name]
    return changed
