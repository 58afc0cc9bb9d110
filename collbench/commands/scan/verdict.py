"""The verdict of a scan: who is slow, who is suspected, what an OK could not see, and when another round is in vain."""

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
_APART = math.log(1.35)  # by which groups across two leaves may take longer: switches on the way cost something
_WORDS = {SENDS: ", where it sends", RECEIVES: ", where it receives", ACROSS: ", to and from others"}
_CHECK = "`collbench check` says whether that is right"


@dataclass(frozen=True)
class ScanFinding(Shown):
    """A fault, or what may be one, as it shows at the size where it slows most."""

    SHOWN = ("name", "slower", "least", "most", "word")
    effect: Effect
    name: str  # with the kind where the name does not say it: `leaf 3`, `rank 2`
    slower: float  # times
    least: float  # 99.7 % interval of that
    most: float
    word: Word  # SLOW where all of the interval is too slow and noise is no explanation, OK where none of it is
    where: str = ""  # at which sizes it shows, where not at all

    @property
    def probability(self) -> float:
        """How sure it is that noise is no explanation: from 0 to 0.999."""
        return min(1 - SURE, max(0.0, 1 - self.effect.chance))

    @property
    def judgement(self) -> Judgement:
        """The judgement of who has it."""
        ratio = Estimate(self.slower, self.least, self.most)
        return Judgement(self.name, "the other members", self.word, str(self), ratio)

    def __str__(self) -> str:
        effect, (times, least, most) = self.effect, (significant(x, 3) for x in (self.slower, self.least, self.most))
        often = f", in {effect.groups} of {counted(effect.seen, 'group')}" if effect.often < 1 else ""
        way = _WORDS.get(effect.fault.way, "")
        return f"{self.name} is {times}x slower ({least}x to {most}x){way}{often}{self.where}"


class ScanSight(NamedTuple):
    """The smallest faults that a scan would not have missed, and the parts that it did not look at."""

    sizes: tuple[int | str, ...]  # bytes of the messages; of tables, what each is of
    slower: float  # times: the smallest slowdown that lasts
    brief: float  # times: the smallest that comes and goes
    often: float  # in the rarest share of the rounds
    links: bool  # whether every two members exchanged messages
    unseen: tuple[str, ...] = ()  # what was not looked at, with the command that does

    def __str__(self) -> str:
        lasting, brief = (significant(math.ceil(100 * each) / 100, 3) for each in (self.slower, self.brief))
        passing = f", or {brief}x in {self.often:.0%} of the rounds" if self.often < 1 else ""
        unseen = f"; not looked at: {', '.join(self.unseen)}" if self.unseen else ""
        return f"would have seen {lasting}x{passing}{_at(self.sizes)}{unseen}"


