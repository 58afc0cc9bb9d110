"""Where collbench keeps what it can make anew: compiled kernels, and the index of runs."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$COLLBENCH_CACHE, else collbench under the user's cache folder; it need not exist."""
    if chosen := os.environ.get("COLLBENCH_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "collbench"
