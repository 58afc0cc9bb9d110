"""`collbench.predict`: what collectives should take on a described system."""

from collbench.requests.declared import takes
from collbench.requests.sessions import predicting_session, run_to_end
from collbench.requests.sweeps import PredictRequest, find_system
from collbench.runfile.store import Run


@takes(PredictRequest)
def predict(request: PredictRequest) -> Run:
    """Predict what collectives should take on a described system, as `collbench predict` does; nothing runs.

    Returns:
        A run of Predictions: `seconds`, and `low` to `high`, between which nine of ten measurements should lie.

    Raises:
        UsageError: Something does not exist, or is more than the system has.

    >>> import collbench
    >>> run = collbench.predict("dgx-h100", nodes=4, minbytes="128M", maxbytes="128M")
    >>> row = run.results[0]
    >>> row.algorithm, row.low < row.seconds < row.high
    ('nvlstree', True)

    """
    return run_to_end(predicting_session(find_system(request.system), request.sweep, what_ifs=request.what_if))
