"""Logs of nccl-tests and rccl-tests, cut into tests.

Lines of other programs are removed from the tests, but facts in them are kept (`command_lines`).  The header gives the
columns of a table, and rows are read from the right.  Text to the left of a row (a launcher's tag, a date) is thereby
ignored, and a version may omit a word.  A row that is not complete on its line is left out.
"""

import re
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

from collbench.commands.formats.command_lines import Context
from collbench.commands.formats.foreign_machine import Device, dotted_version
from collbench.commands.formats.source import ForeignFile, bare, body, cells
from collbench.commands.formats.words import clean, number, plain, sizes, whole
from collbench.datatypes import find_datatype
from collbench.errors import UsageError
from collbench.properties import NCCL_TESTS

CASE = ("size", "count", "type", "redop", "root")
TIMES = ("time", "cputime")
RESULTS = (*TIMES, "hipevt", "algbw", "busbw", "#wrong", "error", "i_min", "i_max", "i_p99", "i_cv%")
APPENDED = ("algo", "proto", "nchannels")  # by rccl-tests, in some versions without a header
UNITS = re.compile(r"\((?:b|elements|[um]s|gb/s)\)$")  # suffixes of names
MARKS = re.compile(r"^[#|(](?=size|bytes)|[|),;]$")
OTHER_NAMES = {"bytes": "size", "n": "count", "op": "redop", "res": "error", "delta": "error", "wrong": "#wrong"}
"""Names of 2015 to 2018, with times in milliseconds, and of headers that lost their marks in copying."""
TYPES = r"float\d{0,2}|half|double|bfloat16|u?int\d{0,2}|u?char|f8e[45]m[23]|fp8_e[45]m[23]|nccl[A-Z]\w{2,12}"
START = re.compile(  # of a row: size, count and type, without control characters in numbers
    rf"(?<![\w.,:/\x00-\x08-])\d[\d.,]{{0,25}}+(?:[KMGT]?(?:i?B)?)\s++\d[\d,]{{0,25}}+\s++(?:{TYPES})(?!\S)",
    re.IGNORECASE,
)
GIN = re.compile(r"# (GIN [A-Z_/ -]{1,60}): rsm=")  # above the tables of device_api/gin
HEADER = re.compile(r"out-of-place|in-place|\(B\) .{0,80}\([um]s\)")  # the lines above and below the names
STAMP = re.compile(r"(?<!\S)\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?!\S)")

VERSION = re.compile(r"\b(nccl-tests|rccl-tests):? version:?\s+(\S+)(?:.*\b[nr]ccl-library=(\d+))?", re.IGNORECASE)
PROGRAM_LINE = re.compile(r"Collective test (starting|concluded):?\s*(\S+)")
SETTINGS = re.compile(r"\bnThread:?\s+\d+\s+nGpus:?\s+\d+|Blocking Enabled")
SIGNS = VERSION, PROGRAM_LINE, SETTINGS, GIN  # lines above tables that no other tool prints
SETTING = {
    "nthread": "threads",
    "ngpus": "gpus",
    "warmup iters": "warmup",
    "warmupiters": "warmup",
    "agg iters": "aggregated",
    "iters": "iters",
    "graph": "graph",
    "blocking": "blocking",
    **{each.name: each.name for each in NCCL_TESTS},
}
"""Names of options in the lines above a table (longer names first), and their names in a header."""
OPTION = re.compile(
    rf"(?!(?:{'|'.join(each.name for each in NCCL_TESTS)}): 0\b)\b({'|'.join(SETTING)}):? (\d{{1,9}})\b", re.IGNORECASE
)
DEVICE = re.compile(
    r"\bRank\s++(\d{1,7})\s++(?:Group\s++(\d{1,7})\s++)?(?:Pid\s++(\d{1,10})\s++)?(?:on\s++(\S++)\s++|uses\s++)"
    r"device\s++(\d{1,5})\s++\[([^\]]*+)\]\s*+(.*)"
)
OTHER_LINES = re.compile(
    r"Using devices|Blocking|Per-Iteration|Bitwise Repeatability|Parallel Init|Reducing maxBytes|"
    r"GPU memory usage|error:|collbench \d"
)
END = re.compile(r"Out of bounds values\s*:|Bitwise mismatches\s*:|Avg bus bandwidth\s*:|Collective test concluded")
EXPORTED = re.compile(r"^collbench \S+: (\S+) on (\S+), (\d{1,7}) ranks?$")