@dataclass(frozen=True)
class ScanVerdict(Shown):
    """What a scan found out."""

    SHOWN = ("word", "words")
    TABLE = "findings"
    members: Members
    findings: tuple[ScanFinding, ...]
    caveats: tuple[str, ...]  # why what is usual is not known, in words
    uncleared: tuple[str, ...]  # names of members that are neither found slow nor cleared
    sight: ScanSight
    rounds: int  # 0 of tables
    seconds: float = 0.0  # of all rounds together
    pending: bool = False  # whether more rounds might tell of another
    lost: str = ""  # who died, or what ended the scan before it was sure
    empty: int = 0  # rounds of which no group counted, since other programs had the cores

    @property
    def faulty(self) -> list[ScanFinding]:
        """The faults, the slowest first; none where the usual time is not known."""
        slow = [] if self.caveats else [finding for finding in self.findings if finding.word is Word.SLOW]
        return sorted(slow, key=lambda finding: -finding.slower)

    @property
    def suspects(self) -> list[str]:
        """The suspects, and why nobody is named, in words."""
        doubtful = Word.SLOW if self.caveats else Word.UNKNOWN
        return [*self.caveats, *(f"suspected: {finding}" for finding in self.findings if finding.word is doubtful)]

    @property
    def enough(self) -> bool:
        """Whether there are rounds enough to clear anybody, or a table."""
        return not self.rounds or self.rounds >= LEAST_ROUNDS

    @property
    def clear(self) -> bool:
        """Whether all that are not named have been cleared."""
        return self.enough and not (self.suspects or self.uncleared or self.lost)

    @property
    def sure(self) -> bool:
        """Whether another round would change nothing."""
        return self.rounds >= LEAST_ROUNDS and not self.pending and (self.clear or bool(self.caveats))

    @property
    def word(self) -> Word:
        """WRONG where somebody is lost, SLOW where somebody is slow, UNKNOWN where rounds are too few to say."""
        if self.lost:
            return Word.WRONG
        return Word.SLOW if self.faulty else Word.OK if self.clear else Word.UNKNOWN

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
        """The slow and the suspects, the sight of an OK, and the rounds that it rests on."""
        parts = [*map(str, self.faulty), *self.suspects, *filter(None, [self.lost])]
        if self.word is Word.OK:
            parts += [f"none of {counted(len(self.members.names), 'member')} is slow", str(self.sight)]
        elif not parts:
            names = self.uncleared or self.members.names
            more = [f"{len(names) - LISTED} more"] if len(names) > LISTED else []
            parts.append(f"not cleared, since groups are few or scatter: {format_list([*names[:LISTED], *more])}")
        cost = f" ({counted(self.rounds, 'round')}, {significant(self.rank_seconds, 3)} rank-seconds)"
        return "; ".join(parts) + (cost if self.rounds else "")


