"""The text that nccl-tests and rccl-tests print, of every version since 2015.

`sections` cuts a log into tests and takes out what other programs print in between; `_read_test` makes rows of a test.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from collbench.collectives import Collective, of_nccl_tests
from collbench.datatypes import find_datatype
from collbench.errors import RunFileError, UsageError
from collbench.formats import Format
from collbench.formats.imported import (
    Device,
    ForeignRow,
    Hints,
    ImportedTest,
    LeftOut,
    Machine,
    UnfitRow,
    dotted_version,
    known_collective,
    machine_of,
    make_results,
    no_collective,
    ranks_of_bandwidths,
    require_bandwidths,
    require_ranks,
)
from collbench.formats.nccl_tests_table import (
    Columns,
    TableRow,
    begins_row,
    continues_row,
    names_columns,
    read_header,
    read_row,
)
from collbench.formats.nccl_tests_write import TEXT as NAME
from collbench.formats.nccl_tests_write import write_text
from collbench.formats.source import (
    HEAD,
    LAUNCHERS,
    Source,
    bare,
    body,
    cells,
    clean,
    count,
    exact,
    number,
    processes_started,
    seconds_of,
)

VERSION = re.compile(r"\b(nccl-tests|rccl-tests):? version:?\s+(\S+)(?:.*\b[nr]ccl-library=(\d+))?", re.IGNORECASE)
PROGRAM_LINE = re.compile(r"Collective test (starting|concluded):?\s*(\S+)")
SETTINGS = re.compile(r"\bnThread:?\s+\d+\s+nGpus:?\s+\d+")
SETTING = {
    "threads": re.compile(r"\bnThread:? (\d{1,6})\b"),
    "gpus": re.compile(r"\bnGpus:? (\d{1,6})\b"),
    "warmup": re.compile(r"\bwarmup ?[iI]ters: (\d{1,9})\b"),
    "iters": re.compile(r"(?<!warmup )(?<!agg )\biters: (\d{1,9})\b"),
    "aggregated": re.compile(r"\bagg iters: (\d{1,9})\b"),
    "graph": re.compile(r"\bgraph: (\d{1,9})\b"),
}
DEVICE = re.compile(
    r"\bRank\s++(\d{1,7})\s++(?:Group\s++(\d{1,7})\s++)?(?:Pid\s++(\d{1,10})\s++)?(?:on\s++(\S++)\s++|uses\s++)"
    r"device\s++\d{1,5}\s++\[[^\]]*+\]\s*+(.*)"
)
OTHER_LINES = re.compile(
    r"Using devices|Blocking|Per-Iteration|Parallel Init|Reducing maxBytes|GPU memory usage|error:|collbench \d"
)
END = re.compile(r"Out of bounds values\s*:|Avg bus bandwidth\s*:|Collective test concluded")
EXPORTED = re.compile(r"^collbench \S+: (\S+) on (\S+), (\d{1,7}) ranks?$")
FIGURE = re.compile(r"^collbench \S+: times are of the kind (\w{1,20})$")

LEVELS = (" NCCL INFO ", " NCCL WARN ", " NCCL TRACE ", " NCCL ABORT ", " NCCL VERSION ")
VARIABLE = re.compile(r"\b((?:NCCL|RCCL)_[A-Z0-9_]+) set by environment to ([^\s]+?)\.?\s*$")
LIBRARY = re.compile(r"\b[NR]CCL version (\d{1,3}\.\d{1,3}\.\d{1,3})")
LOGGER = re.compile(r"\S+:\d+:\d+$")  # host, process and thread in front of NCCL's lines
GLUED = re.compile(r"(?:-?\d+(?:\.\d+)?(?:e[+-]\d+)?|N/A)(?=[A-Za-z])")  # a row's last word, and then a host's name
WIDEST = 1000  # characters of half a row

PROGRAM = re.compile(
    r"(?<![\w.-])((?:[a-z]{1,20}_){1,4}(?:perf|test))(?:_[a-z0-9]{1,10})?(?:\.exe)?(?![\w.-])", re.IGNORECASE
)
NOT_HERE = re.compile(
    r"hypercube|bisection|(?:all_?to_?all|gather|scatter)_?v|all_reduce_(?:bias|group)", re.IGNORECASE
)
OPTION = {
    "threads": re.compile(r"(?<!\S)(?:-t\s{0,8}|--nthreads[ =]\s{0,8})(\d{1,5})(?![\w.])"),
    "gpus": re.compile(r"(?<!\S)(?:-g\s{0,8}|--ngpus[ =]\s{0,8})(\d{1,5})(?![\w.])"),
    "average": re.compile(r"(?<!\S)(?:-a\s{0,8}|--average[ =]\s{0,8})([0-3])(?!\S)"),
}
AVERAGES = {"0": "of rank 0", "1": "mean over ranks", "2": "fastest rank", "3": "slowest rank"}  # -a
AMD = re.compile(r"AMD|Radeon|\bVega\b|Instinct|\bMI\d{2,3}|gfx\d")


@dataclass(frozen=True)
class Above:
    """What lines of other programs above a table say of it, mostly the command line."""

    programs: tuple[str, ...] = ()
    ranks: int | None = None
    average: str = ""  # of -a
    library: str = ""  # version of NCCL


@dataclass
class LogSection:
    """One test's part of a log."""

    columns: Columns | None = None
    header: list[str] = field(default_factory=list)  # the lines that name the columns
    places: str = ""  # the last line that names places
    devices: list[Device] = field(default_factory=list)
    rows: list[TableRow] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)  # lines that are rows in part
    errors: list[str] = field(default_factory=list)  # what it says below the rows
    tool: str = "nccl-tests"
    version: str = ""
    library: str = ""  # version of NCCL, by the test's first line
    program: str = ""
    settings: dict[str, int] = field(default_factory=dict)
    ended: bool = False
    above: Above = Above()
    variables: dict[str, str] = field(default_factory=dict)  # that NCCL says it heeds
    figure: str = "mean"  # of what kind its times are
    exported: tuple[str, str, int] | None = None  # implementation, platform and ranks, if collbench wrote it

    def take_row(self, line: str) -> bool:
        """Keep a line as a row, if it is a whole one."""
        row = read_row(line, self.columns) if self.columns else None
        if row:
            self.rows.append(row)
        return row is not None

    @property
    def begun(self) -> bool:
        """Whether a row was there, whole or not."""
        return bool(self.rows or self.bad)


