"""Whether measured times are as expected of a healthy machine; if slow, which hypotheses explain them best.

The verdict.  The model's errors at neighbouring sizes go together (model/error_bands.py), so a stretch of sizes is
judged as a whole: the mean of the logarithms of measured over expected times, with more weight on sizes that the model
knows better, in standard deviations of that mean between machines that no fit has seen.

The reasons.  hypotheses.toml lists everything that a diagnosis may name.  Bayes' rule over these hypotheses and
"something else", which may do anything to times: what is likelier than that is a reason.  A likelihood has the model's
own errors, as they go together on the machine that a hypothesis describes, and counts facts of the header.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

from collbench.algorithms import is_path
from collbench.analysis.curve_fit import NOISY
from collbench.analysis.hypotheses import HYPOTHESES, PINNED, Hypothesis
from collbench.analysis.machine import RunFacts, assumed, possible
from collbench.analysis.ran import unlike_table
from collbench.analysis.roofline import link_roofline
from collbench.analysis.verdict import FAR, MANY, Correctness, Exceptional, Health, but_for, exceptions, listed
from collbench.cases import Case
from collbench.errors import CollbenchError
from collbench.model.constants import transport
from collbench.model.equation import Floats
from collbench.model.error_bands import SMALL, ErrorModel, error_levels, error_model, hidden, regime, smoothed
from collbench.model.predict import COPIES, curve
from collbench.notebook import Shown
from collbench.results import Observed, Prediction, family
from collbench.runfile.rounds import scatter_in_words
from collbench.topology.system import System
from collbench.units import format_rate, format_size

FEWEST = 3  # sizes that a verdict needs, and a stretch
SLOW, FAST = 2.8, 3.5
"""Standard deviations from which on a curve is slow, or faster than modelled.

So that of healthy machines which neither fit nor spreads have seen hardly more than one in twenty is called slow,
though stretches are four and errors have longer tails than a normal distribution (counts: docs/analysis.md).  Nothing
is broken where a machine is faster, so that takes more.
"""
FREEDOM = 4
"""Of Student's distribution: machines are sometimes much further off than a normal distribution has it."""
ANYTHING = 1.5
"""Standard deviation of what something unknown may do to times, as a logarithm, much alike at neighbouring sizes."""
ANYTHING_OCTAVES = 12.0
"""Octaves over which its correlation falls by e."""
NOTICED = 1.02  # times that a reason must make longer somewhere to be one
NEARER = 0.9  # of the distance to the expected times, the most that may be left under a reason
HARDLY = math.log(10**6)  # by which a reason may be less likely than the first
SCATTERING = (320 + 2) / (22 + 1)  # likelihood ratio of times that scatter by NOISY: of 320 healthy curves, 22 do
UNSET, OFTEN = 0.02, 3.0  # likelihood ratios: of a setting that is not among those shown, and of one that many have
LISTED = 3  # reasons
LEVEL = 1.005  # times as far from the times as another reason, that no reader sees
LARGER = 1.5  # times that large messages take with too few cores for the ranks
OVERFULL = 1.05
"""Share of a link's rate that nothing exceeds: times are printed with three digits or more, and rates are rounded."""

Expect = Callable[[System, Sequence[Case], str], list[Prediction]]


@dataclass(frozen=True)
class Reason:
    """A hypothesis, how far the times are from it, and the facts of the header that speak for it."""

    hypothesis: Hypothesis
    off: float  # typical ratio between the measured time and the time under it: 1.1 for a tenth
    weight: float  # logarithm of how much likelier it is than something else
    facts: tuple[str, ...]


