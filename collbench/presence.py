"""Commands, found by the folders that they are: the `__init__.py` of each says what there is to find, in `COMMANDS`.

A record names modules and their contents but imports none, so that --help, an error or a plot imports only its own.
"""

import pkgutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).parent
SECTIONS = "How fast?", "Is it right?", "Who is slow?", "What should it be?", "Show", "Files", "Learn", "Start"
"""Where `--help` lists commands, in this order; any other section of a record stands at the end."""
UNTIL = "0.3.0"
"""The release in which deprecated names go."""


class Command(NamedTuple):
    """The record of a command.  `MODULE:NAME` is what a module of its folder holds under that name."""

    package: str  # __name__ of the folder
    name: str  # as it is typed
    section: str = "More"  # of --help
    place: int = 0  # there
    summary: str = ""  # its line there, if it is not the first of the folder's docstring
    code: str = "command:command"  # its click.Command
    family: bool = False  # whether `code` makes a command of any name that ends so: all_reduce_perf
    together: bool = False  # whether the ranks of a launcher carry it out together
    functions: Mapping[str, str] = {}  # of the library: the module of each
    rows: Sequence[str] = ()  # its kinds of results in run files
    works: Sequence[str] = ()  # its kinds of work in cases
    figures: str = ""  # its KINDS of figures
    part: str = ""  # its SECTION of the report
    drawn: Sequence[str] = ()  # kinds of results that figures and part are of, besides its own
    lists: Mapping[str, str] = {}  # of `collbench list NAME`
    now: str = ""  # today's name of a deprecated one, which acts the same until it goes

    @property
    def listed(self) -> bool:
        """Whether --help, messages and completion name it: no families, no deprecated names."""
        return not (self.family or self.now)

    @property
    def line(self) -> str:
        """Its line in --help."""
        return self.summary or (import_module(self.package).__doc__ or "").partition("\n")[0]

    def load(self, place: str) -> Any:
        """Import what stands at `MODULE:NAME`."""
        module, _, name = place.partition(":")
        return getattr(import_module(f"{self.package}.{module}"), name)


@cache
def commands() -> dict[str, Command]:
    """Return the record of every command by its name, deprecated ones among them."""
    folders = pkgutil.iter_modules([str(PACKAGE / "commands")], "collbench.commands.")
    return {record.name: record for folder in folders for record in import_module(folder.name).COMMANDS}


def parts(of: str, kinds: Collection[str] | None = None) -> Iterator[Any]:
    """Import and yield the objects that the records name in the field `of` (for example `figures`).

    With kinds of results, by the names of their classes, only of commands whose figures and part may be of them.
    """
    for record in commands().values():
        places = getattr(record, of)
        own = {place.partition(":")[2] for place in record.rows}
        if kinds is None or not own.union(record.drawn).isdisjoint(kinds):
            yield from map(record.load, filter(None, [places] if isinstance(places, str) else places))


def found(name: str) -> Command | None:
    """Return the record of a command as it is typed, or of the family that its name ends as; None without one."""
    families = (record for record in commands().values() if record.family and name.endswith(record.name))
    return next(families, commands().get(name))


def shared() -> list[str]:
    """Return the listed commands that the ranks of a launcher carry out together."""
    return [name for name, record in commands().items() if record.together and record.listed]