def recognises(source: Source) -> bool:
    """Whether there is a table of nccl-tests, or the lines above one."""
    head = source.text[:HEAD]
    if VERSION.search(head) or SETTINGS.search(head) or PROGRAM_LINE.search(head):
        return True
    return any("algbw" in line and read_header(body(line).split()) for _, line in source.lines())


def read(source: Source, hints: Hints) -> list[ImportedTest]:
    """Read every test of a log."""
    found = [section for section in sections(source) if section.begun]
    if not found:
        raise RunFileError(f"{source.name}: a log of nccl-tests or rccl-tests without a row of results")
    if sum(bool(section.rows) for section in found) < 2:
        return [_read_test(source, section, hints, alone=True) for section in found]
    tests: list[ImportedTest] = []
    errors: list[UsageError] = []
    for section in found:
        try:
            tests.append(_read_test(source, section, hints, alone=False))
        except UsageError as error:  # the other tests are read without this one
            errors.append(error)
            tests.append(_without_rows(source, section, f"{len(section.rows)} rows: {error}"))
    if len(errors) == len(tests):
        raise errors[0]
    return tests


# A log as sections


def sections(source: Source) -> Iterator[LogSection]:
    """Yield the tests of a log, in order; a section without columns holds no table."""
    section, above, half, half_at = LogSection(), Above(), "", 0
    for number_, raw in source.lines():
        line = cells(without_log(bare(raw), section.variables))
        if not line.strip():
            continue
        begins = begins_row(line, known=section.columns is not None or bool(section.header))
        printed_by_test = _is_line_of_test(line)
        if half and (begins or printed_by_test):
            section.bad.append((half_at, half))
            half = ""
        if begins or half:
            half, half_at = (line, number_) if begins else (_joined(section, half, line), half_at)
            half = "" if section.take_row(half) else half
            continue
        if not printed_by_test:
            above = _heed(above, line)
            continue
        if section.begun and not _stands_below_rows(line):
            yield section
            section = _next_section(section, line, above)
        if not section.begun:
            section.above, above = _merged(section.above, above), Above()
        _take_line(section, line)
    if half:
        section.bad.append((half_at, half))
    yield section


