"""Diagnosis of a curve: measured times against those of a healthy machine.

The model's errors at neighbouring sizes are correlated (model/predict.py), so stretches of sizes are judged as a whole.
The statistic is the weighted mean of the logarithms of measured over expected times, in standard deviations of that
mean between machines that no fit has seen.
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
"""Factor on the upper end of the band for the limit of a size; one size in ten is outside its band, but not so far."""
SLOW, FAST = 2.8, 3.5
"""Standard deviations at which a curve is slow, or faster than modelled.

Hardly more than one in twenty healthy machines that neither fit nor spreads have seen is then called slow, in spite of
four stretches and long tails of errors (docs/analysis.md).  A faster machine is not broken.
"""
APART = 1.5
"""Ratio of a log's rounds from which on no setting is the cause, since all rounds have the same settings."""
LEVEL = 1.005  # ratio of two reasons' errors that counts as equal
OVERFULL = 1.05
"""Share of a link's rate that no operation exceeds, with an allowance for rounded times and rates."""

_LARGE_SIZES = " above 64 MiB"


def slow_in_words(slow: Sequence[tuple[int, float]], sizes: int) -> str:
    """Return `2 of 30 sizes: 1 MiB 13.4x slow, 4 MiB 2.1x slow`; `slow` has sizes in bytes with ratios of times."""
    named = [f"{format_size(nbytes)} {ratio:.1f}x slow" for nbytes, ratio in slow]
    return f"{len(slow)} of {counted(sizes, 'size')}: {shortened(named)}"


@dataclass(frozen=True)
class Diagnosis:
    """A curve with its measured and expected times."""

    implementation: str
    measured: tuple[Observed, ...]  # by size
    expected: tuple[Prediction, ...]  # one per size, or none
    word: Word  # by its times alone
    remark: str = ""  # why it is unknown, or where it is slow
    reasons: tuple[Reason, ...] = ()  # the likeliest first
    off: float = 1.0  # typical ratio of measured and expected times, at least 1
    limit: float = math.nan  # largest ratio of large messages that is not slow
    sight: Sight = UNSEEN
    assumed: str = ""  # assumptions about the run that the log does not tell
    together: str = ""  # the sizes that are slow together, which calls for reasons: `as a whole`, `above 64 MiB`
    system: System | None = None  # the system that it is compared with
    refuted: bool = False  # whether it is faster than the system's links allow
    faster: str = ""  # the much faster round of a log, in words

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
        """Whether its times were compared with a possible system."""
        return not math.isnan(self.limit)

    @property
    def choices(self) -> list[str]:
        """Choices of NCCL that differ from its own table."""
        return unlike_table(self.measured, self.expected)

    @property
    def sizes(self) -> list[Judgement]:
        """A judgement of every size."""
        judgements = []
        for row, other in zip_longest(self.measured, self.expected):
            size = _judged_size(row, other) if other else Judgement(row.what, "", Word.UNKNOWN)
            unknown = replace(size, word=Word.UNKNOWN, reason="not judged", limit=math.nan)
            judgements.append(size if self.judged else unknown)
        return judgements

    def likely(self) -> Iterator[tuple[str, str]]:
        """Yield the first reasons in words, each with its fix; later ones are hardly ever right."""
        for reason in self.reasons[:LISTED]:
            facts = f" ({'; '.join(reason.facts)})" if reason.facts else ""
            misses = f"the model misses by {reason.off:.2f}x instead of {self.off:.2f}x"
            yield f"{reason.hypothesis.name}{facts}. Assuming that, {misses}.", reason.hypothesis.fix

    @property
    def likeliest(self) -> list[str]:
        """Names of the first reason and of equally good ones; only the first if a fact of the header supports it."""
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
            return "no setting is the cause, since all rounds have the same ones; look for other jobs and throttling"
        if len(self.measured) < FEWEST:
            return f"reason unknown: give at least {FEWEST} sizes, from 8 bytes on"
        return f"reason unknown: times are {self.off:.2f}x off, and no change of the modelled machine explains them"


def diagnose(rows: Sequence[Observed], system: System | None, facts: RunFacts, expect: Expect = curve) -> Diagnosis:
    """Compare a curve with a system, None if unknown; return the verdict, with reasons if it is slow."""
    return with_reasons(judge_curve(rows, system, facts, expect), facts, expect)


