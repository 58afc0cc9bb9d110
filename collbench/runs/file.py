"""The run file: JSON Lines, a header and then a line a result, each on disk before the next case starts.

History of the format number (readers refuse newer files, ignore fields they don't know, and may add fields freely):
1  the first: kinds header, measurement, skipped, failed, end; later explanation, prediction, reported
2  what was the text `note` of a row are fields: shared, oversubscribed, spin, picked, remarks; a header leaves out what
   is empty or not known
"""

import contextlib
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from collbench.errors import RunFileError, StorageError, UsageError
from collbench.measurement import Prediction, Result, Skipped
from collbench.runs.format_1 import upgraded
from collbench.runs.header import Header
from collbench.runs.records import to_line, to_result

FORMAT = 2
NAME = "run.jsonl"  # of the run file within its folder
INTERRUPTED = 130  # exit status after Ctrl-C, as shells count it


@dataclass(frozen=True)
class Run:
    """A run file as read: `complete` says whether its end was written, `status` with which exit status."""

    path: Path
    header: Header
    results: tuple[Result, ...]
    complete: bool
    status: int | None = None


def why_none(runs: Sequence[Run]) -> str:
    """Why none of these runs has a measurement that a command could use, for its error message."""
    names = ", ".join(str(run.path) for run in runs)
    kinds = {type(result) for run in runs for result in run.results}
    if not kinds:
        return f"{names}: no results"
    if Prediction in kinds and kinds <= {Prediction, Skipped}:
        return f"{names}: predictions only; give a run that was measured, or imported"
    return f"no measurement in {names} was right; its other rows say why"


class TornLine(UserWarning):
    """The last line of a run file stops in the middle, as after a power cut, or kill -9 at the wrong moment."""


class Writer:
    """Appends to one new run file; the file is made at once, so that a bad place is found before measuring."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._made = [path for path in (folder, *folder.parents) if not path.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("x", encoding="utf-8")
        except FileExistsError:
            reason = "there is a run already" if self.path.exists() else "it is not a folder"
            raise UsageError(f"cannot write to {folder}: {reason}; choose another --out") from None
        except OSError as error:
            raise UsageError(f"cannot write to {folder}: {error.strerror}; choose another --out") from None

    def header(self, header: Header) -> None:
        """Write what holds for the whole run."""
        self._line({"kind": "header", "format": FORMAT} | header.to_json())

    def append(self, result: Result) -> None:
        """Write one result."""
        self._line(to_line(result))

    def end(self, finished: str, status: int) -> None:
        """Write that the run is whole, and its exit status."""
        self._line({"kind": "end", "finished": finished, "status": status})

    def discard(self) -> None:
        """Remove the file, since nothing could be started, and the folders that were made for it."""
        self._file.close()
        self.path.unlink()
        with contextlib.suppress(OSError):  # somebody else may have put something there
            for folder in self._made:
                folder.rmdir()

    def _line(self, fields: dict[str, Any]) -> None:
        try:
            self._file.write(json.dumps(fields, allow_nan=False) + "\n")
            self._file.flush()
        except OSError as error:
            raise StorageError(
                f"cannot write to {self.path}: {error.strerror}; what was measured before is in it"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(OSError):  # a full disk was reported when the line was written
            self._file.close()


def read(path: Path) -> Run:
    """Read a run file, or the one in a folder; RunFileError names file and line of what is malformed."""
    place = path / NAME if path.is_dir() else path
    lines = list(_lines(place))
    if not lines or lines[0][1].get("kind") != "header":
        raise RunFileError(f"{place} is not a run file: its first line is no header")
    first = lines[0][1]
    number = first.get("format")
    if not isinstance(number, int) or number > FORMAT:
        raise RunFileError(f"{place} has format {number}, this collbench reads up to {FORMAT}: upgrade collbench")
    results = [_result(place, at, upgraded(fields) if number < FORMAT else fields) for at, fields in lines[1:]]
    last = lines[-1][1]
    return Run(
        path=place,
        header=Header.from_json({name: value for name, value in first.items() if name not in ("kind", "format")}),
        results=tuple(result for result in results if result),
        complete=last.get("kind") == "end",
        status=last.get("status") if last.get("kind") == "end" else None,
    )


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise RunFileError(f"cannot read {path}: {reason}") from None
    rows = text.split("\n")
    for number, row in enumerate(rows, 1):
        if not row.strip():
            continue
        try:
            fields = json.loads(row)
        except (ValueError, RecursionError):
            if number == len(rows):  # no newline behind it: the writer was stopped in the middle of it
                warnings.warn(f"{path}:{number}: the last line is torn; read without it", TornLine, stacklevel=3)
                return
            raise RunFileError(f"{path}:{number}: not JSON") from None
        if not isinstance(fields, dict):
            raise RunFileError(f"{path}:{number}: not a JSON object")
        yield number, fields


def _result(path: Path, number: int, fields: dict[str, Any]) -> Result | None:
    try:
        return to_result(fields)
    except KeyError as error:
        raise RunFileError(f"{path}:{number}: field {error} is missing") from None
    except (TypeError, ValueError, AttributeError, OverflowError, UsageError) as error:
        raise RunFileError(f"{path}:{number}: {error}") from None