@dataclass(frozen=True)
class Diagnosis(Shown):
    """A curve: measured and expected, side by side."""

    SHOWN = ("title", "implementation", "verdict", "remark", "measured", "expected", "reasons")
    implementation: str
    measured: tuple[Observed, ...]  # by size
    expected: tuple[Prediction, ...]  # as many, or none
    speed: Health  # by its times alone
    remark: str = ""  # why it is unknown, or where it is slow
    reasons: tuple[Reason, ...] = ()  # the likeliest first
    off: float = 1.0  # a typical ratio of measured to expected times, or its inverse
    limit: float = 0.0  # times slower than expected up to which it might not be called slow; 0: nothing to say
    assumed: str = ""  # of its run, which the log does not say
    together: bool = False  # whether all sizes together are slow, so that reasons are looked for
    correctness: Correctness = field(default_factory=Correctness)  # of all its rows

    @property
    def title(self) -> str:
        """What was measured, but for its size."""
        return self.measured[0].case.title

    @property
    def verdict(self) -> Health:
        """Wrong if a row is; else what its times say."""
        return Health.WRONG if self.correctness.faults else self.speed

    @property
    def choices(self) -> list[str]:
        """What NCCL took where its own table says something else, whatever the verdict."""
        return unlike_table(self.measured, self.expected)

    @property
    def exceptions(self) -> tuple[Exceptional, ...]:
        """Sizes far above their bands, of a curve that is not slow as a whole."""
        judged = self.speed in (Health.AS_EXPECTED, Health.FASTER)
        return exceptions(self.measured, self.expected) if judged else ()

    @property
    def headline(self) -> str:
        """The verdict in words: what is wrong before what is slow, and its exceptions."""
        speed = self.speed.value + but_for(self.exceptions, len(self.measured))
        speed += f": {self.remark}" if self.remark else ""
        scatter = scatter_in_words(self.measured)
        speed += f"; {scatter}, the slowest are judged" if scatter else ""
        if self.verdict is Health.WRONG:
            return f"{self.verdict.value}: {self.correctness.in_words(named=False)}; speed: {speed}"
        return speed

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the sizes with measured and expected times, as a notebook shows them."""
        for row, other in zip_longest(self.measured, self.expected):
            times = {"nbytes": row.case.nbytes, "seconds": row.typical, "busbw": row.busbw}
            bands = {"expected": other.seconds, "low": other.low, "high": other.high} if other else {}
            yield times | bands

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
        """What to say of a slow curve without a reason; empty for any other."""
        if self.speed is not Health.SLOW or self.reasons:
            return ""
        if self.implementation.startswith(COPIES):
            return "see `nvidia-smi nvlink --status` for links that are down, and `nvidia-smi topo -p2p r` for paths"
        if len(self.measured) < FEWEST:
            return f"{FEWEST} sizes or more would tell a reason, from 8 bytes on"
        return f"reason unknown: times are {self.off:.2f}x off, and nothing that the model can change explains it"

    @property
    def resolution(self) -> str:
        """What could not have been seen, of a curve that was judged; empty for any other."""
        if self.speed not in (Health.AS_EXPECTED, Health.FASTER):
            return ""
        assumed = f" ({self.assumed})" if self.assumed else ""
        return f"This diagnosis would not notice a machine up to {self.limit:.1f}x too slow{assumed}."


def diagnose(rows: Sequence[Observed], system: System | None, facts: RunFacts, expect: Expect = curve) -> Diagnosis:
    """Compare results of one implementation at all sizes with a system; return the verdict, and reasons if it is slow.

    The system is None if the machine is not known; `expect` predicts cases on a system by an implementation.  Where a
    log does not say how its run was started, or by which release, the curve is slow only if it is so by all of them.
    """
    systems: Sequence[System | None] = (system,)
    if system and rows[0].case.ranks > 1 and _called(rows[0].implementation) == "nccl":
        systems = possible(system, facts.unsaid)
    judged = [_judge(rows, each, facts, expect) for each in systems]
    place = min(range(len(judged)), key=lambda index: _severity(judged[index]))
    diagnosis, chosen = judged[place], systems[place]
    if chosen and len(systems) > 1 and diagnosis.limit:
        diagnosis = replace(diagnosis, limit=_widest(diagnosis, judged), assumed=assumed(chosen, facts.unsaid))
    if not (chosen and diagnosis.speed is Health.SLOW and diagnosis.together):
        return diagnosis
    compared = ComparedCurve(diagnosis.measured, diagnosis.expected, chosen.part(rows[0].case.ranks))
    return replace(diagnosis, reasons=tuple(explain(compared, facts, expect)))


def _called(name: str) -> str:
    """Return what the model calls an implementation: RCCL, on AMD's GPUs, is its NCCL."""
    return family(name).replace("rccl", "nccl")


