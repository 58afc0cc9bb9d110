"""`collbench.sweep`: measure collectives, or predict them."""

from collbench.requests.declared import takes
from collbench.requests.sessions import measuring_session, predicting_session, run_to_end
from collbench.requests.sweeps import SweepRequest, find_system
from collbench.requests.words import places
from collbench.runfile.store import Run


@takes(SweepRequest)
def sweep(request: SweepRequest) -> Run:
    """Measure collectives over a sweep of message sizes, as `collbench sweep` does, or predict them on a system.

    Returns:
        The run: its header and a result for every case and implementation.  A case that failed is a result.

    Raises:
        UsageError: Something does not exist or cannot be.
        Unsupported: No implementation carries out any of the cases.
        PlatformError: The hardware cannot do it.
        StorageError: The run can no longer be written.

    >>> import collbench
    >>> run = collbench.sweep("allreduce", on="dgx-h100", impl="nccl", minbytes="1M", maxbytes="64M")
    >>> [(row["nbytes"], row["seconds"] < 1e-3) for row in run.rows()]
    [(1048576, True), (4194304, True), (16777216, True), (67108864, True)]

    """
    if request.measured:
        return run_to_end(measuring_session(request).session, request.each)
    return run_to_end(predicting_session(find_system(request.on, places()), request), request.each)
