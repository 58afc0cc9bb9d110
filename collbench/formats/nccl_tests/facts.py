"""What a log of nccl-tests says of its test as a whole, and what follows where it does not say it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath

from collbench.collectives import Collective
from collbench.errors import UsageError
from collbench.formats.imported import Hints, Machine, dotted, known_collective, machine_of, said_ranks
from collbench.formats.nccl_tests.columns import stamped
from collbench.formats.nccl_tests.lines import LogSection
from collbench.formats.nccl_tests.ranks import Size, possible_collectives, reckoned, shares
from collbench.formats.source import HEAD, Source, clean, exact

SETTINGS = {
    "threads": r"\bnThread (\d{1,6})\b",
    "gpus": r"\bnGpus (\d{1,6})\b",
    "warmup": r"\bwarmup iters: (\d{1,9})\b",
    "iters": r"(?<!warmup )(?<!agg )\biters: (\d{1,9})\b",
    "aggregated": r"\bagg iters: (\d{1,9})\b",
    "graph": r"\bgraph: (\d{1,9})\b",
}
AMD = re.compile(r"AMD|Radeon|Instinct|\bMI\d{2,3}|gfx\d")


@dataclass(frozen=True)
class LogFacts:
    """One section of one file, with what the user adds."""

    source: Source
    section: LogSection
    hints: Hints

    @cached_property
    def known(self) -> Mapping[str, int]:
        """Settings by name, as far as they are printed."""
        matches = {name: re.search(pattern, self.section.settings) for name, pattern in SETTINGS.items()}
        return {name: int(match[1]) for name, match in matches.items() if match}

    @cached_property
    def name(self) -> str:
        """What the test calls its collective; UsageError if nothing tells."""
        for name in (self.hints.collective, self.section.program):
            if name:
                return name
        if not self.section.rows:  # then it does not matter
            return "unknown"
        text, stem = self.source.text[:HEAD], PurePath(self.source.name).name.lower()
        for place in (text, stem):
            named: set[str] = {word for word in re.findall(r"[a-z][a-z_]{2,40}_perf", place) if known_collective(word)}
            if len(named) == 1:
                return named.pop()
        return self._guessed()

    def _guessed(self) -> str:
        """As operation, root, sizes and bandwidths show, if they leave one only."""
        columns, rows = self.section.columns, [row for _, row in self.section.rows]
        assert columns
        whole = "redop" in columns.case and "root" in columns.case
        first = rows[0].case
        fitting = possible_collectives(
            self._listed,
            first["redop"] if "redop" in columns.case else None,
            int(first["root"]) if whole else None,
            self._sizes,
            self._bandwidths,
        )
        if len(fitting) != 1:
            choices = ", ".join(collective.name for collective in fitting)
            fits = f"; {choices} would fit" if fitting else ""
            raise UsageError(f"{self.source.name} does not say which collective it is of{fits}; give --op NAME")
        return fitting[0].name

    @cached_property
    def collective(self) -> Collective | None:
        """The same as collbench knows it, or None."""
        return known_collective(self.name)

    @cached_property
    def _bandwidths(self) -> list[tuple[str, str]]:
        places = (place for _, row in self.section.rows for place in row.places)
        return [(place["algbw"], place["busbw"]) for place in places if "algbw" in place and "busbw" in place]

    @cached_property
    def _sizes(self) -> list[Size]:
        cases = (row.case for _, row in self.section.rows if "count" in row.case)
        return [(exact(case["size"]) or 0, exact(case["count"]) or 0, case["type"]) for case in cases]

    @cached_property
    def _listed(self) -> int | None:
        """Ranks of a communicator, if they are listed: those in the first one's group."""
        devices = self.section.devices
        return len({device.rank for device in devices if device.group == devices[0].group}) or None

    @cached_property
    def machine(self) -> Machine:
        """Where it ran; UsageError if nothing tells the number of ranks."""
        section, name, collective = self.section, self.source.name, self.collective
        ranks = section.exported[2] if section.exported else self._listed
        if collective is None:  # none of its rows is kept
            ranks = ranks or 1
        elif not ranks:
            ranks = self._reckoned(collective)
        ranks = said_ranks(self.hints, ranks, name, "it lists no ranks, and its bandwidths do not tell how many")
        versions = {self.library: section.release or dotted(section.library), section.tool: clean(section.version)}
        distinct = {
            (device.group, device.rank): replace(device, host=clean(device.host, 64), name=clean(device.name, 64))
            for device in section.devices
        }
        machine = machine_of(list(distinct.values()), ranks, versions, section.said)
        return replace(machine, platform=section.exported[1]) if section.exported else machine

    def _reckoned(self, collective: Collective) -> int | None:
        """From shares of sizes, or else as `reckoned`; one thread with one GPU is what mpirun starts many of."""
        product = self.known.get("threads", 0) * self.known.get("gpus", 0)
        cut = shares(self._sizes) if collective.sharded else None
        return cut or reckoned(collective, self._bandwidths, product if product > 1 else 0)

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
    def started(self) -> str | None:
        """When the first row was done, if it says."""
        stamp = stamped(self.section.rows[0][0])[1] if self.section.rows else ""
        return stamp.replace(" ", "T") or None
