"""Measures, explains and predicts collective communication; docs/files.md is the map.

Its functions do what the commands of their names do, and are imported at their first use (docs/runs.md):

* `read` and `import_` return runs; `sweep`, `explain`, `step`, `startup`, `pairs` and `verify` measure them.
* `check`, `compare`, `plot` and `report` take runs; `check` and `scan` also measure, and judge.
* `predict` returns a run of a described system, `train` a plan of training, and `topo` a machine.
"""

from importlib import import_module

__version__ = "0.2.0.dev0"


def __getattr__(name: str) -> object:
    """Import a function of the library when it is first used: NumPy and Matplotlib take their time."""
    if name == "__all__" or not name.startswith("__"):  # Python itself looks for other names with underscores
        library = import_module(f"{__name__}.requests")
        if name == "__all__":
            return sorted(library.functions())
        if name in library.functions() or name in library.functions(earlier=True):
            globals()[name] = library.function(name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__getattr__("__all__")])  # type: ignore[misc]