def _severity(diagnosis: Diagnosis) -> tuple[int, float]:
    """Return how bad a verdict is, to choose the mildest; the first of those that are all as expected, or all slow."""
    place, far = list(Health)[::-1].index(diagnosis.speed), len(diagnosis.exceptions)
    return (place, 0.0 if diagnosis.speed is Health.SLOW or place + far == 0 else far + diagnosis.off)


def _widest(diagnosis: Diagnosis, others: Iterable[Diagnosis]) -> float:
    """Return the slowness, over what *diagnosis* expects, that one of the others would not notice."""
    limits = [0.0]
    for other in others:
        ratios = [b.seconds / a.seconds for a, b in zip(diagnosis.expected, other.expected, strict=False)]
        limits += [other.limit * median(ratios)] if ratios else []
    return max(limits)


def _judge(rows: Sequence[Observed], system: System | None, facts: RunFacts, expect: Expect) -> Diagnosis:
    """Return the verdict without reasons."""
    rows = tuple(sorted((row.worst for row in rows), key=lambda row: row.case.nbytes))
    name = rows[0].implementation
    if system is None:
        return Diagnosis(name, rows, (), Health.UNKNOWN, facts.no_system)
    if rows[0].case.ranks == 1 and rows[0].case.in_place:
        return Diagnosis(name, rows, (), Health.UNKNOWN, "one rank moves nothing in place")
    used = system.part(rows[0].case.ranks)
    try:
        expected = tuple(expect(used, [row.case for row in rows], name if is_path(name) else _called(name)))
    except CollbenchError as error:
        return Diagnosis(name, rows, (), Health.UNKNOWN, f"nothing to compare with: {error}")
    refuted = "" if name.startswith(COPIES) else _more_than_links_carry(used, rows) or narrow_shares(rows)
    if refuted:
        return Diagnosis(name, rows, expected, Health.UNKNOWN, refuted)
    if len(rows) < FEWEST or name.startswith(COPIES):
        diagnosis = _held_against_bands(Diagnosis(name, rows, expected, Health.AS_EXPECTED))
    else:
        diagnosis = _held_together(ComparedCurve(rows, expected, used))

    # It was held against as few nodes as the ranks fill; on more it may be right.
    if facts.unplaced and (diagnosis.speed is Health.SLOW or diagnosis.exceptions):
        return replace(diagnosis, speed=Health.UNKNOWN, remark=facts.unplaced, limit=0.0)
    return diagnosis


def _held_together(compared: "ComparedCurve") -> Diagnosis:
    """Judge all sizes of a curve together, and by those that are far above their bands."""
    rows, expected, first = compared.rows, compared.expected, compared.rows[0]
    health, remark, limit = judge(compared.sizes, compared.logs(compared.healthy), compared.errors(compared.system))
    far, together = exceptions(rows, expected), health is Health.SLOW
    if not together and MANY * len(far) >= len(rows):  # no reason has such times
        health, remark = Health.SLOW, listed(far, len(rows))
    elif together and far and MANY * len(far) < len(rows):
        remark += f"; most of all {listed(far, len(rows))}"
    limit *= hidden(compared.system, first.case.collective.name) if _called(first.implementation) == "nccl" else 1.0
    diagnosis = Diagnosis(first.implementation, tuple(rows), tuple(expected), health, remark, limit=limit)
    return replace(diagnosis, off=compared.off(compared.healthy), together=together)


