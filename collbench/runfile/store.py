"""The run file: JSON Lines, a header and then the results.

Rows of a case and an implementation with equal settings are rounds of one measurement, and are read as one row.
Another tool's rows with different settings, files, programs or protocols are separate curves. Their implementation is
named after the difference, as in `nccl@iters 100`.
"""

import contextlib
import fcntl
import math
import os
import re
import shutil
import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Self, cast

from collbench.errors import Notice, RunFileError, StorageError, UsageError
from collbench.exits import SIGNALLED
from collbench.host import sanitize
from collbench.host.files import RUN_FILE, new_file
from collbench.host.sanitize import text
from collbench.notebook import Shown
from collbench.records import encoded
from collbench.results import Explanation, Measurement, Observed, Outcome, Prediction, Reported, Result, Timed, by_key
from collbench.runfile.schema import ForeignTest, Header, to_line, to_result, upgraded
from collbench.units import counted, format_size, printable

FORMAT = 3
NAME = RUN_FILE  # within its folder
UNSTORED = Path("not stored")
"""The path of a run that is only in memory."""
MOST_ROWS, MOST_SAMPLES = 2**17, 2**16
"""Limits on the rows of a file and the samples of a row; more samples are thinned evenly."""
_MANY, _FEW = 2**23, 64  # once a file has _MANY samples, each further row keeps _FEW
_END = re.compile(rb'\{"kind": ?"end"')  # the line that marks a complete run
_NAMED = 3  # omitted rows with their own warning; others are counted
INTERRUPTED = SIGNALLED  # exit statuses from here on identify the signal that ended the run
CUT_OFF = "cut off"

_PRINTED = ("algo", "proto")  # columns of rccl-tests with algorithm and protocol


@dataclass(frozen=True)
class Run(Shown):
    """A run as read: header, results, and whether it is complete."""

    path: Path
    header: Header
    results: tuple[Result, ...]
    complete: bool  # whether the end was written
    status: int | None = None  # exit status of the command, if complete
    left_out: tuple[str, ...] = ()  # line and reason of unreadable rows
    unknown_kinds: tuple[str, ...] = ()  # kinds of rows that this release does not know
    advice: str = ""  # advice on disturbed rows of a new run

    def __repr__(self) -> str:
        name = self.header.topology.name or "unnamed topology"
        state = "complete" if self.whole else CUT_OFF
        return sanitize.message(f"<Run {self.path}: {name}, {counted(len(self.results), 'result')}, {state}>")

    @cached_property
    def cases(self) -> tuple[Result, ...]:
        """One result for each case and implementation: rounds joined, and curves with other settings renamed."""
        return one_of_each(self.results, self.header.imported.tests, self.header.topology.copies)

    def rows(self) -> list[dict[str, Any]]:
        """Return flat records in bytes, seconds and bytes per second, None for what is not known (`floor`: NaN)."""
        from collbench.runfile.schema import record  # imported late: only needed for records

        # Polars takes a column's type from its first rows, and small messages have no floor.
        rows = map(record, self.results)
        return [{**row, "floor": math.nan if row["floor"] is None else row["floor"]} for row in rows]

    records = rows  # an alias

    @property
    def whole(self) -> bool:
        """Whether the end was written, and not because of a signal."""
        return self.complete and (self.status or 0) < INTERRUPTED

    @property
    def cut_off(self) -> str:
        """`cut off after 37 rows`; "" for a complete run."""
        return "" if self.whole else f"{CUT_OFF} after {counted(len(self.results), 'row')}"

    @property
    def stopped(self) -> str:
        """A sentence on a run, or its imported log, that is incomplete; else ""."""
        if self.cut_off:
            return f"the run was {self.cut_off}"
        return "" if self.header.imported.complete else "the log stops before its end"

    @property
    def unread(self) -> str:
        """Why lines of the run, or of its imported log, could not be read, or ""."""
        first, *others = (*self.left_out, *self.header.imported.left_out, "")
        more = f", and {counted(len(others) - 1, 'more reason')}" if len(others) > 1 else ""
        return f"left out: {printable(first)}{more}" if first else ""


