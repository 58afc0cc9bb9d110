"""The text of the OSU Micro-Benchmarks, over MPI and over NCCL: latency of collectives, latency and bandwidth of pairs.

What `Size` counts is told by the sources of OMB 7.x: bytes of each rank's message, but of the whole array for
reduce-scatter.  Sizes in run files are of the whole array.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from collbench.collectives import COLLECTIVES
from collbench.errors import RunFileError
from collbench.formats import Format
from collbench.formats.commands import started
from collbench.formats.imported import Hints, Machine, Rows, Test, UnfitRow, make_case, said_ranks
from collbench.formats.nccl_tests.columns import begins
from collbench.formats.nccl_tests.lines import EXPORTED, body, without_log
from collbench.formats.osu_write import NAME, TESTS, TYPES, OsuKind, write
from collbench.formats.source import SHORTEST, Source, clean, exact, microseconds, number
from collbench.formats.wrapping import bare
from collbench.measurement import Reported
from collbench.note import Note

TITLE = re.compile(
    r"OSU ([\w+]{1,20})(?:-(\w{1,20}))? (\S[^#]{0,80}?)(?:\s[Tt]est)?(?:[\s,]+\(?(?:[vV]ersion )?v?(\d\S{0,20}?)\)?)?$"
)
LIBRARIES = {"MPI": "mpi", "NCCL": "nccl", "RCCL": "rccl"}
ONE_SIDED = re.compile(r"(?:Window creation|Synchronization):")
COLUMN = re.compile(
    r"(?:Avg |Average |Min |Max |P\d{1,3} Tail )?Lat(?:ency)?\s?\(us\)|Iterations|Validation|Bandwidth\s?\(MB/s\)"
    r"|Messages/s|Overall\s?\(us\)|Compute\s?\(us\)|Coll\. Init\s?\(us\)|Pure Comm\.\s?\(us\)|Overlap\s?\(%\)"
)
TYPE = re.compile(r"Datatype:\s*(\w+)")
TIME = re.compile(r"(?:Avg |Average )?Lat(?:ency)?\s*\(us\)")
RATE = re.compile(r"Bandwidth\s*\(MB/s\)")


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
        elif re.match(r"Size\s", text):
            self.columns = _columns(text[5:].strip())
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
    ranks = _ranks(source, section, kind, hints)
    told = hints.ranks or section.exported or not kind or kind.pair
    commanded = [] if told else [f"{ranks} ranks, as its command line says"]
    gpu = section.library in ("NCCL", "RCCL") or bool(section.device)
    name, platform, _ = section.exported or (LIBRARIES[section.library], "gpu" if gpu else "cpu", ranks)
    for at, (number_, line) in enumerate(section.rows):
        try:
            rows.results.append(_result(at, line, section, kind, ranks, (name, platform)))
        except UnfitRow as error:
            torn = " (torn?)" if source.torn and source.text.endswith(line) else ""
            rows.leave(f"line {number_}: {error}{torn}" if kind else str(error))
    assumed = (
        []
        if section.exported or gpu or not kind
        else ["buffers taken to be the host's, since its title names no device"]
    )
    return Test(
        format=NAME,
        tool="OSU Micro-Benchmarks",
        version=clean(section.version, 20),
        file=source.file,
        machine=Machine(ranks, f"{ranks} {'x unknown GPU' if platform == 'gpu' else 'ranks'}", platform),
        results=tuple(rows.results),
        layout={"before": section.lines},
        left_out=rows.left_out,
        remarks=(*commanded, *assumed),
    )


def _ranks(source: Source, section: _Section, kind: OsuKind | None, hints: Hints) -> int:
    """Only tests of pairs tell it."""
    if kind is None:  # none of its rows is kept
        return hints.ranks or 1
    if kind.pair:
        return 2
    said = section.exported[2] if section.exported else section.started
    return said_ranks(hints, said, source.name, "tables of OSU do not tell the number of ranks")


def _result(at: int, line: str, section: _Section, kind: OsuKind | None, ranks: int, who: tuple[str, str]) -> Reported:
    if kind is None:
        raise UnfitRow(f"collbench has no collective like {clean(section.title, 60)!r}")
    words, names = line.split(), section.columns
    size = exact(words[0])
    if (
        size is None
        or len(words) != len(names) + 1
        or any(number(word) is None for word in words[1:] if word[0].isdigit())
    ):
        raise UnfitRow(f"it is no whole row ({clean(line, 40)!r})")
    printed = dict(zip(names, words[1:], strict=True))
    seconds, statistic = _seconds(printed, size)
    collective = COLLECTIVES[kind.collective]
    default = "float" if collective.reduces else "int8"
    dtype = TYPES.get(section.dtype.upper(), section.dtype) if section.dtype else default
    case = make_case(collective, size * kind.messages(ranks), dtype, "sum", 0, ranks, False)
    verdict = printed.get("Validation", "").lower()
    notes = [kind.note, "validation failed; how many elements is not said" if verdict == "fail" else ""]
    notes += [] if section.dtype else ["type not said"]
    return Reported(
        case,
        *who,
        seconds=seconds,
        statistic=statistic,
        wrong_elements={"pass": 0, "fail": 1}.get(verdict),
        printed={"row": at, "line": line, **printed},
        note=Note.of(", ".join(filter(None, notes))),
    )


def _seconds(printed: Mapping[str, str], size: int) -> tuple[float, str]:
    """Of an operation, and what that is of which."""
    for name, word in printed.items():
        if TIME.fullmatch(name):
            return microseconds(word), "mean of the operations, mean over ranks"
    for name, word in printed.items():
        rate = number(word) if RATE.fullmatch(name) else None
        if rate and rate > 0:
            seconds = size / (rate * 1e6)
            return (
                seconds if seconds >= SHORTEST else 0.0,
                "mean of a message's share of a window of messages in flight",
            )
    raise UnfitRow("it has neither a latency nor a bandwidth")


FORMAT = Format(NAME, "text of the OSU Micro-Benchmarks", recognises, read, write, among=True, order=2)