def narrow_shares(rows: Sequence[Observed]) -> str:
    """Return why times are not judged where ranks' shares of most sizes are no whole loads; empty elsewhere."""
    shares = [row.case.nbytes // row.case.ranks % 16 for row in rows if row.case.collective.sharded]
    if 2 * sum(map(bool, shares)) <= len(rows):
        return ""
    return "ranks' shares are no multiples of 16 bytes, so NCCL loads less at a time, which is not modelled"


def _held_against_bands(few: Diagnosis) -> Diagnosis:
    """Judge few sizes, or copies between two GPUs, by their bands: the slowest speaks for all, or else the fastest.

    Beyond a band by FAR it is slow or faster, and just outside it tells nothing.  A row of copies is the slowest of all
    pairs of GPUs, so there the band alone decides.
    """
    far = 1.0 if few.implementation.startswith(COPIES) else FAR
    pairs = list(zip(few.measured, few.expected, strict=True))
    row, other = max(pairs, key=lambda pair: pair[0].typical / pair[1].high)
    if row.typical <= other.high:
        row, other = min(pairs, key=lambda pair: pair[0].typical / pair[1].low)
    off, low, high = (seconds / other.seconds for seconds in (row.typical, other.low, other.high))
    judged = replace(few, off=off, limit=far * high)
    if low <= off <= high:
        return judged
    size = format_size(row.case.nbytes)
    remark = f"{size} takes {off:.2f}x the expected time, healthy ones {low:.2f} to {high:.2f}x"
    remark = "; ".join(filter(None, (remark, str(row.note.brief))))
    if low / far <= off <= far * high:
        return replace(judged, speed=Health.UNKNOWN, remark=f"{remark}; measure {FEWEST} sizes or more")
    return replace(judged, speed=Health.SLOW if off > high else Health.FASTER, remark=remark)


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
        share = limit.seconds(row.case.nbytes) / row.typical
        if share > fullest:
            line = f"{share:.0%} of their {format_rate(limit.line)} GB/s"
            fullest, words = share, f"at {format_size(row.case.nbytes)} {limit.where} would carry {line}"
    fix = "the ranks ran on another machine, or on other nodes of it; name it with --on and --nodes"
    if system.nodes > 1 and transport(system) == "ib" and rows[0].case.collective.name == "allreduce":
        fix += "; or [nic] sharp = true"
    return f"{words}: {fix}" if words else ""


def settings(facts: RunFacts) -> list[str]:
    """Return the variables of the header that would make a machine slow, whether or not they did."""
    every = chain.from_iterable(hypothesis.evidence(facts.variables.items()) for hypothesis in HYPOTHESES)
    return list(dict.fromkeys(setting for setting, ratio in every if ratio > OFTEN))


# The verdict.


class CurveVerdict(NamedTuple):
    """The health of a curve with its reason in words, and what could have been seen."""

    health: Health
    remark: str
    limit: float  # times slower than others of its kind that a curve must be to be called slow, where least is needed


class Stretch(NamedTuple):
    """Sizes that are judged together: the logarithm of their times over healthy ones, and its standard deviation."""

    where: str
    off: float
    spread: float


def judge(sizes: Sequence[int], logs: Floats, errors: ErrorModel) -> CurveVerdict:
    """Judge the logarithms of measured over expected times, by ascending size in bytes."""
    stretches = list(_stretches(sizes, smoothed(logs) - errors.mean, errors.covariance))
    limit = float(np.exp(SLOW * min(stretch.spread for stretch in stretches) + max(0.0, errors.mean.max())))
    for health, end, bound, most in ((Health.SLOW, max, SLOW, "at most"), (Health.FASTER, min, -FAST, "at least")):
        far = end(stretches, key=lambda stretch: stretch.off / stretch.spread)
        if far.off / bound > far.spread:
            usual = f"healthy ones take {most} {np.exp(bound * far.spread):.2f}x"
            remark = f"{np.exp(far.off):.2f}x the usual time of such machines{far.where}; {usual}"
            return CurveVerdict(health, remark, limit)
    return CurveVerdict(Health.AS_EXPECTED, "", limit)


def _stretches(sizes: Sequence[int], off: Floats, covariance: Floats) -> Iterator[Stretch]:
    """Yield all sizes, and those of latency, of neither, and of bandwidth by themselves."""
    kinds = np.array([regime(size) for size in sizes])
    parts = {" below 64 KiB": kinds == 0, " from 64 KiB to 64 MiB": kinds == 1, " above 64 MiB": kinds == 2}
    for where, chosen in {"": kinds >= 0, **parts}.items():
        if chosen.sum() >= FEWEST:
            # The mean of the sizes, with more weight on those that the model knows better.
            inside = covariance[np.ix_(chosen, chosen)]
            weights = 1 / np.diag(inside)
            weights /= weights.sum()
            yield Stretch(where, float(weights @ off[chosen]), float(np.sqrt(weights @ inside @ weights)))


# The reasons.


@dataclass(frozen=True)
class ComparedCurve:
    """A curve by ascending size, with what is expected of a healthy machine."""

    rows: Sequence[Observed]
    expected: Sequence[Prediction]
    system: System

    @property
    def sizes(self) -> list[int]:
        """Bytes."""
        return [row.case.nbytes for row in self.rows]

    @property
    def healthy(self) -> list[float]:
        """Expected seconds."""
        return [prediction.seconds for prediction in self.expected]

    def logs(self, seconds: Sequence[float]) -> Floats:
        """Return the logarithms of measured over other times."""
        return np.array([math.log(row.typical / other) for row, other in zip(self.rows, seconds, strict=True)])

    def errors(self, system: System) -> ErrorModel:
        """Return how far the model may be off on a machine, at the sizes of the curve."""
        first = self.rows[0]
        return error_model(self.sizes, error_levels(system, first.case.collective.name, _called(first.implementation)))

    def off(self, seconds: Sequence[float]) -> float:
        """Return how far the measured times are from others, as a typical ratio.

        Sizes that were slow count as much together as the rest together: what explains a slow end is not lost among
        sizes that are right, nor may it spoil those.
        """
        far = np.abs(self.logs(seconds))
        slow = np.array([row.typical > other.high for row, other in zip(self.rows, self.expected, strict=True)])
        return math.exp(fmean(fmean(part.tolist()) for part in (far[slow], far[~slow]) if len(part)))

    @property
    def scatter(self) -> float:
        """How far times over the expected ones lie from their neighbours' mean, or samples from their median.

        The greater of both, as a logarithm.
        """
        logs = self.logs(self.healthy)
        jumps = np.abs(logs[1:-1] - (logs[:-2] + logs[2:]) / 2)
        spreads = [math.log(row.percentile(90) / row.typical) for row in self.rows]
        return max(float(np.mean(jumps)), median(spreads))


def log_likelihood(logs: Floats, errors: ErrorModel) -> float:
    """Return the log-likelihood of logarithms of measured over supposed times, but for a constant.

    Student's distribution of many variables (Kotz and Nadarajah, Multivariate t Distributions, 2004, 1.1).
    """
    off = smoothed(logs) - errors.mean
    _, size = np.linalg.slogdet(errors.covariance)
    far = off @ np.linalg.solve(errors.covariance, off)
    return float(-(size + (FREEDOM + len(off)) * np.log1p(far / FREEDOM)) / 2)


def explain(compared: ComparedCurve, facts: RunFacts, expect: Expect) -> Iterator[Reason]:
    """Return the reasons that the times speak for, the likeliest first; there may be none."""
    # Something else, which no hypothesis describes, may do anything to times, but much alike at neighbouring sizes.
    errors = compared.errors(compared.system)
    octaves = np.log2(np.maximum(compared.sizes, 1))
    together = np.exp(-np.abs(octaves[:, None] - octaves) / ANYTHING_OCTAVES)
    unknown = ErrorModel(errors.mean, errors.covariance + ANYTHING**2 * together)
    something_else = log_likelihood(compared.logs(compared.healthy), unknown)

    said = [*facts.variables.items(), *facts.log.items(), *(("caveat", caveat) for caveat in facts.caveats)]
    cards = set(filter(None, facts.log.get("cards", "").split(", ")))
    if compared.system.nics and len(cards) >= compared.system.nics.per_node:
        said.append(("cards", "all"))
    reasons = []
    for hypothesis in HYPOTHESES:
        evidence = dict(hypothesis.evidence(said, compared.rows[0].case.collective.name))
        if hypothesis.shape == "fraction" and compared.scatter >= NOISY:
            evidence[f"times scatter by {compared.scatter:.0%}"] = SCATTERING
        variants = list(_variants(hypothesis, compared, expect))
        if not variants or 0 in evidence.values():
            continue
        likelihoods = [log_likelihood(compared.logs(seconds), likely_off) for seconds, likely_off in variants]
        best, _ = variants[likelihoods.index(max(likelihoods))]

        # Variants are as likely as each other, so the mean of their likelihoods counts.
        weight = float(np.logaddexp.reduce(likelihoods)) - math.log(len(likelihoods)) - something_else
        unseen = UNSET if hypothesis.prior == PINNED and facts.variables else 1.0
        weight += math.log(hypothesis.prior * max(evidence.values(), default=unseen))
        reasons.append(Reason(hypothesis, compared.off(best), weight, tuple(evidence)))
    yield from likely_reasons(reasons, math.log(compared.off(compared.healthy)))


def likely_reasons(reasons: Iterable[Reason], distance: float) -> Iterator[Reason]:
    """Return by weight the reasons likelier than something else, near the likeliest, and nearer to the times than none.

    `distance` is the logarithm of how far the times are from the expected ones.
    """
    ranked = sorted(reasons, key=lambda reason: -reason.weight)
    for reason in ranked:
        if reason.weight > max(0.0, ranked[0].weight - HARDLY) and math.log(reason.off) < NEARER * distance:
            yield reason


def _shaped(shape: str, compared: ComparedCurve, usual: ErrorModel) -> Iterator[tuple[list[float], ErrorModel]]:
    """Yield healthy times with a constant more, as small messages show it, or at a fraction of the rate, or both."""
    healthy, times = np.array(compared.healthy), np.array([row.typical for row in compared.rows])
    small, large = np.array(compared.sizes) < SMALL, healthy > 2 * healthy[0]

    # Times scatter by themselves too; medians of five by half of that standard deviation.
    noisy = ErrorModel(usual.mean, usual.covariance + (compared.scatter / 2) ** 2 * np.eye(len(healthy)))
    constant = max(0.0, float(np.median((times - healthy)[small]))) if small.sum() >= FEWEST else 0.0
    if shape == "constant" and small.sum() >= FEWEST:
        yield ((healthy + constant).tolist(), usual)
    elif shape == "both" and constant > healthy[0] and large.any():
        slowdowns = ((times - constant) / healthy)[large]
        slower = float(np.median(slowdowns))
        if slower > LARGER and np.abs(np.diff(slowdowns)).sum() > NOISY * slower * len(slowdowns):
            yield ((constant + slower * healthy).tolist(), noisy)
    elif shape == "fraction" and compared.scatter >= NOISY:
        # Either bytes go at a fraction of their rate, where the sizes say something of it, or everything takes longer.
        if large.any():
            slower = max(1.0, float(np.median((times / healthy)[large])))
            yield ((healthy[0] + slower * (healthy - healthy[0])).tolist(), noisy)
        yield ((max(1.0, float(np.median(times / healthy))) * healthy).tolist(), noisy)


def _variants(
    hypothesis: Hypothesis, compared: ComparedCurve, expect: Expect
) -> Iterator[tuple[list[float], ErrorModel]]:
    """Yield the seconds that the curve would take, and how far they may be off.

    Nothing where the hypothesis does not apply or would not be seen.
    """
    healthy, usual_errors = compared.healthy, compared.errors(compared.system)
    if hypothesis.shape:
        yield from _shaped(hypothesis.shape, compared, usual_errors)
    for changed in hypothesis.changed(compared.system):
        try:
            predictions = expect(changed, [row.case for row in compared.rows], _called(compared.rows[0].implementation))
        except CollbenchError:
            continue
        seconds = [prediction.seconds for prediction in predictions]
        if any(other > NOTICED * usual for other, usual in zip(seconds, healthy, strict=True)):
            yield (seconds, compared.errors(changed))