def cut_off_notes(runs: Iterable[Run]) -> list[str]:
    """Return `results/a/run.jsonl: cut off after 37 rows` for each run that is cut off."""
    return [sanitize.message(f"{run.path}: {run.cut_off}") for run in runs if run.cut_off]


def why_none(runs: Sequence[Run]) -> str:
    """Return why none of these runs has a usable measurement, for an error message."""
    names = ", ".join(str(run.path) for run in runs)
    outcomes: set[Outcome] = set()
    for run in runs:
        outcomes |= {result.outcome for result in run.results}
    unknown = {kind: None for run in runs for kind in run.unknown_kinds}
    if not outcomes and unknown:
        return f"{names}: no results that this release knows; its rows are of the kind {', '.join(unknown)}"
    if not outcomes:
        return f"{names}: no results"
    if Outcome.PREDICTED in outcomes and outcomes <= {Outcome.PREDICTED, Outcome.SKIPPED}:
        return f"{names}: predictions only; give a run that was measured, or imported"
    if Outcome.OK in outcomes:
        return f"{names}: no times of a collective by its size; steps, traces and training are drawn by collbench plot"
    return f"no measurement in {names} was right and undisturbed; its other rows say why"


class BadRow(Notice):
    """A row of a run file that is not a result; the others are read."""


class TornLine(Notice):
    """The last line of a run file is truncated, as after a power cut."""


class Writer:
    """Appends to a new run file, created at once so that a bad folder is noticed before measuring.

    Every line is written whole or not at all. All lines also stay in memory: if the disk is full or the file is gone,
    they go to another folder, which StorageError names.
    """

    def __init__(self, folder: Path) -> None:
        if folder.suffix == ".jsonl":
            raise UsageError(
                f"--out {folder} names a file, but is a folder for {NAME}; give --out {folder.with_suffix('')}"
            )
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
        _locked(self._file)

    def header(self, header: Header) -> None:
        """Write the header."""
        self._line(_header_line(header))

    def append(self, result: Result) -> None:
        """Write one result."""
        self._line(encoded(to_line(result)))

    def end(self, finished: str, status: int) -> None:
        """Write the end line with the exit status."""
        self._line(encoded({"kind": "end", "finished": finished, "status": status}))

    def discard(self) -> None:
        """Remove the file and its new folders, because no measurement could start."""
        # Another process may have added files or removed the folder.
        with contextlib.suppress(OSError):
            if self._gone() is None:
                self.path.unlink()
            for folder in self._made:
                folder.rmdir()
        self.close()

    def _line(self, line: bytes) -> None:
        with self._lock:
            self._lines.append(line)
            if reason := self._gone() or self._failure(line):
                rescued = _keep(self._lines, self.path.parent)
                where = f"all rows are in {rescued}" if rescued else "earlier rows are in the file itself"
                raise StorageError(f"cannot write to {self.path}: {reason}; {where}")

    def _gone(self) -> str | None:
        """Return why the open file is no longer the one at its path, or None."""
        try:
            named, ours = self.path.stat(), os.fstat(self._file)
        except OSError as error:
            return f"it was removed ({error.strerror})"
        return None if os.path.samestat(named, ours) else "something else is there now"

    def _failure(self, line: bytes) -> str | None:
        """Write a line; on failure undo it and return the reason."""
        before = os.lseek(self._file, 0, os.SEEK_END)

        # A disk that fills up takes only part of a line.
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
        """Close the file."""
        if self._file >= 0:
            with contextlib.suppress(OSError):  # a full disk was reported when the line was written
                os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def write(folder: Path, header: Header, results: Iterable[Result], status: int = 0) -> Path:
    """Write a complete run to a new folder, and return its path; UsageError if that fails."""
    with Writer(folder) as writer:
        writer.header(header)
        for result in results:
            writer.append(result)
        writer.end(header.started, status)
    return writer.path


