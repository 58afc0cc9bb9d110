"""Measures, explains and predicts collective communication; docs/files.md is the map.

As a library: `read` and `import_` return runs, `sweep` and `predict` make them, `compare`, `diagnose`, `plot` and
`report` take them, and `train` plans a training run.  They do what the commands of these names do (docs/runs.md), and
are imported once one of them is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collbench.commands.check.diagnose import diagnose as diagnose
    from collbench.commands.check.library import check as check
    from collbench.commands.compare.command import compare as compare
    from collbench.commands.formats.importing import import_ as import_
    from collbench.commands.init.command import init as init
    from collbench.commands.plot.command import plot as plot
    from collbench.commands.predict.command import predict as predict
    from collbench.commands.report.command import report as report
    from collbench.commands.sweep.command import sweep as sweep
    from collbench.commands.train.library import train as train
    from collbench.requests.words import read as read

__version__ = "0.2.0.dev0"


def __getattr__(name: str) -> object:
    """Import a function of the library when it is first used: NumPy and Matplotlib take their time."""
    if name == "__all__" or not name.startswith("__"):  # Python itself looks for other names with underscores
        library = import_module(f"{__name__}.requests")
        if name == "__all__":
            return sorted(library.functions())
        if name in library.functions():
            globals()[name] = library.function(name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__getattr__("__all__")])  # type: ignore[misc]
