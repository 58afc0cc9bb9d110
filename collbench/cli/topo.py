"""Show what connects the ranks here, or in a system that a file describes.

For example:
  collbench topo
  collbench topo dgx-h100 --nodes 4 --out fabric.svg
"""

import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from collbench.cli._json import STANDARD, JsonCommand, into, json_option
from collbench.cli._paths import PICTURE, Where
from collbench.errors import PlatformError, UsageError
from collbench.platforms import find_platform, platforms

if TYPE_CHECKING:
    from collbench.topology.discovered import Topology
    from collbench.topology.system import System


@click.command("topo", cls=JsonCommand)
@click.argument("system", required=False, metavar="[PRESET|FILE.toml]")
@click.option(
    "--on",
    type=click.Choice(["auto", *platforms()]),
    default="auto",
    show_default=True,
    help="What ranks would run on here; auto: GPUs if the driver shows any, else the CPU.",
)
@click.option("--nodes", type=click.IntRange(min=1), metavar="N", help="How many nodes the system has.")
@click.option(
    "--ranks",
    type=click.IntRange(min=1, max=2**20),
    metavar="N",
    help="How many ranks.  [default: one for each GPU, or for each CPU that may be used]",
)
@json_option("what run files keep of it, or a system's fields,")
@click.option(
    "-o",
    "--output",
    "--out",
    "output",
    cls=Where,
    type=PICTURE,
    metavar="FILE",
    help="Also draw a picture: .png, .svg or .pdf.",
)
def command(
    system: str | None, on: str, nodes: int | None, ranks: int | None, as_json: Path | None, output: Path | None
) -> None:
    """Show what connects the ranks here, or draw a system (presets: `collbench list`).

    Here: links between each pair, devices, and what spoils measurements.  A system: the network above one of its
    nodes, as in `collbench topo dgx-h100 --nodes 4 -o fabric.png`.
    """
    if system:
        _described(_system(system, on, nodes, ranks), as_json, output)
        return
    if nodes:
        raise UsageError("--nodes needs a system to have so many of: collbench topo PRESET --nodes N")
    _discovered(_discover(on, ranks), as_json, output)


def _system(name: str, on: str, nodes: int | None, ranks: int | None) -> "System":
    from collbench.topology.files import load

    if on != "auto":
        raise UsageError(f"--on {on} looks at this machine, and {name} is another one; leave one of them out")
    described = load(name)
    described = described.of(nodes) if nodes else described
    return described.part(ranks) if ranks else described


def _described(system: "System", as_json: Path | None, output: Path | None) -> None:
    from collbench.topology.render import system_lines

    _show(asdict(system), as_json, system_lines(system, _columns()))
    if output:
        _draw(system, output)


def _discovered(topology: "Topology", as_json: Path | None, output: Path | None) -> None:
    from collbench.topology.render import topology_lines  # not above: --help needs none of it

    _show(topology.to_json(), as_json, topology_lines(topology, _columns()))
    if output:
        from collbench.topology.from_discovery import as_system

        _draw(as_system(topology), output)


def _show(record: dict[str, object], as_json: Path | None, lines: Iterable[str]) -> None:
    """The record as JSON if that is wanted, and the lines unless that took their place."""
    if as_json:
        with into(as_json):
            click.echo(json.dumps(record, indent=2))
    if as_json != STANDARD:
        click.echo("\n".join(lines))


def _columns() -> int:
    return shutil.get_terminal_size().columns


def _draw(system: "System", output: Path) -> None:
    from collbench.plots.system import draw

    click.echo(f"picture: {draw(system, output)}", err=True)


def _discover(on: str, ranks: int | None) -> "Topology":
    """On auto the first platform that is here; what is installed and passed over is told."""
    if on != "auto":
        return _told(*find_platform(on).discover(ranks))
    *preferred, last = platforms().values()
    for kind in preferred:
        try:
            return _told(*kind.discover(ranks))
        except PlatformError as error:
            if kind.installed():
                click.echo(f"collbench: showing the {last.name.upper()} only: {' '.join(str(error).split())}", err=True)
    return _told(*last.discover(ranks))


def _told(topology: "Topology", remark: str) -> "Topology":
    if remark:
        click.echo(f"collbench: {remark}", err=True)
    return topology
