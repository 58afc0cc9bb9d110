"""Whether measured times are as expected of a healthy machine.

The model's errors at neighbouring sizes go together (model/predict.py), so a stretch of sizes is
judged as a whole: the mean of the logarithms of measured over expected times, with more weight on sizes that the model
knows better, in standard deviations of that mean between machines that no fit has seen.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from statistics import median, median_high
from typing import NamedTuple

import numpy as np

from collbench.algorithms import is_path
from collbench.analysis.compare import unlike_table
from collbench.analysis.judgement import LISTED, UNSEEN, Judgement, Sight, Word, shortened
from collbench.analysis.machine import Candidate, RunFacts, assumed, possible
from collbench.analysis.reasons import FEWEST, ComparedCurve, Expect, Reason, called, explain
from collbench.analysis.roofline import link_roofline
from collbench.errors import CollbenchError
from collbench.model.constants import transport
from collbench.model.equation import Floats
from collbench.model.predict import COPIES, SIGHT_FACTORS, ErrorModel, curve, regime, smoothed
from collbench.results import Observed, Prediction, Reported
from collbench.runfile.schema import ONE_RANK
from collbench.stats import Estimate
from collbench.topology.system import System
from collbench.units import counted, format_rate, format_size

FAR = 1.25
"""Times the upper end of its band beyond which a size is slow: one in ten is outside, but hardly any so far."""
SLOW, FAST = 2.8, 3.5
"""Standard deviations from which on a curve is slow, or faster than modelled.

Of healthy machines that neither fit nor spreads have seen hardly more than one in twenty is then called slow, though
stretches are four and errors have long tails (docs/analysis.md).  Nothing is broken where a machine is faster.
"""
APART = 1.5
"""Times that rounds of a log are apart, from which on a setting, which all of them have, is not the cause."""
LEVEL = 1.005  # times as far from the times as another reason, that no reader sees
OVERFULL = 1.05
"""Share of a link's rate that nothing exceeds: times are printed with three digits or more, and rates are rounded."""

_LARGE_SIZES = " above 64 MiB"


def slow_in_words(slow: Sequence[tuple[int, float]], sizes: int) -> str:
    """Return `2 of 30 sizes: 1 MiB 13.4x slow, 4 MiB 2.1x slow` of sizes in bytes, each with a ratio of times."""
    named = [f"{format_size(nbytes)} {ratio:.1f}x slow" for nbytes, ratio in slow]
    return f"{len(slow)} of {counted(sizes, 'size')}: {shortened(named)}"


@dataclass(frozen=True)
class Diagnosis:
    """A curve: measured and expected, side by side."""

    implementation: str
    measured: tuple[Observed, ...]  # by size
    expected: tuple[Prediction, ...]  # as many, or none
    word: Word  # by its times alone
    remark: str = ""  # why it is unknown, or where it is slow
    reasons: tuple[Reason, ...] = ()  # the likeliest first
    off: float = 1.0  # a typical ratio of measured to expected times, or its inverse
    limit: float = math.nan  # of large messages: a ratio beyond which they are slow
    sight: Sight = UNSEEN
    assumed: str = ""  # of its run, which the log does not say
    together: bool = False  # whether sizes are slow together, so that reasons are looked for
    system: System | None = None  # that it was held against
    refuted: bool = False  # whether it is faster than links carry
    faster: str = ""  # which round of a log was much faster than the judged one

    @property
    def title(self) -> str:
        """The measured case, without its size."""
        return self.measured[0].case.title

    @property
    def name(self) -> str:
        """The case without its size, and the implementation."""
        return f"{self.title}, {self.implementation}"

    @property
    def judged(self) -> bool:
        """Whether its times were held against anything that could be right."""
        return not math.isnan(self.limit)

    @property
    def choices(self) -> list[str]:
        """Choices of NCCL that its own table would not make, whatever the word."""
        return unlike_table(self.measured, self.expected)

    @property
    def sizes(self) -> list[Judgement]:
        """A judgement of every size."""
        found = []
        for row, other in zip_longest(self.measured, self.expected):
            size = _judged_size(row, other) if other else Judgement(row.what, "", Word.UNKNOWN)
            unknown = replace(size, word=Word.UNKNOWN, reason="not judged", limit=math.nan)
            found.append(size if self.judged else unknown)
        return found

    def likely(self) -> Iterator[tuple[str, str]]:
        """Return the first reasons in words, each with what to do; later ones are hardly ever right."""
        for reason in self.reasons[:LISTED]:
            facts = f" ({'; '.join(reason.facts)})" if reason.facts else ""
            misses = f"the model misses by {reason.off:.2f}x instead of {self.off:.2f}x"
            yield f"{reason.hypothesis.name}{facts}. Assuming that, {misses}.", reason.hypothesis.fix

    @property
    def likeliest(self) -> list[str]:
        """The first reason, and those that fit the times at least as well, where no fact of the header decides."""
        reasons = self.reasons[:LISTED]
        if reasons and reasons[0].facts:
            return [reasons[0].hypothesis.name]
        return [reason.hypothesis.name for reason in reasons if reason.off < LEVEL * reasons[0].off]

    @property
    def unexplained(self) -> str:
        """A sentence about a slow curve without a reason; empty for any other."""
        if self.word is not Word.SLOW or self.reasons:
            return ""
        if self.implementation.startswith(COPIES):
            return "see `nvidia-smi nvlink --status` for links that are down, and `nvidia-smi topo -p2p r` for paths"
        if self.faster:
            return "no setting is the cause, which is as it is in every round; look for other jobs, and for throttling"
        if len(self.measured) < FEWEST:
            return f"{FEWEST} sizes or more would tell a reason, from 8 bytes on"
        return f"reason unknown: times are {self.off:.2f}x off, and nothing that the model can change explains it"


