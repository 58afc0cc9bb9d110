"""The run file: JSON Lines, a header and then the results.

Rows of a case and an implementation that were made alike are rounds of one measurement, and are read as one row.  Rows
that another tool made with other settings, of another file or program, or with other protocols, are curves of their
own: the implementation is named after what differs, `nccl@iters 100`.
"""

import contextlib
import fcntl
import importlib
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
MOST_ROWS, MOST_SAMPLES = 2**17, 2**16
"""Rows of a file that are read, and samples of a row; of more samples, so many at most, evenly."""
_MANY, _FEW = 2**23, 64  # samples of a file, behind which a row has so few
_END = re.compile(rb'\{"kind": ?"end"')  # the line that says that the run is whole
_NAMED = 3  # rows that are left out with a warning of their own; the others are counted
INTERRUPTED = SIGNALLED  # exit statuses from here on say which signal ended the run
CUT_OFF = "cut off"

_PRINTED = ("algo", "proto")  # columns in which rccl-tests says how the library did it


@dataclass(frozen=True)
class Run(Shown):
    """A run file as read: its header and results, and whether its end was written."""

    path: Path
    header: Header
    results: tuple[Result, ...]
    complete: bool  # whether the end was written
    status: int | None = None  # exit status of the command, if it was
    left_out: tuple[str, ...] = ()  # line and reason of rows that are no results
    unknown_kinds: tuple[str, ...] = ()  # of rows that no command here reads
    advice: str = ""  # advice on disturbed rows of a run that was just measured

    def __repr__(self) -> str:
        name = self.header.topology.name or "unnamed topology"
        state = "complete" if self.whole else CUT_OFF
        return sanitize.message(f"<Run {self.path}: {name}, {counted(len(self.results), 'result')}, {state}>")

    @cached_property
    def cases(self) -> tuple[Result, ...]:
        """One result for each case and implementation: rounds joined, and curves of other settings named apart."""
        return one_of_each(self.results, self.header.imported.tests, self.header.topology.copies)

    def rows(self) -> list[dict[str, Any]]:
        """Return flat records in bytes, seconds and bytes per second, None for what is not known."""
        from collbench.runfile.schema import record  # here: tables of rows are asked for

        return [record(result) for result in self.results]

    records = rows  # what a notebook shows

    def to_pandas(self) -> Any:
        """Return the rows as a pandas.DataFrame; UsageError where pandas is not installed."""
        return optional("pandas").DataFrame(self.rows())

    def to_arrow(self) -> Any:
        """Return the rows as a pyarrow.Table; UsageError where pyarrow is not installed."""
        return optional("pyarrow").Table.from_pylist(self.rows())

    @property
    def whole(self) -> bool:
        """Whether the end was written, and not because of a signal."""
        return self.complete and (self.status or 0) < INTERRUPTED

    @property
    def cut_off(self) -> str:
        """`cut off after 37 rows`; nothing of a whole run."""
        return "" if self.whole else f"{CUT_OFF} after {counted(len(self.results), 'row')}"

    @property
    def stopped(self) -> str:
        """A sentence on a run, or the log that it was imported from, that stops before its end; nothing of others."""
        if self.cut_off:
            return f"the run was {self.cut_off}"
        return "" if self.header.imported.complete else "the log stops before its end"

    @property
    def unread(self) -> str:
        """Why lines of it, or of the log that it was imported from, could not be read; empty if all could."""
        first, *others = (*self.left_out, *self.header.imported.left_out, "")
        more = f", and {counted(len(others) - 1, 'more reason')}" if len(others) > 1 else ""
        return f"left out: {printable(first)}{more}" if first else ""


