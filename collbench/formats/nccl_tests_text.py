"""The text that nccl-tests and rccl-tests print, of every version since 2015: the tests of a log as results."""

import re
from collections.abc import Iterator
from dataclasses import replace

from collbench.collectives import Collective, of_nccl_tests
from collbench.datatypes import find_datatype
from collbench.errors import RunFileError, UsageError
from collbench.formats import Format
from collbench.formats.imported import (
    ForeignRow,
    Hints,
    ImportedTest,
    LeftOut,
    Machine,
    UnfitRow,
    known_collective,
    machine_of,
    make_results,
    no_collective,
    ranks_of_bandwidths,
    require_ranks,
)
from collbench.formats.nccl_tests_log import PROGRAM_LINE, SETTINGS, VERSION, LogSection, read_header, sections
from collbench.formats.nccl_tests_write import TEXT as NAME
from collbench.formats.nccl_tests_write import write_text
from collbench.formats.source import HEAD, Source, body, clean, count, exact, number, seconds_of

AVERAGES = {"0": "of rank 0", "1": "mean over ranks", "2": "fastest rank", "3": "slowest rank"}  # -a
AMD = re.compile(r"AMD|Radeon|\bVega\b|Instinct|\bMI\d{2,3}|gfx\d")


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
            tests.append(_without_rows(source, f"{len(section.rows)} rows: {error}"))
    if len(errors) == len(tests):
        raise errors[0]
    return tests


def _read_test(source: Source, section: LogSection, hints: Hints, *, alone: bool) -> ImportedTest:
    left_out = LeftOut(f"line {at} is no whole row ({clean(line, 40)!r})" for at, line in section.bad)
    if not section.rows:
        return _without_rows(source, *left_out.reasons)
    listed = _listed_ranks(section, hints)
    try:
        collective = _find_collective(source.name, section, hints, listed, alone=alone)
    except UnfitRow as error:
        for at in range(len(section.rows)):
            left_out.add(str(error), at)
        return _without_rows(source, *left_out.reasons)
    rows = list(_rows(section, collective))
    of_rows = _shares(section) if collective.sharded else ranks_of_bandwidths(rows, collective)
    ranks = require_ranks(source.name, Hints(), listed or of_rows, "it lists no ranks")
    implementation, platform, _ = section.exported or (_library(section), "gpu", ranks)
    distinct = {(device.group, device.rank): device for device in section.devices}
    versions = {_library(section): section.above.library or section.library, section.tool: clean(section.version)}
    machine = machine_of(list(distinct.values()), ranks, platform, versions, section.variables)
    machine = replace(machine, racks=len(section.fabrics))
    over = AVERAGES.get(section.above.average, "mean over ranks, unless -a said otherwise")
    statistic = f"{section.figure} of {section.settings.get('iters', 'some')} operations, {over}"
    results = make_results(
        source.name, rows, machine, implementation=implementation, statistic=statistic, left_out=left_out
    )
    return ImportedTest(
        format=NAME,
        tool=section.tool,
        version=clean(section.version),
        file=source.file,
        machine=machine,
        results=results,
        complete=section.ended,
        started=section.rows[0].stamp.replace(" ", "T") or None,
        sweep=section.settings,
        layout={"before": section.header},
        left_out=left_out.reasons,
        remarks=tuple(_remarks(section, ranks)),
    )