class Evidence:
    """The rounds of a scan so far by the sizes of their messages; or tables, by what they are of."""

    def __init__(self, members: Members, slower: float, sizes: Iterable[int | str], table: bool = False) -> None:
        self._members, self._limit, self._table = members, math.log1p(slower), table
        self._deviation = PRIOR_DEVIATION if members.platform == "cpu" else PRIOR_OF_GPUS
        self._times = {size: Times(members) for size in sizes}
        self._seconds, self._empty = 0.0, 0
        self.fits: dict[int | str, Fit] = {}

    def add(self, measured: Round, table: str | None = None) -> None:
        """Take a round, or a table of that name."""
        self._seconds += measured.took
        self._empty += not measured.groups
        self._times[measured.case.nbytes if table is None else table].add(measured)

    def verdict(self, lost: str = "") -> ScanVerdict:
        """Return what is known by now."""
        for size, times in self._times.items():
            if size not in self.fits or self.fits[size].rounds != times.rounds:
                self.fits[size] = Fit(times, self._limit, self._deviation, self._table)
        fits, names = list(self.fits.values()), self._members.names
        passing = Intermittent(fits)
        findings = self._findings(passing)
        slow = {member for each in findings for member in each.effect.members}

        # All others are cleared at each size.
        unsure = ~np.logical_and.reduce([fit.middle + SIGMAS * fit.error < self._limit for fit in fits])
        often = 1 if len(names) <= EVERY_LINK else 2  # among many somebody is always slow once
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
        """Return the faults of all sizes, each once; but none that another one explains."""
        found: dict[tuple[str, str], dict[int | str, Effect]] = {}
        for size, fit in self.fits.items():
            for effect in fit.effects:
                found.setdefault(effect.fault[:2], {})[size] = effect
        effects = {
            key: max(each.values(), key=lambda one: one.slower - SIGMAS * one.error) for key, each in found.items()
        }
        effects |= {each.fault[:2]: each for each in passing.effects if each.fault[:2] not in found}
        slow = {member for each in effects.values() if each.fault.kind != "link" for member in each.members}
        leaves = [each for each in effects.values() if each.fault.kind != "member" and each.fault.way == ACROSS]
        findings = []
        for key, effect in effects.items():
            some = len(found.get(key, self.fits)) < len(self.fits)
            # Who is slow makes its links look slow, and a leaf its nodes where these had no round among themselves.
            if effect.fault.kind == "link" and slow & {*effect.members}:
                continue
            near = (each for each in leaves if {*effect.members} < {*each.members})
            if some and any(abs(each.slower - effect.slower) < self._limit / 2 for each in near):
                continue
            findings.append(self._finding(effect, f",{_at(found[key])}" if some else ""))
        return tuple(findings)

    def _finding(self, effect: Effect, where: str) -> ScanFinding:
        kind, name, _ = effect.fault
        label = name if kind in ("member", "link") or name.startswith(kind) else f"{kind} {name}"
        least, most = (effect.slower + side * SIGMAS * effect.error for side in (-1, 1))
        named = least > self._limit and effect.chance < SURE
        word = Word.SLOW if named else Word.OK if most < self._limit else Word.UNKNOWN
        return ScanFinding(effect, label, math.exp(effect.slower), math.exp(least), math.exp(most), word, where)

    def _caveats(self, fit: Fit) -> Iterator[str]:
        """Yield why what is usual may be wrong."""
        count, lasting = len(self._members.names), [each for each in fit.effects if not each.fault.way]
        slow = {member for each in lasting if each.fault.kind != "link" for member in each.members}
        if 2 * len(slow) > count:
            yield f"{len(slow)} of {counted(count, 'member')} are slower than the others: {_CHECK}"
        elif fit.faster():
            yield f"some groups are much faster than most, so that what is usual here may be slow: {_CHECK}"
        for level in self._twos if fit is self._largest else ():
            if (much := fit.across(level)) > _APART:
                longer = f"messages across take {math.exp(much):.2f}x as long as inside"
                yield f"{' or '.join(level.names)} may be slow, and traffic between two does not tell which: {longer}"

    @property
    def _largest(self) -> Fit:
        return self.fits[max(self.fits, key=lambda size: (isinstance(size, int), size))]

    @property
    def _twos(self) -> list[Level]:
        """The levels of switches of which there are two."""
        return [
            level for level in self._largest.times.levels if len(level.names) == 2 and level.kind in ("leaf", "spine")
        ]

    def _sight(self, passing: Intermittent, slow: Sequence[int]) -> ScanSight:
        """Return what would have been seen of all that are not slow."""
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
    """Return ` at 8 KiB and 1 MiB`; nothing of a table without a name."""
    words = format_list(format_size(size) if isinstance(size, int) else size for size in sizes)
    return f" at {words}" if words else ""


def judge(results: Sequence[Result], slower: float | None = None) -> ScanVerdict:
    """Return the verdict of the rows of a scan; by default it is too slow what was when it ran."""
    rounds = [row for row in results if isinstance(row, Round)]
    members = next((row for row in results if isinstance(row, Members)), None)
    case = members.case if members else results[0].case
    names = tuple(f"rank {rank}" for rank in range(case.ranks))
    members = members or Members(case, results[0].implementation, platform="", names=names)
    if any(member >= len(members.names) for each in rounds for group in each.groups for member in group):
        raise RunFileError("a round has members that the scan has not")
    work = case.work
    usual = work.slower if isinstance(work, Scan) else 0.1
    sizes = dict.fromkeys(row.case.nbytes for row in rounds) or [members.case.nbytes]
    evidence = Evidence(members, usual if slower is None else slower, sizes)
    for each in rounds:
        evidence.add(each)
    return evidence.verdict(next((row.reason for row in results if row.outcome.bad), ""))


def refuse_few(members: int) -> None:
    """Raise UsageError for members of whom nobody can be named."""
    if members < 3:
        raise UsageError(
            f"{counted(members, 'member')}: too few to tell who is slow; give 3 or more (--ranks, --nodes of a system, "
            "names in a table), or use `collbench check`, which needs no others to compare with"
        )