LEVELS = (" NCCL INFO ", " NCCL WARN ", " NCCL TRACE ", " NCCL ABORT ", " NCCL VERSION ")
LOGGER = re.compile(r"(?<!\S)[^\s:]++:\d++:\d++(?!\S)")  # host, process and thread before NCCL's lines
NO_NUMBERS = ("n/a", "nan", "inf", "infinity")  # words in place of a number
SEVERAL, MANY = 3, 6  # numbers in a row


@dataclass(frozen=True)
class Columns:
    """Names of columns from left to right: of the case, of the results of each place, and of appended columns."""

    case: tuple[str, ...]
    places: tuple[tuple[str, ...], ...]
    appended: tuple[str, ...] = ()
    in_place_first: bool = False  # whether the only place is in place
    unit: float = 1e-6  # unit of times in seconds

    @property
    def width(self) -> int:
        """Number of words in a row."""
        return len(self.case) + sum(map(len, self.places)) + len(self.appended)


@dataclass(frozen=True)
class LogRow:
    """The words of one row by column."""

    stamp: str  # date and time (-S), or empty
    case: dict[str, str]
    places: tuple[dict[str, str], ...]
    appended: dict[str, str]


def read_header(words: list[str], above: str = "") -> Columns | None:
    """Return the columns of a header, or None if the line is no header; `above` is the line that names the places."""
    words = [word.lower() for word in words]
    if not any("algbw" in word for word in words):
        return None
    unit = 1e-3 if "bytes" in words and "n" in words else 1e-6

    # `read_row` removes the time stamps of rows (-S).
    words = [_column(word) for word in words if UNITS.sub("", word) and word != "timestamp"]
    if not {"size", "type", "algbw"} <= set(words) or not set(words) & set(TIMES):
        return None
    words = words[words.index("size") :]
    first = min(words.index(word) for word in TIMES if word in words)
    case = tuple(word for word in words[:first] if word in CASE)
    places: list[list[str]] = []
    appended: list[str] = []
    for word in words[first:]:
        if word in TIMES:
            places.append([])
        if word in APPENDED:
            appended.append(word)
        elif word in RESULTS or word[-1].isalpha():  # later versions may print unknown columns
            places[-1].append(word)
    if len(places) > 2 or case[:1] != ("size",):
        return None
    in_place_first = len(places) == 1 and "in-place" in above and "out-of-place" not in above
    return Columns(case, tuple(map(tuple, places)), tuple(appended), in_place_first, unit)


def _column(word: str) -> str:
    """Return the current name of a column, without marks and units."""
    word = UNITS.sub("", word)
    word = MARKS.sub("", word) or word
    if word.startswith("#w"):  # the line may be cut
        return "#wrong"
    return OTHER_NAMES.get(word, word)


def names_columns(line: str) -> bool:
    """Whether a line is part of a table's header: places, names of columns, or units."""
    text = body(line)
    return HEADER.search(text) is not None or read_header(text.split()) is not None


def read_row(line: str, columns: Columns | None) -> LogRow | None:
    """Return the row of a line, or None; the operation may be missing, as for hypercube."""
    if not columns:
        return None
    text, stamp = STAMP.sub(" ", line), (STAMP.findall(line) or [""])[-1]
    starts = [match.start() for match in START.finditer(text)]
    if len(starts) > 1:
        return None
    words = [plain(word) for word in text[min(starts, default=0) :].split()]
    for variant in _variants(columns):
        if len(words) < variant.width:
            continue
        row = _row(stamp, words[-variant.width :], variant)

        # Read from the left only if a row begins there and no number follows it.
        if not row and starts and not any(map(_is_number, words[variant.width :])):
            row = _row(stamp, words[: variant.width], variant)
        if row:
            row.case.setdefault("redop", "")
            return row
    return None


def _variants(columns: Columns) -> list[Columns]:
    """Return the possible columns of rows below a header, the longest first."""
    variants = [columns]
    if not columns.appended:
        variants.insert(0, replace(columns, appended=APPENDED))
    if "redop" in columns.case:
        without = tuple(name for name in columns.case if name != "redop")
        variants += [replace(variant, case=without) for variant in variants]
    return variants


