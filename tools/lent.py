"""Links from a new environment to the packages of this one, except for collbench: no download and no copy.

`python tools/lent.py ENVIRONMENT` imports only the standard library.
"""

import importlib.metadata
import os
import re
import sys
from pathlib import Path

OFFLINE = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
"""Variables with which pip uses installed packages or fails."""

_OURS = re.compile(r"_*(editable\w*?_)?collbench|__pycache__$|.*\.pth$", re.IGNORECASE)
_SITES = ("site-packages", "dist-packages")  # the second is Debian's name


def packages(folder: Path) -> Path:
    """Fill a new folder with a link to each package, for a search path, and return it."""
    folder.mkdir()
    for path in (path for entry in sys.path if entry.endswith(_SITES) for path in Path(entry).glob("*")):
        if not _OURS.match(path.name) and not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    return folder


def mpi(environment: Path) -> None:
    """Link MPI's library and launcher, which are searched in the environment of Python."""
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
