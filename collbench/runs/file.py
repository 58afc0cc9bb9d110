"""The run file: JSON Lines, a header and then a line a result, each on disk before the next case starts.

History of the format number (readers refuse newer files, ignore fields they don't know, and may add fields freely):
1  the first: kinds header, measurement, skipped, failed, end; later explanation, prediction, reported
2  what was the text `note` of a row are fields: shared, oversubscribed, spin, picked, remarks; a header leaves out what
   is empty or not known
"""

import contextlib
import json
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from collbench.errors import RunFileError, StorageError, UsageError
from collbench.measurement import Prediction, Result, Skipped
from collbench.runs import rescue
from collbench.runs.format_1 import upgraded
from collbench.runs.header import Header
from collbench.runs.records import to_line, to_result

FORMAT = 2
NAME = "run.jsonl"  # of the run file within its folder
INTERRUPTED = 128  # exit statuses from here on say which signal ended the run, as shells count it


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
    """Appends to one new run file; the file is made at once, so that a bad place is found before measuring.

    Every line is written whole or not at all.  All lines are kept in memory too: if the file can take no more, or is no
    longer where it was, they go to another place, and StorageError names that.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._made = [path for path in (folder, *folder.parents) if not path.exists()]
        self._lines: list[bytes] = []
        self._lock = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
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
        with contextlib.suppress(OSError):  # somebody else may have put something there, or taken it away
            if self._gone() is None:
                self.path.unlink()
            for folder in self._made:
                folder.rmdir()
        self.close()

    def _line(self, fields: dict[str, Any]) -> None:
        line = json.dumps(fields, allow_nan=False).encode() + b"\n"
        with self._lock:
            self._lines.append(line)
            if reason := self._gone() or self._failure(line):
                place = rescue.keep(self._lines, self.path.parent)
                more = f"all that was measured is in {place}" if place else "what was measured before is in it"
                raise StorageError(f"cannot write to {self.path}: {reason}; {more}")

    def _gone(self) -> str | None:
        """Why a line written now could never be read by that name."""
        try:
            there, ours = self.path.stat(), os.fstat(self._file)
        except OSError as error:
            return f"it was removed ({error.strerror})"
        return None if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino) else "something else is there now"

    def _failure(self, line: bytes) -> str | None:
        """Why the line could not be written; the file then ends where it did before."""
        before = os.lseek(self._file, 0, os.SEEK_END)
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, before)
            return error.strerror or type(error).__name__
        return None

    def close(self) -> None:
        """Write no more."""
        if self._file >= 0:
            with contextlib.suppress(OSError):  # a full disk was reported when the line was written
                os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


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