def diagnose(rows: Sequence[Observed], system: System | None, facts: RunFacts, expect: Expect = curve) -> Diagnosis:
    """Compare results of one implementation at all sizes with a system; return the verdict, and reasons if it is slow.

    The system is None if the machine is not known; `expect` predicts cases on a system by an implementation.
    """
    return with_reasons(judge_curve(rows, system, facts, expect), facts, expect)


def judge_curve(rows: Sequence[Observed], system: System | None, facts: RunFacts, expect: Expect = curve) -> Diagnosis:
    """Return the verdict without reasons.

    Where a log does not say how its run was started, or by which release, the curve is slow only if it is so by all.
    """
    systems: Sequence[System | None] = (system,)
    if system and rows[0].case.ranks > 1 and called(rows[0].implementation) == "nccl":
        systems = possible(system, facts.unsaid)
    every = [_judge(rows, each, facts, expect) for each in systems]
    place = min(range(len(every)), key=lambda index: _severity(every[index]))
    diagnosis, chosen = replace(every[place], system=systems[place]), systems[place]
    if chosen and len(systems) > 1 and diagnosis.judged:
        diagnosis = replace(diagnosis, sight=_narrowest(diagnosis, every), assumed=assumed(chosen, facts.unsaid))
    if diagnosis.word in (Word.OK, Word.FAST) and not diagnosis.sight.enough:
        diagnosis = replace(diagnosis, word=Word.UNKNOWN, remark=f"{diagnosis.sight}; give --reference or --nodes")
    return diagnosis


def judge_by_candidates(
    curves: Sequence[Sequence[Observed]], found: Sequence[Candidate], facts: RunFacts
) -> tuple[list[Diagnosis], list[Candidate]]:
    """Hold curves against every candidate; return a diagnosis of each, and the candidates that the times leave."""
    if not found:
        return [judge_curve(rows, None, facts) for rows in curves], []
    every: dict[str, list[Diagnosis]] = {}
    for candidate in found:
        every[candidate.choice] = [judge_curve(rows, candidate.part(rows[0].case.ranks), facts) for rows in curves]
    left = [candidate for candidate in found if not any(diagnosis.refuted for diagnosis in every[candidate.choice])]

    # The times refute all of them, or the only one: the first says how.
    choices = [candidate.choice for candidate in left or found[:1]]
    by_curve = zip(*(every[choice] for choice in choices), strict=True)
    return [with_reasons(_agreed(each, choices), facts) for each in by_curve], left or list(found)


