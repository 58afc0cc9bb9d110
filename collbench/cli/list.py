"""List collectives, implementations, platforms and systems, and which implementation does what where.

For example:
  collbench list
"""

from collections.abc import Collection, Sequence

import click

from collbench.algorithms import implementations
from collbench.cli.tables import grid
from collbench.collectives import COLLECTIVES, Collective
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.topology import files
from collbench.topology.products import ARCHITECTURES
from collbench.topology.render import fabric, nic_words


@click.command()
def command() -> None:
    """List collectives, implementations, platforms and systems, and which implementation does what where."""
    known = implementations().values()
    _print([("collective", "also called", "bus factor at 8 ranks"), *map(_collective, COLLECTIVES.values())])
    implementation_rows = [(one.name, ", ".join(one.platforms), one.summary) for one in known]
    _print([("implementation", "platforms", "what it is"), *implementation_rows])
    wire_rows = [(one.wire.name, one.name, f"{one.wire.nbytes:.3g}", one.wire.summary) for one in known if one.wire]
    _print([("wire format", "implementation", "bytes of an element", "what it is"), *wire_rows])
    _print([("what does what", ""), *((one.name, _covered(one.collectives, COLLECTIVES)) for one in known)])
    _print([("system", "GPUs of a node", "joined by", "NICs of a node"), *map(_system, files.names())])
    _print([("dtypes", ", ".join(DATATYPES)), ("reductions", ", ".join(REDUCTIONS))])


def _print(rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table, with an empty line behind."""
    click.echo("\n".join([*grid(rows), ""]))


def _collective(collective: Collective) -> tuple[str, ...]:
    """Return its name, what others and their programs call it, and its bus factor."""
    first = (collective.aliases or (collective.name,))[0]
    program = f"osu_{first}" if collective.suite == "osu" else f"{first}_perf"
    return collective.name, ", ".join((*collective.aliases, program)), f"{collective.bus_factor(8):.3g}"


def _covered(names: Sequence[str], known: Collection[str]) -> str:
    """Return names of collectives, or that it is all of them."""
    return f"all {len(known)}" if set(names) == set(known) else ", ".join(name for name in known if name in names)


def _system(name: str) -> tuple[str, ...]:
    """Return the row of a preset."""
    system = files.load(name)
    gpu = system.gpu or ARCHITECTURES[system.arch].name
    return name, f"{system.gpus} x {gpu}", fabric(system), nic_words(system).partition(" each way")[0]
