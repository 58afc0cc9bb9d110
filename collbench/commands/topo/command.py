"""Show what connects the ranks here, or in a system that a file describes.

For example:
  collbench topo
  collbench topo dgx-h100 --nodes 4
"""

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from collbench.cli.options import STANDARD, completed, json_option, option, print_basis, write_json
from collbench.errors import PlatformError, UsageError
from collbench.notebook import Shown
from collbench.platforms import find_platform, platforms
from collbench.requests.sweeps import find_system
from collbench.requests.words import places
from collbench.topology.discovered import Topology
from collbench.topology.render import system_lines, topology_lines
from collbench.topology.system import System

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
    drawn = topo(system, nodes, ranks)
    title, record = "", drawn.machine.to_json() if isinstance(drawn.machine, Topology) else {}
    if isinstance(drawn.machine, System):
        title, record = drawn.machine.title, {"measured": False} | asdict(drawn.machine)
    write_json(as_json, record)
    if as_json != STANDARD:
        print_basis(title)
        click.echo(drawn)


@dataclass(frozen=True)
class Drawing(Shown):
    """A discovered or described machine; `print` shows it as `collbench topo` does."""

    SHOWN = ("machine.name", "machine.platform", "machine.ranks")
    machine: Topology | System

    def __str__(self) -> str:
        machine, width = self.machine, shutil.get_terminal_size().columns
        drawn = system_lines(machine, width) if isinstance(machine, System) else topology_lines(machine, width)
        return "\n".join(drawn)


def topo(system: str = "auto", nodes: int | None = None, ranks: int | None = None) -> Drawing:
    """Return what connects the ranks here, or in a described system, as `collbench topo` shows it.

    Args:
        system: "auto", "gpu" or "cpu" for this machine, a preset of `collbench list`, or FILE.toml.
        nodes: Number of nodes of a described system; by default as described, usually 1.
        ranks: Number of ranks; by default one for each GPU or usable CPU.

    Returns:
        The drawing, for `print`; its `machine` is the Topology found here, or the System.

    Raises:
        UsageError: The system does not exist, or cannot have the nodes or ranks.
        PlatformError: There is no such hardware here.

    >>> import collbench
    >>> print(collbench.topo("dgx-h100", nodes=4))  # doctest: +ELLIPSIS
    DGX H100, 4 nodes of 8 GPUs: 32 GPUs
    ...
    >>> collbench.topo("dgx-h100").machine.gpus
    8

    """
    if system in places():
        if nodes is not None:
            raise UsageError("--nodes needs a described system: collbench topo SYSTEM --nodes N")
        if ranks is not None and ranks < 1:
            raise UsageError(f"--ranks {ranks} is impossible; give at least 1")
        return Drawing(_discover(system, ranks))
    described = find_system(system)
    if nodes is not None:
        described = described.of(nodes)
    return Drawing(described if ranks is None else described.part(ranks))


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
