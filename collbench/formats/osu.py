"""The text of the OSU Micro-Benchmarks, over MPI and over NCCL: latency of collectives, latency and bandwidth of pairs.

What `Size` counts is told by the sources of OMB 7.x: bytes of each rank's message, but of the whole array for
reduce-scatter.  Sizes in run files are of the whole array.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from collbench.collectives import COLLECTIVES, Collective
from collbench.datatypes import DATATYPES, find_datatype
from collbench.errors import RunFileError
from collbench.formats import Format
from collbench.formats.commands import started
from collbench.formats.imported import Hints, Machine, Rows, Test, UnfitRow, make_case, said_ranks
from collbench.formats.nccl_tests.columns import begins
from collbench.formats.nccl_tests.lines import EXPORTED, body, without_log
from collbench.formats.osu_tests import TESTS, TYPES, OsuKind
from collbench.formats.osu_write import NAME, write
from collbench.formats.source import SHORTEST, Source, clean, exact, microseconds, number
from collbench.formats.wrapping import bare
from collbench.results import Note, Reported

TITLE = re.compile(
    r"OSU ([\w+]{1,20})(?:-(\w{1,20}))? (\S[^#]{0,80}?)(?:\s[Tt]est)?(?:[\s,]+\(?(?:[vV]ersion )?v?(\d\S{0,20}?)\)?)?$"
)
LIBRARIES = {"MPI": "mpi", "NCCL": "nccl", "RCCL": "rccl"}
ONE_SIDED = re.compile(r"(?:Window creation|Synchronization):")
COLUMN = re.compile(
    r"(?:Avg |Average |Min |Max |P\d{1,3} Tail )?Lat(?:ency)?\s?\(us\)|Iterations|Validation|Bandwidth\s?\(MB/s\)"
    r"|MB/s|Messages/s|Overall\s?\(us\)|Compute\s?\(us\)|Coll\. Init\s?\(us\)|Pure Comm\.\s?\(us\)|Overlap\s?\(%\)"
)
TYPE = re.compile(r"Datatype:\s*(\w+)")
TIME = re.compile(r"(?:Avg |Average )?Lat(?:ency)?\s*\(us\)")
RATE = re.compile(r"Bandwidth\s*\(MB/s\)|MB/s")
PAIRS = re.compile(r"\[ pairs: (\d{1,6}) \]")


@dataclass
class _Section:
    """One table and the lines above it."""

    title: str = ""
    library: str = "MPI"
    device: str = ""
    version: str = ""
    dtype: str = ""
    columns: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    rows: list[tuple[int, str]] = field(default_factory=list)
    exported: tuple[str, str, int] | None = None
    started: int | None = None  # processes, by the last command line above it
    pairs: int | None = None

    def heads(self, line: str, text: str) -> bool:
        """Take a line in if it stands above a table."""
        title, dtype, exported = TITLE.match(text), TYPE.match(text), EXPORTED.match(text)
        if title:
            known = title[1] in LIBRARIES  # of MPI_Put and OpenSHMEM it is part of what is measured
            self.library, self.device = title[1] if known else "MPI", title[2] or ""
            self.title, self.version = title[3] if known else f"{title[1]} {title[3]}", title[4] or ""
        elif ONE_SIDED.match(text):
            self.title = self.title if "one-sided" in self.title else f"one-sided {self.title}"
        elif dtype:
            self.dtype = dtype[1]
        elif pairs := PAIRS.match(text):
            self.pairs = int(pairs[1])
        elif re.match(r"Size\s", text):
            self.columns = _columns(text[5:].strip())
        elif self.title.lower() == "barrier latency" and TIME.match(text):
            self.columns = _columns(text)
        elif exported:
            self.exported = exported[1], exported[2], int(exported[3])
        else:
            return False
        self.lines.append(line)
        return True

    def after(self, text: str) -> "_Section":
        """The next table, whose first line is this one: a title begins anew, else the last one holds."""
        return _Section() if TITLE.match(text) else replace(self, columns=[], lines=[], rows=[])


def _columns(text: str) -> list[str]:
    """The names of the columns behind the first; documents may leave one blank between them."""
    names = COLUMN.findall(text)
    return names if "".join("".join(names).split()) == "".join(text.split()) else re.split(r"\s{2,}|\t", text)


def recognises(source: Source) -> bool:
    """By a title."""
    return any("OSU " in line and TITLE.match(body(bare(line))) for _, line in source.lines())


def read(source: Source, hints: Hints) -> list[Test]:
    """Every table."""
    sections = [section for section in _sections(source) if section.rows]
    if not sections:
        raise RunFileError(f"{source.name}: text of the OSU benchmarks without a row of results")
    return [_test(source, section, hints) for section in sections]


def _sections(source: Source) -> Iterator[_Section]:
    section, processes = _Section(), None
    for number_, raw in source.lines():
        line = without_log(bare(raw), {})
        text = body(line)
        processes = started(line) or processes
        if section.rows and _Section().heads(line, text):
            yield section
            section = section.after(text)
        row = text[:1].isdigit() and not line.lstrip().startswith("#") and not begins(line, known=False)
        if section.heads(line, text):
            section.started = processes
        elif section.columns and row:
            section.rows.append((number_, line))
    yield section


def _test(source: Source, section: _Section, hints: Hints) -> Test:
    kind, rows = TESTS.get(section.title.lower()), Rows()
    collective = _meant(section, kind, hints)
    kind = kind if collective else None
    ranks = _ranks(source, section, kind, hints)
    gpu = section.library in ("NCCL", "RCCL") or bool(section.device)
    name, platform, _ = section.exported or (LIBRARIES[section.library], "gpu" if gpu else "cpu", ranks)
    for at, (number_, line) in enumerate(section.rows):
        try:
            if not kind or not collective:
                raise UnfitRow(f"collbench has no collective like {clean(section.title, 60)!r}")
            row = _Row(line, section, kind, collective, ranks)
            rows.results.append(row.reported(at, (name, platform)))
        except UnfitRow as error:
            torn = " (torn?)" if source.torn and source.text.endswith(line) else ""
            rows.leave(f"line {number_}: {error}{torn}" if kind else str(error))
    return Test(
        format=NAME,
        tool="OSU Micro-Benchmarks",
        version=clean(section.version, 20),
        file=source.file,
        machine=Machine(ranks, f"{ranks} {'x unknown GPU' if platform == 'gpu' else 'ranks'}", platform),
        results=tuple(rows.results),
        layout={"before": section.lines},
        left_out=rows.left_out,
        remarks=tuple(_remarks(section, kind, hints, ranks, gpu)),
    )


def _remarks(section: _Section, kind: OsuKind | None, hints: Hints, ranks: int, gpu: bool) -> Iterator[str]:
    """What a reader of its rows may want to know."""
    if section.exported or not kind:
        return
    if not hints.ranks and not kind.pair:
        said = "the pairs above its table say" if section.pairs else "its command line says"
        yield f"{ranks} ranks, as {said}"
    if not gpu:
        yield "buffers taken to be the host's, since its title names no device"


def _ranks(source: Source, section: _Section, kind: OsuKind | None, hints: Hints) -> int:
    """Only tests of pairs tell it."""
    if kind is None:  # none of its rows is kept
        return hints.ranks or 1
    if kind.pair and not section.exported:
        return 2
    said = section.exported[2] if section.exported else 2 * section.pairs if section.pairs else section.started
    return said_ranks(hints, said, source.name, "tables of OSU do not tell the number of ranks")


def _meant(section: _Section, kind: OsuKind | None, hints: Hints) -> Collective | None:
    """What a table's rows are of: just what its test does, if we wrote it or the user says so; None for nothing here.

    A pair of a foreign log is taken for `sendrecv` else, with a note.
    """
    if kind and kind.own and (section.exported or hints.collective == kind.own):
        return COLLECTIVES[kind.own]
    return COLLECTIVES.get(kind.collective) if kind else None


@dataclass(frozen=True)
class _Row:
    """A line of a table, and what the table says of it."""

    line: str
    section: _Section
    kind: OsuKind
    collective: Collective
    ranks: int

    def reported(self, at: int, who: tuple[str, str]) -> Reported:
        """The row as a result, by this implementation and platform; UnfitRow if it is none."""
        dtype = self._dtype()
        size, printed = self._words(dtype)
        seconds, statistic = _seconds(printed, size * self.collective.bus_factor(self.ranks))
        case = make_case(self.collective, size * self.kind.messages(self.ranks), dtype, "sum", 0, self.ranks, False)
        verdict = printed.get("Validation", "").lower()
        return Reported(
            case,
            *who,
            seconds=seconds,
            statistic=statistic,
            wrong_elements={"pass": 0, "fail": 1}.get(verdict),
            printed={"row": at, "line": self.line, **printed},
            note=Note.of(", ".join(filter(None, self._notes(verdict == "fail")))),
        )

    def _dtype(self) -> str:
        said = self.section.dtype
        return TYPES.get(said.upper(), said) if said else "float" if self.collective.reduces else "int8"

    def _words(self, dtype: str) -> tuple[int, dict[str, str]]:
        """The size, which for a barrier is the element that it takes here, and what stands in the columns."""
        words, names = self.line.split(), self.section.columns
        if not self.collective.sized:
            words = [str(find_datatype(dtype).itemsize) if dtype in DATATYPES else "1", *words]
        size = exact(words[0])
        whole = len(words) == len(names) + 1
        if size is None or not whole or any(number(word) is None for word in words[1:] if word[0].isdigit()):
            raise UnfitRow(f"it is no whole row ({clean(self.line, 40)!r})")
        return size, dict(zip(names, words[1:], strict=True))

    def _notes(self, failed: bool) -> Iterator[str]:
        yield self.kind.note if self.collective.name == self.kind.collective else ""
        yield "validation failed; how many elements is not said" if failed else ""
        yield "" if self.section.dtype else "type not said"


def _seconds(printed: Mapping[str, str], moved: float) -> tuple[float, str]:
    """Of an operation, and what that is of which; `moved` are the bytes that its rate counts."""
    for name, word in printed.items():
        if TIME.fullmatch(name):
            return microseconds(word), "mean of the operations, mean over ranks"
    for name, word in printed.items():
        rate = number(word) if RATE.fullmatch(name) else None
        if rate and rate > 0:
            seconds = moved / (rate * 1e6)
            return (
                seconds if seconds >= SHORTEST else 0.0,
                "mean of a message's share of a window of messages in flight",
            )
    raise UnfitRow("it has neither a latency nor a bandwidth")


FORMAT = Format(NAME, "text of the OSU Micro-Benchmarks", recognises, read, write, among=True, order=2)
