"""A sweep as a function: `collbench sweep` prepares its session here, and `collbench.sweep` carries one out."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from collbench.api.carrying import Size, as_options, carried_out
from collbench.api.mpi import mpi_libraries, with_libraries
from collbench.api.wanted import cut_short, make_sweep, of_described
from collbench.cases import Sweep
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.measure.session import Session
from collbench.platforms import platforms
from collbench.results import Result
from collbench.runfile.store import Run


class Prepared(NamedTuple):
    """A session that nobody has entered yet, and what its user should know of it."""

    session: Session
    remarks: list[str]


def prepare(options: Mapping[str, Any], folder: Callable[[Sweep], Path | None]) -> Prepared:
    """The session of a sweep that is measured; UsageError for words that make none.

    `options` are those of `collbench sweep`, by their long names; `folder` says where the run is stored.
    """
    if option := of_described(options):
        raise UsageError(f"{option} goes with a described system, and --on {options['on']} is none; leave it out")
    joined = launched()
    libraries = mpi_libraries(options, joined)
    platform, sweep = make_sweep(options, joined, max(1, len(libraries)))
    remarks = [] if options["maxbytes"] else list(filter(None, [cut_short(sweep, platform)]))
    ranks, sweep = with_libraries(platform, sweep, libraries)
    return Prepared(Session(ranks, sweep, joined, folder(sweep)), remarks)


def sweep(
    op: str | Sequence[str] = "allreduce",
    *,
    impl: str | Sequence[str] = "all",
    on: str = "auto",
    ranks: int | None = None,
    nodes: int | None = None,
    ranks_per_node: int | None = None,
    minbytes: Size = 8,
    maxbytes: Size | None = None,
    stepfactor: float = 4.0,
    stepbytes: Size | None = None,
    iters: int | None = None,
    warmup: int = 1,
    datatype: str | Sequence[str] = "float",
    redop: str | Sequence[str] = "sum",
    root: int = 0,
    in_place: bool = False,
    cudagraph: bool = True,
    budget: float = 0.5,
    timeout: float = 30.0,
    spin: str = "auto",
    bind: str = "core",
    starts: int | None = None,
    mpi: str | Sequence[str] = "",
    out: Path | str | None = None,
    each: Callable[[Result], object] | None = None,
) -> Run:
    """Measure collectives over a sweep of message sizes, as `collbench sweep` does, or predict them on a system.

    Names are those of the command line, one, several in a sequence, or "all"; sizes are in bytes (`Size`), `budget` and
    `timeout` in seconds.  `on` is "auto", a platform, or a described system, on which nothing runs.  The run is stored
    in the new folder `out`; without one nothing is.  `each` is called with every result as it arrives.

    Errors: UsageError for what does not exist or cannot be, PlatformError for hardware that cannot do it, StorageError
    where the run can no longer be written.  A case that failed is a row of the run, and no error.

    >>> import collbench
    >>> run = collbench.sweep("allreduce", on="dgx-h100", impl="nccl", minbytes="1M", maxbytes="64M")
    >>> [(row["nbytes"], row["seconds"] < 1e-3) for row in run.rows()]
    [(1048576, True), (4194304, True), (16777216, True), (67108864, True)]
    """
    options, folder = as_options(locals()), Path(out) if out else None
    if on not in ("auto", *platforms()):
        from collbench.api import predicting as model  # which takes as long to load as all the rest

        system = model.find_system(on)
        assert system
        return carried_out(model.predicting(system, options, folder), each)
    return carried_out(prepare(options, lambda _: folder).session, each)