def without_log(line: str, variables: dict[str, str]) -> str:
    """Return a line without NCCL's, which may begin inside it; `variables` gets those that it names."""
    places = [line.find(level) for level in LEVELS]
    at = min((place for place in places if place >= 0), default=-1)
    if at < 0:
        return line
    if match := VARIABLE.search(line):
        variables[match[1]] = match[2]
    words = line[:at].split()
    while words and not LOGGER.fullmatch(words[-1]):
        words.pop()
    if not words:
        return line[:at]
    start = line.rfind(words[-1], 0, at)
    glued = GLUED.match(words[-1])
    if glued and (begins_row(line[:start]) or continues_row(line[:start])):
        return line[:start] + glued[0]
    before = line[:start].rstrip()
    stamp = before.rfind("[")  # NCCL_DEBUG_TIMESTAMP_FORMAT
    return before[:stamp].rstrip() if stamp >= 0 and before.endswith("]") else before


def _joined(section: LogSection, half: str, line: str) -> str:
    """Join half a row with what may be its rest: torn inside a number, unless only a blank makes the row whole."""
    if not continues_row(line) or len(half) > WIDEST:
        return half
    if line[0].isspace() or half[-1].isspace():
        return half + line
    spaced = f"{half} {line}"
    is_whole = section.columns is not None and read_row(spaced, section.columns) is not None
    return spaced if is_whole else half + line


def _heed(above: Above, line: str) -> Above:
    """Add what a line of another program says: a command line of nccl-tests, or the version of NCCL."""
    if match := LIBRARY.search(line):
        above = replace(above, library=match[1])
    if "_perf" not in line and "_test" not in line:
        return above
    programs: list[str] = []
    options = ""
    for match in PROGRAM.finditer(line):
        name = match[1].lower()
        if known_collective(name) or (name.endswith("_perf") and NOT_HERE.search(name)):
            options = options or line[match.end() :]
            programs.append(name)
    if not programs:
        return above
    found = {name: pattern.search(options) for name, pattern in OPTION.items()}
    given = {name: match[1] for name, match in found.items() if match}
    per_process = int(given.get("threads", 1)) * int(given.get("gpus", 1))
    processes = processes_started(line)
    if LAUNCHERS.search(line):
        ranks = processes * per_process if processes else None
    else:
        ranks = per_process if per_process > 1 else None
    names = (*above.programs, *programs)
    return replace(above, programs=names, ranks=ranks, average=given.get("average", ""))


def _merged(earlier: Above, above: Above) -> Above:
    """What is known above a table, with lines that come later: their command counts."""
    library = above.library or earlier.library
    return replace(above if above.programs else earlier, library=library)


def _is_line_of_test(line: str) -> bool:
    """Whether the test itself printed a line that is no row."""
    if line.strip() == "#":
        return True
    text = body(line)
    signs = (VERSION, PROGRAM_LINE, SETTINGS, DEVICE, OTHER_LINES, END)
    return names_columns(line) or any(sign.search(text) for sign in signs)


