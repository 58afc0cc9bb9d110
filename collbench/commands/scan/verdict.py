"""The verdict of a scan: who is slow, who is suspected, what an OK could not see, and when another round is in vain."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from collbench.analysis.judgement import LISTED, Judgement, Word
from collbench.analysis.sequential import PRIOR_DEVIATION, PRIOR_OF_GPUS
from collbench.commands.scan.choice import EVERY_LINK
from collbench.commands.scan.effects import ACROSS, RECEIVES, SENDS, SIGMAS, SURE, Effect, Fit, Times
from collbench.commands.scan.intermittent import Intermittent
from collbench.commands.scan.rows import Members, Round
from collbench.notebook import Shown
from collbench.results import Result
from collbench.stats import Estimate
from collbench.units import counted, format_list, format_size, significant

LEAST_ROUNDS, MOST_ROUNDS = 36, 80  # of all sizes together
_ENOUGH = 12  # groups of a slow member after which it is left out of further rounds
_OFTEN = 0.999  # at most, of how sure anything is said to be
_WORDS = {SENDS: ", where it sends", RECEIVES: ", where it receives", ACROSS: ", to and from others"}


@dataclass(frozen=True)
class ScanFinding(Shown):
    """A fault, or what may be one: of the size at which it slows most."""

    SHOWN = ("name", "slower", "least", "most", "word")
    effect: Effect
    limit: float  # logarithm of how much slower is too much
    sizes: str = ""  # at which it shows, where it does not at all

    @property
    def name(self) -> str:
        """Who it is, with the kind where the name does not say it: `leaf 3`, `rank 2`."""
        kind, name, _ = self.effect.fault
        return name if kind in ("member", "link") or name.startswith(kind) else f"{kind} {name}"

    @property
    def slower(self) -> float:
        """How many times slower."""
        return math.exp(self.effect.slower)

    @property
    def least(self) -> float:
        """The lower end of the 99.7 % interval of that."""
        return math.exp(self.effect.slower - SIGMAS * self.effect.error)

    @property
    def most(self) -> float:
        """The upper end."""
        return math.exp(self.effect.slower + SIGMAS * self.effect.error)

    @property
    def word(self) -> Word:
        """SLOW where all of the interval is too slow and noise is no explanation, OK where none of it is."""
        if math.log(self.least) > self.limit and self.effect.chance < SURE:
            return Word.SLOW
        return Word.OK if math.log(self.most) < self.limit else Word.UNKNOWN

    @property
    def judgement(self) -> Judgement:
        """The judgement of who has it."""
        return Judgement(self.name, "the other members", self.word, str(self), Estimate(self.slower, self.least, self.most))

    def __str__(self) -> str:
        effect = self.effect
        much = f"{significant(self.slower, 3)}x slower ({significant(self.least, 3)}x to {significant(self.most, 3)}x)"
        often = f", in {effect.groups} of {counted(effect.seen, 'group')}" if effect.often < 1 else ""
        return f"{self.name} is {much}{_WORDS.get(effect.fault.way, '')}{often}{self.sizes}"


class ScanSight(NamedTuple):
    """What a scan would not have missed, and what it did not look at."""

    sizes: tuple[int, ...]  # bytes of the messages
    slower: float  # times: the smallest slowdown that lasts
    often: float  # the rarest share of the rounds of one that comes and goes
    brief: float  # times: the smallest slowdown that comes and goes
    links: bool  # whether every two members exchanged messages

    def __str__(self) -> str:
        sizes = format_list([format_size(size) for size in self.sizes])
        lasting, brief = (significant(math.ceil(100 * each) / 100, 3) for each in (self.slower, self.brief))
        return f"seen would be {lasting}x, or {brief}x in {self.often:.0%} of the rounds, at {sizes}"


@dataclass(frozen=True)
class ScanVerdict(Shown):
    """What a scan found out."""

    SHOWN = ("word", "words")
    TABLE = "findings"
    members: Members
    findings: tuple[ScanFinding, ...]
    doubts: tuple[str, ...]  # why who is slow is not known, in words
    uncleared: tuple[str, ...]  # names of members that are neither slow nor cleared
    sight: ScanSight
    rounds: int
    seconds: float  # of all rounds together
    pending: bool = False  # whether a link is to be measured again
    lost: str = ""  # who died, or what ended the scan before it was sure
    empty: int = 0  # rounds of which no group counted, since other programs had the cores
    unseen: tuple[str, ...] = ()  # what was not looked at, with the command that does

    @property
    def faulty(self) -> list[ScanFinding]:
        """The faults, the slowest first; none where it is in doubt what is usual."""
        slow = [] if self.doubts else [finding for finding in self.findings if finding.word is Word.SLOW]
        return sorted(slow, key=lambda finding: -finding.slower)

    @property
    def suspects(self) -> list[str]:
        """Who may be slow, and why nobody is named, in words."""
        unsure = [finding for finding in self.findings if finding.word is (Word.SLOW if self.doubts else Word.UNKNOWN)]
        return [*self.doubts, *(f"suspected: {finding}" for finding in unsure)]

    @property
    def named_members(self) -> set[int]:
        """Numbers of the members that are slow in all of their groups."""
        if self.rounds < LEAST_ROUNDS - _ENOUGH:
            return set()
        slow = [each.effect for each in self.faulty if each.effect.often == 1 and each.effect.groups >= _ENOUGH]
        return {member for effect in slow if not effect.fault.way for member in effect.members}

    @property
    def sure(self) -> bool:
        """Whether another round would change nothing."""
        if self.rounds < LEAST_ROUNDS or self.pending:
            return False
        return bool(self.doubts) or not (self.suspects or self.uncleared)

    @property
    def word(self) -> Word:
        """WRONG where somebody is lost, SLOW where somebody is slow, UNKNOWN where rounds are too few to say."""
        if self.lost:
            return Word.WRONG
        if self.faulty:
            return Word.SLOW
        enough = self.rounds >= LEAST_ROUNDS
        return Word.OK if enough and not self.suspects and not self.uncleared else Word.UNKNOWN

    @property
    def judgement(self) -> Judgement:
        """The judgement of all members."""
        return Judgement("scan", "each other", self.word, self.words)

    @property
    def rank_seconds(self) -> float:
        """What it cost."""
        return self.seconds * len(self.members.names)

    @property
    def words(self) -> str:
        """Who is slow, who may be, by how many rounds that is known, and what could not be seen."""
        parts = [*map(str, self.faulty), *self.suspects, *filter(None, [self.lost])]
        if not parts and not self.uncleared and self.rounds >= LEAST_ROUNDS:
            parts = [f"none of {counted(len(self.members.names), 'member')} is slow"]
        elif not parts:
            parts = [f"too few rounds to clear {_listed(self.uncleared or self.members.names)}"]
        cost = f"{counted(self.rounds, 'round')}, {significant(self.rank_seconds, 3)} rank-seconds"
        sight = f"; {self.sight}" if self.word in (Word.OK, Word.SLOW) else ""
        unseen = f"; not looked at: {', '.join(self.unseen)}" if self.unseen and self.word is Word.OK else ""
        return f"{'; '.join(parts)} ({cost}){sight}{unseen}"


class Evidence:
    """The rounds of a scan so far, by the sizes of their messages."""

    def __init__(self, members: Members, slower: float, sizes: Sequence[int], solid: bool = False) -> None:
        self._members, self._limit, self._solid = members, math.log1p(slower), solid
        self._deviation = PRIOR_DEVIATION if members.platform == "cpu" else PRIOR_OF_GPUS
        self._times = {size: Times(members) for size in sizes}
        self._seconds, self._empty = 0.0, 0
        self.fits: dict[int, Fit] = {}

    def add(self, measured: Round) -> None:
        """Take a round."""
        self._seconds += measured.took
        self._empty += not measured.groups
        self._times[measured.case.nbytes].add(measured)

    def verdict(self, lost: str = "") -> ScanVerdict:
        """Return what is known by now."""
        for size, times in self._times.items():
            if size not in self.fits or self.fits[size].rounds != times.rounds:
                self.fits[size] = Fit(times, self._limit, self._deviation, self._solid)
        fits, names = list(self.fits.values()), self._members.names
        passing = Intermittent(fits)
        findings = self._findings(passing)
        doubts = tuple(dict.fromkeys(doubt for fit in fits for doubt in self._doubts(fit)))

        # A member is cleared at each size, unless it is one that is named, or its unit is.
        concerned = {member for finding in findings for member in finding.effect.members}
        unsure = np.zeros(len(names), bool)
        for fit in fits:
            unsure |= ~(fit.middle + SIGMAS * fit.error < self._limit)
        uncleared = tuple(names[member] for member in np.flatnonzero(unsure) if member not in concerned)
        often = 1 if len(names) <= EVERY_LINK else 2  # among many somebody is always slow once
        pending = any(
            seen >= often and not concerned & set(ends) for fit in fits for ends, seen in fit.pending.items()
        )
        return ScanVerdict(
            self._members, findings, doubts, uncleared, self._sight(passing, concerned), sum(fit.times.rounds for fit in fits),
            self._seconds, pending, lost, self._empty, tuple(self._unseen()),
        )  # fmt: skip

    def _findings(self, passing: Intermittent) -> tuple[ScanFinding, ...]:
        """Return the faults of all sizes, each once: as it shows at the size that it slows most."""
        found: dict[tuple[str, str], dict[int, Effect]] = {}
        for size, fit in self.fits.items():
            for effect in fit.effects:
                found.setdefault(effect.fault[:2], {})[size] = effect
        findings = []
        for by_size in found.values():
            effect = max(by_size.values(), key=lambda each: each.slower - SIGMAS * each.error)
            some = sorted(set(by_size)) if len(by_size) < len(self.fits) else []
            sizes = f", at {format_list([format_size(size) for size in some])}" if some else ""
            findings.append(ScanFinding(effect, self._limit, sizes))
        findings += [ScanFinding(effect, self._limit) for effect in passing.effects if effect.fault[:2] not in found]

        # Who comes and goes makes some of its links look slow.
        goers = {member for effect in passing.effects for member in effect.members}
        return tuple(each for each in findings if each.effect.fault.kind != "link" or not goers & set(each.effect.members))

    def _doubts(self, fit: Fit) -> Iterator[str]:
        """Yield why what is usual may not be."""
        count = len(self._members.names)
        slow = {member for effect in fit.effects if not effect.fault.way for member in effect.members}
        if 2 * len(slow) > count:
            yield f"{len(slow)} of {counted(count, 'member')} are slower than the others: `collbench check` says who is right"
        elif fit.faster():
            yield "some groups are much faster than most: what is usual here may be slow, which `collbench check` tells"
        for level in fit.times.levels:
            if len(level.names) == 2 and level.kind in ("leaf", "spine") and (much := fit.across(level)) > self._limit:
                yield (
                    f"{' or '.join(level.names)} is slow: across them messages take {significant(math.exp(much), 3)}x as "
                    "long as inside, which does not tell the two apart"
                )

    def _sight(self, passing: Intermittent, concerned: set[int]) -> ScanSight:
        worst = max((float(np.nanmax(np.where(np.isfinite(fit.error), fit.error, np.nan), initial=0.0)) for fit in self.fits.values()))
        slower = math.exp(self._limit + worst)
        largest = self.fits[max(self.fits)]
        count = len(self._members.names)
        links = largest.groups.shape[1] == 2 and len(np.unique(largest.codes())) == count * (count - 1) // 2
        return ScanSight(tuple(sorted(self.fits)), slower, passing.rarest(sorted(concerned)), math.exp(passing.least * 1.5), links)

    def _unseen(self) -> Iterator[str]:
        return iter(())


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = [f"{len(every) - LISTED} more"] if len(every) > LISTED else []
    return format_list([*every[:LISTED], *more])


def judge(results: Sequence[Result], slower: float) -> ScanVerdict:
    """Return the verdict of the rows of a scan."""
    members = next((row for row in results if isinstance(row, Members)), None)
    rounds = [row for row in results if isinstance(row, Round)]
    lost = next((row.reason for row in results if row.outcome.bad), "")
    if not members:
        members = Members(results[0].case, results[0].implementation, platform="")
    evidence = Evidence(members, slower, dict.fromkeys(row.case.nbytes for row in rounds) or [members.case.nbytes])
    for each in rounds:
        evidence.add(each)
    return evidence.verdict(lost)
