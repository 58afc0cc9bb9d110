"""The verdict of a scan: who is slow, who is suspected, and when another round would change nothing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from collbench.analysis.judgement import Judgement, Word
from collbench.analysis.sequential import (
    FEWEST,
    PRIOR_DEVIATION,
    PRIOR_OF_GPUS,
    SequentialTest,
    median_variance,
)
from collbench.commands.scan.posterior import ACROSS, EVERY, RECEIVES, SENDS, Belief, Posterior, Suspicion
from collbench.commands.scan.rows import Members, Round
from collbench.notebook import Shown
from collbench.results import Result
from collbench.stats import Estimate
from collbench.units import counted, significant

SURE = 0.99  # probability of who has a fault
KIND_SURE = 0.9  # of the way in which it shows
ONE_MORE = 0.0015  # probability of another fault below which nothing more is looked for
LEAST_ROUNDS = 20
"""A fault of one round in five shows in one of so many with 98.8 %, in two with 93 %."""
MOST_ROUNDS = 60
_SUSPECT = 0.02  # probability from which on somebody is named as a suspect
_QUANTILE = 1.96  # of a 95 % interval
_WORDS = {
    EVERY: "",
    SENDS: ", where it sends",
    RECEIVES: ", where it receives",
    ACROSS: ", to and from others",
}


@dataclass(frozen=True)
class ScanFinding(Shown):
    """A fault, or what may be one."""

    SHOWN = ("name", "slower", "least", "most", "word", "sure")
    suspicion: Suspicion
    word: Word  # whether it is slower by as much as is too much
    slower: float  # times
    least: float  # 95 % interval of that
    most: float

    @property
    def sure(self) -> bool:
        """Whether it is sure who has it, and that it is slow."""
        return self.word is Word.SLOW and self.suspicion.of_name() >= SURE

    @property
    def decided(self) -> bool:
        """Whether another round would change nothing."""
        sure = self.suspicion.of_name() >= SURE and self.suspicion.hypotheses[0][1] >= KIND_SURE
        return sure and self.word is not Word.UNKNOWN

    @property
    def name(self) -> str:
        """Who it is, with the kind where the name does not say it: `leaf 3`, `rank 2`."""
        kind, name, _ = self.suspicion.likeliest
        return name if kind == "member" or name.startswith(kind) else f"{kind} {name}"

    @property
    def judgement(self) -> Judgement:
        """The judgement of who has it."""
        ratio = Estimate(self.slower, self.least, self.most)
        return Judgement(self.name, "the other members", self.word if self.sure else Word.UNKNOWN, str(self), ratio)

    def __str__(self) -> str:
        seen = self.suspicion
        much = f"{significant(self.slower, 3)}x slower ({significant(self.least, 3)}x to {significant(self.most, 3)}x)"
        way = _WORDS.get(seen.likeliest.way, "") if seen.hypotheses[0][1] >= KIND_SURE else ""
        often = f", in {seen.rounds} of {counted(seen.seen, 'group')}" if seen.often < 1 else ""
        return f"{self.name} is {much}{way}{often}"


@dataclass(frozen=True)
class ScanVerdict(Shown):
    """What a scan found out."""

    SHOWN = ("word", "words")
    TABLE = "findings"
    members: Members
    findings: tuple[ScanFinding, ...]
    suspects: tuple[str, ...]  # in words
    rounds: int
    seconds: float  # of all rounds together
    one_more: float  # probability of a fault besides those that were found
    lost: str = ""  # who died, or what ended the scan before it was sure
    empty: int = 0  # rounds of which no group counted, since other programs had the cores

    @property
    def faulty(self) -> list[ScanFinding]:
        """The faults, the slowest first."""
        return sorted((finding for finding in self.findings if finding.sure), key=lambda finding: -finding.slower)

    @property
    def sure(self) -> bool:
        """Whether another round would change nothing."""
        if self.rounds < LEAST_ROUNDS or self.one_more > ONE_MORE:
            return False
        return all(finding.decided for finding in self.findings)

    @property
    def word(self) -> Word:
        """WRONG where somebody is lost, SLOW where somebody is slow, UNKNOWN where rounds are too few to say."""
        if self.lost:
            return Word.WRONG
        if self.faulty:
            return Word.SLOW
        return Word.OK if self.sure and not self.suspects else Word.UNKNOWN

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
        """Who is slow, who may be, and by how many rounds that is known."""
        parts = [str(finding) for finding in self.faulty]
        parts += [f"suspected: {suspect}" for suspect in self.suspects]
        if self.lost:
            parts.append(self.lost)
        if not parts:
            parts.append(f"none of {counted(len(self.members.names), 'member')} is slow")
        if self.word is Word.UNKNOWN and not self.suspects:
            parts[-1] += f", so far: another fault has a probability of {significant(self.one_more, 2)}"
        cost = f"{counted(self.rounds, 'round')}, {significant(self.rank_seconds, 3)} rank-seconds"
        return f"{'; '.join(parts)} ({cost})"


def finding_of(suspicion: Suspicion, members: int, slower: float) -> ScanFinding:
    """Return whether what is suspected is too slow, by Wald's test, with an interval."""
    rounds = suspicion.rounds if suspicion.often < 1 else suspicion.seen
    variance = median_variance(suspicion.deviation, max(1, rounds))
    word = SequentialTest(slower, sizes=members).decide(suspicion.slower, variance)
    if rounds < FEWEST:
        word = Word.UNKNOWN
    half = _QUANTILE * math.sqrt(variance)
    return ScanFinding(suspicion, word, *(math.exp(suspicion.slower + side) for side in (0.0, -half, half)))


def judged(members: Members, belief: Belief, rounds: Sequence[Round], slower: float, lost: str = "") -> ScanVerdict:
    """Return the verdict of a belief after these rounds."""
    findings = tuple(finding_of(suspicion, len(members.names), slower) for suspicion in belief.suspicions)
    suspects = []
    for finding in findings:
        if not finding.sure and finding.word is not Word.OK:
            choices: dict[str, float] = {}
            for (_, name, _), chance in finding.suspicion.hypotheses:
                choices[name] = choices.get(name, 0.0) + chance
            likely = [f"{name} ({chance:.0%})" for name, chance in choices.items() if chance >= _SUSPECT]
            suspects.append(f"{' or '.join(likely[:4])}, {significant(finding.slower, 3)}x slower")
    took, empty = sum(each.took for each in rounds), sum(not each.groups for each in rounds)
    return ScanVerdict(members, findings, tuple(suspects), len(rounds), took, belief.one_more, lost, empty)


def posterior_of(members: Members, slower: float) -> Posterior:
    """Return the posterior of a scan that begins."""
    return Posterior(members, PRIOR_DEVIATION if members.platform == "cpu" else PRIOR_OF_GPUS, slower)


def judge(results: Sequence[Result], slower: float) -> ScanVerdict:
    """Return the verdict of the rows of a scan."""
    members = next((row for row in results if isinstance(row, Members)), None)
    rounds = [row for row in results if isinstance(row, Round)]
    lost = next((row.reason for row in results if row.outcome.bad), "")
    if not members:
        members = Members(results[0].case, results[0].implementation, platform="")
    posterior = posterior_of(members, slower)
    for each in rounds:
        posterior.add(each)
    return judged(members, posterior.believe(), rounds, slower, lost)