def optional(package: str) -> Any:
    """Return a package that nothing else needs."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise UsageError(f"{package} is not installed, and this needs it; fix: pip install {package}") from None


def cut_off_notes(runs: Iterable[Run]) -> list[str]:
    """Return `results/a/run.jsonl: cut off after 37 rows` for each run that is cut off."""
    return [sanitize.message(f"{run.path}: {run.cut_off}") for run in runs if run.cut_off]


def why_none(runs: Sequence[Run]) -> str:
    """Return why none of these runs has a measurement that a command could use, for its error message."""
    names = ", ".join(str(run.path) for run in runs)
    outcomes: set[Outcome] = set()
    for run in runs:
        outcomes |= {result.outcome for result in run.results}
    unknown = {kind: None for run in runs for kind in run.unknown_kinds}
    if not outcomes and unknown:
        return f"{names}: no results that are known here; its rows are of the kind {', '.join(unknown)}"
    if not outcomes:
        return f"{names}: no results"
    if Outcome.PREDICTED in outcomes and outcomes <= {Outcome.PREDICTED, Outcome.SKIPPED}:
        return f"{names}: predictions only; give a run that was measured, or imported"
    if Outcome.OK in outcomes:
        return f"{names}: no times of a collective by its size; steps, traces and training are drawn by collbench plot"
    return f"no measurement in {names} was right and undisturbed; its other rows say why"


class BadRow(Notice):
    """A row of a run file that is no result; the others are read."""


class TornLine(Notice):
    """The last line of a run file stops in the middle, as after a power cut."""


class Writer:
    """Appends to one new run file; the file is made at once, so that a bad folder is noticed before measuring.

    Every line is written whole or not at all.  All lines stay in memory too: if the file can take no more, or is no
    longer where it was, they go to another folder, and StorageError names that.
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
        _locked(self._file)

    def header(self, header: Header) -> None:
        """Write what holds for the whole run."""
        self._line(_header_line(header))

    def append(self, result: Result) -> None:
        """Write one result."""
        self._line(encoded(to_line(result)))

    def end(self, finished: str, status: int) -> None:
        """Write that the run is whole, and its exit status."""
        self._line(encoded({"kind": "end", "finished": finished, "status": status}))

    def discard(self) -> None:
        """Remove the file and the folders that were made for it, because no measurement could be started."""
        # Others may have put something there, or taken it away.
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
                where = f"all that was measured is in {rescued}" if rescued else "what was measured before is in it"
                raise StorageError(f"cannot write to {self.path}: {reason}; {where}")

    def _gone(self) -> str | None:
        """Return why a line written now could not be read under the file's name; None if it could."""
        try:
            named, ours = self.path.stat(), os.fstat(self._file)
        except OSError as error:
            return f"it was removed ({error.strerror})"
        return None if os.path.samestat(named, ours) else "something else is there now"

    def _failure(self, line: bytes) -> str | None:
        """Write a line; return why that failed, after which the file ends where it did before."""
        before = os.lseek(self._file, 0, os.SEEK_END)

        # A disk that becomes full takes part of a line, and fails at the rest.
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


def write(folder: Path, header: Header, results: Iterable[Result], status: int = 0) -> Path:
    """Write a whole run at once into a new folder, and return its path; UsageError if it cannot be written."""
    with Writer(folder) as writer:
        writer.header(header)
        for result in results:
            writer.append(result)
        writer.end(header.started, status)
    return writer.path


class Reopened(Writer):
    """Goes on with an existing run file: behind a new header stand the lines that stay, then the new lines.

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
        """Put the header and the lines that stay in the place of the file."""
        lines = [_header_line(header), *self._existing]
        new = self.path.with_name(f"{self.path.name}.new")

        # The file changes at once: whatever ends this process, the lines that stay are in it.
        try:
            new.unlink(missing_ok=True)  # of an attempt that was killed, or a stranger's link
            _locked(file := new_file(new))
            with os.fdopen(file, "wb", closefd=False) as out:
                out.writelines(lines)
            os.fsync(file)
            new.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink()
            raise StorageError(f"cannot write next to {self.path}: {error.strerror}; it is as it was") from None
        os.close(self._file)
        self._file, self._lines = file, lines

    def discard(self) -> None:
        """Leave the file as it is."""
        self.close()


def _header_line(header: Header) -> bytes:
    return encoded({"kind": "header", "format": FORMAT} | header.to_json())


def _locked(file: int) -> bool:
    """Lock a file for as long as it is open; return whether no other process had."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks
    return True


def _keep(lines: Sequence[bytes], folder: Path) -> Path | None:
    """Write these lines as the run file of a new folder, and return its path; None where no disk takes all of them."""
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

    A row that cannot be read, or claims what cannot be, costs that row: it is warned of, and stands in `left_out`.

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
    unknown: dict[str, None] = {}  # kinds of rows, in their order
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
            else:  # no newline behind it: the writer was stopped in the middle of it
                _warn(f"{file}:{number}: the last line is torn; read without it", TornLine)

    # A file of which nothing can be read is an error, one with bad rows a warning.
    if left_out and not results:
        raise RunFileError(f"{file}:{left_out[0]}")
    _warn_of_rows(file, left_out, more, thinned)
    complete, status = last.get("kind") == "end", last.get("status")
    status = status if complete and type(status) is int else None
    return Run(file, header, tuple(results), complete, status, tuple(left_out), tuple(unknown))


def _warn_of_rows(file: Path, left_out: Sequence[str], more: int, thinned: int) -> None:
    """Warn of rows that were left out, for a reason or as too many, and of rows with fewer samples."""
    for reason in left_out[:_NAMED]:
        _warn(f"{file}:{reason}; read without this row", BadRow, 4)
    if more := more + len(left_out[_NAMED:]):
        _warn(f"{file}: and without {more} rows more", BadRow, 4)
    if thinned:
        most = f"{MOST_SAMPLES:,} of a row and {_MANY:,} of a file"
        _warn(f"{file}: samples of {counted(thinned, 'row')} left out evenly; the most are {most}", BadRow, 4)