def _stands_below_rows(line: str) -> bool:
    text = body(line)
    return not text or END.search(text) is not None or text.startswith(("GPU memory usage", "error:"))


def _next_section(done: LogSection, line: str, above: Above) -> LogSection:
    """Begin the next test: below a bare header it is of the same kind, unless a command stands between."""
    if not names_columns(line) or above.programs:
        return LogSection(variables=dict(done.variables), above=done.above)
    return replace(
        done,
        places="",
        devices=list(done.devices),
        variables=dict(done.variables),
        ended=False,
        header=[],
        rows=[],
        bad=[],
        errors=[],
    )


def _take_line(section: LogSection, line: str) -> None:
    """Take in what a line says that the test itself printed."""
    text = body(line)
    section.ended = section.ended or bool(END.search(text))
    if columns := read_header(text.split(), section.places):
        section.columns = columns
        section.header.append(line)
    elif names_columns(line):
        section.places = text
        section.header.append(line)
        if section.columns and "(ms)" in text:
            section.columns = replace(section.columns, unit=1e-3)
    elif match := VERSION.search(text):
        section.tool, section.version = match[1].lower(), match[2]
        section.library = dotted_version(int((match[3] or "0")[:9]))
    elif match := PROGRAM_LINE.search(text):
        section.program = match[2] if match[1] == "starting" else section.program
    elif SETTINGS.search(text):
        found = {name: pattern.search(text) for name, pattern in SETTING.items()}
        section.settings = {name: int(match[1]) for name, match in found.items() if match}
    elif match := DEVICE.search(text):
        rank, group, pid, host, name = match.groups()
        host, name = clean(host or "", 64), clean(name, 64)
        section.devices.append(Device(int(rank), host, name, int(group or 0), int(pid or 0)))
    elif section.rows and ("error:" in line or "FAILED" in line):
        section.errors.append(text)
    else:
        _take_comment(section, text)


def _take_comment(section: LogSection, text: str) -> None:
    """Take in what collbench says of a table that it wrote."""
    if match := EXPORTED.match(text):
        section.exported = match[1], match[2], int(match[3])
    elif match := FIGURE.match(text):
        section.figure = match[1]


# A section as a test


def _read_test(source: Source, section: LogSection, hints: Hints, *, alone: bool) -> ImportedTest:
    left_out = LeftOut(f"line {at} is no whole row ({clean(line, 40)!r})" for at, line in section.bad)
    if not section.rows:
        return _without_rows(source, section, *left_out.reasons)
    listed = _listed_ranks(section, hints)
    try:
        collective = _find_collective(source.name, section, hints, listed, alone=alone)
    except UnfitRow as error:
        for at in range(len(section.rows)):
            left_out.add(str(error), at)
        return _without_rows(source, section, *left_out.reasons)
    rows = list(_rows(section))
    of_rows = _shares(section) if collective.sharded else ranks_of_bandwidths(rows, collective)
    ranks = require_ranks(source.name, Hints(), listed or of_rows, "it lists no ranks")
    require_bandwidths(source.name, rows, collective, ranks)
    implementation, platform, _ = section.exported or (_library(section), "gpu", ranks)
    results = make_results(
        rows,
        collective,
        ranks,
        implementation=implementation,
        platform=platform,
        statistic=_statistic(section),
        left_out=left_out,
    )
    return ImportedTest(
        format=NAME,
        tool=section.tool,
        version=clean(section.version),
        file=source.file,
        machine=replace(_machine(section, ranks), platform=platform),
        results=tuple(results),
        complete=section.ended,
        started=section.rows[0].stamp.replace(" ", "T") or None,
        sweep=section.settings,
        layout={"before": section.header},
        left_out=left_out.reasons,
        remarks=tuple(_remarks(section, ranks)),
    )


def _without_rows(source: Source, section: LogSection, *left_out: str) -> ImportedTest:
    machine = Machine(1, "unknown")
    return ImportedTest(
        format=NAME,
        tool=section.tool,
        file=source.file,
        machine=machine,
        results=(),
        complete=section.ended,
        left_out=left_out,
    )


