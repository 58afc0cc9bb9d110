"""How far from a prediction nine of ten measurements lie: data, printed by `python -m tests.model.report`.

(low, high) as factors on the predicted time, the 5 % and 95 % quantiles of measured over predicted on machines that
were left out of the fit, by regime and size.
"""

from collections.abc import Mapping

SMALL, LARGE = 64 << 10, 64 << 20
"""Bytes below which latency decides, and above which bandwidth does."""
REGIMES = ("one node", "nodes over InfiniBand", "nodes over others", "pcie")
RUNG = (0.5, 2.0)
"""For hand-written rungs, whose constants are published figures of one kind of GPU; an estimate."""

BANDS: Mapping[str, tuple[tuple[float, float], ...]] = {
    "one node": ((0.76, 1.39), (0.75, 1.5), (0.89, 1.58)),
    "nodes over InfiniBand": ((0.68, 2.15), (0.66, 2.71), (0.83, 3.0)),
    "nodes over others": ((0.53, 2.76), (0.64, 3.12), (0.8, 2.08)),
    "pcie": ((0.67, 1.09), (0.63, 1.55), (0.84, 1.67)),
}
"""Nothing of the machine was measured."""
CALIBRATED: Mapping[str, tuple[tuple[float, float], ...]] = {
    "one node": ((0.95, 1.06), (0.88, 1.32), (0.9, 1.38)),
    "nodes over InfiniBand": ((0.95, 1.71), (0.88, 1.58), (0.93, 1.12)),
    "nodes over others": ((0.82, 1.59), (0.51, 1.47), (0.82, 1.2)),
    "pcie": ((0.87, 1.12), (0.9, 1.35), (0.95, 1.1)),
}
"""Five sizes of the curve were."""
