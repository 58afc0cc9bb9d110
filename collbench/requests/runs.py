"""`collbench.read`, and what other functions of the library take as a run."""

from collections.abc import Sequence
from pathlib import Path

from collbench.runfile import store
from collbench.runfile.store import Run

RunOrPath = Run | Path | str
"""A run, or where its file or the folder of it is."""


def read(path: Path | str) -> Run:
    """Read a run file, or the one in a folder: header, typed results, and whether it is complete.

    `run.results` has a Measurement, Prediction, Reported, Skipped or Failed a row, and others for steps, training and
    explanations: times in seconds, sizes in bytes, rates in bytes per second.  `run.rows()` has them as flat records,
    `run.to_pandas()` and `run.to_arrow()` as a table, where pandas or pyarrow is installed.

    Args:
        path: The run file, or its folder.

    Returns:
        The run.  Rows that cannot be read are warned of, and stand in `run.left_out`.

    Raises:
        RunFileError: This is no run file; the message names file and line.

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
