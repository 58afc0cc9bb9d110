"""Names on the command line, as a shell completes them: one, or several with commas between."""

from collections.abc import Callable, Iterable

import click

Names = Callable[[], Iterable[str]]
Completing = Callable[[click.Context, click.Parameter, str], list[str]]


def completed(names: Names, several: bool = True) -> Completing:
    """For an option's `shell_complete`; the names are asked for only then."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        taken = before.split(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last) and name not in taken]

    return complete


def collectives() -> Iterable[str]:
    """And `all`."""
    from collbench.collectives import COLLECTIVES

    return ["all", *COLLECTIVES]


def implementations() -> Iterable[str]:
    """And their groups."""
    from collbench.algorithms import implementations

    return ["all", "library", "ladder", "narrow", *implementations()]


def places() -> Iterable[str]:
    """Platforms and described systems."""
    from collbench.platforms import platforms
    from collbench.topology.files import names

    return ["auto", *platforms(), *names()]


def dtypes() -> Iterable[str]:
    """And `all`."""
    from collbench.datatypes import DATATYPES

    return ["all", *DATATYPES]


def redops() -> Iterable[str]:
    """And `all`."""
    from collbench.datatypes import REDUCTIONS

    return ["all", *REDUCTIONS]
