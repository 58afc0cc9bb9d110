"""List collectives, implementations, platforms and systems, and which implementation does what where.

For example:
  collbench list
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collbench.collectives import Collective
    from collbench.topology.system import System


@click.command()
def command() -> None:
    """List collectives, implementations, platforms and systems, and which implementation does what where."""
    from collbench.algorithms import implementations
    from collbench.collectives import COLLECTIVES
    from collbench.datatypes import DATATYPES, REDUCTIONS

    ways = implementations()
    _table(
        [("collective", "also called", "bus factor at 8 ranks")]
        + [
            (collective.name, ", ".join((*collective.aliases, _program(collective))), f"{collective.bus_factor(8):.3g}")
            for collective in COLLECTIVES.values()
        ]
    )
    _table(
        [("implementation", "platforms", "what it is")]
        + [(way.name, ", ".join(way.platforms), way.summary) for way in ways.values()]
    )
    _table(
        [("wire", "implementation", "bytes of an element", "what it is")]
        + [(way.wire.name, way.name, f"{way.wire.nbytes:.3g}", way.wire.summary) for way in ways.values() if way.wire]
    )
    _table([("what does what", ""), *((name, _does(way.collectives, COLLECTIVES)) for name, way in ways.items())])
    _table([("system", "GPUs of a node", "joined by", "NICs of a node"), *_systems()])
    _table([("dtypes", ", ".join(DATATYPES)), ("reductions", ", ".join(REDUCTIONS))])


def _does(names: Sequence[str], known: Collection[str]) -> str:
    """Names of collectives, or that it is all of them."""
    return f"all {len(known)}" if set(names) == set(known) else ", ".join(name for name in known if name in names)


def _systems() -> list[tuple[str, ...]]:
    """A row for each preset."""
    from collbench.topology.files import load, names

    return [_system(name, load(name)) for name in names()]


def _system(name: str, system: "System") -> tuple[str, ...]:
    from collbench.topology.products import ARCHITECTURES
    from collbench.topology.render import fabric, nic_words

    gpu = system.gpu or ARCHITECTURES[system.arch].name
    return (name, f"{system.gpus} x {gpu}", fabric(system), nic_words(system).partition(" each way")[0])


def _program(collective: "Collective") -> str:
    """What nccl-tests calls its program for it, or OSU does."""
    if collective.suite == "osu":
        return f"osu_{(collective.aliases or (collective.name,))[0]}"
    return f"{(collective.aliases or (collective.name,))[0]}_perf"


def _table(rows: Sequence[tuple[str, ...]]) -> None:
    """Columns as wide as they must be, and an empty line behind."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(f"{word:<{width}}" for word, width in zip(row, widths, strict=True)).rstrip())
    click.echo()