def _agreed(every: Sequence[Diagnosis], choices: Sequence[str]) -> Diagnosis:
    """Return the diagnosis that is nearest to the times, with the word on which all candidates agree."""
    judged = [diagnosis for diagnosis in every if diagnosis.judged] or every
    words = {diagnosis.word for diagnosis in judged}
    nearest = min(judged, key=lambda diagnosis: diagnosis.off)
    if Word.SLOW in words and len(words) > 1:
        return replace(nearest, word=Word.UNKNOWN, remark=_choices(every, choices), together=False)

    # Faster than one of them is modelled is as expected of another.
    word = next(word for word in (Word.UNKNOWN, Word.SLOW, Word.OK, Word.FAST) if word in words)
    nearest = min((each for each in judged if each.word is word), key=lambda diagnosis: diagnosis.off)
    sight = Sight.of_all(diagnosis.sight for diagnosis in judged)
    return replace(nearest, sight=sight) if len(judged) > 1 else nearest


def _choices(every: Sequence[Diagnosis], choices: Sequence[str]) -> str:
    """Return which of the candidates make a curve slow, and which do not."""
    slow = [choice for diagnosis, choice in zip(every, choices, strict=True) if diagnosis.word is Word.SLOW]
    other = [choice for choice in choices if choice not in slow]
    return f"slow as {shortened(slow)}, and not as {shortened(other)}: say which it is (--on, --nodes)"


def with_reasons(diagnosis: Diagnosis, facts: RunFacts, expect: Expect = curve) -> Diagnosis:
    """Return the diagnosis with reasons, if its sizes are slow together, and with what another round says."""
    if diagnosis.word is not Word.SLOW:
        return diagnosis
    slow = {nbytes for nbytes, _ in slow_sizes(diagnosis.measured, diagnosis.expected)}
    faster = faster_round(diagnosis.measured, slow)
    reasons: Iterable[Reason] = ()
    if diagnosis.system and diagnosis.together:
        part = diagnosis.system.part(diagnosis.measured[0].case.ranks)
        reasons = explain(ComparedCurve(diagnosis.measured, diagnosis.expected, part), facts, expect)

    # A setting is as it is in every round.
    reasons = tuple(reason for reason in reasons if not faster or reason.hypothesis.shape)
    return replace(
        diagnosis, reasons=reasons, faster=faster, remark="; ".join(filter(None, (diagnosis.remark, faster)))
    )


def faster_round(rows: Sequence[Observed], slow: Collection[int]) -> str:
    """Return `the second round was 4.0x faster` of a log whose rounds are far apart; empty for any other.

    Only the sizes count that are slow (bytes), if there are any.
    """
    chosen = [row for row in rows if row.case.nbytes in slow] or rows
    rounds = [row.rounds for row in chosen if isinstance(row, Reported) and row.rounds]
    apart = [max(seconds) / min(seconds) for seconds in rounds]
    if not apart or median(apart) < APART:
        return ""
    typical = rounds[apart.index(median_high(apart))]
    number = typical.index(min(typical)) + 1
    name = ("first", "second", "third")[number - 1] if number <= 3 else f"{number}th"
    return f"the {name} round was {median_high(apart):.1f}x faster"


def _severity(diagnosis: Diagnosis) -> tuple[int, float]:
    """Return how bad a word is, to choose the mildest; the first of those that are all OK, or all slow."""
    mild = diagnosis.word in (Word.OK, Word.SLOW)
    return ([*Word][::-1].index(diagnosis.word), 0.0 if mild else diagnosis.off)


def _narrowest(diagnosis: Diagnosis, others: Iterable[Diagnosis]) -> Sight:
    """Return what all the others would see too, as slowdowns of what *diagnosis* expects."""
    sights = []
    for other in others:
        if other.judged:
            longer = [b.seconds / a.seconds for a, b in zip(diagnosis.expected, other.expected, strict=True)]
            sights.append(_sight(other.measured, other.expected, other.limit, longer))
    return Sight.of_all(sights)