def _listed_ranks(section: LogSection, hints: Hints) -> int | None:
    """Return the number of ranks that the user says, or the list of ranks, or the command; None if nobody does.

    Lists are trimmed and never too long, so the highest rank counts, or more that the user says.  Where the
    communicator was split, ranks are numbered across the groups, and only a whole list tells how many a group has.
    """
    per_process = section.settings.get("threads", 1) * section.settings.get("gpus", 1)
    groups = {device.group for device in section.devices}
    numbers = {device.rank for device in section.devices}
    if section.exported:
        return section.exported[2]
    if len(groups) == 1:
        return max(max(numbers) + 1, per_process, hints.ranks or 0)
    if hints.ranks:
        return hints.ranks
    if groups:
        first = section.devices[0].group
        of_first = {device.rank for device in section.devices if device.group == first}
        return len(of_first) if len(numbers) == max(numbers) + 1 else None
    return section.above.ranks or (per_process if per_process > 1 else None)


def _find_collective(name: str, section: LogSection, hints: Hints, ranks: int | None, *, alone: bool) -> Collective:
    """Return the collective of a test: by its own word, the user's, its command line, or the columns of its table.

    The user's word does not relabel one test of several whose command line says otherwise.

    Raises:
        UsageError: Nothing tells the collective, or the user's word does not fit the table.
        UnfitRow: It is of a collective that is not here, or its own word does not fit the table.

    """
    shape = _Shape.of(section, ranks)
    commands = [word for word in dict.fromkeys(section.above.programs) if shape.fits(known_collective(word))]
    if section.program:
        return _require_fitting(section.program, shape)
    if hints.collective and (alone or not commands):
        try:
            return _require_fitting(hints.collective, shape)
        except UnfitRow as error:
            raise UsageError(f"{name}: {error}; give another --op NAME") from None
    if len(commands) == 1:
        return _require_fitting(commands[0], shape)
    of_shape = [known.name for known in of_nccl_tests() if shape.fits(known) and known.reduces == shape.reduces]
    fitting = commands or of_shape
    if len(fitting) == 1 and not section.above.programs:
        return _require_fitting(fitting[0], shape)
    choices = f"; {', '.join(fitting)} would fit" if fitting else ""
    raise UsageError(f"{name} does not say which collective it is of{choices}; give --op NAME")


def _require_fitting(word: str, shape: "_Shape") -> Collective:
    collective = known_collective(word)
    if not collective:
        raise UnfitRow(no_collective(word))
    if not shape.fits(collective):
        raise UnfitRow(f"its columns are not those of {collective.name}")
    return collective


@dataclass(frozen=True)
class _Shape:
    """What the columns of a table say of its collective."""

    reduces: bool
    rooted: bool
    sharded: bool | None  # whether counts are those of a rank's share; None where that cannot be told

    @staticmethod
    def of(section: LogSection, ranks: int | None) -> "_Shape":
        case = section.rows[-1].case
        rooted = int(case.get("root", "-1")) >= 0
        shares = None if ranks == 1 else _shares(section)
        is_sharded = None if shares is None else shares > 1
        return _Shape(case.get("redop", "") not in ("", "none"), rooted, is_sharded)

    def fits(self, collective: Collective | None) -> bool:
        """Whether a table may be of that collective; of one that is not here nobody knows."""
        if not collective:
            return True
        if collective.reduces and not self.reduces:  # but older versions print `sum` for sendrecv, too
            return False
        return collective.rooted == self.rooted and self.sharded in (None, collective.sharded)