def _row(stamp: str, words: list[str], columns: Columns) -> LogRow | None:
    """Return the row of these words, or None if a word does not fit its column."""
    rest = iter(words)
    case, *places, appended = (
        dict(zip(names, rest, strict=False)) for names in (columns.case, *columns.places, columns.appended)
    )

    # Count and type decide between the meanings of a size with a unit.
    meanings = sizes(case["size"])
    share = share_of(case)
    if len(meanings) > 1 and share:
        meanings = [size for size in meanings if size % share == 0]
    case["size"] = str(next(iter(meanings), ""))
    plausible = (
        case["size"]
        and whole(case.get("count", "0")) is not None
        and case.get("type", "float")[:1].isalpha()
        and (case.get("redop") or "none")[:1].isalpha()
        and re.fullmatch(r"-?\d{1,9}", case.get("root", "0"))
        and all(_is_number(word) for place in places for word in place.values())
        and not any((number(place.get("#wrong", "")) or 0) % 1 for place in places)
        and (not appended or appended["algo"][:1].isalpha())
    )
    return LogRow(stamp, case, tuple(places), appended) if plausible else None


def share_of(case: Mapping[str, str]) -> int:
    """Return the bytes by count and type of a row; 0 if unknown."""
    try:
        return (whole(case.get("count", "")) or 0) * find_datatype(case["type"].lower().removeprefix("nccl")).itemsize
    except (UsageError, KeyError):
        return 0


def _is_number(word: str) -> bool:
    """Whether a word is a number or its substitute; rccl-tests marks a too large error: `4e-07*`."""
    return number(plain(word.removesuffix("*"))) is not None or word.lower().lstrip("+-") in NO_NUMBERS


def begins_row(line: str, known: bool = True) -> bool:
    """Whether a row begins in a line: two whole numbers and a type (any word if the header is `known`)."""
    text = STAMP.sub(" ", line)
    if START.search(text):
        return True
    words = text.split()[:3]
    return known and len(words) == 3 and all(map(sizes, words[:2])) and words[2][0].isalpha()


def looks_like_row(line: str) -> bool:
    """Whether a line of a table looks like data: only numbers, a size and several numbers, or many numbers."""
    words = re.split(r"[\s;|]+|,(?!\d{3}\b)", STAMP.sub(" ", line).strip(), maxsplit=4 * MANY)
    numbers = sum(map(_is_number, words))
    several = numbers >= SEVERAL and (bool(sizes(words[0])) or _is_number(words[0]))
    return several or numbers >= MANY or numbers == len(words)


def without_log(line: str, context: Context) -> str:
    """Return a line without NCCL's log message, which may begin inside it; `context` reads the message."""
    begins = [at for at in map(line.find, LEVELS) if at >= 0]
    if not begins:
        return line
    at = min(begins)
    context.take_log(line[at:])
    if row := START.search(line, at):  # the message has no newline at its end
        return line[row.start() :]
    loggers = [match.start() for match in LOGGER.finditer(line, 0, at)]
    return line[: max(loggers, default=at)]


