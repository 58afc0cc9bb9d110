"""The factors that bring the model to one machine, as they stand in the [calibration] table of its file."""

import tomllib
from functools import lru_cache
from pathlib import Path

from collbench.errors import UsageError
from collbench.model.equation import Calibration
from collbench.topology import files
from collbench.topology.system import System


def of(system: System) -> Calibration | None:
    """The calibration that a system's file names or holds; None without one, UsageError if it cannot be read."""
    if not system.calibration:
        return None
    path = Path(system.calibration)
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise UsageError(f"calibration {path} cannot be read: {error.strerror}") from None


@lru_cache(maxsize=16)
def _read(path: Path, _changed: int) -> Calibration:
    files.load(str(path))  # which says what is wrong with it, if anything is
    factors = tomllib.loads(path.read_text(encoding="utf-8")).get("calibration", {})
    if not factors or "file" in factors:
        raise UsageError(f"{path} has no factors in [calibration]; write them with `collbench fit RUN -o {path}`")
    return Calibration(**{name: float(value) for name, value in factors.items()})
