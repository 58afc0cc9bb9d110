"""Measures, explains and predicts collective communication; docs/files.md is the map.

As a library: `read` and `import_` return runs, `sweep` and `predict` make them, `compare`, `diagnose`, `plot` and
`report` take them, and `train` plans a training run.  They do what the commands of these names do (docs/runs.md), and
are imported once one of them is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collbench.api.checking import check
    from collbench.api.importing import import_
    from collbench.api.measuring import predict, sweep
    from collbench.api.reading import compare, diagnose, plot, read
    from collbench.api.reporting import report
    from collbench.api.training import train

__version__ = "0.2.0.dev0"
__all__ = ["check", "compare", "diagnose", "import_", "plot", "predict", "read", "report", "sweep", "train"]

_MODULES = {
    "check": "checking",
    "compare": "reading",
    "diagnose": "reading",
    "import_": "importing",
    "plot": "reading",
    "predict": "measuring",
    "read": "reading",
    "report": "reporting",
    "sweep": "measuring",
    "train": "training",
}


def __getattr__(name: str) -> object:
    """Import a function of the library when it is first used: NumPy and Matplotlib take their time."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    function = getattr(import_module(f"{__name__}.api.{_MODULES[name]}"), name)
    globals()[name] = import_module(f"{__name__}.api").of_library(function)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
