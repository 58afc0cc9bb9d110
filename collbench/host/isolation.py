"""Nothing in the working folder is executed: not by this command, and not by anything that it starts.

The shell's and Python's search paths hold the working folder where they have an empty or a relative entry, and Python's
also where it was started with -m.  An absolute entry is somebody's decision, and stays.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

_SEARCH_PATHS = ("PATH", "PYTHONPATH")
# Folders of settings; the XDG specification has relative ones ignored.
_SETTINGS = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")


def isolated(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what leads to the working folder."""
    changed = {name: value for name, value in environment.items() if name not in _SETTINGS or Path(value).is_absolute()}
    for name in _SEARCH_PATHS:
        folders = changed.pop(name, "").split(os.pathsep)
        if absolute := list(filter(os.path.isabs, folders)):
            changed[name] = os.pathsep.join(absolute)
    return {"PATH": os.defpath.removeprefix(":"), **changed, "PYTHONSAFEPATH": "1"}


def isolate() -> str:
    """Isolate this process, and the modules that it has yet to import; return what was too late to prevent, or ""."""
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
    """Run what is inside in another working folder, for a library that looks for its settings there."""
    here = os.open(".", os.O_PATH | os.O_DIRECTORY)
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(here)
        os.close(here)
