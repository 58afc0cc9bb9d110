"""Show what connects the ranks here, or in a system that a file describes.

For example:
  collbench topo
  collbench topo dgx-h100 --nodes 4
"""

import shutil
from dataclasses import asdict
from pathlib import Path

import click

from collbench.cli.options import STANDARD, completed, json_option, option, print_basis, write_json
from collbench.errors import PlatformError, UsageError
from collbench.platforms import find_platform, platforms
from collbench.requests.sweeps import find_system
from collbench.topology.discovered import Topology
from collbench.topology.render import system_lines, topology_lines

_OPTIONS = [
    click.Argument(
        ["system"],
        default="auto",
        metavar="[auto|gpu|cpu|SYSTEM|FILE.toml]",
        shell_complete=completed("topology.files.names", several=False),
    ),
    option("--nodes", "Number of nodes of the system.", type=click.IntRange(min=1), metavar="N"),
    option("--ranks", "Ranks.  [default: one per GPU or usable CPU]", type=click.IntRange(1, 2**20), metavar="N"),
    json_option("the topology as in run files, or a system's fields,"),
]


@click.command(params=_OPTIONS)
def command(system: str, nodes: int | None, ranks: int | None, as_json: Path | None) -> None:
    """Show what connects the ranks here, or in a system (presets: `collbench list`).

    This machine: links between each pair, devices, and causes of bad measurements.  A system: also the network above
    one of its nodes, as in `collbench topo dgx-h100 --nodes 4`.
    """
    here = ("auto", *platforms())
    width = shutil.get_terminal_size().columns
    if system in here:
        if nodes:
            raise UsageError("--nodes needs a described system: collbench topo SYSTEM --nodes N")
        topology = _discover(system, ranks)
        title, record, lines = "", topology.to_json(), topology_lines(topology, width)
    else:
        described = find_system(system)
        if nodes:
            described = described.of(nodes)
        if ranks:
            described = described.part(ranks)
        title, record = described.title, {"measured": False} | asdict(described)
        lines = system_lines(described, width)
    write_json(as_json, record)
    if as_json != STANDARD:
        print_basis(title)
        click.echo("\n".join(lines))


def _discover(on: str, ranks: int | None) -> Topology:
    """Return the topology of a platform, for auto of the first available one; skipped ones are printed."""
    kinds = [*platforms().values()]
    if on != "auto":
        kinds = [find_platform(on)]
    for kind in kinds[:-1]:
        try:
            topology, remark = kind.discover(ranks)
            break
        except PlatformError as error:
            if kind.installed():
                click.echo(f"collbench: showing the {kinds[-1].name.upper()} only: {error}", err=True)
    else:
        topology, remark = kinds[-1].discover(ranks)
    if remark:
        click.echo(f"collbench: {remark}", err=True)
    return topology
