"""Parameters shared by several requests, and `collbench.read`.

Each is an Annotated type with its options, help and limits.
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
LONGEST = 1e7  # seconds: four months
_SLOWEST = 1000.0  # largest factor of a slow rank


def places() -> tuple[str, ...]:
    """Return the values of --on for measured ranks: `auto` and every platform."""
    return ("auto", *platforms())


_Count = partial(Opt, metavar="N", least=1, most=MOST_RANKS)
OfMachine = partial(Opt, "--on", metavar="SYSTEM|FILE.toml", complete="topology.files.names")
"""Machine of the runs: the help text, and the default."""
RunsNodes = Annotated[int | None, _Count("--nodes", "Nodes of the ranks.", "as few as they fill")]
Anywhere = Annotated[
    str,
    Opt(
        "--on",
        "Where ranks run; for a described system a model predicts, and nothing runs.",
        metavar="|".join((*places(), "SYSTEM", "FILE.toml")),
        complete="topology.files.names",
    ),
]
Here = Annotated[str, Opt("--on", "Where ranks run.", metavar="|".join(places()))]
Ops = Annotated[
    Names, Opt("--op", "Collectives, by the names of `collbench list`.", unit=NAMES, complete="collectives.COLLECTIVES")
]
Impls = Annotated[
    Names,
    Opt(
        "--impl",
        "Implementations, or a group of them: library, ladder, narrow, paths.",
        metavar="NAME[,NAME]|library|ladder|narrow|paths|all",
        unit=NAMES,
        complete="algorithms.implementations",
    ),
]
Ranks = Annotated[int | None, _Count("-g --ranks --ngpus", "Number of ranks.", "every GPU, and 2 on a CPU")]
RanksOfSystem = Annotated[int | None, _Count("-g --ranks --ngpus", "Number of ranks.", "all GPUs of the system")]
Nodes = Annotated[int | None, _Count("--nodes", "Nodes of a described system.", "as described, mostly 1")]
RanksOfNode = Annotated[int | None, _Count("--ranks-per-node", "GPUs to use per node of a described system.", "all")]
Smallest = Annotated[Size, Opt("-b --minbytes", "Smallest message.", unit=SIZE, least=1)]
Largest = Annotated[Size | None, Opt("-e --maxbytes", "Largest message.", "what memory allows up to 128M", unit=SIZE)]
LargestPredicted = Annotated[Size | None, Opt("-e --maxbytes", "Largest message.", "8G", unit=SIZE)]
Factor = Annotated[float, Opt("-f --stepfactor", "Factor between sizes.")]
SizeStep = Annotated[
    Size | None, Opt("-i --stepbytes", "Bytes between sizes, instead of a factor.", unit=SIZE, least=1)
]
Datatypes = Annotated[Names, Opt("-d --datatype", "Element types.", unit=NAMES, complete="datatypes.DATATYPES")]
Reductions = Annotated[Names, Opt("--redop", "Reductions.", unit=NAMES, complete="datatypes.REDUCTIONS")]
Root = Annotated[int, Opt("-r --root", "Root rank of collectives that have one.")]
InPlace = Annotated[bool, Opt("--in-place", "Use one buffer for sending and receiving.")]
Timeout = Annotated[
    Time, Opt("-T --timeout", "Time without progress after which a case fails.", unit=TIME, most=LONGEST)
]
Out = Annotated[
    Path | str | None,
    Opt(
        "-o --out",
        "New folder for run file and plots.",
        metavar="FOLDER",
        library="New folder in which the run is stored; without it nothing is stored.",
    ),
]
RunsMachine = Annotated[str | None, OfMachine("The machine: a preset or FILE.toml.", "as the run file says")]


def parse_slow(texts: Sequence[str], ranks: int, usual_factor: float) -> tuple[tuple[int, float], ...]:
    """Return the rank and its factor of computing from `1` or `1:1.5`."""
    slow: dict[int, float] = {}
    for text in texts:
        word, colon, factor = text.strip().partition(":")
        if not word.isdecimal() or not int(word[:9]) < ranks:
            raise UsageError(f"--slow-rank {text} is no rank of {ranks}; choose from 0 to {ranks - 1}, such as 0:1.5")
        if int(word) in slow:
            raise UsageError(f"--slow-rank {int(word)} is given twice; give each rank once")
        match = QUANTITY.fullmatch(factor if colon else f"{usual_factor}")
        number = float(match[1]) if match and not match[2] else 0.0
        if not 1 <= number <= _SLOWEST:
            raise UsageError(f"--slow-rank {text} has no valid factor; give one from 1 to {_SLOWEST:g}, such as 0:1.5")
        slow[int(word)] = number
    return tuple(sorted(slow.items()))


RunOrPath = Run | Path | str
"""A run, or the path of its file or folder."""


def read(path: Path | str) -> Run:
    """Read a run file, or the one in a folder: header, typed results, and whether it is complete.

    `run.results` has one result per row: Measurement, Prediction, Reported, Skipped, Failed, or a type for steps,
    training or explanations.  Times are in seconds, sizes in bytes, rates in bytes per second.  `run.rows()` returns
    flat records, `run.to_pandas()` and `run.to_arrow()` a table if pandas or pyarrow is installed.

    Args:
        path: The run file, or its folder.

    Returns:
        The run.  A warning names rows that cannot be read; `run.left_out` contains them.

    Raises:
        RunFileError: The file is no run file; the message names file and line.

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
    """Return a run or several, read from their files where they are paths."""
    return [as_run(run) for run in ([runs] if isinstance(runs, Run | Path | str) else runs)]
