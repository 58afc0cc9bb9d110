"""Matplotlib, imported without the settings that lie in the working folder: it would take them for the user's."""

import importlib.util
from pathlib import Path
from types import ModuleType

from collbench.host.isolation import outside


def matplotlib() -> ModuleType:
    """The library; whatever draws calls this before it imports parts of it."""
    found = importlib.util.find_spec("matplotlib")
    assert found
    assert found.origin
    with outside(Path(found.origin).parent):
        import matplotlib

    return matplotlib