@dataclass
class LogSection:
    """One test's part of a log."""

    columns: Columns | None = None
    heads: str = ""  # the line with the places, above the names of columns
    devices: list[Device] = field(default_factory=list)
    rows: list[LogRow] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)  # incomplete rows
    said: list[str] = field(default_factory=list)  # errors in the log, for the user
    tool: str = "nccl-tests"
    version: str = ""
    library: str = ""  # version of NCCL in the test's first line
    program: str = ""  # in the first line, or the last
    prefix: str = ""  # of its lines, if several programs print into the log
    bare: bool = False  # whether only the lines above an earlier table describe it
    ranks_above: int = 0  # of that table
    copies: int = 0  # number of copies of the test that ran side by side
    hosts: tuple[str, ...] = ()  # of all copies, if each prints a table
    stale: bool = False  # whether the command above belongs to an earlier table
    settings: dict[str, int] = field(default_factory=dict)
    ended: bool = False
    above: Context = field(default_factory=Context)
    exported: tuple[str, str, int] | None = None  # implementation, platform and ranks, if collbench wrote it

    @property
    def begun(self) -> bool:
        """Whether there is a row, complete or not."""
        return bool(self.rows or self.bad)

    @property
    def says_ranks(self) -> bool:
        """Whether a list of ranks or a command tells the number of ranks."""
        return not self.bare and bool(self.devices or self.exported or self.above.ranks)

    def take(self, line: str) -> bool:
        """Read a line and return True if the test itself printed it."""
        text = body(line)
        self.ended = self.ended or bool(END.search(text))
        if columns := read_header(text.split(), self.heads):
            self.columns = columns
        elif names_columns(line):
            self.heads = text
            if self.columns and "(ms)" in text:
                self.columns = replace(self.columns, unit=1e-3)
        elif match := VERSION.search(text):
            self.tool, self.version = match[1].lower(), match[2]
            self.library = dotted_version(int((match[3] or "0")[:9]))
        elif match := PROGRAM_LINE.search(text):
            self._take_program(match[2], is_last=match[1] == "concluded")
        elif SETTINGS.search(text):
            text = text.replace("Blocking Enabled", "blocking: 1")
            settings = {SETTING[name.lower()]: int(value) for name, value in OPTION.findall(text)}
            self.settings = self.above.options | self.settings | settings
        elif match := DEVICE.search(text):
            rank, group, pid, host, device, bus_id, name = match.groups()
            host, name, bus_id = clean(host or "", 64), clean(name, 64), clean(bus_id, 16).lower()
            self.devices.append(Device(int(rank), host, name, int(group or 0), int(device), bus_id, int(pid or 0)))
        elif self.rows and ("error:" in line or "FAILED" in line):
            self.said.append(f"it says: {clean(text)}")
        elif match := EXPORTED.match(text):
            self.exported = match[1], match[2], int(match[3])
        else:
            return not text or bool(END.search(text) or OTHER_LINES.search(text))
        return True

    def _take_program(self, name: str, is_last: bool) -> None:
        if not is_last or not self.program:
            self.program = name
        elif self.program != name:
            self.said.append(f"its first line says {clean(self.program, 40)}, its last {clean(name, 40)}")


def sections(source: ForeignFile) -> Iterator[LogSection]:
    """Yield the tests of a log in order; a section without columns has no table."""
    section, context = LogSection(), Context()
    for line_number, raw in source.lines():
        line = cells(without_log(bare(raw), context))
        if not line.strip():
            continue
        begins = begins_row(line, known=section.columns is not None or bool(section.heads))
        row = read_row(line, section.columns) if begins else None
        if row:
            source.budget.spend(source.name, "rows")
            section.rows.append(row)
            context.used = True

        # A line of the test itself: below rows it belongs to the footer or begins the next test.
        elif not begins and LogSection().take(line):
            if section.begun and not _stands_below_rows(line):
                yield section
                section = _section_below(section, context, alike=names_columns(line) and context.used)

            # Until the first row, the latest command counts.  The copy shares the facts that NCCL's lines add to.
            if not section.begun:
                if context.launch != section.above.launch:  # the test above failed before its first row
                    section.devices.clear()
                section.above = copy(context)
            section.take(line)

        # An incomplete row is counted; any other line belongs to another program.
        elif begins or (section.columns and not section.ended and looks_like_row(line)):
            source.budget.spend(source.name, "rows")
            section.bad.append((line_number, line))
        else:
            source.budget.spend(source.name, "lines of a log", context.take(line) - 1)
    yield section


def _stands_below_rows(line: str) -> bool:
    text = body(line)
    return not text or END.search(text) is not None or text.startswith(("GPU memory usage", "error:"))


def _section_below(done: LogSection, context: Context, alike: bool) -> LogSection:
    """Begin the next section; with `alike`, below a header alone, it keeps the facts of the last one."""
    if context.used:
        context.facts = dict(context.facts) if alike else {}  # NCCL's variables hold for all tables of a command
    if not alike:
        return LogSection(stale=context.used)
    if done.program:
        context.programs = (done.program,)
    emptied: dict[str, Any] = {name: [] for name in ("rows", "bad", "said")}
    return replace(done, devices=list(done.devices), program="", heads="", ended=False, bare=True, **emptied)
