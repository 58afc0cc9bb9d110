"""Another place for what was measured, when the run file can take no more or was taken away."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

NAME = "run.jsonl"  # of a run file within its folder


def keep(lines: Sequence[bytes], folder: Path) -> Path | None:
    """Write these lines as the run file of a new folder: beside the one meant, else where temporary files go.

    None if no place takes all of them.
    """
    for place in _places(folder):
        try:
            place.mkdir(parents=True)
            path = place / NAME
            path.write_bytes(b"".join(lines))
        except FileExistsError:
            continue
        except OSError:
            _remove(place)
            continue
        return path
    return None


def _places(folder: Path) -> Iterator[Path]:
    for home in (folder.parent, Path(), Path(tempfile.gettempdir())):
        yield from (home / f"{folder.name}-rescued-{os.getpid()}{more}" for more in ("", "-2"))


def _remove(place: Path) -> None:
    try:
        (place / NAME).unlink(missing_ok=True)
        place.rmdir()
    except OSError:
        pass