def _thinned(row: dict[str, Any], most: int) -> bool:
    """Keep `most` samples of a row, evenly spaced, without its rounds; return whether it had more."""
    long = {name: value for name, value in row.items() if isinstance(value, list) and len(value) > most}
    if sampled := bool(long) and row.get("kind") in ("measurement", "reported", "pair"):
        row |= {name: value[:: -(-len(value) // most)] for name, value in long.items()} | {"rounds": [], "spread": None}
    return sampled


def _warn(text: str, category: type[Notice], level: int = 3) -> None:
    warnings.warn(sanitize.message(text), category, stacklevel=level)  # at the caller of `read`


def read_header(path: Path) -> Header:
    """Read the header of a run file alone."""
    return parse_header(path, sanitize.read_lines(path, RunFileError))[0]


def _of_today(line: dict[str, Any], version: int) -> dict[str, Any]:
    """Return a line of a file of that format as one of today's; ValueError where it is none."""
    return line if version == FORMAT else upgraded(line)


def parse_header(path: Path, lines: Iterator[tuple[int, bytes]]) -> tuple[Header, int]:
    """Return the header, and the number of the format; RunFileError where the first of these lines is none."""
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
    """Return one result for each case and implementation, given the tests of an imported run; of copies the slowest."""
    results = tuple(results)
    if len({(result.case, result.implementation) for result in results}) == len(results):
        return results
    single: list[Result] = []
    for rows in by_key(_named_apart(results, tests), lambda row: (row.case, row.implementation)).values():
        single += _of_case(rows, copies)
    return tuple(single)


def _of_case(rows: Sequence[Result], copies: int) -> Sequence[Result]:
    """Return the one row that stands for these; all of them where rows are no rounds."""
    if rows[0].case.work or isinstance(rows[0], Explanation | Prediction):
        return rows

    # A row that is wrong or failed stands for its case whatever the others say; else rounds with a time are joined.
    bad = [row for row in rows if row.outcome.bad]
    timed = [row for row in rows if isinstance(row, Observed) and row.right]
    if timed:
        return bad[:1] or [cast(Result, max(timed, key=lambda row: row.typical) if copies else joined(timed))]
    return bad[:1] or rows[-1:]


def joined(rows: Sequence[Observed]) -> Observed:
    """Return the rounds of a case, which are right, as one row, without disturbed ones if there are others."""
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
    """Return the results, those of another tool with a name of their own where tests differ that hold the same case."""
    names: dict[int, str] = {}  # by the identity of a row
    for (_, implementation), rows in by_key(results, lambda row: row.curve).items():
        by_test = by_key((row for row in rows if isinstance(row, Reported)), _test_of)
        settings = {test: _settings(tests, test, alike) for test, alike in by_test.items()}

        # Settings that are equal in all tests distinguish nothing.
        telling = []
        for name in next(iter(settings.values()), ()):
            if len({facts[name] for facts in settings.values()}) > 1:
                telling.append(name)

        # Tests of different cases are one curve, however they were made.
        if not telling or not _overlap(by_test.values()):
            continue
        for test, facts in settings.items():
            differing = " + ".join(filter(None, (facts[name] for name in telling))) or "as usual"
            names |= dict.fromkeys(map(id, by_test[test]), printable(f"{implementation}@{differing}"))
    return [replace(row, implementation=names.get(id(row), row.implementation)) for row in results]


def _overlap(tests: Iterable[Sequence[Reported]]) -> bool:
    """Return whether several tests have the same case."""
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
    """Return in words how a test was made: its file, its program by the prefix of its lines, settings, protocols."""
    test = tests[number] if 0 <= number < len(tests) else ForeignTest()
    facts = {"file": test.file, "prefix": str(test.layout.get("prefix", ""))}
    for name in sorted(set().union(*(other.sweep for other in tests))):
        facts[name] = f"{name} {test.sweep[name]}" if name in test.sweep else ""
    protocols = set()
    for row in rows:
        protocols |= {str(row.printed[name]) for name in _PRINTED if row.printed.get(name)}
    return facts | {"protocols": "/".join(sorted(protocols))}


def scatter_in_words(rows: Iterable[Result | Timed]) -> str:
    """Return `2 rounds, up to 4.0x apart (1 GiB)`; empty where no size was repeated."""
    repeated = [row for row in rows if isinstance(row, Reported) and row.rounds]
    if not repeated:
        return ""
    worst = max(repeated, key=lambda row: max(row.rounds) / min(row.rounds))
    most = max(len(row.rounds) for row in repeated)
    return f"{most} rounds, up to {max(worst.rounds) / min(worst.rounds):.2f}x apart ({format_size(worst.case.nbytes)})"
