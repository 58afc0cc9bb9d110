"""What each line of a log of nccl-tests or rccl-tests is; NCCL's own lines are taken out, even from inside a row."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from collbench.formats.commands import averaged, programs, ranks_started
from collbench.formats.imported import Device
from collbench.formats.nccl_tests.columns import Columns, LogRow, begins, header, match, pieces
from collbench.formats.source import Source
from collbench.formats.wrapping import bare, cells

VERSION = re.compile(r"\b(nccl-tests|rccl-tests):? version:?\s+(\S+)(?:.*\b[nr]ccl-library=(\d+))?", re.IGNORECASE)
PROGRAM = re.compile(r"Collective test (starting|concluded):?\s*(\S+)")
SETTINGS = re.compile(r"\bnThread:?\s+\d+\s+nGpus:?\s+\d+")
DEVICE = re.compile(
    r"\bRank\s++(\d{1,7})\s++(?:Group\s++(\d{1,7})\s++)?(?:Pid\s++(\d{1,10})\s++)?(?:on\s++(\S++)\s++|uses\s++)"
    r"device\s++(\d{1,5})\s++\[([^\]]*+)\]\s*+(.*)"
)
KEPT = re.compile(
    r"Using devices|Blocking|Per-Iteration|Parallel Init|Reducing maxBytes|GPU memory usage|error:|collbench \d"
)
END = re.compile(r"Out of bounds values\s*:|Avg bus bandwidth\s*:|Collective test concluded")
TABLE = re.compile(r"out-of-place|in-place|\(B\) .{0,80}\([um]s\)")
SAID = re.compile(r"\b((?:NCCL|RCCL)_[A-Z0-9_]+) set by environment to ([^\s]+?)\.?\s*$")
LEVELS = (" NCCL INFO ", " NCCL WARN ", " NCCL TRACE ", " NCCL ABORT ", " NCCL VERSION ")
GLUED = re.compile(r"(?:-?\d+(?:\.\d+)?(?:e[+-]\d+)?|N/A)(?=[A-Za-z])")  # a row's last word, and then a host's name
LIBRARY = re.compile(r"\b[NR]CCL version (\d{1,3}\.\d{1,3}\.\d{1,3})")
EXPORTED = re.compile(r"^collbench \S+: (\S+) on (\S+), (\d{1,7}) ranks?$")
WIDEST = 1000  # characters of half a row
FIGURE = re.compile(r"^collbench \S+: times are of the kind (\w{1,20})$")
WHO = re.compile(r"\S+:\d+:\d+$")


@dataclass
class LogSection:
    """One test's part of a log."""

    columns: Columns | None = None
    devices: list[Device] = field(default_factory=list)
    before: list[str] = field(default_factory=list)  # the tool's own lines above the rows
    after: list[str] = field(default_factory=list)  # and below them
    rows: list[tuple[str, LogRow]] = field(default_factory=list)
    bad: list[tuple[int, str]] = field(default_factory=list)  # lines that are rows in part
    tool: str = "nccl-tests"
    version: str = ""
    library: int = 0  # NCCL's version code
    release: str = ""  # NCCL's version as it says itself
    program: str = ""
    settings: str = ""
    ended: bool = False
    above: str = ""  # the last line that names places
    named: list[str] = field(default_factory=list)  # programs, by lines above the table
    started: int | None = None  # ranks, by the command line above it
    said: dict[str, str] = field(default_factory=dict)  # variables that NCCL says it heeds
    figure: str = "mean"  # of what kind its times are, if collbench wrote it
    average: int | None = None  # of -a on the command line above it: over which ranks
    exported: tuple[str, str, int] | None = None  # implementation, platform and ranks, if collbench wrote it

    def take(self, line: str) -> bool:
        """Keep a line as a row, if it is a whole one."""
        row = match(line, self.columns) if self.columns else None
        if row:
            self.rows.append((line, row))
        return row is not None


def without_log(line: str, said: dict[str, str]) -> str:
    """A line without NCCL's, which may begin inside it; `said` gets the variables that it names."""
    places = [line.find(level) for level in LEVELS]
    at = min((place for place in places if place >= 0), default=-1)
    if at < 0:
        return line
    if match := SAID.search(line):
        said[match[1]] = match[2]
    words = line[:at].split()
    while words and not WHO.fullmatch(words[-1]):
        words.pop()
    if not words:
        return line[:at]
    start = line.rfind(words[-1], 0, at)
    glued = GLUED.match(words[-1])
    if glued and (begins(line[:start]) or pieces(line[:start])):
        return line[:start] + glued[0]
    before = line[:start].rstrip()
    stamp = before.rfind("[")  # NCCL_DEBUG_TIMESTAMP_FORMAT
    return before[:stamp].rstrip() if stamp >= 0 and before.endswith("]") else before


