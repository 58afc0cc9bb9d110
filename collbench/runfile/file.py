"""The run file: JSON Lines, a header and then a line a result, each on disk before the next case starts.

History of the format number (readers refuse newer files, ignore fields they don't know, and may add fields freely):
1  the first: kinds header, measurement, skipped, failed, end; later explanation, prediction, reported
2  what was the text `note` of a row are fields: shared, oversubscribed, spin, picked, remarks, later bound and paced; a
   header leaves out what is empty or not known; later scheduling, spread and barrier of a row, bind and starts of a
   sweep
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

from collbench.errors import Notice, RunFileError, StorageError, UsageError
from collbench.host import sanitize
from collbench.host.sanitize import text
from collbench.measurement import Prediction, Result, Skipped
from collbench.planned import PlannedStep
from collbench.runfile import rescue
from collbench.runfile.bounds import impossible
from collbench.runfile.flat import arrow_table, data_frame, record
from collbench.runfile.format_1 import upgraded
from collbench.runfile.header import Header
from collbench.runfile.records import to_line, to_result
from collbench.step_times import StepPrediction

FORMAT = 2
NAME = "run.jsonl"  # of the run file within its folder
_EXPECTED = {Prediction, StepPrediction, PlannedStep}
_NAMED = 3  # rows that are left out of which each gets a warning
INTERRUPTED = 128  # exit statuses from here on say which signal ended the run, as shells count it


@dataclass(frozen=True)
class Run:
    """A run file as read: `complete` says whether its end was written, `status` with which exit status."""

    path: Path
    header: Header
    results: tuple[Result, ...]
    complete: bool
    status: int | None = None
    left_out: tuple[str, ...] = ()  # line and reason of rows that are no results

    def rows(self) -> list[dict[str, Any]]:
        """Flat records in bytes, seconds and bytes per second (runs/flat.py), None for what is not known."""
        return [record(result) for result in self.results]

    def to_pandas(self) -> Any:
        """The same as a pandas.DataFrame; UsageError where pandas is not installed."""
        return data_frame(self.rows())

    def to_arrow(self) -> Any:
        """The same as a pyarrow.Table; UsageError where pyarrow is not installed."""
        return arrow_table(self.rows())


def why_none(runs: Sequence[Run]) -> str:
    """Why none of these runs has a measurement that a command could use, for its error message."""
    names = ", ".join(str(run.path) for run in runs)
    kinds = {type(result) for run in runs for result in run.results}
    if not kinds:
        return f"{names}: no results"
    if kinds & _EXPECTED and kinds <= {*_EXPECTED, Skipped}:
        return f"{names}: predictions only; give a run that was measured, or imported"
    return f"no measurement in {names} was right and undisturbed; its other rows say why"


class BadRow(Notice):
    """A row of a run file that is no result; the others are read."""


class TornLine(Notice):
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
    """Read a run file, or the one in a folder.

    A row that cannot be read, or claims what cannot be, costs that row: it is warned of, and stands in `left_out`.
    RunFileError, with file and line, where the header is wrong or no row can be read.
    """
    place = path / NAME if path.is_dir() else path
    lines = ((number, line) for number, line in sanitize.read_lines(place, RunFileError) if line.strip())
    header, number = _header(place, lines)
    rows = _Rows(place, number < FORMAT)
    for at, line in lines:
        rows.take(at, line)
    if rows.left_out and not rows.results:
        raise RunFileError(f"{place}:{rows.left_out[0]}")
    rows.warn()
    end = rows.last if rows.last.get("kind") == "end" else None
    status = end.get("status") if end else None
    return Run(
        path=place,
        header=header,
        results=tuple(rows.results),
        complete=end is not None,
        status=status if type(status) is int else None,
        left_out=tuple(rows.left_out),
    )


def _header(place: Path, lines: Iterator[tuple[int, bytes]]) -> tuple[Header, int]:
    """The header, and the number of the format."""
    at, line = next(lines, (1, b"{}"))
    try:
        fields = sanitize.parse_object(line)
    except ValueError as error:
        raise RunFileError(f"{place}:{at}: {error}") from None
    if fields.pop("kind", None) != "header":
        raise RunFileError(f"{place} is not a run file: its first line is no header")
    number = fields.pop("format", None)
    if type(number) is not int or not 1 <= number <= FORMAT:
        raise RunFileError(
            f"{place} has format {text(repr(number), 24)}, this collbench reads up to {FORMAT}: upgrade collbench"
        )
    return Header.from_json(fields), number


class _Rows:
    """Rows as they are read."""

    def __init__(self, place: Path, old: bool) -> None:
        self.results: list[Result] = []
        self.left_out: list[str] = []
        self.last: dict[str, Any] = {}
        self._place, self._old = place, old

    def take(self, at: int, line: bytes) -> None:
        """Read one more."""
        try:
            fields = sanitize.parse_object(line)
            self.last = fields
            result = _result(upgraded(fields) if self._old else fields)
            self.results += [result] if result else []
        except ValueError as error:
            if line.endswith(b"\n"):
                self.left_out.append(f"{at}: {sanitize.message(str(error))}")
            else:  # no newline behind it: the writer was stopped in the middle of it
                words = f"{self._place}:{at}: the last line is torn; read without it"
                warnings.warn(sanitize.message(words), TornLine, stacklevel=4)

    def warn(self) -> None:
        """Of what was left out, as much as can be looked at."""
        for reason in self.left_out[:_NAMED]:
            warnings.warn(sanitize.message(f"{self._place}:{reason}; read without this row"), BadRow, stacklevel=4)
        if more := len(self.left_out[_NAMED:]):
            warnings.warn(sanitize.message(f"{self._place}: and without {more} rows more"), BadRow, stacklevel=4)


def _result(fields: dict[str, Any]) -> Result | None:
    """The result of a row, None for other lines; ValueError that says why it is none."""
    try:
        result = to_result(fields)
    except KeyError as error:
        raise ValueError(f"field {error} is missing") from None
    except (TypeError, AttributeError, OverflowError, RecursionError, UsageError) as error:
        raise ValueError(str(error)) from None
    if result and (reason := impossible(result)):
        raise ValueError(reason)
    return result
