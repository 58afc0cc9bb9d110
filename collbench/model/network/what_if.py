"""The words of `--what-if`, and what they leave of the NICs' rate: failed links, fewer switches, static routing.

    effect(system, "ring", ["link-down=leaf3:spine1", "ecmp=4"]).factor

The factor is the slowest transfer's share of the rate that its NICs alone would give it, so `slowed(system, factor)` is
a system whose NICs are as slow as that transfer, and the equation holds for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from collbench.errors import UsageError, unknown
from collbench.model.network.contention import Scenario, Slowest, draws, median, solve
from collbench.model.network.fabric import Fault
from collbench.model.network.patterns import PATTERNS
from collbench.model.schedule import schedule_of
from collbench.topology.system import System, Tier

TREES = ("tree", "nvlstree", "collnet", "collnetchain", "collnetdirect", "pat")  # algorithms that send along them
_WHOLE = 0.995  # a share above is "its whole rate"


@dataclass(frozen=True)
class Effect:
    """What the network leaves of the NICs' rate."""

    factor: float  # of the slowest transfer: 1 where the network does not slow it
    slowest: str  # who sends it: "NIC 3 of node 17"
    explanation: str  # one line
    before: float = 1.0  # the factor of the same system without any what-if
    mean: float = 1.0  # factor of all transfers


def effect(system: System, pattern: str, what_ifs: Sequence[str] = ()) -> Effect:
    """For a pattern of `PATTERNS` with all what-ifs together; UsageError in one line for what cannot be."""
    if pattern not in PATTERNS:
        raise unknown("pattern", pattern, PATTERNS)
    before = Scenario(system)
    after = scenario(system, what_ifs)
    slowest = _typical(after, pattern)
    unchanged = slowest if after == before else _typical(before, pattern)
    words = _explain(after, slowest)
    if after != before and unchanged.share < _WHOLE:
        words += f"; {unchanged.share:.0%} as the system is described"
    return Effect(slowest.share, slowest.sender, words, unchanged.share, slowest.mean)


def slowed(system: System, factor: float) -> System:
    """The same with NICs of so much of their rate."""
    if not system.nics:
        return system
    return replace(system, nics=replace(system.nics, rate=system.nics.rate * factor))


def pattern_of(collective: str, algorithm: str = "ring") -> str:
    """The pattern that a collective makes between nodes, given NCCL's name for the algorithm."""
    return schedule_of(collective).pattern or ("tree" if algorithm in TREES else "ring")


def scenario(system: System, what_ifs: Sequence[str]) -> Scenario:
    """All of them applied, in the order given; UsageError naming the choices."""
    after = Scenario(system)
    for text in what_ifs:
        word, _, value = text.partition("=")
        if word not in WHAT_IFS:
            raise unknown("what-if", text, (known.form for known in WHAT_IFS.values()))
        known = WHAT_IFS[word]
        if bool(value) != ("=" in known.form) and not (known.optional and not value and "=" not in text):
            raise UsageError(f"--what-if {text!r} is not complete or says too much; write {known.form}")
        after = known.apply(after, value)
    return after


@dataclass(frozen=True)
class WhatIf:
    """A word of `--what-if`."""

    form: str
    meaning: str
    apply: Callable[[Scenario, str], Scenario]
    optional: bool = False  # whether the word may stand without a value


def _fault(left: float) -> Callable[[Scenario, str], Scenario]:
    return lambda now, value: replace(now, faults=(*now.faults, Fault(value, left)))


def _oversubscription(now: Scenario, value: str) -> Scenario:
    ratio = _number("oversubscription", value, 1, 1000)
    first, *above = _tiers(now, "oversubscription")
    return _with_tiers(now, replace(first, oversubscription=ratio), *above)


def _ecmp(now: Scenario, value: str) -> Scenario:
    if value and not (value.isdecimal() and 1 <= int(value) <= 1024):
        raise UsageError(f"ecmp={value} is no number of queue pairs; write ecmp or ecmp=1 to ecmp=1024")
    tiers = _tiers(now, "ecmp")
    return _with_tiers(now, *(replace(tier, routing="ecmp", flows=int(value or tier.flows)) for tier in tiers))


