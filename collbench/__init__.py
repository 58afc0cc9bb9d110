"""Measures, explains and predicts collective communication; docs/files.md is the map.

As a library: `read` and `import_` return runs, `sweep` and `predict` make them, `check`, `compare`, `plot` and
`report` take them, and `train` plans a training run.  They do what the commands of these names do (docs/runs.md), and
are imported once one of them is asked for.
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
