"""A foreign file as text: bare lines of logs, and rows of CSV.

Too large files are refused.
"""

import bz2
import codecs
import csv
import gzip
import html
import io
import lzma
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from collbench.commands.formats.words import clean
from collbench.errors import RunFileError
from collbench.host.sanitize import safe_read

LARGEST = 2**28  # bytes of all files
LARGEST_JSON = 2**24  # bytes of a file; parsed JSON takes twenty times as much memory
LARGEST_PACKED = 2**25  # bytes of a compressed file
LONGEST = 2**14  # characters of a line; longer ones are skipped
HEAD = 2**20  # bytes that are searched for signs of a format
STDIN = "-"
_PACKED: Mapping[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
LOGS = ("log", "txt", "out", "csv", "json", "jsonl")
_LOG = re.compile(rf"\.(?:{'|'.join(LOGS)})(?:\.(?:gz|bz2|xz))?$")


BOUNDS = {"bytes": LARGEST, "lines": 2**22, "lines of a log": 2**18, "rows": 2**16}


class Budget:
    """The remaining budget of an import, for all its files together."""

    def __init__(self) -> None:
        self.left = dict(BOUNDS)

    def spend(self, name: str, kind: str, amount: int = 1) -> None:
        """Subtract an amount; RunFileError with the name of the file if the budget is exceeded."""
        if amount > self.left[kind]:
            fix = "cut out the part with the results, or import it by itself"
            raise RunFileError(f"{name} exceeds the limit of {BOUNDS[kind]:,} {kind} per import; {fix}")
        self.left[kind] -= amount


@dataclass(frozen=True)
class ForeignFile:
    """A file's content as UTF-8; invalid bytes become replacement characters."""

    name: str  # as the user gave it
    content: bytes
    budget: Budget = field(default_factory=Budget)
    program: int = 0  # the program of this part, if several print into the log
    owners: Mapping[int, int] = field(default_factory=dict)  # bits of programs by line; other lines belong to all

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield number and text of each line that is not empty; too long lines are yielded as empty text."""
        # Decode line by line: as text, a file may take four times its size, and its lines fifty times.
        file, number, long = io.BytesIO(self.content), 0, False
        while line := file.readline(LONGEST + 1):
            if len(line) > LONGEST and not line.endswith(b"\n"):
                long = True
                continue
            number += 1
            if line != b"\n" and self.owners.get(number, -1) >> self.program & 1:
                yield number, "" if long else line.decode(errors="replace").rstrip("\r\n")
            long = False

    @property
    def beginning(self) -> "ForeignFile":
        """The first MiB, which is searched for signs of a format."""
        return replace(self, content=self.content[:HEAD])

    @cached_property
    def head(self) -> str:
        """The text of the first MiB."""
        return self.beginning.document

    @cached_property
    def document(self) -> str:
        """The whole text; RunFileError if it is too large to be parsed as JSON."""
        if len(self.content) > LARGEST_JSON:
            raise RunFileError(f"{self.name} is larger than {LARGEST_JSON >> 20} MiB of JSON; split it")
        return self.content.decode(errors="replace")

    @cached_property
    def first(self) -> str:
        """The first line that is not blank."""
        return next((line.strip() for _, line in self.lines() if line.strip()), "")

    @property
    def torn(self) -> bool:
        """Whether the file ends in the middle of a line."""
        return not self.content.endswith(b"\n")

    @property
    def file(self) -> str:
        """The name of the file without its folder, for a header."""
        return clean(Path(self.name).name) or "stdin"

    @classmethod
    def joined(cls, sources: Iterator["ForeignFile"]) -> "ForeignFile":
        """Join the files of one program; the result is torn if one of them is.  Each file is freed after it is read."""
        content, torn, names = io.BytesIO(), False, []
        for source in sources:
            content.write(source.content)
            content.write(b"\n" * source.torn)
            torn |= source.torn
            names.append(source.name)
        if torn:
            content.truncate(content.tell() - 1)
        name = names[0] if len(names) < 2 else f"{names[0]} and {len(names) - 1} more"
        return cls(name, content.getvalue(), source.budget)


def files_in(path: Path) -> tuple[list[Path], list[str]]:
    """Return the logs in a folder and the folders below it, and the names of other files; a file is its own log."""
    if not path.is_dir():
        return [path], []
    logs: list[Path] = []
    others: list[str] = []
    for file in sorted(path.rglob("[!.]*")):
        if _LOG.search(file.name) and not file.is_dir():
            logs.append(file)
        elif not file.is_dir():
            others.append(file.name)
    if not logs:
        raise RunFileError(f"{path}: no *.{', *.'.join(LOGS)} in this folder; name the files")
    return logs, others


def stem(path: Path) -> str:
    """Return the name of a log without its suffix."""
    return _LOG.sub("", path.name)


def load(path: Path, budget: Budget | None = None) -> ForeignFile:
    """Read a file, or standard input for `-`; RunFileError if it cannot be read or is too large."""
    if str(path) != STDIN:
        with safe_read(path, RunFileError, LARGEST) as file:
            return decode(str(path), file, budget)
    try:
        return decode(STDIN, sys.stdin.buffer.read(LARGEST + 1), budget)
    except (OSError, AttributeError) as error:  # AttributeError: standard input is closed
        raise RunFileError(f"cannot read standard input: {getattr(error, 'strerror', 'it is closed')}") from None


def decode(name: str, file: IO[bytes] | bytes, budget: Budget | None = None) -> ForeignFile:
    """Read a file, also one compressed by gzip, bzip2 or xz; RunFileError if it cannot be read."""
    file, budget = io.BytesIO(file) if isinstance(file, bytes) else file, budget or Budget()
    begin, size = file.read(6), file.seek(0, os.SEEK_END)
    file.seek(0)
    opened = next((opened for mark, opened in _PACKED.items() if begin.startswith(mark)), None)
    if opened and size > LARGEST_PACKED:  # it may consist of millions of empty parts
        raise RunFileError(f"{name} is compressed and larger than {LARGEST_PACKED >> 20} MiB; unpack it")
    unpacked, buffer = opened(file) if opened else file, io.BytesIO()
    try:
        head = unpacked.read(2**20)
        decoder = codecs.getincrementaldecoder(_encoding(head))("replace")
        while head:
            piece = decoder.decode(head + unpacked.readline(LONGEST)).encode()
            budget.spend(name, "bytes", len(piece))
            buffer.write(_NCCL.sub(_with_fact(), piece))
            head = unpacked.read(2**20)
    except (OSError, EOFError, MemoryError, zlib.error, lzma.LZMAError) as error:
        raise RunFileError(f"{name}: cannot be decompressed: {clean(error)}") from None
    content = buffer.getvalue()
    if content[257:262] == b"ustar":
        raise RunFileError(f"{name} is an archive; unpack it, for example by tar xf, and import its folder")
    if b"\n" not in content:
        content = content.replace(b"\r", b"\n")
    budget.spend(name, "lines", content.count(b"\n"))
    return ForeignFile(name, content, budget)


def _encoding(begin: bytes) -> str:
    """Return the encoding by the first bytes of a file; UTF-16 without a mark is known by an ASCII character."""
    if begin[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if begin[:2].count(0) == 1:
        return "utf-16-be" if begin[0] == 0 else "utf-16-le"
    return "utf-8-sig"


_NCCL = re.compile(
    rb"^(?:[^\n ]{1,80}+ ){0,2}[^\n ]{1,200}+(?<=\d) \[\d{1,3}\] NCCL (?:INFO|TRACE) ([^\n]*)$", re.MULTILINE
)
# A fact or a row.
_FACT = re.compile(rb" set |UUID|[Cc]hannels|[Uu]sing|[Ss]elected|[Vv]ersion|\d[KMGTiB]*\s+\d[\d,]*\s+[A-Za-z]")


def _with_fact() -> Callable[[re.Match[bytes]], bytes]:
    """Return a replacement function that keeps only the lines with facts of NCCL's log, which may have millions.

    A transport counts as a fact once between lines of other kinds.  The first line stays as a sign of the log.
    """
    seen, end = set[bytes](), 0

    def remaining(line: re.Match[bytes]) -> bytes:
        nonlocal end
        first = not end
        if line.start() > end + 1:
            seen.clear()
        end, at = line.end(), line[1].find(b" via ")
        transport = line[1][at:]
        if transport in seen if at >= 0 else not (first or _FACT.search(line[1])):
            return b""
        if at >= 0 and len(seen) < MOST_TRANSPORTS:
            seen.add(transport)
        return line[0]

    return remaining


# Text around the lines of a log.  Each expression must take linear time: it may not try the same characters in several
# ways.

ESCAPES = re.compile(r"\x1b\[[0-?]*+[ -/]*+[@-~]|\x1b\][^\x07\x1b]*+(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
MARKUP = re.compile(r"</?(?:br|p|pre|code|span|div|td|tr|th|li|font|b|strong|samp)\b[^<>]{0,200}>", re.IGNORECASE)
RANK = re.compile(r"\[\d{1,9}\]")
UNSEEN = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
_CLOCK = r"\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?"
_DAY, _ZONE = r"\d{4}[-/]\d\d[-/]\d\d", r"(?:Z|[+-]\d\d:?\d\d)?"
_WHEN = rf"{_DAY}[T ]{_CLOCK}{_ZONE}"
_NUMBER = r"(?:\d[\d.]*+(?:e[+-]\d++)?+|N/A)"
# Before a comment, a row, or the rest of a row.
_TEXT = rf"(?=\s*+(?:#|\[\d{{1,9}},\d|{_NUMBER}\s++(?:{_NUMBER}(?!\S)|\w)|{_NUMBER}\s*+$))"
TAGS = tuple(
    re.compile(pattern)
    for pattern in (
        r"\s*+\[[^\[\]\s]{0,80},\d{1,9}\](?:<std(?:out|err|diag)>)?:\s?+",  # mpirun --tag-output, also of Open MPI 5
        r"\s*+\([^()]{0,120}\bpid=\d{1,9}[^()]{0,80}\)\s",  # Ray
        r"\s*+(?:\[\d{1,9}\]|<std(?:out|err)>):?\s?+" + _TEXT,  # mpiexec -prepend-rank, IBM's mpirun
        r"\s*+\d{1,9}:(?: |$)",  # srun --label
        r"\s*+\[(?:pod/)?[\w./-]{1,200}(?: [\w.-]{1,80})?\]:?\s" + _TEXT,  # kubectl logs --prefix
        r"\s*+[\w.@/-]{1,200}:\s" + _TEXT,  # pdsh, clush, ansible
        r"\s*+[\w.@/ -]{1,200}\|\s" + _TEXT,  # docker compose, stern
        rf"\s*+[A-Z][a-z]{{2}} +\d{{1,2}} {_CLOCK} \S{{1,80}} \S{{1,80}}:\s" + _TEXT,  # journals
        rf"\s*+[\[(]?{_WHEN}[\])]?(?: (?:std(?:out|err) [FP]|[-:|]|INFO|DEBUG)){{1,3}}:?\s" + _TEXT,  # loggers
        rf"\s*+[\[(]?{_DAY}T{_CLOCK}{_ZONE}[\])]?:?\s" + _TEXT,  # kubectl, continuous integration
        rf"\s*+[\[(]?{_WHEN}[\])]?:?\s(?=\s*+#)",  # before a row it is the time stamp of nccl-tests' -S
        rf"\s*+[\[(]?{_CLOCK}[\])]:?\s" + _TEXT,
        r"\s*+(?:>|[*+-]|•|//|\$|\d{1,3}\.)\s" + _TEXT,  # quotes, bullets, fences
        r"\s*+(?:>\s?+){1,9}",
    )
)
MOST_TAGS = 6  # tags of a line
MOST_TRANSPORTS = 2**12  # distinct transports
MOST_STREAMS = 64  # programs that print into one log
CLOCKS = re.compile(
    rf"{_WHEN}|{_DAY}|{_CLOCK}{_ZONE}|[A-Z][a-z]{{2}} +\d{{1,2}}(?= )|<?std(?:out|err)>?(?: [FP](?= ))?"
)
BULLETS = " >*+-•/$`#"


def bare(line: str) -> str:
    """Return a line without the text of launchers and loggers around it; spaces between its words are kept."""
    return _without_tags(_shown(line))


def _shown(line: str) -> str:
    """Return a line as a reader sees it."""
    line = ESCAPES.sub("", line.strip("\0"))
    if "\r" in line:  # keep the part that a terminal would finally show
        line = next((part for part in reversed(line.split("\r")) if part.strip()), "")
    line = html.unescape(MARKUP.sub("", line)).replace("`", " ")

    # MPICH's mpiexec -prepend-rank puts the rank before each write; a row consists of several writes.
    if rank := RANK.match(line):
        line = re.sub(rf"(?<=\S){re.escape(rank[0])}(?=\s)", " ", line)
    return line if line.isascii() else UNSEEN.sub("", line).replace("\u00a0", " ")


def _without_tags(line: str) -> str:
    for _ in range(MOST_TAGS):
        matches = (tag.match(line) for tag in TAGS)
        end = next((match.end() for match in matches if match and match.end()), 0)
        if not end:
            break
        line = line[end:]
    return line


def streams(source: ForeignFile, row: re.Pattern[str]) -> list[tuple[str, ForeignFile]]:
    """Split a log with rows of several programs, which differ in the prefix of their rows."""
    numbers: dict[str, int] = {}  # by prefix
    prefixes: dict[int, int] = {}  # number of the prefix, by line of a row
    for at, line in source.lines():
        source.budget.spend(source.name, "lines of a log", 1 + len(line) // 64)  # long lines take longer
        if (prefix := _prefix(line, row)) is not None:
            prefixes[at] = numbers.setdefault(prefix, len(numbers))
        if len(numbers) > MOST_STREAMS:
            return [("", source)]

    # The prefix of only one line is no program's, but a word before a row.
    marked, begun = Counter[int](), {}
    for at, line in source.lines() if len(numbers) > 1 else ():
        text = _words_of(_shown(line))
        if begins := [number for prefix, number in numbers.items() if prefix and text.startswith(prefix)]:
            marked.update(begins)
            begun[at] = sum(1 << number for number in begins)
    programs = {prefix: number for prefix, number in numbers.items() if marked[number] > 1 or not prefix}
    if len(programs) < 2:
        return [("", source)]

    # A line without a prefix, like a command above the tables, belongs to every program.
    every = sum(1 << number for number in programs.values())
    owners = {at: bits for at, started in begun.items() if (bits := started & every)}
    owners |= {at: 1 << number for at, number in prefixes.items() if every >> number & 1}
    common = sum(1 for at, _ in source.lines() if at not in owners)
    source.budget.spend(source.name, "lines of a log", common * (len(programs) - 1))
    return [(prefix, replace(source, owners=owners, program=number)) for prefix, number in programs.items()]


def _prefix(line: str, row: re.Pattern[str]) -> str | None:
    """Return the text to the left of a row without clocks and bullets; None if the line is no row."""
    shown = _shown(line)
    text = _without_tags(shown)
    match = row.search(text)
    if not match:
        return None
    prefix = _words_of(shown[: len(shown) - len(text) + match.start()])
    return "" if prefix.isdigit() else prefix  # a number of the line


def _words_of(text: str) -> str:
    return " ".join(CLOCKS.sub(" ", text).split()).strip(BULLETS)


def cells(line: str) -> str:
    """Return a line of a Markdown table as words between blanks, and other lines unchanged."""
    if line.count("|") < 8:
        return line
    return line.replace("|", " ").replace("`", " ").replace("*", " ")


def body(line: str) -> str:
    """Return a line without marks of a comment."""
    return line.strip().lstrip("#").strip()


CsvRow = tuple[int, Mapping[str, str]]  # number of the line, and its words by column


def csv_rows(
    source: ForeignFile, needed: Collection[str], ended: bool = False, header: Callable[[str], str] = str
) -> tuple[list[CsvRow], list[str]]:
    """Return the complete rows of a CSV file, and the reasons why other lines are no rows.

    RunFileError if a column (in lower case) of `needed` is missing, or there is no row.  With `ended`, the last word of
    a row is never empty.  `header` repairs the line with the columns.
    """
    rows: list[CsvRow] = []
    bad: list[str] = []
    names: list[str] = []
    for line_number, line in source.lines():
        if not line.strip():
            continue
        try:
            words = next(csv.reader([line if names else header(line)]), [])
        except csv.Error:
            words = []
        if not names:
            names = [word.strip().lower() for word in words]
            missing = sorted(set(needed) - set(names))
            if missing:
                raise RunFileError(f"{source.name}:{line_number}: no column {', '.join(missing)}")
            continue
        source.budget.spend(source.name, "rows", 1 + len(words) // 32)
        if len(words) != len(names) or (ended and not words[-1].strip()):
            bad.append(f"line {line_number} is an incomplete row ({clean(line, 40)!r})")
            continue
        rows.append((line_number, dict(zip(names, map(str.strip, words), strict=True))))
    if not rows:
        raise RunFileError("; ".join([f"{source.name}: no row with results", *bad[:1]]))
    return rows, bad