def judge_curve(rows: Sequence[Observed], system: System | None, facts: RunFacts, expect: Expect = curve) -> Diagnosis:
    """Return the verdict without reasons; a curve is slow only if it is for all values that a log leaves open."""
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
    """Compare curves with every candidate; return a diagnosis of each curve, and the candidates not refuted."""
    if not found:
        return [judge_curve(rows, None, facts) for rows in curves], []
    every: dict[str, list[Diagnosis]] = {}
    for candidate in found:
        every[candidate.choice] = [judge_curve(rows, candidate.part(rows[0].case.ranks), facts) for rows in curves]
    left = [candidate for candidate in found if not any(diagnosis.refuted for diagnosis in every[candidate.choice])]

    # If the times refute all candidates, the first one gives the reason.
    choices = [candidate.choice for candidate in left or found[:1]]
    by_curve = zip(*(every[choice] for choice in choices), strict=True)
    return [with_reasons(_agreed(each, choices), facts) for each in by_curve], left or list(found)


def _agreed(every: Sequence[Diagnosis], choices: Sequence[str]) -> Diagnosis:
    """Return the diagnosis nearest to the times, with the word that the candidates agree on."""
    judged = [diagnosis for diagnosis in every if diagnosis.judged] or every
    words = {diagnosis.word for diagnosis in judged}
    nearest = min(judged, key=lambda diagnosis: diagnosis.off)
    if Word.SLOW in words and len(words) > 1:
        return replace(nearest, word=Word.UNKNOWN, remark=_choices(every, choices), together="")

    # A curve that is FAST for one candidate is as expected for another.
    word = next(word for word in (Word.UNKNOWN, Word.SLOW, Word.OK, Word.FAST) if word in words)
    nearest = min((each for each in judged if each.word is word), key=lambda diagnosis: diagnosis.off)
    sight = Sight.of_all(diagnosis.sight for diagnosis in judged)
    return replace(nearest, sight=sight) if len(judged) > 1 else nearest


def _choices(every: Sequence[Diagnosis], choices: Sequence[str]) -> str:
    """Return in words for which candidates a curve is slow, and for which it is not."""
    slow = [choice for diagnosis, choice in zip(every, choices, strict=True) if diagnosis.word is Word.SLOW]
    other = [choice for choice in choices if choice not in slow]
    return f"slow as {shortened(slow)}, but not as {shortened(other)}: name the system (--on, --nodes)"


def with_reasons(diagnosis: Diagnosis, facts: RunFacts, expect: Expect = curve) -> Diagnosis:
    """Return the diagnosis with reasons if its sizes are slow together, and with a faster round if there is one."""
    if diagnosis.word is not Word.SLOW:
        return diagnosis
    slow = {nbytes for nbytes, _ in slow_sizes(diagnosis.measured, diagnosis.expected)}
    faster = faster_round(diagnosis.measured, slow)
    reasons: Iterable[Reason] = ()
    if diagnosis.system and diagnosis.together:
        part = diagnosis.system.part(diagnosis.measured[0].case.ranks)
        reasons = explain(ComparedCurve(diagnosis.measured, diagnosis.expected, part), facts, expect)

    # A faster round rules out settings, which all rounds share.
    reasons = tuple(reason for reason in reasons if not faster or reason.hypothesis.shape)
    return replace(
        diagnosis, reasons=reasons, faster=faster, remark="; ".join(filter(None, (diagnosis.remark, faster)))
    )


def faster_round(rows: Sequence[Observed], slow: Collection[int]) -> str:
    """Return `the second round was 4.0x faster` by the `slow` sizes of very different rounds, else nothing."""
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
    """Return the sort key of a diagnosis by its word; the smallest is the mildest, and the first wins a tie."""
    mild = diagnosis.word in (Word.OK, Word.SLOW)
    return ([*Word][::-1].index(diagnosis.word), 0.0 if mild else diagnosis.off)


def _narrowest(diagnosis: Diagnosis, others: Iterable[Diagnosis]) -> Sight:
    """Return the slowdowns, of the expectation of *diagnosis*, that all judged diagnoses would see."""
    sights = []
    for other in others:
        if other.judged:
            longer = [b.seconds / a.seconds for a, b in zip(diagnosis.expected, other.expected, strict=True)]
            sights.append(_sight(other.measured, other.expected, other.limit, longer))
    return Sight.of_all(sights)