def _shares(section: LogSection) -> int | None:
    """Return how many times count and type make the largest size; None where it is no multiple of them."""
    sizes = [(exact(row.case["size"]) or 0, exact(row.case.get("count", "")) or 0, row.case) for row in section.rows]
    nbytes, elements, case = max(sizes, key=lambda size: size[0], default=(0, 0, {}))
    try:
        share = elements * find_datatype(case.get("type", "").lower().removeprefix("nccl")).itemsize
    except UsageError:
        return None
    return nbytes // share if share and nbytes % share == 0 else None


def _rows(section: LogSection) -> Iterator[ForeignRow]:
    """Yield the places of all rows that say anything, at least one of each."""
    columns = section.columns
    if not columns:
        return
    for at, row in enumerate(section.rows):
        printed = {"line": row.line} | row.appended | ({"timestamp": row.stamp} if row.stamp else {})
        places = [place for place, words in enumerate(row.places) if any(map(_is_value, words.values()))]
        for place in places or [0]:
            words = row.places[place]
            on_cpu, error = "cputime" in words, words.get("error", "")
            notes = [_note(section), "CPU time of the call (-C)" if on_cpu else ""]
            notes += [f"largest error {error}" if number(error.rstrip("*")) else ""]
            yield ForeignRow(
                number=at,
                nbytes=exact(row.case["size"]),
                dtype=row.case["type"],
                redop=row.case["redop"] or "sum",
                root=max(0, int(row.case.get("root", "0"))),
                in_place=columns.in_place(place),
                seconds=seconds_of(words["cputime" if on_cpu else "time"], columns.unit),
                busbw=None if on_cpu else number(words.get("busbw")),
                wrong=_wrong(words),
                note=", ".join(filter(None, notes)),
                printed=printed | words,
            )


def _is_value(word: str) -> bool:
    return number(word) is not None


def _wrong(words: dict[str, str]) -> int | None:
    """Wrong elements; where only the largest error was printed, 0 of them if that is 0, and some behind a star."""
    if "#wrong" in words:
        return count(words["#wrong"])
    error = words.get("error", "")
    if error.endswith("*"):
        return 1
    return 0 if number(error) == 0 else None


def _note(section: LogSection) -> str:
    """What a reader must know of every row."""
    together, groups = section.settings.get("aggregated", 1), len({device.group for device in section.devices})
    notes = [f"{together} operations aggregated in a group (-m)"] if together > 1 else []
    return ", ".join([*notes, f"{groups} groups at once"] if groups > 1 else notes)


def _statistic(section: LogSection) -> str:
    over = AVERAGES.get(section.above.average, "mean over ranks, unless -a said otherwise")
    return f"{section.figure} of {section.settings.get('iters', 'some')} operations, {over}"


def _library(section: LogSection) -> str:
    """Whose collectives were timed; the layouts are the same."""
    columns = section.columns
    hip = columns and (columns.appended or any("hipevt" in place for place in columns.places))
    amd = any(AMD.search(device.name) for device in section.devices[:1])
    return "rccl" if section.tool == "rccl-tests" or hip or amd else "nccl"


def _machine(section: LogSection, ranks: int) -> Machine:
    distinct = {(device.group, device.rank): device for device in section.devices}
    version = section.above.library or section.library
    versions = {_library(section): version, section.tool: clean(section.version)}
    return machine_of(list(distinct.values()), ranks, versions, section.variables)


def _remarks(section: LogSection, ranks: int) -> Iterator[str]:
    """Yield what the user must know of a test."""
    if not section.ended:
        yield f"incomplete: no footer, {len(section.rows)} rows"
    listed = [(device.group, device.rank) for device in section.devices]
    if len(set(listed)) < len(listed):
        yield "ranks are listed more than once: copies of the test ran side by side; was it built without MPI?"
    if 0 < len(set(listed)) < ranks:
        yield f"its list of ranks is trimmed: {ranks - len(set(listed))} of {ranks} are not there"
    for error in section.errors:
        yield f"it says: {clean(error)}"


FORMAT = Format(NAME, "text of nccl-tests and rccl-tests", recognises, read, write_text, among=True, order=5)