def _judge(rows: Sequence[Observed], system: System | None, facts: RunFacts, expect: Expect) -> Diagnosis:
    """Return the word without reasons."""
    rows = tuple(sorted((row.worst for row in rows), key=lambda row: row.case.nbytes))
    name = rows[0].implementation
    if rows[0].case.ranks == 1:
        return Diagnosis(name, rows, (), Word.UNKNOWN, ONE_RANK)
    if system is None:
        return Diagnosis(name, rows, (), Word.UNKNOWN, facts.no_system)
    used = system.part(rows[0].case.ranks)
    try:
        expected = tuple(expect(used, [row.case for row in rows], name if is_path(name) else called(name)))
    except CollbenchError as error:
        return Diagnosis(name, rows, (), Word.UNKNOWN, str(error))
    refuted = "" if name.startswith(COPIES) else _more_than_links_carry(used, rows)
    unlike = "" if name.startswith(COPIES) else refuted or narrow_shares(rows)
    if unlike:
        return Diagnosis(name, rows, expected, Word.UNKNOWN, unlike, refuted=bool(refuted))
    diagnosis = _held_together(ComparedCurve(rows, expected, used))

    # It was held against as few nodes as the ranks fill; on more it may be right.
    if facts.unplaced and diagnosis.word is Word.SLOW:
        return replace(diagnosis, word=Word.UNKNOWN, remark=facts.unplaced, limit=math.nan)
    return diagnosis


def _held_together(compared: ComparedCurve) -> Diagnosis:
    """Judge the sizes of a curve together, where there are enough, and each by its own limit."""
    rows, expected = compared.rows, compared.expected
    slow = slow_sizes(rows, expected)
    found = Judgement("", "", Word.OK)
    if len(rows) >= FEWEST and not rows[0].implementation.startswith(COPIES):
        found = judge(compared.sizes, compared.logs(compared.healthy), compared.errors(compared.system))
    word, remark, limit = found.word, found.reason, found.limit
    together = word is Word.SLOW
    if together and slow:
        remark += f"; most of all {slow_in_words(slow, len(rows))}"
    elif slow:
        briefs = [str(row.note.brief) for row in rows if row.case.nbytes == slow[0][0]]
        word, remark = Word.SLOW, "; ".join(filter(None, (slow_in_words(slow, len(rows)), *briefs)))
    elif len(rows) < FEWEST and any(_far_below(row, other) for row, other in zip(rows, expected, strict=True)):
        word, remark = Word.FAST, f"{math.exp(min(compared.logs(compared.healthy))):.2f}x the expected time"
    if math.isnan(limit):
        limit = limit_of(rows[-1], expected[-1])
    diagnosis = Diagnosis(rows[0].implementation, tuple(rows), tuple(expected), word, remark, limit=limit)
    off = compared.off(compared.healthy)
    return replace(diagnosis, off=off, together=together, sight=_sight(rows, expected, limit, [1.0] * len(rows)))


def limit_of(row: Observed, expected: Prediction) -> float:
    """Return the ratio of measured over expected time beyond which a size is slow.

    A row of copies between GPUs is the slowest of all pairs, so there the band alone decides.
    """
    far = 1.0 if row.implementation.startswith(COPIES) else FAR
    return far * expected.band[1] / expected.seconds


def slow_sizes(rows: Sequence[Observed], expected: Sequence[Prediction]) -> list[tuple[int, float]]:
    """Return the sizes of a curve in bytes that are slower than their limits, with their ratios, the slowest first."""
    slow = []
    for row, other in zip(rows, expected, strict=True):
        ratio = row.typical / other.seconds
        if ratio > limit_of(row, other):
            slow.append((row.case.nbytes, ratio))
    return sorted(slow, key=lambda size: -size[1])


def _far_below(row: Observed, expected: Prediction) -> bool:
    return row.typical < expected.band[0] / FAR


def _judged_size(row: Observed, expected: Prediction) -> Judgement:
    low, high = (end / expected.seconds for end in expected.band)
    ratio, limit = row.typical / expected.seconds, limit_of(row, expected)
    word, reason = Word.OK, ""
    if ratio > limit:
        word = Word.SLOW
    elif ratio > high:
        reason = "above the band"
    elif _far_below(row, expected):
        word = Word.FAST
    elif ratio < low:
        reason = "below the band"
    return Judgement(row.what, "", word, reason, Estimate(ratio, ratio / high, ratio / low), (low, high), limit)