def _judge(rows: Sequence[Observed], system: System | None, facts: RunFacts, expect: Expect) -> Diagnosis:
    """Return the diagnosis for one system, without reasons."""
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

    # The system has as few nodes as the ranks fill; on more nodes, the times may be as expected.
    if facts.unplaced and diagnosis.word is Word.SLOW:
        return replace(diagnosis, word=Word.UNKNOWN, remark=facts.unplaced, limit=math.nan)
    return diagnosis


def _held_together(compared: ComparedCurve) -> Diagnosis:
    """Judge the sizes of a curve together if there are enough, and each by its own limit."""
    rows, expected = compared.rows, compared.expected
    slow = slow_sizes(rows, expected)
    whole = Judgement("", "", Word.OK)
    if len(rows) >= FEWEST and not rows[0].implementation.startswith(COPIES):
        whole = judge(compared.sizes, compared.logs(compared.healthy), compared.errors(compared.system))
    word, remark, limit = whole.word, whole.reason, whole.limit
    together = whole.what if word is Word.SLOW else ""
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
    """Return the largest ratio of a size that is not slow; for the slowest pair of copies, the end of the band."""
    far = 1.0 if row.implementation.startswith(COPIES) else FAR
    return far * expected.band[1] / expected.seconds


def slow_sizes(rows: Sequence[Observed], expected: Sequence[Prediction]) -> list[tuple[int, float]]:
    """Return the sizes (bytes) above their limits with their ratios, the slowest first."""
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

    `longer` has factors on the slowdown of each size, for an expectation of longer times than the reference's.
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
    """Return why times are not judged if ranks' shares of most sizes are no multiples of 16 bytes; else empty."""
    shares = [row.case.nbytes // row.case.ranks % 16 for row in rows if row.case.collective.sharded]
    if 2 * sum(map(bool, shares)) <= len(rows):
        return ""
    return "ranks' shares are no multiples of 16 bytes; the model does not cover NCCL's narrower loads then"


def _more_than_links_carry(system: System, rows: Sequence[Observed]) -> str:
    """Return why a system is refuted: more bytes per second than its busiest link carries with any algorithm."""
    fullest, words = OVERFULL, ""
    # NCCL's own rate of a node's link is less than its real rate.
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
    fix = "the ranks ran on another machine or on other nodes; name them with --on and --nodes"
    if system.nodes > 1 and transport(system) == "ib" and rows[0].case.collective.name == "allreduce":
        fix += "; or [nic] sharp = true"
    return f"{words}: {fix}" if words else ""


class Stretch(NamedTuple):
    """Sizes that are judged together."""

    where: str
    off: float  # mean logarithm of measured over healthy times
    spread: float  # standard deviation of `off` between healthy machines


def judge(sizes: Sequence[int], logs: Floats, errors: ErrorModel) -> Judgement:
    """Judge the logarithms of measured over expected times, by ascending size; the limit is of large messages."""
    stretches = list(_stretches(sizes, smoothed(logs) - errors.mean, errors.covariance))
    limit = math.nan
    if stretches[-1].where == _LARGE_SIZES:
        limit = math.exp(SLOW * stretches[-1].spread + float(errors.mean[-1]))
    for word, end, bound, most in ((Word.SLOW, max, SLOW, "at most"), (Word.FAST, min, -FAST, "at least")):
        far = end(stretches, key=lambda stretch: stretch.off / stretch.spread)
        if far.off / bound > far.spread:
            usual = f"healthy machines take {most} {np.exp(bound * far.spread):.2f}x"
            remark = f"{np.exp(far.off):.2f}x the usual time of such machines{far.where}; {usual}"
            return Judgement(far.where.strip() or "as a whole", "", word, remark, limit=limit)
    return Judgement("", "", Word.OK, limit=limit)


def _stretches(sizes: Sequence[int], off: Floats, covariance: Floats) -> Iterator[Stretch]:
    """Yield the stretch of all sizes, and those of small, middle and large messages."""
    kinds = np.array([regime(size) for size in sizes])
    parts = {" below 64 KiB": kinds == 0, " from 64 KiB to 64 MiB": kinds == 1, _LARGE_SIZES: kinds == 2}
    for where, chosen in {"": kinds >= 0, **parts}.items():
        if chosen.sum() >= FEWEST:
            # The mean of the sizes, weighted by the inverse variance of the model.
            inside = covariance[np.ix_(chosen, chosen)]
            weights = 1 / np.diag(inside)
            weights /= weights.sum()
            yield Stretch(where, float(weights @ off[chosen]), float(np.sqrt(weights @ inside @ weights)))
