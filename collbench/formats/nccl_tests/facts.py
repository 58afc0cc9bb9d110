"""What a log of nccl-tests says of its test as a whole, and what follows where it does not say it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath

from collbench.collectives import Collective
from collbench.errors import UsageError
from collbench.formats.imported import Device, Hints, Machine, dotted, known_collective, machine_of, said_ranks
from collbench.formats.nccl_tests.columns import Columns, LogRow, stamped
from collbench.formats.nccl_tests.evidence import Evidence, Witness
from collbench.formats.nccl_tests.lines import LogSection
from collbench.formats.nccl_tests.naming import Name, Sayings, named
from collbench.formats.nccl_tests.ranks import RankCount, listed_ranks, settle
from collbench.formats.source import Source, clean, exact

SETTINGS = {
    "threads": r"\bnThread:? (\d{1,6})\b",
    "gpus": r"\bnGpus:? (\d{1,6})\b",
    "warmup": r"\bwarmup ?[iI]ters: (\d{1,9})\b",
    "iters": r"(?<!warmup )(?<!agg )\biters: (\d{1,9})\b",
    "aggregated": r"\bagg iters: (\d{1,9})\b",
    "graph": r"\bgraph: (\d{1,9})\b",
}
STEM = re.compile(r"[a-z][a-z_]{2,40}_perf")
AVERAGES: dict[int | None, str] = {0: "of rank 0", 1: "mean over ranks", 2: "fastest rank", 3: "slowest rank"}
AMD = re.compile(r"AMD|Radeon|\bVega\b|Instinct|\bMI\d{2,3}|gfx\d")


@dataclass(frozen=True)
class LogFacts:
    """One section of one file, with what the user adds."""

    source: Source
    section: LogSection
    hints: Hints
    alone: bool = True  # whether the file has no other test
    elsewhere: Sequence[str] = ()  # programs that the rest of the file names

    @cached_property
    def known(self) -> Mapping[str, int]:
        """Settings by name, as far as they are printed."""
        matches = {name: re.search(pattern, self.section.settings) for name, pattern in SETTINGS.items()}
        return {name: int(match[1]) for name, match in matches.items() if match}

    @cached_property
    def evidence(self) -> Evidence:
        """What its rows tell."""
        rows, columns = [row for _, row in self.section.rows], self.section.columns
        first = rows[0].case if rows else {}
        root = first.get("root", "")
        redop = first.get("redop") if columns and "redop" in columns.case else None
        return Evidence(
            tuple(witness for row in rows for witness in witnesses(row, columns)),
            None if redop is None else redop.lower(),
            int(root) if root else None,
            not any("cputime" in place for place in (columns.places if columns else ())),
            columns is not None and "root" not in columns.case,
        )

    @cached_property
    def named(self) -> Name:
        """What the test calls its collective; UsageError if nothing tells."""
        if not self.section.rows:  # then it does not matter
            return Name(self.section.program or "unknown")
        stem = STEM.findall(PurePath(self.source.name).name.lower())
        elsewhere = [*self.elsewhere, *filter(known_collective, stem)]
        said = Sayings(self.section.program, self.section.named, self.hints.collective, self.alone, elsewhere)
        listed = next(iter(self._offers), None)
        name = named(said, self.evidence, listed)
        if not name.name:
            choices = ", ".join(collective.name for collective in self.evidence.collectives(listed))
            fits = f"; {choices} would fit" if choices else ""
            raise UsageError(f"{self.source.name} does not say which collective it is of{fits}; give --op NAME")
        return name

    @cached_property
    def collective(self) -> Collective | None:
        """The same as collbench knows it, or None."""
        return known_collective(self.named.name)

    @cached_property
    def _listed(self) -> list[tuple[int, int]]:
        return [(device.group, device.rank) for device in self.section.devices]

    @cached_property
    def _offers(self) -> list[int]:
        """Numbers of ranks that a list allows."""
        together = self.known.get("threads", 1) * self.known.get("gpus", 1)
        return listed_ranks(self._listed, together)

    @cached_property
    def counted(self) -> RankCount:
        """The number of ranks, and how it was come by."""
        if self.collective is None or self.named.objection or not self.section.rows:  # none of its rows is kept
            return RankCount(self.hints.ranks or next(iter(self._offers), 1))
        if self.section.exported:
            return RankCount(self.hints.ranks or self.section.exported[2])
        together = self.known.get("threads", 1) * self.known.get("gpus", 1)
        started = self.section.started or (together if together > 1 else None)
        return settle(self.collective, self.evidence, self._offers, started, self.hints.ranks)

    @cached_property
    def machine(self) -> Machine:
        """Where it ran; UsageError if nothing tells the number of ranks."""
        section, name = self.section, self.source.name
        ranks = said_ranks(Hints(), self.counted.ranks, name, self.counted.why)
        versions = {self.library: section.release or dotted(section.library), section.tool: clean(section.version)}
        distinct = {
            (device.group, device.rank): replace(device, host=clean(device.host, 64), name=clean(device.name, 64))
            for device in section.devices
        }
        machine = machine_of(self._all(list(distinct.values()), ranks), ranks, versions, section.said)
        return replace(machine, platform=section.exported[1]) if section.exported else machine

    def _all(self, devices: list[Device], ranks: int) -> list[Device]:
        """The devices of all ranks, also where the list was trimmed and those that are left are of one kind."""
        if len({device.name for device in devices}) != 1 or len(devices) >= ranks:
            return devices
        return devices + [replace(devices[0], rank=rank) for rank in range(ranks - len(devices))]

    @cached_property
    def library(self) -> str:
        """Whose collectives were timed; the layouts are the same."""
        section, columns = self.section, self.section.columns
        hip = columns and (columns.appended or any("hipevt" in place for place in columns.places))
        amd = any(AMD.search(device.name) for device in section.devices[:1])
        return "rccl" if section.tool == "rccl-tests" or hip or amd else "nccl"

    @cached_property
    def note(self) -> str:
        """What a reader must know of every row."""
        together, groups = self.known.get("aggregated", 1), len({device.group for device in self.section.devices})
        notes = [f"{together} operations aggregated in a group (-m)"] if together > 1 else []
        return ", ".join([*notes, f"{groups} groups at once"] if groups > 1 else notes)

    @property
    def statistic(self) -> str:
        """Of what its times are which figure."""
        how_many = self.known.get("iters", "some")
        over = AVERAGES.get(self.section.average, "mean over ranks, unless -a said otherwise")
        return f"{self.section.figure} of {how_many} operations, {over}"

    @property
    def started(self) -> str | None:
        """When the first row was done, if it says."""
        stamp = stamped(self.section.rows[0][0])[1] if self.section.rows else ""
        return stamp.replace(" ", "T") or None


def witnesses(row: LogRow, columns: Columns | None) -> Iterator[Witness]:
    """What a row of a table tells, a witness for each place."""
    size, elements = exact(row.case["size"]) or 0, exact(row.case.get("count", ""))
    for place in row.places:
        took = place.get("time") or place.get("cputime", "")
        unit = columns.unit if columns else 1e-6
        yield Witness(
            size, elements, row.case.get("type", ""), (took, unit), place.get("algbw", ""), place.get("busbw", "")
        )
