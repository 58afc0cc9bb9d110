"""What runs of an answer show: wrong elements, races, crashes, waits for ever, and which mistake they fit.

The runs are those of kernels/host/streams.cpp; races are read from the reports of ThreadSanitizer.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import msgspec

from collbench.commands.exercise.races import CRASHED, GAVE_UP, RACE, WRONG, Outcome
from collbench.commands.exercise.records import Mistake
from collbench.platforms.layout import awaited

_ADDRESS = re.compile(r"on unknown address (0x[0-9a-f]+)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NULL = 2**20  # bytes from a null pointer on that an element of its array may lie
_CLEAR = 8  # wrong elements from which on chance explains nothing


@cache
def words() -> Mapping[str, Mapping[str, str]]:
    """Return the judge's sentences by what they are about."""
    found: Mapping[str, Mapping[str, str]] = msgspec.toml.decode(Path(__file__).with_name("judge.toml").read_bytes())
    return found


@dataclass(frozen=True)
class StudentFile:
    """A student's file."""

    name: str
    text: str

    def line(self, number: int) -> str:
        """Return a line with its place, as evidence: `meet.cu:12: ...`."""
        return f"{self.name}:{number}: {[*self.text.splitlines(), ''][number - 1].strip()}"

    def lines_in(self, output: str) -> list[int]:
        """Return the numbers of its lines that a tool's output names, in that order."""
        return [int(number) for number in re.findall(rf"(?:^|[ /]){re.escape(self.name)}:(\d+)", output, re.MULTILINE)]

    def fits(self, mistake: Mistake) -> bool:
        """Return whether its code, without comments, has and lacks what a mistake says."""
        code = _COMMENT.sub("", self.text)
        has = not mistake.has or bool(re.search(mistake.has, code, re.DOTALL))
        return has and not (mistake.lacks and re.search(mistake.lacks, code, re.DOTALL))


@dataclass(frozen=True)
class Access:
    """One side of a race."""

    by: str  # kernel, or caller: who fills inputs and checks results
    verb: str  # reads, writes
    what: str  # input, result, flag, slot
    rank: int  # whose memory that is
    line: int = 0  # of the student's file; 0 outside of it

    def __str__(self) -> str:
        return f"{self.by} {self.verb} {self.what}"


@dataclass(frozen=True)
class Findings:
    """What some runs with as many ranks, in one stage, came to."""

    source: StudentFile
    stage: str
    ranks: int
    outcomes: Sequence[Outcome]
    nodes: bool = False  # whether arrays of some ranks have no address

    @cached_property
    def caught(self) -> tuple[str, ...]:
        """All that was noticed, the clearest first: crash, wrong, stuck, race."""
        noticed = {catcher for outcome in self.outcomes for catcher in outcome.catchers}
        return tuple(name for name in (CRASHED, WRONG, GAVE_UP, RACE) if name in noticed)

    @cached_property
    def wrong(self) -> Mapping[str, Any]:
        """The wrong result to speak of: of those that chance does not explain, the first."""
        results: list[Mapping[str, Any]] = []
        for outcome in self.outcomes:
            results += outcome.found
        return min(results, key=lambda result: (result["wrong"] < _CLEAR, result["call"]), default={})

    @cached_property
    def races(self) -> tuple[tuple[Access, ...], ...]:
        """Both sides of every race."""
        return tuple(race for outcome in self.outcomes for race in _races(self.source, outcome))

    def fits(self, mistake: Mistake) -> bool:
        """Return whether everything that a mistake says of itself was seen."""
        accesses: list[str] = []
        for race in self.races:
            accesses += map(str, race)
        return self.source.fits(mistake) and all(
            (
                mistake.stage in ("", self.stage),
                mistake.caught in ("", *self.caught),
                mistake.value in ("", self.wrong.get("why")),
                mistake.where in ("", self.wrong.get("where")),
                not mistake.own or self.wrong.get("ranks") == [self.wrong.get("rank")],
                not mistake.access or any(mistake.access in access for access in accesses),
            )
        )

    def evidence(self, caught: str, access: str) -> Iterator[str]:
        """Yield what shows it, in sentences and lines of the file; of races rather one with such an access."""
        if caught == "race":
            return self._race(access)
        return {"crash": self._crash, "wrong": self._wrong, "stuck": self._stuck}[caught]()

    def _wrong(self) -> Iterator[str]:
        show, wrong = words()["show"], self.wrong
        place = " in place" if wrong["in_place"] else ""
        yield show["wrong"].format(**{**wrong, "of": self.ranks, "place": place, "call": wrong["call"] + 1})
        named = {}
        for key in ("ranks", "extra"):
            named[key] = " and of ".join(f"rank {rank}" for rank in wrong[key])
        value = words()["value"]["instead" if wrong["why"] == "missing" and wrong["extra"] else wrong["why"]]
        yield show["all"].format(**wrong, value=value.format(**named))

    def _stuck(self) -> Iterator[str]:
        waits = next(outcome.waits for outcome in self.outcomes if outcome.gave_up)
        for rank, place in enumerate(waits):
            if place:
                whom = awaited(place, rank, self.ranks)
                yield words()["show"]["stuck"].format(of=self.ranks, rank=rank, whom=whom)

    def _crash(self) -> Iterator[str]:
        stderr = next(outcome.stderr for outcome in self.outcomes if outcome.crashed)
        yield from map(self.source.line, self.source.lines_in(stderr.partition("SEGV")[2])[:1])
        if (found := _ADDRESS.search(stderr)) and int(found[1], 16) < _NULL:
            yield words()["show"]["node" if self.nodes else "null"]

    def _race(self, access: str) -> Iterator[str]:
        show = words()["show"]
        shown = self.races[0]
        for race in self.races:
            if any(access in str(side) for side in race):
                shown = race
                break
        for side in shown:
            if side.by == "kernel":
                yield show["kernel"].format(**vars(side))
                yield f"  {self.source.line(side.line) if side.line else show['given']}"
            elif side.verb == "reads":
                yield show["looks"].format(rank=side.rank)
            else:
                yield show["fills" if side.what == "input" else "clears"].format(rank=side.rank)


def _races(source: StudentFile, outcome: Outcome) -> Iterator[tuple[Access, ...]]:
    """Yield both accesses of every race of a run; the harness printed where which memory begins."""
    places = []
    for line in outcome.stderr.splitlines():
        if line.startswith("memory "):
            _, rank, *bases = line.split()
            for base, what in zip(bases, ("flag", "slot", "input", "result"), strict=True):
                places.append((int(base, 16), what, int(rank)))
    for sides in outcome.sides:
        both = [_access(source, places, *side) for side in sides]
        # In place, inputs are where results go.
        if any(str(access) == "caller writes input" for access in both):
            both = [replace(access, what="input") for access in both]
        yield tuple(both)


def _access(source: StudentFile, places: Sequence[tuple[int, str, int]], verb: str, address: int, stack: str) -> Access:
    # The memory that begins last before the address is the one that holds it.
    _, what, rank = max(place for place in places if place[0] <= address)
    verb = f"{verb}s"
    if "Rank::launch" in stack:
        return Access("kernel", verb, what, rank, next(iter(source.lines_in(stack)), 0))
    return Access("caller", verb, "input" if verb == "writes" and "std::fill" not in stack else "result", rank)
