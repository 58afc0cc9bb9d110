"""The prediction of a single case, at which tests look more often than at curves."""

from collbench.cases import Case
from collbench.model.equation import Calibration
from collbench.model.predict import curve
from collbench.results import Prediction
from collbench.topology.system import System


def predict(
    system: System, case: Case, implementation: str = "nccl", calibration: Calibration | None = None
) -> Prediction:
    """Return the expected time of one case, with a band; Unsupported if the implementation cannot do it there."""
    return curve(system, [case], implementation, calibration)[0]
