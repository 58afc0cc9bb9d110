"""List collectives, implementations, platforms and systems, and which implementation does what where.

For example:
  collbench list
"""

from collections.abc import Sequence
from operator import itemgetter

import click

from collbench.algorithms import implementations
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.present.columns import Column
from collbench.present.terminal import lines
from collbench.topology import files
from collbench.topology.products import ARCHITECTURES
from collbench.topology.render import fabric, nic_words


@click.command()
def command() -> None:
    """List collectives, implementations, platforms and systems, and which implementation does what where."""
    known = implementations().values()
    collective_rows = []
    for collective in COLLECTIVES.values():
        first = (*collective.aliases, collective.name)[0]
        program = f"osu_{first}" if collective.suite == "osu" else f"{first}_perf"
        also = ", ".join((*collective.aliases, program))
        collective_rows.append((collective.name, also, f"{collective.bus_factor(8):.3g}"))
    _print([("collective", "also called", "busbw / algbw, 8 ranks"), *collective_rows])
    implementation_rows = [(one.name, ", ".join(one.platforms), one.summary) for one in known]
    _print([("implementation", "platforms", "what it is"), *implementation_rows])
    wire_rows = [(one.wire.name, one.name, f"{one.wire.nbytes:.3g}", one.wire.summary) for one in known if one.wire]
    _print([("wire format", "implementation", "bytes of an element", "what it is"), *wire_rows])
    _print([("implementation", "collectives"), *((one.name, _covered(one.collectives)) for one in known)])
    system_rows = []
    for name in files.names():
        system = files.load(name)
        gpus = f"{system.gpus} x {system.gpu or ARCHITECTURES[system.arch].name}"
        system_rows.append((name, gpus, fabric(system), nic_words(system).partition(" each way")[0]))
    _print([("system", "GPUs of a node", "joined by", "NICs of a node"), *system_rows])
    _print([("dtypes", ", ".join(DATATYPES)), ("reductions", ", ".join(REDUCTIONS))])


def _print(rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table, with an empty line behind."""
    heading, *others = rows
    columns = [Column[tuple[str, ...]](name, itemgetter(place)) for place, name in enumerate(heading)]
    click.echo("\n".join([*lines(columns, others), ""]))


def _covered(names: Sequence[str]) -> str:
    """Return names of collectives, or that it is all of them."""
    covered = [name for name in COLLECTIVES if name in names]
    return ", ".join(covered) if len(covered) < len(COLLECTIVES) else f"all {len(covered)}"