def _sight(rows: Sequence[Observed], expected: Sequence[Prediction], limit: float, longer: Sequence[float]) -> Sight:
    """Return the sight of a curve, given the limit of its large messages.

    `longer` is how many times longer than elsewhere its sizes are expected to take: by so much is less seen there.
    """
    singles = []
    for row, other, times in zip(rows, expected, longer, strict=True):
        factor = SIGHT_FACTORS["sizes"][regime(row.case.nbytes)]
        singles.append((row.case.nbytes, factor * limit_of(row, other) * times))
    large = [times for row, times in zip(rows, longer, strict=True) if regime(row.case.nbytes) == 2]
    if len(large) < FEWEST:
        return Sight.of(singles[-1][1], singles)
    return Sight.of(SIGHT_FACTORS["curve"][0] * limit * median(large), singles)


def narrow_shares(rows: Sequence[Observed]) -> str:
    """Return why times are not judged where ranks' shares of most sizes are no whole loads; empty elsewhere."""
    shares = [row.case.nbytes // row.case.ranks % 16 for row in rows if row.case.collective.sharded]
    if 2 * sum(map(bool, shares)) <= len(rows):
        return ""
    return "ranks' shares are no multiples of 16 bytes, so NCCL loads less at a time, which is not modelled"


def _more_than_links_carry(system: System, rows: Sequence[Observed]) -> str:
    """Say what refutes the system: more bytes in a second than its busiest link carries, whatever the algorithm."""
    fullest, words = OVERFULL, ""
    # What NCCL takes for a link of a node is less than it carries.
    if not system.spec_rate and system.nodes < 2:
        return ""
    for row in rows:
        if row.case.ranks < 2 or row.case.collective.parts > 1:
            continue
        limit = link_roofline(system, row.case)
        fastest = min(row.round_times) if isinstance(row, Reported) else row.typical
        share = limit.seconds(row.case.nbytes) / fastest
        if share > fullest:
            line = f"{share:.0%} of their {format_rate(limit.line)} GB/s"
            fullest, words = share, f"at {format_size(row.case.nbytes)} {limit.where} would carry {line}"
    fix = "the ranks ran on another machine, or on other nodes of it; name it with --on and --nodes"
    if system.nodes > 1 and transport(system) == "ib" and rows[0].case.collective.name == "allreduce":
        fix += "; or [nic] sharp = true"
    return f"{words}: {fix}" if words else ""


class Stretch(NamedTuple):
    """Sizes that are judged together: the logarithm of their times over healthy ones, and its standard deviation."""

    where: str
    off: float
    spread: float


def judge(sizes: Sequence[int], logs: Floats, errors: ErrorModel) -> Judgement:
    """Judge the logarithms of measured over expected times, by ascending size in bytes.

    The limit is that of the large messages; NaN where fewer than three sizes are.
    """
    stretches = list(_stretches(sizes, smoothed(logs) - errors.mean, errors.covariance))
    limit = math.nan
    if stretches[-1].where == _LARGE_SIZES:
        limit = math.exp(SLOW * stretches[-1].spread + float(errors.mean[-1]))
    for word, end, bound, most in ((Word.SLOW, max, SLOW, "at most"), (Word.FAST, min, -FAST, "at least")):
        far = end(stretches, key=lambda stretch: stretch.off / stretch.spread)
        if far.off / bound > far.spread:
            usual = f"healthy ones take {most} {np.exp(bound * far.spread):.2f}x"
            remark = f"{np.exp(far.off):.2f}x the usual time of such machines{far.where}; {usual}"
            return Judgement("", "", word, remark, limit=limit)
    return Judgement("", "", Word.OK, limit=limit)


def _stretches(sizes: Sequence[int], off: Floats, covariance: Floats) -> Iterator[Stretch]:
    """Yield all sizes, and those of latency, of neither, and of bandwidth by themselves."""
    kinds = np.array([regime(size) for size in sizes])
    parts = {" below 64 KiB": kinds == 0, " from 64 KiB to 64 MiB": kinds == 1, _LARGE_SIZES: kinds == 2}
    for where, chosen in {"": kinds >= 0, **parts}.items():
        if chosen.sum() >= FEWEST:
            # The mean of the sizes, with more weight on those that the model knows better.
            inside = covariance[np.ix_(chosen, chosen)]
            weights = 1 / np.diag(inside)
            weights /= weights.sum()
            yield Stretch(where, float(weights @ off[chosen]), float(np.sqrt(weights @ inside @ weights)))
