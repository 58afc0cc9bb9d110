"""Runs as the functions of this package take them: a run that was read, or the path of one."""

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

    Errors: RunFileError, with file and line, for what is no run file; rows that cannot be read are warned of, and stand
    in `run.left_out`.

    >>> import collbench
    >>> run = collbench.read("results/cpu-2-ranks")
    >>> run.header.topology.ranks, run.complete
    (2, True)
    >>> sorted({row["implementation"] for row in run.rows() if row["nbytes"] == 8})[:3]
    ['auto', 'mpi', 'mpi-python']
    """
    return store.read(Path(path))


def as_run(run: RunOrPath) -> Run:
    """The run itself, read if that is needed."""
    return run if isinstance(run, Run) else read(run)
