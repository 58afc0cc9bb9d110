"""The run to compare another one with: the last of its kind, the best of its kind, or one that has a tag."""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import NoReturn

from collbench.errors import UsageError
from collbench.runfile.file import Run
from collbench.runfile.listing import Entry, History, Progress
from collbench.runfile.scan_folder import Medians, facts_of, medians_of, shown, word
from collbench.runfile.tags import BEST, LAST, RESERVED

ENOUGH = 0.5
"""Of the cases that any candidate shares with the new run, the part that the best one must share: a run that was lucky
at one size is no baseline for a whole sweep."""


def pick(choice: str, new: Run, folder: Path, progress: Progress = lambda done, total: None) -> Path:
    """The run file in `folder` that `new` is to be compared with.

    `last`: of the complete runs that started before `new`, the newest that is of its kind.  Of one kind are runs on a
    topology of the same name, of the same tool if they were imported, with the same interleaved setting if any, that
    have a time for at least one same case of the same implementation, platform and number of ranks: so predictions go
    with predictions only.
    `best`: among the same, the one with the highest geometric mean, over the cases in common, of the new run's median
    over its own; it must share at least half as many cases as whichever shares most.  Of equals the newest.
    Any other word is a tag: the newest run that has it and is of the kind of `new`, or else the newest that has it.

    UsageError says what was looked for among how many runs.
    """
    history = History(folder, progress)
    others = [entry for entry in history.entries if not _same_file(entry.path, new.path)]
    candidates = _Candidates(new, history, others)
    if choice == LAST:
        return candidates.last().path
    if choice == BEST:
        return candidates.best().path
    return candidates.tagged(choice).path


class _Candidates:
    def __init__(self, new: Run, history: History, others: Sequence[Entry]) -> None:
        self._new = new
        self._history = history
        self._others = others
        self._where = shown(history.folder)
        self._facts = facts_of(new)
        self._medians = medians_of(new.results)
        modified = new.path.stat().st_mtime_ns / 1e9 if new.path.exists() else math.inf  # rounded as entries are
        self._age = self._facts.when(modified), modified

    def last(self) -> Entry:
        entry = next((entry for entry, logs in self._shared(self._before()) if logs), None)
        return entry or self._none(LAST)

    def best(self) -> Entry:
        shared = [(entry, logs) for entry, logs in self._shared(self._before()) if logs]
        if not shared:
            self._none(BEST)
        most = max(len(logs) for _, logs in shared)
        means = [(fmean(logs), entry) for entry, logs in shared if len(logs) >= ENOUGH * most]
        return max(means, key=lambda mean: mean[0])[1]  # the first of equals: the newest

    def tagged(self, name: str) -> Entry:
        readable = [other for other in self._others if not other.facts.broken]
        having = [entry for entry in readable if name in entry.tags]
        if not having:
            known = sorted({tag for entry in readable for tag in entry.tags})
            raise UsageError(
                f"no other run in {self._where} has the tag {word(name)!r} ({_count(readable)} looked at); "
                f"choose from: {', '.join([*RESERVED, *known])}"
            )
        alike = self._shared(entry for entry in having if entry.facts.kind == self._facts.kind)
        return next((entry for entry, logs in alike if logs), having[0])

    def _before(self) -> Iterable[Entry]:
        return (
            other
            for other in self._others
            if other.facts.complete and other.facts.kind == self._facts.kind and other.age < self._age
        )

    def _shared(self, entries: Iterable[Entry]) -> Iterable[tuple[Entry, list[float]]]:
        """For each run the logarithms of how many times as fast as the new one it is, a case in common each."""
        for entry, medians in self._history.medians(entries):
            yield entry, _logs(self._medians, medians)

    def _none(self, choice: str) -> NoReturn:
        name = shown(self._new.path)
        if not self._medians:
            raise UsageError(f"{name} has no right result with a time, so there is nothing to find a baseline for")
        started = datetime.fromtimestamp(self._age[0]).isoformat(sep=" ", timespec="seconds")
        kind = [f"on {self._facts.topology or 'an unnamed topology'}"]
        kind += [f"by {self._facts.tool}"] if self._facts.tool else []
        kind += [f"with {self._facts.setting}"] if self._facts.setting else []
        raise UsageError(
            f"no {choice} run for {name}: of {_count(self._others)} in {self._where}, none is complete, from before "
            f"{started}, {', '.join(kind)}, with a case in common; give a tag or a path instead"
        )


def _logs(new: Medians, base: Medians) -> list[float]:
    return [
        math.log(seconds / base[curve][size])
        for curve, own in new.items()
        if curve in base
        for size, seconds in own.items()
        if size in base[curve]
    ]


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _count(entries: Sequence[Entry]) -> str:
    return f"{len(entries)} other run{'' if len(entries) == 1 else 's'}"
