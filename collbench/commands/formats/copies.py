"""Copies of a test side by side: built without MPI, a test runs once for each process that its launcher starts."""

from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import pairwise
from statistics import median

from collbench.commands.formats.nccl_tests_log import LogRow, LogSection
from collbench.results import by_key


def mark_copies(sections: Sequence[LogSection]) -> None:
    """Set `copies` and `hosts` of the tables that are copies of one test, or hold the rows of several."""
    for section in sections:
        section.copies = max(_lists(section), _alternating(section.rows, section.ended))

    # Whole outputs one behind the other: below a command of their own they are rounds, below one launcher copies.
    listed = [section for section in sections if section.devices and section.rows and not section.bare]
    for alike in by_key(listed, _origin).values():
        places = [{device.place for device in section.devices} for section in alike]
        apart = len(set().union(*places)) == sum(map(len, places))
        if 1 < len(alike) <= alike[0].above.started and apart and all(map(_is_of_one_process, alike)):
            copies = sum(max(1, section.copies) for section in alike)
            hosts = dict.fromkeys(device.host for section in alike for device in section.devices)
            for section in alike:
                section.copies, section.hosts = copies, tuple(hosts)


def _origin(section: LogSection) -> Hashable:
    """Return what copies have in common: the launcher's line, the settings and the kind of rows."""
    case = section.rows[0].case
    kind = section.program, case["type"], case["redop"], case.get("root")
    return section.above.launch, tuple(sorted(section.settings.items())), kind


def _is_of_one_process(section: LogSection) -> bool:
    """Whether the list of ranks is that of a process by itself: as many as it has threads and GPUs, from rank 0."""
    numbers = {device.rank for device in section.devices}
    own = section.settings.get("threads", 1) * section.settings["gpus"] if "gpus" in section.settings else len(numbers)
    return len(numbers) == max(numbers) + 1 == own


def _lists(section: LogSection) -> int:
    """Return how many processes list the same ranks above one table; 0 if a test that failed may have listed some."""
    placed = {(device.group, device.rank, device.place): device for device in section.devices}
    lists = max(Counter((group, rank) for group, rank, _ in placed).values(), default=0)
    several_hosts = len({device.host for device in section.devices}) > 1
    side_by_side = lists > 1 and (several_hosts or lists <= section.above.started)
    return lists if side_by_side and _is_of_one_process(section) else 0


def _alternating(rows: Sequence[LogRow], ended: bool) -> int:
    """Return how many rows each case has, where they stand near each other; 0 of cycles, in which all cases return."""
    places = by_key(range(len(rows)), lambda at: (*rows[at].case.values(), *rows[at].appended.values()))
    *counts, last = map(len, places.values()) if places else [0]
    if len(set(counts)) != 1 or counts[0] < 2 or (last != counts[0] and ended):
        return 0
    distance = median(after - before for of_case in places.values() for before, after in pairwise(of_case))
    return counts[0] if distance <= len(places) / 2 else 0
