"""Parameters that several requests share, each an Annotated type.

Also `collbench.read`, and the arguments that library functions accept as a run.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from collbench.errors import UsageError
from collbench.platforms import platforms
from collbench.requests.declared import NAMES, SIZE, TIME, Opt
from collbench.runfile import store
from collbench.runfile.store import Run
from collbench.units import QUANTITY

Names = str | Sequence[str]
"""One name, several with commas or in a sequence, or "all"."""
Size = int | str
"""Bytes, or a size as on the command line: 8, "64K", "1.5G"; suffixes are binary."""
Share = float | str
"""A number between 0 and 1, or a share as on the command line: 0.05, "5%"."""
Time = float | str
"""Seconds, or a duration as on the command line: 0.5, "500ms", "2min"."""

MOST_RANKS = 2**30  # of a described system
LONGEST = 1e7  # seconds, about four months
_SLOWEST = 1000.0  # largest factor of `--slow-rank`


def places() -> tuple[str, ...]:
    """Return `auto` and the names of all platforms."""
    return ("auto", *platforms())


_Count = partial(Opt, metavar="N", least=1, most=MOST_RANKS)
OfMachine = partial(Opt, "--on", metavar="SYSTEM|FILE.toml", complete="topology.files.names")
"""The machine of runs; takes the help text and the default."""
RunsNodes = Annotated[int | None, _Count("--nodes", "Number of nodes.", "the fewest that hold the ranks")]
Anywhere = Annotated[
    str,
    Opt(
        "--on",
        "Where the ranks run; for a described system, a model predicts the times.",
        metavar="|".join((*places(), "SYSTEM", "FILE.toml")),
        complete="topology.files.names",
    ),
]
Here = Annotated[str, Opt("--on", "Where the ranks run.", metavar="|".join(places()))]
Ops = Annotated[
    Names, Opt("--op", "Collectives, by the names of `collbench list`.", unit=NAMES, complete="collectives.COLLECTIVES")
]
Impls = Annotated[
    Names,
    Opt(
        "--impl",
        "Names, or library, ladder (hand-written), narrow (inexact), paths (of a library); all: library and ladder.",
        metavar="NAME[,NAME]|library|ladder|narrow|paths|all",
        unit=NAMES,
        complete="algorithms.implementations",
    ),
]
Ranks = Annotated[int | None, _Count("-g --ranks --ngpus", "Number of ranks.", "every GPU, or 2 on a CPU")]
RanksToCheck = Annotated[int | None, _Count("-g --ranks --ngpus", "Number of ranks.", "every GPU, or 4 on a CPU")]
RanksOfSystem = Annotated[int | None, _Count("-g --ranks --ngpus", "Number of ranks.", "every GPU of the system")]
Nodes = Annotated[int | None, _Count("--nodes", "Number of nodes of a described system.", "as described, usually 1")]
RanksOfNode = Annotated[
    int | None, _Count("--ranks-per-node", "GPUs to use on each node of a described system.", "all")
]
Smallest = Annotated[Size, Opt("-b --minbytes", "Smallest message size.", unit=SIZE, least=1)]
Largest = Annotated[Size | None, Opt("-e --maxbytes", "Largest message size.", "128M if it fits in memory", unit=SIZE)]
LargestPredicted = Annotated[Size | None, Opt("-e --maxbytes", "Largest message size.", "8G", unit=SIZE)]
Factor = Annotated[float, Opt("-f --stepfactor", "Factor between sizes.")]
SizeStep = Annotated[
    Size | None, Opt("-i --stepbytes", "Step between sizes in bytes, instead of a factor.", unit=SIZE, least=1)
]
Datatypes = Annotated[Names, Opt("-d --datatype", "Element types.", unit=NAMES, complete="datatypes.DATATYPES")]
Reductions = Annotated[Names, Opt("--redop", "Reductions.", unit=NAMES, complete="datatypes.REDUCTIONS")]
Root = Annotated[int, Opt("-r --root", "Root rank of rooted collectives.")]
InPlace = Annotated[bool, Opt("--in-place", "Send from and receive into the same buffer.")]
Timeout = Annotated[Time, Opt("-T --timeout", "Fail a case after this time without progress.", unit=TIME, most=LONGEST)]
Out = Annotated[
    Path | str | None,
    Opt(
        "-o --out",
        "New folder for run file and plots.",
        metavar="FOLDER",
        library="New folder for the run; by default the run is not stored.",
    ),
]
RunsMachine = Annotated[str | None, OfMachine("The machine: a preset or FILE.toml.", "the machine in the run file")]


def parse_slow(texts: Sequence[str], ranks: int, usual_factor: float) -> tuple[tuple[int, float], ...]:
    """Return ranks and their slowdown factors from texts such as `1` or `1:1.5`."""
    slow: dict[int, float] = {}
    for text in texts:
        word, colon, factor = text.strip().partition(":")
        if not word.isdecimal() or not int(word[:9]) < ranks:
            raise UsageError(f"--slow-rank {text} is no rank of {ranks}; choose from 0 to {ranks - 1}, such as 0:1.5")
        if int(word) in slow:
            raise UsageError(f"--slow-rank {int(word)} appears twice; give each rank once")
        match = QUANTITY.fullmatch(factor if colon else f"{usual_factor}")
        number = float(match[1]) if match and not match[2] else 0.0
        if not 1 <= number <= _SLOWEST:
            raise UsageError(f"--slow-rank {text} has no valid factor; give one from 1 to {_SLOWEST:g}, such as 0:1.5")
        slow[int(word)] = number
    return tuple(sorted(slow.items()))


RunOrPath = Run | Path | str
"""A run, or the path of its file or folder."""


def read(path: Path | str) -> Run:
    """Read a run file: header, typed results, and whether the run is complete.

    `run.results` holds one Measurement, Prediction, Reported, Skipped or Failed for each row, and other classes for
    steps, training and explanations. Times are in seconds, sizes in bytes, rates in bytes per second. `run.rows()`
    returns flat records; `run.to_pandas()` and `run.to_arrow()` return a table and need pandas or pyarrow.

    Args:
        path: The run file, or its folder.

    Returns:
        The run. Unreadable rows cause a warning and are listed in `run.left_out`.

    Raises:
        RunFileError: The file is not a run file; the message names file and line.

    >>> import collbench
    >>> run = collbench.read("results/cpu-2-ranks")
    >>> run.header.topology.ranks, run.complete
    (2, True)
    >>> sorted({row["implementation"] for row in run.rows() if row["nbytes"] == 8})[:2]
    ['auto', 'mpi']

    """
    return store.read(Path(path))


def as_run(run: RunOrPath) -> Run:
    """Return the run, read from its file if it is a path."""
    return run if isinstance(run, Run) else read(run)


def runs_of(runs: RunOrPath | Sequence[RunOrPath]) -> list[Run]:
    """Return one or several runs as a list; paths are read from their files."""
    return [as_run(run) for run in ([runs] if isinstance(runs, Run | Path | str) else runs)]
