"""The text that nccl-tests and rccl-tests print, of every version since 2018."""

from collections.abc import Iterator, Mapping
from typing import Any

from collbench.cases import Case
from collbench.collectives import Collective
from collbench.errors import RunFileError, UsageError
from collbench.formats import Format
from collbench.formats.imported import Hints, Machine, Rows, Test, make_case
from collbench.formats.nccl_tests.columns import LogRow, header, stamped
from collbench.formats.nccl_tests.doubts import Doubts
from collbench.formats.nccl_tests.facts import LogFacts
from collbench.formats.nccl_tests.lines import PROGRAM, SETTINGS, VERSION, LogSection, body, sections
from collbench.formats.nccl_tests.write_text import program, write
from collbench.formats.source import HEAD, Source, clean, count, exact, number, seconds_of
from collbench.results import Note, Reported

NAME = "nccl-tests"

TOLD = ("threads", "gpus", "warmup", "iters", "aggregated", "graph")
"""Settings that a run file keeps."""


def recognises(source: Source) -> bool:
    """Whether there is a table of it, or the lines above one."""
    head = source.text[:HEAD]
    if VERSION.search(head) or SETTINGS.search(head) or PROGRAM.search(head):
        return True
    return any("algbw" in line and header(body(line).split(), "") for _, line in source.lines())


def read(source: Source, hints: Hints) -> list[Test]:
    """Every test of a log."""
    tables = [section for section in sections(source) if section.rows or section.bad]
    if not tables:
        raise RunFileError(f"{source.name}: a log of nccl-tests or rccl-tests without a row of results")
    elsewhere = list(dict.fromkeys(name for section in tables for name in (*section.named, section.program) if name))
    alone = sum(bool(section.rows) for section in tables) < 2
    if alone:
        return [_test(LogFacts(source, section, hints, True, elsewhere)) for section in tables]
    tests = [_told(LogFacts(source, section, hints, False, elsewhere)) for section in tables]
    if all(isinstance(test, UsageError) for test in tests):
        raise next(test for test in tests if isinstance(test, UsageError))
    return [
        _untold(source, section, test) if isinstance(test, UsageError) else test
        for section, test in zip(tables, tests, strict=True)
    ]


def _told(facts: LogFacts) -> Test | UsageError:
    try:
        return _test(facts)
    except UsageError as error:
        return error


def _untold(source: Source, section: LogSection, error: UsageError) -> Test:
    """A test of several that does not tell its collective or ranks: the others are read without it."""
    rows = Rows()
    for _ in section.rows:
        rows.leave(str(error))
    machine = Machine(1, "unknown")
    return Test(format=NAME, tool=section.tool, file=source.file, machine=machine, results=(), left_out=rows.left_out)


def _test(facts: LogFacts) -> Test:
    section, rows = facts.section, Rows()
    for at, line in section.bad:
        rows.leave(f"line {at} is no whole row ({clean(line, 40)!r})")
    doubts = Doubts(facts)
    for at, (line, row) in enumerate(section.rows):
        if refusal := doubts.of_test or doubts.of_row(at):
            rows.leave(refusal)
        elif facts.collective:
            rows.add(_results(facts, facts.collective, at, line, row))
    return Test(
        format=NAME,
        tool=section.tool,
        version=clean(section.version),
        file=facts.source.file,
        machine=facts.machine,
        results=tuple(rows.results),
        complete=section.ended,
        started=facts.started,
        sweep={name: facts.known[name] for name in TOLD if name in facts.known},
        layout={"before": [*_added(facts), *section.before], "after": section.after},
        left_out=rows.left_out,
        remarks=(*_remarks(section), *doubts.remarks),
    )


def _added(facts: LogFacts) -> Iterator[str]:
    """What an export must say above a table so that it can be read again: what lines of others, or the user, told."""
    section = facts.section
    if not section.program and facts.collective and not (facts.alone and facts.hints.collective):
        yield f"# Collective test starting: {program(facts.collective)}"


def _results(facts: LogFacts, collective: Collective, at: int, line: str, row: LogRow) -> Iterator[Reported]:
    """Of the row's places those that say anything; at least one."""
    columns, stamp = facts.section.columns, stamped(line)[1]
    assert columns
    common: dict[str, Any] = {"row": at, "line": line} | row.appended | ({"timestamp": stamp} if stamp else {})
    redop, root = row.case["redop"] or "sum", max(0, int(row.case.get("root", "0")))
    told = [place for place, words in enumerate(row.places) if any(number(word) is not None for word in words.values())]
    for place in told or [0]:
        size, words = exact(row.case["size"]) or 0, row.places[place]
        ranks, in_place = facts.machine.ranks, columns.in_place(place)
        case = make_case(collective, size, row.case["type"], redop, root, ranks, in_place)
        yield _reported(facts, case, words, common | words)


def _reported(facts: LogFacts, case: Case, words: Mapping[str, str], printed: Mapping[str, Any]) -> Reported:
    assert facts.section.columns
    on_cpu, error = "cputime" in words, words.get("error", "")
    notes = [facts.note, "CPU time of the call (-C)" if on_cpu else ""]
    notes += [f"largest error {error}" if number(error.rstrip("*")) else ""]
    exported = facts.section.exported or (facts.library, "gpu")
    return Reported(
        case,
        exported[0],
        exported[1],
        seconds=seconds_of(words["cputime" if on_cpu else "time"], facts.section.columns.unit),
        statistic=facts.statistic,
        wrong_elements=_wrong(words),
        printed=printed,
        note=Note.of(", ".join(filter(None, notes))),
    )


def _wrong(words: Mapping[str, str]) -> int | None:
    """Wrong elements; where only the largest error was printed, 0 of them if that is 0, and some behind a star."""
    if "#wrong" in words:
        return count(words["#wrong"])
    error = words.get("error", "")
    return 1 if error.endswith("*") else 0 if number(error) == 0 else None


def _remarks(section: LogSection) -> Iterator[str]:
    if not section.ended:
        yield f"incomplete: no footer, {len(section.rows)} rows"
    listed = [(device.group, device.rank) for device in section.devices]
    if len(set(listed)) < len(listed):
        yield "ranks are listed more than once: copies of the test ran side by side; was it built without MPI?"
    for line in section.after:
        if "error:" in line or "FAILED" in line:
            yield f"it says: {clean(line.strip('# '))}"


FORMAT = Format(NAME, "text of nccl-tests and rccl-tests", recognises, read, write, among=True, order=5)
