"""What lies in the working folder is never run: not by this command, and not by anything that it starts.

The shell's and Python's search paths hold the working folder where they have an empty or a relative entry, and Python's
also where it was started with -m.  An absolute entry is somebody's decision, and stays.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

SEARCHED = ("PATH", "PYTHONPATH")
"""Variables that list the folders of programs and modules."""
_OWN = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
"""Folders of settings; the XDG specification has relative ones ignored."""


def isolated(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what leads to the working folder."""
    changed = {name: value for name, value in environment.items() if name not in _OWN or Path(value).is_absolute()}
    for name in SEARCHED:
        kept = os.pathsep.join(filter(os.path.isabs, changed.pop(name, "").split(os.pathsep)))
        changed |= {name: kept} if kept else {}
    return {"PATH": os.defpath.removeprefix(":"), **changed, "PYTHONSAFEPATH": "1"}


def isolate() -> None:
    """The same for this process, and for the modules that it has yet to import."""
    said = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    foreign = {entry for entry in said if not Path(entry).is_absolute()}
    with contextlib.suppress(OSError):  # the working folder may be gone
        foreign |= {str(Path.cwd() / entry) for entry in foreign} - set(said)
    sys.path[:] = [entry for entry in sys.path if entry and entry not in foreign]
    wanted = isolated(os.environ)
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)


@contextlib.contextmanager
def outside(folder: Path) -> Iterator[None]:
    """With another working folder, for a library that looks for its settings in it."""
    here = os.open(".", os.O_PATH | os.O_DIRECTORY)
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(here)
        os.close(here)
