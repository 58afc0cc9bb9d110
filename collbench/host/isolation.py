"""Protection against executing code from the working folder.

An empty or relative entry in the shell's or Python's search path stands for the working folder; `python -m` also adds
it. Absolute entries are deliberate and stay.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

_SEARCH_PATHS = ("PATH", "PYTHONPATH")
# Settings folders; the XDG specification ignores relative ones.
_SETTINGS = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")


def isolated(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without paths that lead to the working folder."""
    changed = {name: value for name, value in environment.items() if name not in _SETTINGS or Path(value).is_absolute()}
    for name in _SEARCH_PATHS:
        folders = changed.pop(name, "").split(os.pathsep)
        if absolute := list(filter(os.path.isabs, folders)):
            changed[name] = os.pathsep.join(absolute)
    return {"PATH": os.defpath.removeprefix(":"), **changed, "PYTHONSAFEPATH": "1"}


def isolate() -> str:
    """Isolate this process and its future imports; return what was too late to prevent, or ""."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    foreign = {entry for entry in entries if not Path(entry).is_absolute()}
    with contextlib.suppress(OSError):  # the working folder may be gone
        foreign |= {str(Path.cwd() / entry) for entry in foreign} - set(entries)
    sys.path[:] = [entry for entry in sys.path if entry and entry not in foreign]
    changed = isolated(os.environ)
    for name in os.environ.keys() - changed.keys():
        del os.environ[name]
    os.environ.update(changed)
    if entries == [""] or not foreign or sys.flags.ignore_environment:
        return ""
    return "PYTHONPATH has an empty or relative entry, by which Python runs what lies in the working folder; " + (
        "collbench takes it out, but comes second: give absolute entries"
    )


@contextlib.contextmanager
def outside(folder: Path) -> Iterator[None]:
    """Change the working folder inside the context, for a library that reads its settings there."""
    here = os.open(".", os.O_PATH | os.O_DIRECTORY)
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(here)
        os.close(here)
