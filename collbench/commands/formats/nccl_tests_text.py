"""The text of nccl-tests and rccl-tests, all versions since 2015."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from collbench.collectives import Collective, of_nccl_tests
from collbench.commands.formats.foreign_machine import ForeignMachine, machine_of, require_ranks
from collbench.commands.formats.foreign_row import (
    Fitting,
    ForeignRow,
    UnfitRow,
    known_collective,
    no_collective,
    row_of,
)
from collbench.commands.formats.imported import Hints, ImportedTest, LeftOut, make_test
from collbench.commands.formats.importing import Format
from collbench.commands.formats.nccl_tests_log import GIN, SIGNS, START, LogSection, read_header, sections, share_of
from collbench.commands.formats.nccl_tests_write import TEXT as NAME
from collbench.commands.formats.nccl_tests_write import write_text
from collbench.commands.formats.source import ForeignFile, body, streams
from collbench.commands.formats.words import clean, count, number, whole
from collbench.errors import RunFileError, UsageError
from collbench.properties import NCCL_TESTS
from collbench.results import by_key

AVERAGES = {"0": "of rank 0", "1": "mean over ranks", "2": "fastest rank", "3": "slowest rank"}  # -a
AMD = re.compile(r"AMD|Radeon|\bVega\b|Instinct|\bMI\d{2,3}|gfx\d")


def recognises(source: ForeignFile) -> bool:
    """Whether a file has a table of nccl-tests or the lines above one."""
    if any(sign.search(source.head) for sign in SIGNS):
        return True
    return any("algbw" in line and read_header(body(line).split()) for _, line in source.lines())


def read(source: ForeignFile, hints: Hints) -> list[ImportedTest]:
    """Read every test of a log."""
    begun: list[LogSection] = []
    tests = []
    for name in dict.fromkeys(name for _, line in source.lines() for name in GIN.findall(line)):
        reason = f"the table of {name} measures sends by kernels of two ranks, not a collective"
        tests.append(_without_rows(reason))
    for prefix, part in streams(source, START):
        begun += [replace(section, prefix=prefix) for section in sections(part) if section.begun]
    _mark_copies(begun)
    if not begun and not tests:
        raise RunFileError(f"{source.name}: a log of nccl-tests or rccl-tests without a row of results")
    filled = [section for section in begun if section.rows]
    all_say_ranks = all(section.says_ranks for section in filled)
    errors: list[UsageError] = []
    for section in begun:
        # The user's number of ranks is meant for tables without one.
        its_hints = replace(hints, ranks=None) if section.says_ranks and not all_say_ranks else hints
        if tests and tests[-1].results:
            section.ranks_above = tests[-1].machine.ranks
        try:
            tests.append(_read_test(source, section, its_hints, alone=len(filled) < 2))
        except UsageError as error:  # leave this test out and read the others
            errors.append(error)
            tests.append(_without_rows(f"{len(section.rows)} rows: {error}"))
    if errors and len(errors) == len(filled):
        raise errors[0]
    return tests


def _mark_copies(sections: Sequence[LogSection]) -> None:
    """Mark tables of copies: a test built without MPI runs once in each process of the launcher."""
    for section in sections:
        lists = max(Counter((device.group, device.rank) for device in set(section.devices)).values(), default=0)
        apart = len({device.host for device in section.devices}) > 1 or lists <= section.above.started
        section.copies = max(lists if lists > 1 and apart and _lists_a_process(section) else 0, _alternating(section))

    # Complete outputs in sequence are rounds, unless one launcher started them: then they are copies.
    listed = [section for section in sections if section.rows and not section.bare and _lists_a_process(section)]
    for alike in by_key(listed, lambda each: (each.above.launch, each.program, str(each.settings))).values():
        devices = [device for section in alike for device in dict.fromkeys(section.devices)]
        outputs, started = sum(max(1, section.copies) for section in alike), alike[0].above.started
        if len(alike) > 1 and started > 1 and len(set(devices)) == len(devices):
            for section in alike:
                section.copies = min(outputs, section.above.processes or outputs)
                section.hosts = tuple(dict.fromkeys(device.host for device in devices))


def _lists_a_process(section: LogSection) -> bool:
    """Whether the list of ranks is that of one process, by its numbers of threads and GPUs."""
    numbers = {device.rank for device in section.devices}
    gpus = section.settings.get("gpus", len(numbers))
    return bool(numbers) and max(numbers) + 1 == gpus * section.settings.get("threads", 1)


def _alternating(section: LogSection) -> int:
    """Return the number of neighbouring rows of each case; 0 for cycles (-N), which repeat all cases."""
    rows = section.rows
    places = by_key(range(len(rows)), lambda at: (*rows[at].case.values(), *rows[at].appended.values()))
    *counts, last = map(len, places.values()) if places else [0]
    if len(set(counts)) != 1 or counts[0] < 2 or (last != counts[0] and section.ended):
        return 0
    distance = median(after - before for of_case in places.values() for before, after in pairwise(of_case))
    return counts[0] if distance <= len(places) / 2 else 0


def _read_test(source: ForeignFile, section: LogSection, hints: Hints, *, alone: bool) -> ImportedTest:
    left_out = LeftOut(f"line {at} is an incomplete row ({clean(line, 40)!r})" for at, line in section.bad)
    if not section.rows:
        return _without_rows(*left_out.reasons)
    said = _said_ranks(section, hints)
    try:
        collective = _find_collective(source.name, section, hints, next(iter(said), None), alone=alone)
    except UnfitRow as error:
        left_out.add(str(error), *range(len(section.rows)))
        return _without_rows(*left_out.reasons)
    rows = list(_rows(section, collective))
    ranks = _find_ranks(source.name, section, said, rows, collective)
    library = _library(section)
    implementation, platform, _ = section.exported or (library, "gpu", ranks)
    hosts = section.hosts or tuple(dict.fromkeys(device.host for device in section.devices))
    copies = section.copies if not hosts or ranks in said[:1] else 0  # rows of more ranks: the list is incomplete
    if copies:  # take the machine of the first copy
        section.devices.sort(key=lambda device: hosts.index(device.host), reverse=True)
    distinct = {(device.group, device.rank): device for device in section.devices}
    versions = {library: section.above.library or section.library, section.tool: clean(section.version)}
    machine = machine_of(list(distinct.values()), ranks, platform, versions, section.above.environment)
    if copies and len(hosts) > 1:
        machine = replace(machine, hosts=hosts, hostname=hosts[0])
    over = AVERAGES.get(str(section.above.options.get("average")), "mean over ranks, unless -a said otherwise")
    # Copies make one curve, so the prefixes of their lines do not count.
    layout = {"log": section.above.facts, "prefix": "" if copies else clean(section.prefix)}
    return make_test(
        source.name,
        rows,
        replace(machine, racks=len(section.above.fabrics), copies=copies),
        left_out,
        implementation=implementation,
        statistic=f"mean of {section.settings.get('iters', 'some')} operations, {over}",
        tool=section.tool,
        version=clean(section.version),
        complete=section.ended,
        started=section.rows[0].stamp.replace(" ", "T") or None,
        sweep=section.settings,
        layout={name: value for name, value in layout.items() if value},
        remarks=tuple(_remarks(section, collective, ranks, hints)),
    )


def _without_rows(*left_out: str) -> ImportedTest:
    return ImportedTest(machine=ForeignMachine(ranks=1, name="unknown"), results=(), left_out=left_out)


def _said_ranks(section: LogSection, hints: Hints) -> list[int]:
    """Return the numbers of ranks by the list of ranks, the user and the command, the most trusted first."""
    per_process = section.settings.get("threads", 1) * section.settings.get("gpus", 1)
    groups = {device.group for device in section.devices}
    numbers = {device.rank for device in section.devices}
    hinted = hints.ranks or 0
    if section.exported:
        return [section.exported[2]]

    # Lists may be too short, never too long: the highest rank counts, or a larger number of the user or the command.
    if len(groups) == 1:
        listed = max(max(numbers) + 1, per_process)
        if section.copies:
            return [listed, hinted, section.above.ranks or 0]
        if section.bare:
            return [hinted, section.ranks_above or listed]
        if hinted >= listed:
            return [hinted]
        started = 0 if section.stale else section.above.ranks or 0
        return [max(listed, started), 0 if hinted else listed]

    # In a split communicator, ranks are numbered across groups: only a complete list tells the size of a group.
    if groups and len(numbers) == max(numbers) + 1:
        first = section.devices[0].group
        return [hinted, len({device.rank for device in section.devices if device.group == first})]

    # A process without a launcher has all ranks.
    started = section.above.ranks or 0
    if (section.copies or not (started or groups or section.above.launched)) and per_process > 1:
        started = per_process
    above = section.ranks_above if section.bare else 0
    return [ranks for ranks in (hinted, above, started) if ranks]


def _find_ranks(name: str, section: LogSection, said: list[int], rows: list[ForeignRow], collective: Collective) -> int:
    """Return the first number of ranks in `said` that fits the rows, or else the only number that fits them."""
    fitting = Fitting(rows, collective)
    candidates = [ranks for ranks in said if ranks]

    # The lines above an earlier table say little about a bare one, so its rows count too.
    of_rows = _shares(section) if collective.sharded else fitting.only
    if of_rows and (section.bare or not said):
        candidates.append(of_rows)
    candidates.sort(key=fitting.allows, reverse=True)
    why = "it lists no ranks"
    if len(fitting.best) == 1:
        why += f"; most rows fit {fitting.best[0]}"
    return require_ranks(name, next(iter(candidates), None), why)


def _find_collective(name: str, section: LogSection, hints: Hints, ranks: int | None, *, alone: bool) -> Collective:
    """Return the collective of a test: by its own name, its command, the user's hint, or the columns of its table.

    UsageError if the collective is unknown or the user's hint does not fit the table; UnfitRow if its name does not.
    """
    reduces = section.rows[-1].case["redop"] not in ("", "none")
    exchanged = reduces and _counted_once(section)
    programs = () if section.bare and exchanged else section.above.programs
    commands = [word for word in dict.fromkeys(programs) if _fits(known_collective(word), section, ranks)]

    # For a bare table, the user's hint counts more than the lines above an earlier table.
    fits = _fits(known_collective(hints.collective), section, ranks)
    hinted = hints.collective and not section.program and (alone or not commands or (section.bare and fits))
    word = hints.collective if hinted else section.program

    # Without a name, the columns of the table decide if they fit only one collective.
    if not word:
        alike = (each for each in of_nccl_tests() if not reduces or (each.name == "sendrecv") == exchanged)
        fitting = commands or [each.name for each in alike if _fits(each, section, ranks)]
        if len(fitting) != 1 or not (commands or section.bare or not section.above.programs):
            choices = f"; {', '.join(fitting)} would fit" if fitting else ""
            raise UsageError(f"{name} does not name its collective{choices}; give --op NAME")
        word = fitting[0]

    collective = known_collective(word)
    if collective and _fits(collective, section, ranks):
        return collective
    why = f"its columns do not fit {collective.name}" if collective else no_collective(word)
    if hinted:
        raise UsageError(f"{name}: {why}; give another --op NAME")
    raise UnfitRow(why)


def _fits(collective: Collective | None, section: LogSection, ranks: int | None) -> bool:
    """Whether the columns of a table fit a collective; True for an unknown one."""
    if not collective:
        return True
    case = section.rows[-1].case
    reduces = case["redop"] not in ("", "none")
    if collective.reduces != reduces and collective.name != "sendrecv":  # older versions print `sum` for sendrecv
        return False
    if collective.rooted != (int(case.get("root", "-1")) >= 0):
        return False
    shares = None if ranks == 1 else _shares(section)
    return shares is None or collective.sharded == (shares > 1)


def _counted_once(section: LogSection) -> bool:
    """Whether wrong elements were counted only out of place, as in tests without an in-place variant."""
    return all(
        [number(place.get("#wrong", "")) is not None for place in row.places] == [True, False] for row in section.rows
    )


def _shares(section: LogSection) -> int | None:
    """Return the largest size divided by its count and type; None if it is not a multiple."""
    sizes = [(whole(row.case["size"]) or 0, share_of(row.case)) for row in section.rows]
    nbytes, share = max(sizes, default=(0, 0))
    return nbytes // share if share and nbytes % share == 0 else None


def _rows(section: LogSection, collective: Collective) -> Iterator[ForeignRow]:
    """Yield the places with values of all rows, at least one of each row."""
    columns = section.columns
    if not columns:
        return
    together, groups = section.settings.get("aggregated", 1), len({device.group for device in section.devices})
    common_notes = []
    if together > 1:
        common_notes.append(f"{together} operations aggregated in a group (-m)")
    if groups > 1:
        common_notes.append(f"{groups} groups at once")
    for at, row in enumerate(section.rows):
        printed = dict(row.appended)
        if row.stamp:
            printed["timestamp"] = row.stamp
        places = [place for place, words in enumerate(row.places) if set(map(str.upper, words.values())) != {"N/A"}]
        for place in places or [0]:
            words, notes = row.case | row.places[place], list(common_notes)
            if number(words.get("error", "").rstrip("*")):
                notes.append(f"largest error {words['error']}")
            if columns.unit != 1e-6:  # versions of 2015 define algbw differently for some collectives
                del words["algbw"]
            yield row_of(
                words,
                columns.unit,
                number=at,
                collective=collective.name,
                in_place=place == 1 or columns.in_place_first,
                properties={each.name: section.settings.get(each.name, each.usual) for each in NCCL_TESTS},
                share=share_of(row.case),
                wrong=_wrong(words),
                note=", ".join(notes),
                printed=printed | row.places[place] | {"redop": clean(row.case.get("redop", ""))},
            )


def _wrong(words: dict[str, str]) -> int | None:
    """Return the number of wrong elements; from the largest error alone, 0 if it is 0, and 1 if it has a star."""
    if "#wrong" in words:
        return count(words["#wrong"])
    error = words.get("error", "")
    if error.endswith("*"):
        return 1
    return 0 if number(error) == 0 else None


def _library(section: LogSection) -> str:
    columns = section.columns
    # Only rccl-tests prints appended columns and hipevt.
    hip = columns and (columns.appended or any("hipevt" in place for place in columns.places))
    amd = any(AMD.search(device.name) for device in section.devices[:1])
    return "rccl" if section.tool == "rccl-tests" or hip or amd else "nccl"


def _remarks(section: LogSection, collective: Collective, ranks: int, hints: Hints) -> Iterator[str]:
    """Yield remarks on a test for the user."""
    if hints.ranks not in (None, ranks):
        yield f"read as {ranks} ranks, not {hints.ranks}, by its list of ranks or its bandwidths"
    said = _said_ranks(section, Hints())
    if section.bare and said and ranks not in said:
        yield f"the table of {len(section.rows)} rows has {ranks} ranks, unlike the table above it"
    if not section.ended:
        yield f"incomplete: no footer after row {len(section.rows)}"
    listed = [(device.group, device.rank) for device in section.devices]
    if 0 < len(set(listed)) < ranks:
        yield f"its list of ranks is incomplete: {ranks - len(set(listed))} of {ranks} are missing"
    yield from section.said


FORMAT = Format(NAME, recognises, read, write_text, among=True, order=5)
