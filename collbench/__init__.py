"""Measures, explains and predicts collective communication; docs/files.md is the map.

As a library: `read` a run, `sweep` and `predict` make one, `compare`, `diagnose` and `plot` take them.  They do what
the commands of these names do (docs/runs.md), and are imported once one of them is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collbench.api.checking import check
    from collbench.api.measuring import predict, sweep
    from collbench.api.reading import compare, diagnose, plot, read

__version__ = "0.2.0.dev0"
__all__ = ["check", "compare", "diagnose", "plot", "predict", "read", "sweep"]

_MODULES = {
    "check": "checking",
    "compare": "reading",
    "diagnose": "reading",
    "plot": "reading",
    "predict": "measuring",
    "read": "reading",
    "sweep": "measuring",
}


def __getattr__(name: str) -> object:
    """Import a function of the library when it is first used: NumPy and Matplotlib take their time."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.api.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