def _without_rows(source: Source, *left_out: str) -> ImportedTest:
    return ImportedTest(format=NAME, file=source.file, machine=Machine(1, "unknown"), results=(), left_out=left_out)


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

    The user's word does not relabel one test of several whose command line says otherwise.  UsageError if nothing tells
    the collective, or the user's word does not fit the table; UnfitRow if its own does not, or is not known.
    """
    programs = dict.fromkeys(section.above.programs)
    commands = [word for word in programs if _fits(known_collective(word), section, ranks)]
    if section.program:
        return _require_fitting(section.program, section, ranks)
    if hints.collective and (alone or not commands):
        try:
            return _require_fitting(hints.collective, section, ranks)
        except UnfitRow as error:
            raise UsageError(f"{name}: {error}; give another --op NAME") from None
    if len(commands) == 1:
        return _require_fitting(commands[0], section, ranks)
    reduces = section.rows[-1].case["redop"] not in ("", "none")
    alike = [known for known in of_nccl_tests() if known.reduces == reduces]
    fitting = commands or [known.name for known in alike if _fits(known, section, ranks)]
    if len(fitting) == 1 and not section.above.programs:
        return _require_fitting(fitting[0], section, ranks)
    choices = f"; {', '.join(fitting)} would fit" if fitting else ""
    raise UsageError(f"{name} does not say which collective it is of{choices}; give --op NAME")


def _require_fitting(word: str, section: LogSection, ranks: int | None) -> Collective:
    collective = known_collective(word)
    if not collective:
        raise UnfitRow(no_collective(word))
    if not _fits(collective, section, ranks):
        raise UnfitRow(f"its columns are not those of {collective.name}")
    return collective


def _fits(collective: Collective | None, section: LogSection, ranks: int | None) -> bool:
    """Whether the columns of a table may be those of a collective; of one that is not here nobody knows."""
    if not collective:
        return True
    case = section.rows[-1].case
    if collective.reduces and case["redop"] in ("", "none"):  # but older versions print `sum` for sendrecv, too
        return False
    if collective.rooted != (int(case.get("root", "-1")) >= 0):
        return False
    shares = None if ranks == 1 else _shares(section)
    return shares is None or collective.sharded == (shares > 1)


def _shares(section: LogSection) -> int | None:
    """Return how many times count and type make the largest size; None where it is no multiple of them."""
    sizes = [(exact(row.case["size"]) or 0, exact(row.case.get("count", "")) or 0, row.case) for row in section.rows]
    nbytes, elements, case = max(sizes, key=lambda size: size[0], default=(0, 0, {}))
    try:
        share = elements * find_datatype(case.get("type", "").lower().removeprefix("nccl")).itemsize
    except UsageError:
        return None
    return nbytes // share if share and nbytes % share == 0 else None


def _rows(section: LogSection, collective: Collective) -> Iterator[ForeignRow]:
    """Yield the places of all rows that say anything, at least one of each."""
    columns = section.columns
    if not columns:
        return
    together, groups = section.settings.get("aggregated", 1), len({device.group for device in section.devices})
    of_all = [f"{together} operations aggregated in a group (-m)"] if together > 1 else []
    of_all += [f"{groups} groups at once"] if groups > 1 else []
    for at, row in enumerate(section.rows):
        printed = {"line": row.line} | row.appended | ({"timestamp": row.stamp} if row.stamp else {})
        places = [
            place for place, words in enumerate(row.places) if any(number(word) is not None for word in words.values())
        ]
        for place in places or [0]:
            words = row.places[place]
            on_cpu, error = "cputime" in words, words.get("error", "")
            notes = [*of_all, "CPU time of the call (-C)"] if on_cpu else [*of_all]
            notes += [f"largest error {error}"] if number(error.rstrip("*")) else []
            yield ForeignRow(
                number=at,
                collective=collective.name,
                nbytes=exact(row.case["size"]),
                dtype=row.case["type"],
                redop=row.case["redop"] or "sum",
                root=max(0, int(row.case.get("root", "0"))),
                in_place=columns.in_place(place),
                seconds=seconds_of(words["cputime" if on_cpu else "time"], columns.unit),
                busbw=None if on_cpu else number(words.get("busbw")),
                wrong=_wrong(words),
                note=", ".join(notes),
                printed=printed | words,
            )


def _wrong(words: dict[str, str]) -> int | None:
    """Wrong elements; where only the largest error was printed, 0 of them if that is 0, and some behind a star."""
    if "#wrong" in words:
        return count(words["#wrong"])
    error = words.get("error", "")
    if error.endswith("*"):
        return 1
    return 0 if number(error) == 0 else None


def _library(section: LogSection) -> str:
    """Whose collectives were timed; the layouts are the same."""
    columns = section.columns
    hip = columns and (columns.appended or any("hipevt" in place for place in columns.places))
    amd = any(AMD.search(device.name) for device in section.devices[:1])
    return "rccl" if section.tool == "rccl-tests" or hip or amd else "nccl"


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
