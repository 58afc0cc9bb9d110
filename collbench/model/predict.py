"""Seconds, with a band, that a collective should take on a described system: the front of the model."""

from collections.abc import Sequence

import numpy as np

from collbench.algorithms import implementations
from collbench.cases import Case
from collbench.errors import Unsupported, unknown
from collbench.model import calibrate, choice, ladder
from collbench.model.bands import band
from collbench.model.equation import DEFAULT, PER_OCTAVE, SIZES, Calibration, Terms
from collbench.model.evidence import proven
from collbench.results import Note, Prediction
from collbench.topology.system import System

RUNG = (0.5, 2.0)
"""For hand-written rungs: an estimate, in which all lies that is published of their algorithms (evidence.py)."""


def predict(
    system: System, case: Case, implementation: str = "nccl", calibration: Calibration | None = None
) -> Prediction:
    """Seconds of one case, with a band; Unsupported if the implementation cannot do it there."""
    return curve(system, [case], implementation, calibration)[0]


def curve(
    system: System, cases: Sequence[Case], implementation: str = "nccl", calibration: Calibration | None = None
) -> list[Prediction]:
    """The same for cases that differ in size only, at once; their ranks are a part of the system.

    Unsupported if the implementation refuses one of them (`one-shot-ll` takes no large one): ask for each by itself.
    A calibration, by default the one that the system's file names, moves `nccl` only: it says nothing of kernels that
    are not NCCL's.
    """
    if not cases:
        return []
    part = system.part(cases[0].ranks)
    if implementation == "nccl":
        return _library(part, cases, calibration or calibrate.calibration_of(system))
    if implementation != "auto" and implementation not in ladder.ladder():
        if implementation in implementations():
            raise Unsupported(f"{implementation} has no model; there is one of nccl and of every rung")
        raise unknown("implementation", implementation, ("nccl", "auto", *ladder.ladder()))
    return [_rung(part, case, implementation) for case in cases]


def _library(system: System, cases: Sequence[Case], calibration: Calibration | None) -> list[Prediction]:
    terms = choice.terms(system, cases[0].collective.name)
    sizes = np.array([max(1, case.nbytes) for case in cases], np.float64)
    times = terms.at(sizes, calibration or DEFAULT)
    predictions = []
    for case, seconds in zip(cases, times.tolist(), strict=True):
        low, high = band(system, case.collective.name, case.nbytes, calibration is not None)
        algorithm, protocol = _names(terms, case.nbytes)
        predictions.append(Prediction(case, "nccl", seconds, low * seconds, high * seconds, algorithm, protocol))
    return predictions


def _rung(system: System, case: Case, name: str) -> Prediction:
    seconds, floor, rung = ladder.rung_time(system, case, name)
    note = Note(picked=rung if name == "auto" else "", bound=not proven(system, rung))
    return Prediction(case, name, seconds, max(floor, RUNG[0] * seconds), RUNG[1] * seconds, note=note)


def _names(terms: Terms, nbytes: int) -> tuple[str, str]:
    """What the library chooses at the nearest size of the curve that is not above."""
    place = min(int(PER_OCTAVE * np.log2(max(1, nbytes)) + 1e-9), len(SIZES) - 1)
    return terms.algorithms[place], terms.protocols[place]
