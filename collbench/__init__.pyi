# Written by `python -m tools.pages stubs` from the records of the commands.
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # every module imports the package, so type checkers are to come to these last
    from collbench.commands.check.library import check as check
    from collbench.commands.check.library import diagnose as diagnose
    from collbench.commands.compare.command import compare as compare
    from collbench.commands.explain.command import explain as explain
    from collbench.commands.formats.importing import import_ as import_
    from collbench.commands.plot.command import plot as plot
    from collbench.commands.predict.command import predict as predict
    from collbench.commands.report.command import report as report
    from collbench.commands.scan.library import scan as scan
    from collbench.commands.scan.matrices import pairs as pairs
    from collbench.commands.startup.command import init as init
    from collbench.commands.startup.command import startup as startup
    from collbench.commands.step.command import step as step
    from collbench.commands.sweep.command import sweep as sweep
    from collbench.commands.topo.command import topo as topo
    from collbench.commands.train.library import train as train
    from collbench.commands.verify.command import verify as verify
    from collbench.requests.words import read as read

__all__ = [
    "check",
    "compare",
    "explain",
    "import_",
    "pairs",
    "plot",
    "predict",
    "read",
    "report",
    "scan",
    "startup",
    "step",
    "sweep",
    "topo",
    "train",
    "verify",
]
__version__: str
