"""Runs that a check found right, kept by the machine that they are of: what its later checks are compared with."""

import hashlib
import os
import re
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

from collbench.errors import CollbenchError, UsageError
from collbench.results import Result
from collbench.runfile.header import Header
from collbench.runfile.listing import list_runs
from collbench.runfile.store import Run, Writer, read

MOST = 3
"""Runs that are kept of a machine.  The first good ones count: were each good run the measure of the next, a machine
could grow slower by a little every day, and no check would see it."""


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
        raise UsageError("no home folder to keep good runs in; set COLLBENCH_STATE to a folder") from None


def folder_of(header: Header, implementations: Sequence[str]) -> Path:
    """Return the folder of a machine's good runs: by host, topology, collectives, element types and implementations.

    Versions of libraries and drivers are no part of it: what an upgrade made slower must be found.
    """
    sweep = header.sweep
    marks = (header.environment.host, header.topology.name, sweep.collectives, sweep.dtypes, tuple(implementations))
    digest = hashlib.sha256(repr(marks).encode()).hexdigest()[:12]
    words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{header.environment.host}-{'-'.join(sweep.collectives[:2])}")
    return state_folder() / "checks" / f"{words[:60]}-{digest}"


def kept_runs(folder: Path) -> list[Run]:
    """Return the runs that are kept in a folder, the latest first."""
    return [read(entry.path) for entry in list_runs(folder) if entry.whole]


def keep(folder: Path, header: Header, results: Iterable[Result], renew: bool = False) -> Path | None:
    """Keep a run with the good ones of its machine; with `renew` instead of them.

    Returns:
        Its path; None where as many are kept as count.

    Raises:
        UsageError: The folder cannot be written to.

    """
    there = list_runs(folder)
    if len(there) >= MOST and not renew:
        return None
    name = re.sub(r"[^0-9T]", "", header.started.partition("+")[0])
    try:
        with Writer(folder / f"{name}-{uuid.uuid4().hex[:8]}") as writer:
            writer.header(header)
            for result in results:
                writer.append(result)
            writer.end(header.started, 0)
    except CollbenchError as error:
        raise UsageError(f"{error}; or set COLLBENCH_STATE to a folder that can be written to") from None
    if renew:
        for entry in there:
            entry.path.unlink(missing_ok=True)
    return writer.path
