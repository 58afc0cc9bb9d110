"""Measures, explains and predicts collective communication; docs/files.md is the map.

As a library: `read` a run, `sweep` and `predict` make one, `compare`, `diagnose` and `plot` take them.  They do what
the commands of these names do (docs/library.md), and are imported once one of them is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collbench.api.comparing import compare
    from collbench.api.diagnosing import diagnose
    from collbench.api.drawing import plot
    from collbench.api.predicting import predict
    from collbench.api.reading import read
    from collbench.api.sweeping import sweep

__version__ = "0.2.0.dev0"
__all__ = ["compare", "diagnose", "plot", "predict", "read", "sweep"]

_PLACES = {
    "compare": "comparing",
    "diagnose": "diagnosing",
    "plot": "drawing",
    "predict": "predicting",
    "read": "reading",
    "sweep": "sweeping",
}


def __getattr__(name: str) -> object:
    """A function of the library, imported when it is first wanted: NumPy and Matplotlib take their time."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.api.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
