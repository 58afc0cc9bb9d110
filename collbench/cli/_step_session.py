"""What sessions of `collbench scale` and `overlap` have in common: where, by which implementations, of which size."""

import re
from collections.abc import Mapping
from typing import Any

import click

from collbench.algorithms import choose, libraries
from collbench.api.predicting import find_system
from collbench.api.wanted import left_aside
from collbench.cli._sweep_options import DEFAULTS
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.platforms import find_platform, on_auto, platforms
from collbench.topology.system import System


def refuse_launcher(command: str, more: str = "") -> None:
    """UsageError under an outside launcher: the command starts its ranks itself."""
    if launched():
        raise UsageError(f"collbench {command} starts its ranks itself{more}; leave the launcher out")


def described(on: str) -> System | None:
    """The system that is meant, on which nothing runs; None for a platform."""
    return find_system(on) if on not in ("auto", *platforms()) else None


def platform_of(on: str) -> str:
    """The platform that is meant; a line on stderr where another one is there but cannot be used."""
    platform = on_auto() if on == "auto" else find_platform(on).name
    if remark := left_aside(on, platform):
        click.echo(f"collbench: {remark}", err=True)
    return platform


def of_sweep(options: Mapping[str, Any], gradients: str) -> dict[str, Any]:
    """What a sweep of one size is made of."""
    size = options["gradients"] or gradients
    given = {name: options[name] for name in ("datatype", "timeout", "spin", "bind", "budget")}
    return DEFAULTS | given | {"minbytes": size, "maxbytes": size}


def usual(platform: str) -> str:
    """The libraries that the ladder is compared with, and the rung that is expected to be fastest."""
    return ",".join([*(name for name in libraries() if name in choose("library", platform)), "auto"])


def place_name(system: System, ranks: int) -> str:
    """The system and so many ranks, as a part of a folder's name."""
    return re.sub(r"[^a-z0-9]+", "-", f"{system.name} {ranks}".lower()).strip("-")
