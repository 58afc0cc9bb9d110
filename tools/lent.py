"""Lends what a Python has installed, all but collbench, to a new environment: no download and no copy.

`python tools/lent.py ENVIRONMENT` lends what that Python has; only Python's own library is imported.
"""

import importlib.metadata
import os
import re
import sys
from pathlib import Path

OFFLINE = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
"""Variables with which pip takes what is there or fails."""

_OURS = re.compile(r"_*(editable\w*?_)?collbench|__pycache__$|.*\.pth$", re.IGNORECASE)
_SITES = ("site-packages", "dist-packages")  # Debian's name for them is the other


def packages(folder: Path) -> Path:
    """A new folder with a link to each package, for a search path."""
    folder.mkdir()
    for path in (path for entry in sys.path if entry.endswith(_SITES) for path in Path(entry).glob("*")):
        if not _OURS.match(path.name) and not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    return folder


def mpi(environment: Path) -> None:
    """Links to MPI's library and launcher, which are looked for beside Python."""
    for file in importlib.metadata.files("mpich") or ():
        path = Path(os.path.normpath(str(file.locate())))
        if path.is_relative_to(sys.prefix) and not any(part in _SITES for part in path.parts):
            place = environment / path.relative_to(sys.prefix)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(path)


if __name__ == "__main__":
    new = Path(sys.argv[1])
    (site,) = new.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(f"{packages(new / 'lent')}\n")
    mpi(new)
