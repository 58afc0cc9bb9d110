"""Runs of a machine that a check found right: the baseline of its later checks."""

import hashlib
import os
import re
import uuid
from collections.abc import Iterable
from pathlib import Path

from collbench.errors import CollbenchError, UsageError
from collbench.results import Result
from collbench.runfile.header import Header
from collbench.runfile.listing import list_runs
from collbench.runfile.store import Writer

MOST = 3
"""Runs of a baseline.  The first good ones count: were each good run the measure of the next, a machine could grow
slower by a little every day, and no check would see it."""


def state_folder() -> Path:
    """Return $COLLBENCH_STATE, else collbench under the user's folder of state; it need not exist.

    Raises:
        UsageError: Nobody knows where this user's home is.

    """
    if chosen := os.environ.get("COLLBENCH_STATE"):
        return Path(chosen)
    from platformdirs import user_state_path

    try:
        return user_state_path("collbench", appauthor=False).expanduser()
    except RuntimeError:
        raise UsageError("no home folder to store good runs in; set COLLBENCH_STATE to a folder") from None


def folder_of(header: Header) -> Path:
    """Return the folder of a machine's baseline: by host, topology, collectives, element types and implementations.

    Versions of libraries and drivers are no part of it: what an upgrade made slower must be found.
    """
    host, sweep = header.environment.host, header.sweep
    marks = (host, header.topology.name, sweep.collectives, sweep.dtypes, sweep.implementations)
    digest = hashlib.sha256(repr(marks).encode()).hexdigest()[:12]
    words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{host}-{'-'.join(sweep.collectives[:2])}")
    return state_folder() / "checks" / f"{words[:60]}-{digest}"


def add_to_baseline(folder: Path, header: Header, results: Iterable[Result]) -> Path | None:
    """Store a run with the baseline of its machine, and return its path; None where the baseline has MOST runs.

    Raises:
        UsageError: The folder cannot be written to.

    """
    if len(list_runs(folder)) >= MOST:
        return None
    started = re.sub(r"[^0-9T]", "", header.started.partition("+")[0])
    try:
        return store(folder / f"{started}-{uuid.uuid4().hex[:8]}", header, results)
    except CollbenchError as error:
        raise UsageError(f"{error}; or set COLLBENCH_STATE to a folder that can be written to") from None


def store(folder: Path, header: Header, results: Iterable[Result], status: int = 0) -> Path:
    """Write a whole run at once into a new folder, and return its path; UsageError if it cannot be written."""
    with Writer(folder) as writer:
        writer.header(header)
        for result in results:
            writer.append(result)
        writer.end(header.started, status)
    return writer.path
