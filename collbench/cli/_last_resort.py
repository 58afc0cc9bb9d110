"""The last resort: an error that nobody foresaw is one line too, and its traceback a file."""

import os
import sys
import tempfile
import traceback
from pathlib import Path

from collbench.cache import cache_folder

SHOW = "COLLBENCH_TRACEBACK"  # set to 1, the variable has the traceback printed


def line(error: BaseException) -> str:
    """The line for such an error, after its traceback was written or printed."""
    text = "".join(traceback.format_exception(error))
    what = traceback.format_exception_only(error)[-1].strip()[:_LONGEST]
    if os.environ.get(SHOW) == "1":
        sys.stderr.write(text)
        return what
    place = _written(text)
    where = f"the traceback is in {place}" if place else f"{SHOW}=1 shows the traceback"
    return f"{what}; this was not foreseen: {where}; please report it"


def _written(text: str) -> Path | None:
    """The file, in the cache or else in the folder for temporary files; None if neither takes one."""
    for folder in (cache_folder, lambda: Path(tempfile.gettempdir())):
        try:
            place = folder()
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(".txt", "traceback-", place)
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except (OSError, RuntimeError):  # RuntimeError: nobody knows where home is
            continue
        return Path(name)
    return None


_LONGEST = 300  # characters of the error itself