def sections(source: Source) -> Iterator[LogSection]:
    """The tests of a log, in order; a section without columns holds no table."""
    section, half, at, coming = LogSection(), "", 0, LogSection()
    for number, raw in source.lines():
        line = cells(without_log(bare(raw), section.said))
        if not line.strip():
            continue
        begun, own = begins(line, section.columns is not None or bool(section.before)), _is_own(line)
        if half and (begun or own):
            section.bad.append((at, half))
            half = ""
        if begun or half:
            half, at = (line, number) if begun else (_joined(section, half, line), at)
            half = "" if section.take(half) else half
        elif own:
            if (section.rows or section.bad) and not _belongs_below(line):
                yield section
                section, coming = _next(section, line, coming), LogSection()
            _note(section, line)
        else:
            _heed(coming if section.rows or section.bad else section, line)
    if half:
        section.bad.append((at, half))
    yield section


def _joined(section: LogSection, half: str, line: str) -> str:
    """Half a row with what may be its rest: torn inside a number, unless only a blank between them makes it whole."""
    if not pieces(line) or len(half) > WIDEST:
        return half
    if line[0].isspace() or half[-1].isspace():
        return half + line
    spaced = f"{half} {line}"
    whole = section.columns is not None and match(spaced, section.columns) is not None
    return spaced if whole else half + line


def _heed(section: LogSection, line: str) -> None:
    """What a line of another program says of the table below it."""
    if match := LIBRARY.search(line):
        section.release = match[1]
    if found := programs(line):
        section.named += found
        section.started, section.average = ranks_started(line), averaged(line)


def body(line: str) -> str:
    """A line's words, whatever marks it as a comment."""
    return line.strip().lstrip("#").strip()


def _is_own(line: str) -> bool:
    if line.strip() == "#":
        return True
    text = body(line)
    signs = (VERSION, PROGRAM, SETTINGS, DEVICE, KEPT, END, TABLE)
    return any(sign.search(text) for sign in signs) or header(text.split(), "") is not None


def _belongs_below(line: str) -> bool:
    text = body(line)
    return not text or END.search(text) is not None or text.startswith(("GPU memory usage", "error:"))


def _next(done: LogSection, line: str, coming: LogSection) -> LogSection:
    """After a table a bare header is of the same kind unless a command stands between; all else begins a new test."""
    text, release = body(line), coming.release or done.release
    if coming.named or not (TABLE.search(text) or header(text.split(), "")):
        named = coming.named or done.named
        return LogSection(
            release=release, said=dict(done.said), named=list(named), started=coming.started, average=coming.average
        )
    return replace(done, release=release, devices=list(done.devices), said=dict(done.said), **_empty())


def _empty() -> dict[str, Any]:
    return {"before": [], "after": [], "rows": [], "bad": [], "ended": False, "above": ""}


def _note(section: LogSection, line: str) -> None:
    """What one of the tool's own lines says."""
    text = body(line)
    (section.after if section.rows else section.before).append(line)
    section.ended = section.ended or bool(END.search(text))
    if columns := header(text.split(), section.above):
        section.columns = columns
    elif TABLE.search(text):
        section.above = text
        if section.columns and "(ms)" in text:
            section.columns = replace(section.columns, unit=1e-3)
    elif match := EXPORTED.match(text):
        section.exported = match[1], match[2], int(match[3])
    elif match := FIGURE.match(text):
        section.figure = match[1]
    elif match := VERSION.search(text):
        section.tool, section.version = match[1].lower(), match[2]
        section.library = int(match[3][:9]) if match[3] else 0
    elif (match := PROGRAM.search(text)) and match[1] == "starting":
        section.program = match[2]
    elif SETTINGS.search(text):
        section.settings = text
    elif match := DEVICE.search(text):
        rank, group, pid, host, number, bus, name = match.groups()
        where = int(group or 0), int(pid or 0), int(number), bus
        section.devices.append(Device(int(rank), (host or "").strip(), name.strip(), *where))
