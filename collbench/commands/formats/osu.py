"""The text of the OSU Micro-Benchmarks over MPI and NCCL: collectives and pairs.

By the sources of OMB 7.x, `Size` is the bytes of each rank's message, but of the whole array for reduce-scatter.  Sizes
in run files are of the whole array.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mode

from collbench.collectives import COLLECTIVES, WINDOW, Collective
from collbench.commands.formats.command_lines import Context
from collbench.commands.formats.foreign_machine import ForeignMachine, relevant_variables, require_ranks
from collbench.commands.formats.foreign_row import ForeignRow, UnfitRow, no_collective
from collbench.commands.formats.imported import Hints, ImportedTest, LeftOut, make_test
from collbench.commands.formats.importing import Format
from collbench.commands.formats.nccl_tests_log import begins_row, without_log
from collbench.commands.formats.source import ForeignFile, bare, body, streams
from collbench.commands.formats.words import SHORTEST, clean, number, plain, seconds_of, sizes, whole
from collbench.datatypes import DATATYPES, find_datatype
from collbench.errors import RunFileError

TITLE = re.compile(
    r"OSU ([\w+]{1,20})(?:-(\w{1,20}))? (\S[^#]{0,80}?)(?:\s[Tt]est)?(?:[\s,]+\(?(?:[vV]ersion )?v?(\d\S{0,20}?)\)?)?$"
)
LIBRARIES = {"MPI": "mpi", "NCCL": "nccl", "RCCL": "rccl"}
COLUMN = re.compile(
    r"(?:Avg |Average |Min |Max |P\d{1,3} Tail )?Lat(?:ency)?\s?\(us\)|Iterations|Validation|Bandwidth\s?\(MB/s\)"
    r"|MB/s|Messages/s|Overall\s?\(us\)|Compute\s?\(us\)|Coll\. Init\s?\(us\)|Pure Comm\.\s?\(us\)|Overlap\s?\(%\)"
)
TYPE = re.compile(r"Datatype:\s*(\w+)")
TIME = re.compile(r"(?:Avg |Average )?Lat(?:ency)?\s*\(us\)")
RATE = re.compile(r"Bandwidth\s*\(MB/s\)|MB/s")
ROW = re.compile(r"^\s*\d[\d,]{0,20}[KMG]?(?:\s+\d[\d,]{0,20}\.\d+)+\s*(?:\d+|Pass|Fail)?\s*$")
BUFFERS = re.compile(r"Send Buffer on (DEVICE|HOST|MANAGED)\b.{0,9} and Receive Buffer on (DEVICE|HOST|MANAGED)\b")
TAIL = re.compile(r"\s\d[\d,]{0,20}\s+\d{1,12}\.\d\d\s*$")  # a row after other text
PAIRS = re.compile(r"\[ pairs: (\d{1,6}) \](?: \[ window size: (\d{1,6}) \])?")
_RECORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
TYPES = {f"MPI_{name}": dtype for dtype, names in _RECORDS["type"].items() for name in names.split()}
FULL = ("Min Latency(us)", "Max Latency(us)", "Iterations")  # columns of -f, which some versions omit in the header
VALIDATION = {"pass": 0, "fail": 1}  # wrong elements; OSU does not print their number


@dataclass(frozen=True)
class OsuTest:
    """A test of OSU."""

    collective: str  # of its rows; empty: rows are left out unless --op names `exactly`
    per_rank: bool = False  # whether sizes are of each rank's message, not of the whole array
    pair: bool = False  # whether two ranks take part, however many were started
    exactly: str = ""  # the exact collective, if `collective` is only similar
    note: str = ""  # the work of the ranks, if `collective` is only similar


TESTS = {title: OsuTest(**record) for title, record in _RECORDS["test"].items()}
"""Tests by title."""


@dataclass
class _Section:
    """One table and the lines above it."""

    title: str = ""
    library: str = "MPI"
    device: str = ""
    buffers: str = ""  # memory of the buffers, if the two sides differ
    version: str = ""
    dtype: str = ""
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[int, str]] = field(default_factory=list)
    above: Context = field(default_factory=Context)
    prefix: str = ""  # of its lines, if several programs print into the log
    pairs: int | None = None
    window: int = WINDOW  # messages in flight

    def take_head(self, text: str) -> bool:
        """Read a line above a table; return False for another line."""
        if title := TITLE.match(text):
            first, device, rest, version = title.groups("")
            self.library, self.device, self.title, self.version = first, device, rest, version
            if first not in LIBRARIES:  # for MPI_Put and OpenSHMEM the word is part of the title
                self.library, self.title = "MPI", f"{first} {rest}"
        elif dtype := TYPE.match(text):
            self.dtype = dtype[1]
        elif pairs := PAIRS.match(text):
            self.pairs, self.window = int(pairs[1]), int(pairs[2] or WINDOW)
        elif buffers := BUFFERS.match(text):  # OMB 5, below the title
            origin, target = buffers.groups()
            self.device = "HOST" if origin == target == "HOST" else "DEVICE"
            if origin != target:
                self.buffers = f", from {origin} to {target} memory".lower()
        elif re.match(r"Size\s", text):
            self.columns = _columns(text[5:].strip())
        elif self.title.lower() == "barrier latency" and TIME.match(text):
            self.columns = _columns(text)
        else:
            return False
        return True


def _columns(text: str) -> list[str]:
    """Return the names of the columns after the first; in documents, one blank may separate them."""
    names = COLUMN.findall(text)
    if "".join("".join(names).split()) == "".join(text.split()):
        return names
    return re.split(r"\s{2,}|\t", text)


def recognises(source: ForeignFile) -> bool:
    """Whether a line is a title of OSU."""
    return any("OSU " in line and TITLE.match(body(bare(line))) for _, line in source.lines())


def read(source: ForeignFile, hints: Hints) -> list[ImportedTest]:
    """Read every table."""
    sections: list[_Section] = []
    for prefix, part in streams(source, ROW):
        sections += [replace(section, prefix=prefix) for section in _sections(part) if section.rows]
    if not sections:
        raise RunFileError(f"{source.name}: text of the OSU benchmarks without a row of results")
    return [_read_test(source, section, hints) for section in sections]


def _sections(source: ForeignFile) -> Iterator[_Section]:
    section, context = _Section(), Context()
    for line_number, raw in source.lines():
        line = without_log(bare(raw), context)
        text = body(line)
        source.budget.spend(source.name, "lines of a log", context.take(line) - 1)

        # The head of a table ends the table above; without a title it belongs to the same test.
        if section.rows and _Section().take_head(text):
            yield section
            section = _Section() if TITLE.match(text) else replace(section, columns=[], rows=[])
        begins = text[:1].isdigit() or TAIL.search(text)
        is_row = begins and not line.lstrip().startswith("#") and not begins_row(line, known=False)
        if section.take_head(text):
            section.above = copy(context)
        elif section.columns and is_row:
            source.budget.spend(source.name, "rows")
            section.rows.append((line_number, line))
            context.used = True
    yield section


def _read_test(source: ForeignFile, section: _Section, hints: Hints) -> ImportedTest:
    test, left_out = TESTS.get(section.title.lower(), OsuTest("")), LeftOut()
    collective = COLLECTIVES.get(test.collective)
    if test.exactly and hints.collective == test.exactly:
        collective = COLLECTIVES[test.exactly]
    if section.library in ("NCCL", "RCCL") or section.device not in ("", "HOST"):
        what, platform = "x unknown GPU", "gpu"
    else:
        what, platform = "ranks", "cpu"
    statistic = "mean time per message, with a window of messages in flight"
    if any(TIME.fullmatch(name) for name in section.columns):
        statistic = "mean of the operations, mean over ranks"
    remarks: list[str] = []
    ranks, rows = hints.ranks or 1, []
    if collective:
        # Some of the started ranks may be in no pair.
        count = 2 if test.pair else 2 * (section.pairs or 0) or hints.ranks or section.above.processes
        ranks = require_ranks(source.name, count, "tables of OSU do not tell the number of ranks")
        rows = list(_rows(section, test, collective, ranks, left_out))
        if platform == "cpu" and not section.device:
            remarks.append("buffers are assumed to be in host memory, since the title names no device")
    else:
        left_out.add(no_collective(section.title), *range(len(section.rows)))
    variables = relevant_variables(section.above.environment)
    name = f"{ranks} {what}{section.buffers}"
    machine = ForeignMachine(ranks=ranks, name=name, platform=platform, variables=variables)
    return make_test(
        source.name,
        rows,
        machine,
        left_out,
        implementation=LIBRARIES[section.library],
        statistic=statistic,
        tool="OSU Micro-Benchmarks",
        version=clean(section.version, 20),
        layout={"prefix": clean(section.prefix)} if section.prefix else {},
        remarks=tuple(remarks),
    )


def _rows(
    section: _Section, test: OsuTest, collective: Collective, ranks: int, left_out: LeftOut
) -> Iterator[ForeignRow]:
    dtype = TYPES.get(section.dtype.upper(), section.dtype) or ("float" if collective.reduces else "int8")
    notes_of_all = []
    if collective.name == test.collective:
        notes_of_all.append(test.note)
    if section.window != WINDOW:
        notes_of_all.append(f"{section.window} messages in flight, not {WINDOW}")
    cut = _cut([line for _, line in section.rows])
    for at, (line_number, line) in enumerate(section.rows):
        try:
            if at and section.rows[at - 1][1].strip().isdigit() and collective.sized:
                raise UnfitRow(f"the line above may be its beginning ({clean(line, 40)!r})")
            if line in cut:
                raise UnfitRow(f"it ends in the middle of a figure ({clean(line, 40)!r})")
            size, words = _words(line, section.columns, collective, dtype)
            seconds = _seconds(words, size * collective.bus_factor(ranks))
        except UnfitRow as error:
            left_out.add(f"line {line_number}: {error}", at)
            continue
        verdict, notes = words.get("Validation", "").lower(), list(notes_of_all)
        if verdict == "fail":
            notes.append("validation failed, number of wrong elements not reported")
        if not section.dtype:
            notes.append("type not reported")
        yield ForeignRow(
            number=at,
            collective=collective.name,
            nbytes=size * (ranks if test.per_rank else 1),
            dtype=dtype,
            seconds=seconds,
            wrong=VALIDATION.get(verdict),
            note=", ".join(filter(None, notes)),
            printed=words,
        )


def _cut(lines: Sequence[str]) -> set[str]:
    """Return the rows that end in fewer decimals, or letters of Pass and Fail, than most others."""
    # OSU prints all numbers of a column with the same decimals, so a shorter one was cut.
    tails = {line: len(line.split()[-1].lstrip("0123456789")) for line in lines}
    usual = mode(tails.values())
    return {line for line, tail in tails.items() if tail < usual}


def _words(line: str, names: list[str], collective: Collective, dtype: str) -> tuple[int, Mapping[str, str]]:
    """Return the size and the words by column; the size of a barrier is that of one element."""
    words = [plain(word) if not at or "." in word else word for at, word in enumerate(line.split())]
    if not collective.sized:
        words = [str(find_datatype(dtype).itemsize) if dtype in DATATYPES else "1", *words]
    size = next(iter(sizes(words[0])), None)
    numbers = [word for word in words[1:] if word[0].isdigit()]
    if len(words) == len(names) + 1 + len(FULL) and _in_order(words):
        names = [*names, *FULL]
    if size is None or len(words) != len(names) + 1 or any(number(word) is None for word in numbers):
        raise UnfitRow(f"it is an incomplete row ({clean(line, 40)!r})")
    return size, dict(zip(names, words[1:], strict=True))


def _in_order(words: list[str]) -> bool:
    """Whether a size is followed by mean, least and greatest value and a number of iterations."""
    mean, least, greatest = (number(word) or 0.0 for word in words[1:4])
    return 0.0 < least <= mean <= greatest and whole(words[4]) is not None


def _seconds(words: Mapping[str, str], nbytes: float) -> float:
    """Return the seconds of an operation, from its latency or from a rate over `nbytes`."""
    for name, word in words.items():
        if TIME.fullmatch(name):
            return seconds_of(word)
        rate = number(word) or 0.0
        if RATE.fullmatch(name) and rate > 0:
            seconds = nbytes / (rate * 1e6)
            return seconds if seconds >= SHORTEST else 0.0
    raise UnfitRow("it has neither a latency nor a bandwidth")


FORMAT = Format("osu", recognises, read, among=True, order=2)
