"""Words that several requests have, each an Annotated type that says its options, its sentence and its limits."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated

from collbench.api.declared import NAMES, SIZE, TIME, Opt
from collbench.platforms import platforms

Names = str | Sequence[str]
"""One name, several with commas or in a sequence, or "all"."""
Size = int | str
"""Bytes, or a size as on the command line: 8, "64K", "1.5G"; suffixes are binary."""
Share = float | str
"""A number between 0 and 1, or a share as on the command line: 0.05, "5%"."""
Time = float | str
"""Seconds, or a duration as on the command line: 0.5, "500ms", "2min"."""

MOST_RANKS = 2**30  # of a described system
LONGEST = 1e7  # seconds: four months


def _all_of(module: str, registry: str) -> Callable[[], Iterable[str]]:
    """Return a function that looks up `all` and the names of a registry: its module takes a while to import."""
    return lambda: ("all", *getattr(import_module(f"collbench.{module}"), registry))


def places() -> tuple[str, ...]:
    """Return where ranks are started: `auto` and every platform."""
    return ("auto", *platforms())


_OF_COLLECTIVES = _all_of("collectives", "COLLECTIVES")
_OF_DATATYPES, _OF_REDUCTIONS = _all_of("datatypes", "DATATYPES"), _all_of("datatypes", "REDUCTIONS")


def _implementations() -> Iterable[str]:
    from collbench.algorithms import implementations

    return ("all", "library", "ladder", "narrow", *implementations())


def _systems() -> Iterable[str]:
    return import_module("collbench.topology.files").names()  # type: ignore[no-any-return]


OfMachine = partial(Opt, "--on", metavar="SYSTEM|FILE.toml", complete=_systems)
"""What machine runs are of: the sentence, and what is taken where it is not given."""
RunsNodes = Annotated[
    int | None, Opt("--nodes", "Nodes of the ranks.", "as few as they fill", metavar="N", least=1, most=MOST_RANKS)
]
Here = Annotated[str, Opt("--on", "Where the ranks live.", metavar="|".join(places()), complete=places)]
Ops = Annotated[
    Names, Opt("--op", "Collectives, by the names of `collbench list`.", unit=NAMES, complete=_OF_COLLECTIVES)
]
Impls = Annotated[
    Names,
    Opt(
        "--impl",
        "Implementations, or a group of them: library, ladder, narrow.",
        metavar="NAME[,NAME]|library|ladder|narrow|all",
        unit=NAMES,
        complete=_implementations,
    ),
]
Ranks = Annotated[
    int | None, Opt("-g --ranks --ngpus", "Number of ranks.", "every GPU, and 2 on a CPU", least=1, most=MOST_RANKS)
]
Nodes = Annotated[
    int | None,
    Opt("--nodes", "Nodes of a described system.", "as it says, mostly 1", metavar="N", least=1, most=MOST_RANKS),
]
RanksOfNode = Annotated[
    int | None,
    Opt(
        "--ranks-per-node",
        "GPUs to use of each node of a described system.",
        "all",
        metavar="N",
        least=1,
        most=MOST_RANKS,
    ),
]
Smallest = Annotated[Size, Opt("-b --minbytes", "Smallest message.", unit=SIZE, least=1)]
Largest = Annotated[
    Size | None, Opt("-e --maxbytes", "Largest message.", "what memory allows up to 128M; predicted, 8G", unit=SIZE)
]
Factor = Annotated[float, Opt("-f --stepfactor", "Factor between sizes.")]
SizeStep = Annotated[
    Size | None, Opt("-i --stepbytes", "Bytes between sizes, instead of a factor.", unit=SIZE, least=1)
]
Datatypes = Annotated[Names, Opt("-d --datatype", "Element types.", unit=NAMES, complete=_OF_DATATYPES)]
Reductions = Annotated[Names, Opt("--redop", "Reductions.", unit=NAMES, complete=_OF_REDUCTIONS)]
Root = Annotated[int, Opt("-r --root", "Root rank of collectives that have one.")]
InPlace = Annotated[bool, Opt("--in-place", "Send from and receive into one buffer.")]
Timeout = Annotated[Time, Opt("-T --timeout", "Time without progress that fails a case.", unit=TIME, most=LONGEST)]
Out = Annotated[
    Path | str | None,
    Opt(
        "-o --out",
        "Folder to make for run file and plots.",
        metavar="FOLDER",
        library="New folder in which the run is stored; without it nothing is stored.",
    ),
]