class Reopened(Writer):
    """Continues a run file: a new header, the lines that stay, then the new lines.

    UsageError if another process writes to it.
    """

    def __init__(self, path: Path, existing: Sequence[bytes]) -> None:
        self.path, self._existing = path, existing
        self._lines, self._lock = [], threading.Lock()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            reason = "it is a link, and is not written through" if path.is_symlink() else error.strerror
            raise UsageError(f"cannot write to {path}: {reason}") from None
        if not _locked(self._file):
            self.close()
            raise UsageError(f"{path} is being written: wait for the end of the command that measures it, or end that")

    def header(self, header: Header) -> None:
        """Replace the file by the header and the lines that stay."""
        lines = [_header_line(header), *self._existing]
        new = self.path.with_name(f"{self.path.name}.new")

        # Replace the file atomically, so that a crash cannot lose the lines that stay.
        try:
            new.unlink(missing_ok=True)  # left by a killed attempt, or a foreign link
            _locked(file := new_file(new))
            with os.fdopen(file, "wb", closefd=False) as out:
                out.writelines(lines)
            os.fsync(file)
            new.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink()
            raise StorageError(f"cannot write next to {self.path}: {error.strerror}; the file is unchanged") from None
        os.close(self._file)
        self._file, self._lines = file, lines

    def discard(self) -> None:
        """Leave the file unchanged."""
        self.close()


def _header_line(header: Header) -> bytes:
    return encoded({"kind": "header", "format": FORMAT} | header.to_json())


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks
    return True


def _keep(lines: Sequence[bytes], folder: Path) -> Path | None:
    """Write these lines as the run file of a new folder, and return its path; None if no disk has room."""
    for home in (folder.parent, Path(), Path(tempfile.gettempdir())):
        with contextlib.suppress(OSError):
            rescued = Path(tempfile.mkdtemp(prefix=f"{folder.name}-rescued-", dir=home))
            try:
                (rescued / NAME).write_bytes(b"".join(lines))
                return rescued / NAME
            except OSError:
                shutil.rmtree(rescued, ignore_errors=True)
    return None


def read(path: Path) -> Run:
    """Read a run file, or the run file in a folder.

    An unreadable or contradictory row is omitted with a warning and listed in `left_out`.

    Raises:
        RunFileError: The header is wrong, or no row can be read; the message names file and line.

    """
    file = path / NAME if path.is_dir() else path
    if path.is_dir() and not file.exists() and (inside := sorted(path.glob(f"*/{NAME}"))):
        names = ", ".join(str(run.parent) for run in inside[:_NAMED])
        which = f"name one of them: {names}; or all: collbench check --fleet {path}"
        raise RunFileError(sanitize.message(f"{path} has {len(inside)} runs; {which}"))
    lines = ((number, line) for number, line in sanitize.read_lines(file, RunFileError) if line.strip())
    header, version = parse_header(file, lines)
    results: list[Result] = []
    left_out: list[str] = []
    unknown: dict[str, None] = {}  # kinds of rows, in order
    last: dict[str, Any] = {}
    taken = thinned = more = 0
    for number, line in lines:
        if len(results) + len(left_out) >= MOST_ROWS and not _END.match(line):
            more += 1
            continue
        try:
            last = sanitize.parse_object(line)
            thinned += _thinned(last, MOST_SAMPLES if taken < _MANY else _FEW)
            taken += sum(len(value) for value in last.values() if isinstance(value, list))
            result = to_result(_of_today(last, version))
            if result:
                results.append(result)
            elif isinstance(last.get("kind"), str) and last["kind"] != "end":
                unknown[sanitize.text(last["kind"])] = None
        except ValueError as error:
            if line.endswith(b"\n"):
                left_out.append(f"{number}: {sanitize.message(str(error))}")
            else:  # no newline: the writer was interrupted
                _warn(f"{file}:{number}: the last line is torn; read without it", TornLine)

    # An unreadable file is an error; bad rows are a warning.
    if left_out and not results:
        raise RunFileError(f"{file}:{left_out[0]}")
    _warn_of_rows(file, left_out, more, thinned)
    complete, status = last.get("kind") == "end", last.get("status")
    status = status if complete and type(status) is int else None
    return Run(file, header, tuple(results), complete, status, tuple(left_out), tuple(unknown))


