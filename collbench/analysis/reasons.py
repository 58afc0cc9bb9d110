"""Reasons of slow curves, ranked by Bayes' rule.

A hypothesis is a changed machine that the model can predict, or a shape of the times.  hypotheses.toml lists all
hypotheses with their words and with signs for and against them: variables, facts in NCCL's log, and the topology.

Bayes' rule compares the hypotheses with "something else", which may change times in any way.  A hypothesis that is
likelier than something else is a reason.  Likelihoods use the correlated errors of the model on the changed machine,
and the facts of the header.
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
    """A possible reason for times above the expected ones."""

    name: str
    fix: str
    changed: Callable[[System], Sequence[System]]  # possible changed machines; empty: no effect
    shape: str = ""  # instead: "constant" additional seconds, a "fraction" of the rate with scattered times, or "both"
    signs: Sequence[tuple[str, str, float]] = ()  # fact, pattern of its value, likelihood ratio
    prior: float = 1.0  # relative frequency

    def evidence(self, facts: Iterable[tuple[str, str]], collective: str = "any") -> Iterator[tuple[str, float]]:
        """Yield the facts for or against the hypothesis in words, each with its likelihood ratio."""
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
    """Return the system with half the PCIe rate: of the network cards between nodes, else of the GPUs' slots."""
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
"""Degrees of freedom of Student's distribution, since errors of machines have longer tails than a normal one."""
ANYTHING = 1.5
"""Standard deviation of unknown effects on times, as a logarithm, correlated between neighbouring sizes."""
ANYTHING_OCTAVES = 12.0
"""Octaves over which this correlation falls by e."""
NOTICED = 1.02  # least slowdown at some size that a reason must predict
NEARER = 0.9  # most that a reason may leave of the distance to the expected times
HARDLY = math.log(10**6)  # largest difference of a reason's log-likelihood from the first one's
SCATTERING = (320 + 2) / (22 + 1)  # likelihood ratio of times that scatter by NOISY, as 22 of 320 healthy curves do
UNSET, OFTEN = 0.02, 3.0  # likelihood ratios: of a setting that the variables lack, and of a frequent setting
LARGER = 1.5  # least slowdown of large messages with too few cores for the ranks

Expect = Callable[[System, Sequence[Case], str], list[Prediction]]


@dataclass(frozen=True)
class Reason:
    """A hypothesis with its fit to the times and the facts that support it."""

    hypothesis: Hypothesis
    off: float  # typical ratio of the measured time and the time under the hypothesis, at least 1
    weight: float  # logarithm of its likelihood ratio to something else
    facts: tuple[str, ...]


def settings(facts: RunFacts) -> list[str]:
    """Return the variables of the header that can make a machine slow."""
    every = chain.from_iterable(hypothesis.evidence(facts.variables.items()) for hypothesis in HYPOTHESES)
    return list(dict.fromkeys(setting for setting, ratio in every if ratio > OFTEN))


def called(name: str) -> str:
    """Return the model's name of an implementation: RCCL on AMD GPUs is modelled as NCCL."""
    return family(name).replace("rccl", "nccl")


@dataclass(frozen=True)
class ComparedCurve:
    """A curve by ascending size, with the expected times of a healthy machine."""

    rows: Sequence[Observed]
    expected: Sequence[Prediction]
    system: System

    @property
    def sizes(self) -> list[int]:
        """Sizes in bytes."""
        return [row.case.nbytes for row in self.rows]

    @property
    def healthy(self) -> list[float]:
        """Expected seconds."""
        return [prediction.seconds for prediction in self.expected]

    def logs(self, seconds: Sequence[float]) -> Floats:
        """Return the logarithms of measured over other times."""
        return np.array([math.log(row.typical / other) for row, other in zip(self.rows, seconds, strict=True)])

    def errors(self, system: System) -> ErrorModel:
        """Return the model's errors on a machine at the sizes of the curve."""
        first = self.rows[0]
        return error_model(self.sizes, error_levels(system, first.case.collective.name, called(first.implementation)))

    def off(self, seconds: Sequence[float]) -> float:
        """Return the typical ratio of measured and other times, at least 1, with equal weight of slow sizes."""
        far = np.abs(self.logs(seconds))
        slow = np.array([row.typical > other.high for row, other in zip(self.rows, self.expected, strict=True)])
        return math.exp(fmean(fmean(part.tolist()) for part in (far[slow], far[~slow]) if len(part)))

    @property
    def scatter(self) -> float:
        """Logarithmic scatter of sizes around their neighbours' mean, or of samples around their median if larger."""
        logs = self.logs(self.healthy)
        jumps = np.abs(logs[1:-1] - (logs[:-2] + logs[2:]) / 2)
        spreads = [math.log(row.percentile(90) / row.typical) for row in self.rows]
        return max(float(np.mean(jumps)), median(spreads))