def _adaptive(now: Scenario, value: str) -> Scenario:
    return _with_tiers(now, *(replace(tier, routing="adaptive") for tier in _tiers(now, "adaptive")))


def _job(now: Scenario, value: str) -> Scenario:
    return replace(now, job=_number("job", value, 0.01, 0.99))


def _named(name: str) -> Callable[[Scenario, str], Scenario]:
    def apply(now: Scenario, value: str) -> Scenario:
        first, *above = _tiers(now, "rail and fat-tree")
        return _with_tiers(now, replace(first, name=name), *above)

    return apply


def _torus(now: Scenario, value: str) -> Scenario:
    lengths = value.split("x")
    if len(lengths) not in (2, 3) or not all(length.isdecimal() and int(length) > 1 for length in lengths):
        raise UsageError(f"torus={value} has no shape; write torus=4x4 or torus=4x4x2, each length 2 or more")
    return _with_tiers(now, *(Tier("torus", int(length)) for length in lengths))


WHAT_IFS = {
    "link-down": WhatIf("link-down=leaf3:spine1|nic:NODE.NIC", "a link fails", _fault(0.0)),
    "link-half": WhatIf("link-half=leaf3:spine1|nic:NODE.NIC", "a link runs at half its rate", _fault(0.5)),
    "oversubscription": WhatIf("oversubscription=RATIO", "fewer links above the first switches", _oversubscription),
    "ecmp": WhatIf("ecmp[=QUEUE_PAIRS]", "each queue pair keeps to one hashed path", _ecmp, optional=True),
    "adaptive": WhatIf("adaptive", "switches spread traffic over all paths", _adaptive),
    "job": WhatIf("job=SHARE", "another job wants so much of full links", _job),
    "scattered": WhatIf("scattered", "nodes in random order", lambda now, value: replace(now, scattered=True)),
    "in-order": WhatIf("in-order", "nodes as they stand", lambda now, value: replace(now, scattered=False)),
    "rail": WhatIf("rail", "each NIC of a node on switches of its own rail", _named("leaf")),
    "fat-tree": WhatIf("fat-tree", "all NICs of a node on one switch", _named("tor")),
    "torus": WhatIf("torus=AxB[xC]", "no switches, nodes joined in two or three dimensions", _torus),
}


def _tiers(now: Scenario, word: str) -> tuple[Tier, ...]:
    if now.torus or len(now.system.tiers) < 2:
        tiers = "a torus" if now.torus else len(now.system.tiers)
        raise UsageError(f"{word} needs two tiers of switches; {now.system.name} has {tiers}: add [[tier]]")
    return now.system.tiers


def _with_tiers(now: Scenario, *tiers: Tier) -> Scenario:
    return replace(now, system=replace(now.system, tiers=tiers))


def _number(word: str, value: str, low: float, high: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not low <= number <= high:
        raise UsageError(f"{word}={value} cannot be; write a number from {low:g} to {high:g}")
    return number


def _typical(now: Scenario, pattern: str) -> Slowest:
    """The middle one of some drawings of hashes and order, always the same ones."""
    first = solve(now, pattern, 0)
    return median([first, *(solve(now, pattern, seed) for seed in range(1, draws(now, pattern)))])


def _explain(now: Scenario, slowest: Slowest) -> str:
    order = "nodes in order" if now.in_order else "nodes in random order"
    if slowest.share >= _WHOLE:
        apart = "" if now.torus else f", {slowest.apart:.0%} of the transfers between leaves"
        return f"every NIC gets its whole rate: {order}{apart}"
    others = f" ({slowest.others} of them another job's)" if slowest.others else ""
    meeting = slowest.meeting + slowest.others
    flows = f"{meeting} flow{'s' if meeting > 1 else ''}{others} meet{'' if meeting > 1 else 's'}"
    per_node = now.system.nics.per_node if now.system.nics else 1
    some = "" if slowest.alike else f"; {slowest.rails} of {per_node} rails followed"
    return (
        f"the slowest NIC ({slowest.sender}) gets {slowest.share:.0%} of its rate: {flows} on {slowest.link}, "
        f"with room for {slowest.room:.0f}; all get {slowest.mean:.0%} on average, {order}{some}"
    )
