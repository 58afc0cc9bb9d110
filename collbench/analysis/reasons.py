"""Reasons why a machine may be slower than expected, and which explain the times of a slow curve best.

A hypothesis is the machine with something changed, whose times the model knows as well, or a shape that the times would
have.  hypotheses.toml lists all that a diagnosis may name: the words, and the signs for and against it, as variables,
what NCCL logged, what the topology says.

Bayes' rule over these hypotheses and "something else", which may do anything to times: what is likelier than that is a
reason.  A likelihood has the model's own errors, as they go together on the machine that a hypothesis describes, and
counts facts of the header.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import fmean, median

import numpy as np

from collbench.analysis.curve_fit import NOISY
from collbench.analysis.machine import RunFacts
from collbench.cases import Case
from collbench.errors import CollbenchError
from collbench.model.equation import Floats
from collbench.model.predict import SMALL, ErrorModel, error_levels, error_model, smoothed
from collbench.results import Observed, Prediction, family
from collbench.topology.system import Nics, System

PINNED = 0.05  # prior of a rare setting
OTHERS = re.compile(r";?\b(?:all|reduce|broadcast)[a-z]*:[^;]*", re.IGNORECASE)  # definitions of other collectives


@dataclass(frozen=True)
class Hypothesis:
    """A reason for times above the expected ones."""

    name: str
    fix: str
    changed: Callable[[System], Sequence[System]]  # what the machine may be; empty: no effect
    shape: str = ""  # instead: "constant" seconds more, a "fraction" of the rate with times that scatter, or "both"
    signs: Sequence[tuple[str, str, float]] = ()
    prior: float = 1.0  # how often it is so, against others

    def evidence(self, facts: Iterable[tuple[str, str]], collective: str = "any") -> Iterator[tuple[str, float]]:
        """Yield which facts (name and value) speak for or against the hypothesis, in words, and by how much."""
        for name, value in facts:
            # Definitions by collective: NCCL_ALGO=ring;allreduce:tree
            specific = re.search(rf"\b{collective}:([^;]*)", value, re.IGNORECASE)
            definition = specific[1] if specific else OTHERS.sub("", value)
            for sign, values, ratio in self.signs:
                if sign == name and re.fullmatch(values, definition, re.IGNORECASE):
                    yield {"caveat": value}.get(name, f"{name}={value}"), ratio


def _without_p2p(system: System) -> list[System]:
    if system.gpus < 2 or (system.meets_over_pcie and not system.p2p):
        return []
    bare = replace(system, fabric="pcie", nvlinks=0, p2p=False, multicast=False, spec_rate=0.0)
    shares = (1, 0.5, 0.25)  # sockets apart, busy memory
    return [replace(bare, gpu_rate=system.pcie_rate * share) for share in shares]


def _over_tcp(system: System) -> list[System]:
    if system.nodes < 2 or not system.nics or system.nics.transport == "tcp":
        return []
    cards = [replace(system.nics, transport="tcp"), *(Nics(1, rate, "tcp") for rate in (12.5e9, 3.125e9, 1.25e9))]
    return [replace(system, nics=card) for card in cards if card.rate <= system.nics.rate]


def _fewer_nics(system: System) -> list[System]:
    if system.nodes < 2 or not system.nics or system.nics.per_node < 2:
        return []
    counts = {1, system.nics.per_node // 2}
    return [replace(system, nics=replace(system.nics, per_node=count)) for count in sorted(counts)]


def _staged(system: System) -> list[System]:
    if system.nodes < 2 or not system.nics or not system.nics.gdr or system.nics.transport in ("tcp", "tcpx"):
        return []
    return [replace(system, nics=replace(system.nics, gdr=False))]


def _without_adding(system: System) -> list[System]:
    return [replace(system, nvls=False)] if system.multicast and system.nvls and system.algorithm == "auto" else []


def _halved(system: System) -> list[System]:
    """Half the rate of the lanes: of the cards' between nodes, else of the GPUs' slots."""
    if system.nodes > 1 and system.nics:
        return [replace(system, nics=replace(system.nics, rate=system.nics.rate / 2))]
    if not system.meets_over_pcie:
        return []
    return [replace(system, gpu_rate=system.gpu_rate / 2, pcie_lanes=max(1, system.pcie_lanes // 2))]


def _pinned(system: System, algorithm: str = "auto", protocol: str = "auto") -> list[System]:
    free = (system.algorithm, system.protocol) == ("auto", "auto")
    return [replace(system, algorithm=algorithm, protocol=protocol)] if free else []


_CHANGES: Mapping[str, Callable[[System], Sequence[System]]] = {
    "no_p2p": _without_p2p,
    "tcp": _over_tcp,
    "few_cards": _fewer_nics,
    "no_gdr": _staged,
    "no_nvls": _without_adding,
    "pcie": _halved,
    "ll": partial(_pinned, protocol="ll"),
    "tree": partial(_pinned, algorithm="tree"),
    "ring": partial(_pinned, algorithm="ring"),
    "few_channels": lambda system: [replace(system, channels=count, nvls=False) for count in (1, 2, 4, 8)],
    "launches": lambda system: [
        replace(system, launch=way) for way in ("single-process", "torch") if way != system.launch
    ],
}
_RECORDS = tomllib.loads(Path(__file__).with_name("hypotheses.toml").read_text(encoding="utf-8"))
HYPOTHESES = tuple(
    Hypothesis(**record, changed=_CHANGES.get(name, lambda system: ())) for name, record in _RECORDS.items()
)

FEWEST = 3  # sizes that a stretch needs
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
LARGER = 1.5  # times that large messages take with too few cores for the ranks

Expect = Callable[[System, Sequence[Case], str], list[Prediction]]


@dataclass(frozen=True)
class Reason:
    """A hypothesis, how far the times are from it, and the facts of the header that speak for it."""

    hypothesis: Hypothesis
    off: float  # typical ratio between the measured time and the time under it: 1.1 for a tenth
    weight: float  # logarithm of how much likelier it is than something else
    facts: tuple[str, ...]


def settings(facts: RunFacts) -> list[str]:
    """Return the variables of the header that would make a machine slow, whether or not they did."""
    every = chain.from_iterable(hypothesis.evidence(facts.variables.items()) for hypothesis in HYPOTHESES)
    return list(dict.fromkeys(setting for setting, ratio in every if ratio > OFTEN))


def called(name: str) -> str:
    """Return what the model calls an implementation: RCCL, on AMD's GPUs, is its NCCL."""
    return family(name).replace("rccl", "nccl")


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
        return error_model(self.sizes, error_levels(system, first.case.collective.name, called(first.implementation)))

    def off(self, seconds: Sequence[float]) -> float:
        """Return how far the measured times are from others, as a typical ratio.

        Slow sizes together weigh as much as the rest together, so neither hides the other.
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
    """Yield the curve's seconds, and their error; nothing if the hypothesis does not apply or would not be seen."""
    healthy, usual_errors = compared.healthy, compared.errors(compared.system)
    if hypothesis.shape:
        yield from _shaped(hypothesis.shape, compared, usual_errors)
    for changed in hypothesis.changed(compared.system):
        try:
            predictions = expect(changed, [row.case for row in compared.rows], called(compared.rows[0].implementation))
        except CollbenchError:
            continue
        seconds = [prediction.seconds for prediction in predictions]
        if any(other > NOTICED * usual for other, usual in zip(seconds, healthy, strict=True)):
            yield (seconds, compared.errors(changed))