def log_likelihood(logs: Floats, errors: ErrorModel) -> float:
    """Return the log-likelihood, by a multivariate Student's t (Kotz and Nadarajah, 2004, 1.1), up to a constant."""
    off = smoothed(logs) - errors.mean
    _, size = np.linalg.slogdet(errors.covariance)
    far = off @ np.linalg.solve(errors.covariance, off)
    return float(-(size + (FREEDOM + len(off)) * np.log1p(far / FREEDOM)) / 2)


def explain(compared: ComparedCurve, facts: RunFacts, expect: Expect) -> Iterator[Reason]:
    """Yield the reasons that the times support, the likeliest first."""
    # Something else may change times in any way, but similarly at neighbouring sizes.
    errors = compared.errors(compared.system)
    octaves = np.log2(np.maximum(compared.sizes, 1))
    together = np.exp(-np.abs(octaves[:, None] - octaves) / ANYTHING_OCTAVES)
    unknown = ErrorModel(errors.mean, errors.covariance + ANYTHING**2 * together)
    something_else = log_likelihood(compared.logs(compared.healthy), unknown)

    known_facts = [*facts.variables.items(), *facts.log.items(), *(("caveat", caveat) for caveat in facts.caveats)]
    cards = set(filter(None, facts.log.get("cards", "").split(", ")))
    if compared.system.nics and len(cards) >= compared.system.nics.per_node:
        known_facts.append(("cards", "all"))
    reasons = []
    for hypothesis in HYPOTHESES:
        evidence = dict(hypothesis.evidence(known_facts, compared.rows[0].case.collective.name))
        if hypothesis.shape == "fraction" and compared.scatter >= NOISY:
            evidence[f"times scatter by {compared.scatter:.0%}"] = SCATTERING
        variants = list(_variants(hypothesis, compared, expect))
        if not variants or 0 in evidence.values():
            continue
        likelihoods = [log_likelihood(compared.logs(seconds), likely_off) for seconds, likely_off in variants]
        best, _ = variants[likelihoods.index(max(likelihoods))]

        # All variants are equally likely, so the mean of their likelihoods counts.
        weight = float(np.logaddexp.reduce(likelihoods)) - math.log(len(likelihoods)) - something_else
        unseen = UNSET if hypothesis.prior == PINNED and facts.variables else 1.0
        weight += math.log(hypothesis.prior * max(evidence.values(), default=unseen))
        reasons.append(Reason(hypothesis, compared.off(best), weight, tuple(evidence)))
    yield from likely_reasons(reasons, math.log(compared.off(compared.healthy)))


def likely_reasons(reasons: Iterable[Reason], distance: float) -> Iterator[Reason]:
    """Yield by weight the reasons that are likelier than something else, and not much less likely than the first.

    They must also fit better than no reason; `distance` is the logarithm of the typical ratio without a reason.
    """
    ranked = sorted(reasons, key=lambda reason: -reason.weight)
    for reason in ranked:
        if reason.weight > max(0.0, ranked[0].weight - HARDLY) and math.log(reason.off) < NEARER * distance:
            yield reason


def _shaped(shape: str, compared: ComparedCurve, usual: ErrorModel) -> Iterator[tuple[list[float], ErrorModel]]:
    """Yield healthy times plus a constant (from small messages), at a fraction of the rate, or with both changes."""
    healthy, times = np.array(compared.healthy), np.array([row.typical for row in compared.rows])
    small, large = np.array(compared.sizes) < SMALL, healthy > 2 * healthy[0]

    # Add the scatter of times: medians of five have half of that standard deviation.
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
        # Either the rate is a fraction (if large sizes show it), or all times are longer.
        if large.any():
            slower = max(1.0, float(np.median((times / healthy)[large])))
            yield ((healthy[0] + slower * (healthy - healthy[0])).tolist(), noisy)
        yield ((max(1.0, float(np.median(times / healthy))) * healthy).tolist(), noisy)


def _variants(
    hypothesis: Hypothesis, compared: ComparedCurve, expect: Expect
) -> Iterator[tuple[list[float], ErrorModel]]:
    """Yield the curve's seconds and errors under a hypothesis; nothing if it does not apply or has no effect."""
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