def _warn_of_rows(file: Path, left_out: Sequence[str], more: int, thinned: int) -> None:
    """Warn of omitted rows, unreadable or too many, and of rows with thinned samples."""
    for reason in left_out[:_NAMED]:
        _warn(f"{file}:{reason}; read without this row", BadRow, 4)
    if more := more + len(left_out[_NAMED:]):
        _warn(f"{file}: and without {more} more rows", BadRow, 4)
    if thinned:
        most = f"{MOST_SAMPLES:,} of a row and {_MANY:,} of a file"
        _warn(f"{file}: {counted(thinned, 'row')} thinned evenly, to at most {most}", BadRow, 4)


def _thinned(row: dict[str, Any], most: int) -> bool:
    """Thin a row to `most` evenly spaced samples and drop its rounds; return whether it had more."""
    long = {name: value for name, value in row.items() if isinstance(value, list) and len(value) > most}
    if sampled := bool(long) and row.get("kind") in ("measurement", "reported", "pair"):
        row |= {name: value[:: -(-len(value) // most)] for name, value in long.items()} | {"rounds": [], "spread": None}
    return sampled


def _warn(text: str, category: type[Notice], level: int = 3) -> None:
    warnings.warn(sanitize.message(text), category, stacklevel=level)  # at the caller of `read`


def read_header(path: Path) -> Header:
    """Read only the header of a run file."""
    return parse_header(path, sanitize.read_lines(path, RunFileError))[0]


def _of_today(line: dict[str, Any], version: int) -> dict[str, Any]:
    """Convert a line of the given format to the current one; ValueError if it is invalid."""
    return line if version == FORMAT else upgraded(line)


def parse_header(path: Path, lines: Iterator[tuple[int, bytes]]) -> tuple[Header, int]:
    """Return the header in the first line, and the format number; RunFileError if it is invalid."""
    number, line = next(lines, (1, b"{}"))
    try:
        fields = sanitize.parse_object(line)
    except ValueError as error:
        raise RunFileError(f"{path}:{number}: {error}; `collbench import` reads logs of other tools") from None
    if fields.get("kind") != "header":
        raise RunFileError(f"{path} is not a run file: its first line is no header")
    version = fields.get("format")
    if type(version) is not int or not 1 <= version <= FORMAT:
        shown = text(repr(version), 24)
        raise RunFileError(f"{path} has format {shown}, this collbench reads up to {FORMAT}: upgrade collbench")
    try:
        return Header.from_json(_of_today(fields, version)), version
    except ValueError as error:
        raise RunFileError(f"{path}:{number}: the header cannot be read: {error}") from None


def one_of_each(results: Iterable[Result], tests: Sequence[ForeignTest] = (), copies: int = 0) -> tuple[Result, ...]:
    """Return one result for each case and implementation; `tests` are those of an imported run."""
    results = tuple(results)
    if len({(result.case, result.implementation) for result in results}) == len(results):
        return results
    single: list[Result] = []
    for rows in by_key(_named_apart(results, tests), lambda row: (row.case, row.implementation)).values():
        single += _of_case(rows, copies)
    return tuple(single)


def _of_case(rows: Sequence[Result], copies: int) -> Sequence[Result]:
    """Return the row that represents these; all of them if they are not rounds."""
    if rows[0].case.work or isinstance(rows[0], Explanation | Prediction):
        return rows

    # A wrong or failed row represents its case; otherwise join the rounds with a time.
    bad = [row for row in rows if row.outcome.bad]
    timed = [row for row in rows if isinstance(row, Observed) and row.right]
    if timed:
        return bad[:1] or [cast(Result, max(timed, key=lambda row: row.typical) if copies else joined(timed))]
    return bad[:1] or rows[-1:]


def joined(rows: Sequence[Observed]) -> Observed:
    """Return the right rounds of a case as one row, without disturbed ones if others exist."""
    calm = [row for row in rows if not row.disturbed] or rows
    measured = [row for row in calm if isinstance(row, Measurement)]
    reported = [row for row in calm if isinstance(row, Reported)]
    if len(measured) > 1:
        return measured[-1].joined(measured)
    if len(reported) > 1:
        seconds = tuple(row.seconds for row in reported)
        samples = tuple(sample for row in reported for sample in row.samples)
        return replace(reported[-1], seconds=median(seconds), samples=samples, rounds=seconds)
    return calm[-1]


def _named_apart(results: Sequence[Result], tests: Sequence[ForeignTest]) -> list[Result]:
    """Return the results; if several tests hold the same case, rename another tool's results by the difference."""
    names: dict[int, str] = {}  # by row identity
    for (_, implementation), rows in by_key(results, lambda row: row.curve).items():
        by_test = by_key((row for row in rows if isinstance(row, Reported)), _test_of)
        settings = {test: _settings(tests, test, alike) for test, alike in by_test.items()}

        # Settings that are equal in all tests are not named.
        telling = []
        for name in next(iter(settings.values()), ()):
            if len({facts[name] for facts in settings.values()}) > 1:
                telling.append(name)

        # Tests of different cases form one curve, whatever their settings.
        if not telling or not _overlap(by_test.values()):
            continue
        for test, facts in settings.items():
            differing = " + ".join(filter(None, (facts[name] for name in telling))) or "as usual"
            names |= dict.fromkeys(map(id, by_test[test]), printable(f"{implementation}@{differing}"))
    return [replace(row, implementation=names.get(id(row), row.implementation)) for row in results]


def _overlap(tests: Iterable[Sequence[Reported]]) -> bool:
    seen: set[object] = set()
    for rows in tests:
        cases = {row.case for row in rows}
        if not seen.isdisjoint(cases):
            return True
        seen |= cases
    return False


def _test_of(row: Reported) -> int:
    test = row.printed.get("test")
    return test if type(test) is int else 0


def _settings(tests: Sequence[ForeignTest], number: int, rows: Sequence[Reported]) -> Mapping[str, str]:
    """Return in words a test's file, program (the prefix of its lines), settings and protocols."""
    test = tests[number] if 0 <= number < len(tests) else ForeignTest()
    facts = {"file": test.file, "prefix": str(test.layout.get("prefix", ""))}
    for name in sorted(set().union(*(other.sweep for other in tests))):
        facts[name] = f"{name} {test.sweep[name]}" if name in test.sweep else ""
    protocols = set()
    for row in rows:
        protocols |= {str(row.printed[name]) for name in _PRINTED if row.printed.get(name)}
    return facts | {"protocols": "/".join(sorted(protocols))}


def scatter_in_words(rows: Iterable[Result | Timed]) -> str:
    """Return text such as `2 rounds, up to 4.0x apart (1 GiB)`, or "" without repeats."""
    repeated = [row for row in rows if isinstance(row, Reported) and row.rounds]
    if not repeated:
        return ""
    worst = max(repeated, key=lambda row: max(row.rounds) / min(row.rounds))
    most = max(len(row.rounds) for row in repeated)
    return f"{most} rounds, up to {max(worst.rounds) / min(worst.rounds):.2f}x apart ({format_size(worst.case.nbytes)})"
