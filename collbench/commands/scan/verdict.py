"""The verdict of a scan: faults, suspects, sight, and whether to go on."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from collbench.analysis.judgement import LISTED, Judgement, Word
from collbench.analysis.sequential import PRIOR_DEVIATION, PRIOR_OF_GPUS
from collbench.commands.scan.effects import ACROSS, EVERY_LINK, RECEIVES, SENDS, SIGMAS, SURE, Effect, Fit, Level, Times
from collbench.commands.scan.intermittent import Intermittent
from collbench.commands.scan.rows import Members, Round, Scan
from collbench.errors import RunFileError, UsageError
from collbench.notebook import Shown
from collbench.results import Result
from collbench.stats import Estimate
from collbench.units import counted, format_list, format_size, significant

LEAST_ROUNDS, MOST_ROUNDS = 36, 80  # of all sizes together
_APART = math.log(1.35)  # excess that groups across two leaves may have, for the switches on the path
_WORDS = {SENDS: ", when it sends", RECEIVES: ", when it receives", ACROSS: ", to and from others"}
_CHECK = "run `collbench check` to find out"


@dataclass(frozen=True)
class ScanFinding(Shown):
    """A fault or a possible fault, at the size with the largest slowdown."""

    SHOWN = ("name", "slower", "least", "most", "word")
    effect: Effect
    name: str  # with the kind: `leaf 3`, `rank 2`
    slower: float  # slowdown as a ratio
    least: float  # 99.7 % interval of the slowdown
    most: float
    word: Word  # SLOW: the whole interval is too slow, and noise does not explain it; OK: none of it is too slow
    where: str = ""  # the sizes that show it, in words; empty: all sizes

    @property
    def probability(self) -> float:
        """Probability that noise is not the explanation, from 0 to 0.999."""
        return min(1 - SURE, max(0.0, 1 - self.effect.chance))

    @property
    def judgement(self) -> Judgement:
        """The judgement of the member, link or unit with the fault."""
        ratio = Estimate(self.slower, self.least, self.most)
        return Judgement(self.name, "the other members", self.word, str(self), ratio)

    def __str__(self) -> str:
        effect, (times, least, most) = self.effect, (significant(x, 3) for x in (self.slower, self.least, self.most))
        often = f", in {effect.groups} of {counted(effect.seen, 'group')}" if effect.often < 1 else ""
        way = _WORDS.get(effect.fault.way, "")
        return f"{self.name} is {times}x slower ({least}x to {most}x){way}{often}{self.where}"


class ScanSight(NamedTuple):
    """The smallest faults that a scan would have seen, and the parts that it did not test."""

    sizes: tuple[int | str, ...]  # message sizes in bytes, or names of tables
    slower: float  # smallest lasting slowdown, as a ratio
    brief: float  # smallest intermittent slowdown, as a ratio
    often: float  # smallest share of the rounds of an intermittent slowdown
    links: bool  # whether all pairs of members exchanged messages
    unseen: tuple[str, ...] = ()  # untested parts, with the option or command that tests them

    def __str__(self) -> str:
        lasting, brief = (significant(math.ceil(100 * each) / 100, 3) for each in (self.slower, self.brief))
        passing = f", or {brief}x in {self.often:.0%} of the rounds" if self.often < 1 else ""
        unseen = f"; not tested: {', '.join(self.unseen)}" if self.unseen else ""
        return f"would have seen {lasting}x{passing}{_at(self.sizes)}{unseen}"


@dataclass(frozen=True)
class ScanVerdict(Shown):
    """The verdict of a scan."""

    SHOWN = ("word", "words")
    TABLE = "findings"
    members: Members
    findings: tuple[ScanFinding, ...]
    caveats: tuple[str, ...]  # why the usual time is unknown, in words
    uncleared: tuple[str, ...]  # names of members that are neither found slow nor cleared
    sight: ScanSight
    rounds: int  # 0 for tables
    seconds: float = 0.0  # of all rounds together
    pending: bool = False  # whether more rounds might show another fault
    lost: str = ""  # the rank that died, or the reason of an early end
    empty: int = 0  # rounds without a valid group, since other programs ran on the cores

    @property
    def faulty(self) -> list[ScanFinding]:
        """The faults, the slowest first; empty if the usual time is unknown."""
        slow = [] if self.caveats else [finding for finding in self.findings if finding.word is Word.SLOW]
        return sorted(slow, key=lambda finding: -finding.slower)

    @property
    def suspects(self) -> list[str]:
        """The caveats and suspects in words."""
        doubtful = Word.SLOW if self.caveats else Word.UNKNOWN
        return [*self.caveats, *(f"suspected: {finding}" for finding in self.findings if finding.word is doubtful)]

    @property
    def enough(self) -> bool:
        """Whether the rounds suffice to clear members, or there is a table."""
        return not self.rounds or self.rounds >= LEAST_ROUNDS

    @property
    def clear(self) -> bool:
        """Whether all members without a fault are cleared."""
        return self.enough and not (self.suspects or self.uncleared or self.lost)

    @property
    def sure(self) -> bool:
        """Whether the verdict is sure without another round."""
        return self.rounds >= LEAST_ROUNDS and not self.pending and (self.clear or bool(self.caveats))

    @property
    def word(self) -> Word:
        """WRONG if a rank was lost, SLOW if there is a fault, OK if all members are cleared, else UNKNOWN."""
        if self.lost:
            return Word.WRONG
        return Word.SLOW if self.faulty else Word.OK if self.clear else Word.UNKNOWN

    @property
    def judgement(self) -> Judgement:
        """The judgement of all members."""
        return Judgement("scan", "each other", self.word, self.words)

    @property
    def rank_seconds(self) -> float:
        """The cost: seconds times ranks."""
        return self.seconds * len(self.members.names)

    @property
    def words(self) -> str:
        """Faults, suspects, the sight of an OK, and the number of rounds."""
        parts = [*map(str, self.faulty), *self.suspects, *filter(None, [self.lost])]
        if self.word is Word.OK:
            parts += [f"none of {counted(len(self.members.names), 'member')} is slow", str(self.sight)]
        elif not parts:
            names = self.uncleared or self.members.names
            more = [f"{len(names) - LISTED} more"] if len(names) > LISTED else []
            parts.append(f"not cleared, with too few or scattered groups: {format_list([*names[:LISTED], *more])}")
        cost = f" ({counted(self.rounds, 'round')}, {significant(self.rank_seconds, 3)} rank-seconds)"
        return "; ".join(parts) + (cost if self.rounds else "")


class Evidence:
    """The rounds of a scan so far by message size, or tables by name."""

    def __init__(self, members: Members, slower: float, sizes: Iterable[int | str], table: bool = False) -> None:
        self._members, self._limit, self._table = members, math.log1p(slower), table
        self._deviation = PRIOR_DEVIATION if members.platform == "cpu" else PRIOR_OF_GPUS
        self._times = {size: Times(members) for size in sizes}
        self._seconds, self._empty = 0.0, 0
        self.fits: dict[int | str, Fit] = {}

    def add(self, measured: Round, table: str | None = None) -> None:
        """Add a round, or a table under its name."""
        self._seconds += measured.took
        self._empty += not measured.groups
        self._times[measured.case.nbytes if table is None else table].add(measured)

    def verdict(self, lost: str = "") -> ScanVerdict:
        """Return the verdict so far."""
        for size, times in self._times.items():
            if size not in self.fits or self.fits[size].rounds != times.rounds:
                self.fits[size] = Fit(times, self._limit, self._deviation, self._table)
        fits, names = list(self.fits.values()), self._members.names
        passing = Intermittent(fits)
        findings = self._findings(passing)
        slow = {member for each in findings for member in each.effect.members}

        # A member is cleared if it is not slow at any size.
        unsure = ~np.logical_and.reduce([fit.middle + SIGMAS * fit.error < self._limit for fit in fits])
        often = 1 if len(names) <= EVERY_LINK else 2  # among many links, one is always slow once
        again = [ends for fit in fits for ends, seen in fit.pending.items() if seen >= often]
        return ScanVerdict(
            self._members,
            findings,
            caveats=tuple(dict.fromkeys(caveat for fit in fits for caveat in self._caveats(fit))),
            uncleared=tuple(names[member] for member in np.flatnonzero(unsure) if member not in slow),
            sight=self._sight(passing, sorted(slow)),
            rounds=0 if self._table else sum(fit.rounds for fit in fits),
            seconds=self._seconds,
            pending=passing.open or not all(slow & {*ends} for ends in again),
            lost=lost,
            empty=self._empty,
        )

    def _findings(self, passing: Intermittent) -> tuple[ScanFinding, ...]:
        """Return the faults of all sizes, each once, without faults that another one explains."""
        by_fault: dict[tuple[str, str], dict[int | str, Effect]] = {}
        for size, fit in self.fits.items():
            for effect in fit.effects:
                by_fault.setdefault(effect.fault[:2], {})[size] = effect
        effects = {}
        for key, by_size in by_fault.items():
            effects[key] = max(by_size.values(), key=lambda effect: effect.slower - SIGMAS * effect.error)
        effects |= {each.fault[:2]: each for each in passing.effects if each.fault[:2] not in by_fault}
        slow = {member for each in effects.values() if each.fault.kind != "link" for member in each.members}
        leaves = [each for each in effects.values() if each.fault.kind != "member" and each.fault.way == ACROSS]
        findings = []
        for key, effect in effects.items():
            some = len(by_fault.get(key, self.fits)) < len(self.fits)
            # A slow member makes its links look slow; a slow leaf, its nodes if they had no round within the leaf.
            if effect.fault.kind == "link" and slow & {*effect.members}:
                continue
            near = (each for each in leaves if {*effect.members} < {*each.members})
            if some and any(abs(each.slower - effect.slower) < self._limit / 2 for each in near):
                continue
            findings.append(self._finding(effect, f",{_at(by_fault[key])}" if some else ""))
        return tuple(findings)

    def _finding(self, effect: Effect, where: str) -> ScanFinding:
        kind, name, _ = effect.fault
        label = name if kind in ("member", "link") or name.startswith(kind) else f"{kind} {name}"
        least, most = (effect.slower + side * SIGMAS * effect.error for side in (-1, 1))
        named = least > self._limit and effect.chance < SURE
        word = Word.SLOW if named else Word.OK if most < self._limit else Word.UNKNOWN
        return ScanFinding(effect, label, math.exp(effect.slower), math.exp(least), math.exp(most), word, where)

    def _caveats(self, fit: Fit) -> Iterator[str]:
        count, lasting = len(self._members.names), [each for each in fit.effects if not each.fault.way]
        slow = {member for each in lasting if each.fault.kind != "link" for member in each.members}
        if 2 * len(slow) > count:
            yield f"{len(slow)} of {counted(count, 'member')} are slower than the others: {_CHECK}"
        elif fit.faster():
            yield f"some groups are much faster than most, so most may be slow: {_CHECK}"
        for level in self._twos if fit is self._largest else ():
            if (excess := fit.across(level)) > _APART:
                longer = f"messages between them take {math.exp(excess):.2f}x as long as inside"
                yield f"{' or '.join(level.names)} may be slow, but traffic between two cannot tell which: {longer}"

    @property
    def _largest(self) -> Fit:
        return self.fits[max(self.fits, key=lambda size: (isinstance(size, int), size))]

    @property
    def _twos(self) -> list[Level]:
        """The levels with exactly two switches."""
        levels = self._largest.times.levels
        return [level for level in levels if len(level.names) == 2 and level.kind in ("leaf", "spine")]

    def _sight(self, passing: Intermittent, slow: Sequence[int]) -> ScanSight:
        """Return the sight for all members without a fault; `slow` are the others."""
        count, largest = len(self._members.names), self._largest
        errors = np.concatenate([np.delete(fit.error, slow) for fit in self.fits.values()])
        error = float(errors[np.isfinite(errors)].max(initial=0.0))
        links = largest.groups.shape[1] == 2 and len(np.unique(largest.codes())) == count * (count - 1) // 2
        unseen = [] if links else ["single links (--pairs)"]
        unseen += [f"{level.names[0]} against {level.names[1]} (`collbench check`)" for level in self._twos]
        unseen += [] if self._table else ["other sizes (--size)"]
        slower, often = math.exp(self._limit + error), 1.0 if self._table else passing.rarest(slow)
        return ScanSight(tuple(self.fits), slower, math.exp(1.5 * passing.least), often, links, tuple(unseen))


def _at(sizes: Iterable[int | str]) -> str:
    """Return ` at 8 KiB and 1 MiB`; empty for a table without a name."""
    words = format_list(format_size(size) if isinstance(size, int) else size for size in sizes)
    return f" at {words}" if words else ""


def judge(results: Sequence[Result], slower: float | None = None) -> ScanVerdict:
    """Return the verdict of the rows of a scan; the tolerated slowdown is by default that of the scan."""
    rounds = [row for row in results if isinstance(row, Round)]
    members = next((row for row in results if isinstance(row, Members)), None)
    case = members.case if members else results[0].case
    names = tuple(f"rank {rank}" for rank in range(case.ranks))
    members = members or Members(case, results[0].implementation, platform="", names=names)
    if any(member >= len(members.names) for each in rounds for group in each.groups for member in group):
        raise RunFileError("a round has members that the scan lacks")
    work = case.work
    usual = work.slower if isinstance(work, Scan) else 0.1
    sizes = dict.fromkeys(row.case.nbytes for row in rounds) or [members.case.nbytes]
    evidence = Evidence(members, usual if slower is None else slower, sizes)
    for each in rounds:
        evidence.add(each)
    return evidence.verdict(next((row.reason for row in results if row.outcome.bad), ""))


def refuse_few(members: int) -> None:
    """Raise UsageError if there are too few members to find a slow one."""
    if members < 3:
        raise UsageError(
            f"{counted(members, 'member')}: too few to find a slow one; give 3 or more (--ranks, --nodes of a system, "
            "names in a table), or use `collbench check`, which needs no peers"
        )
