"""The words of `--what-if`: other nodes and cards; what failed links, fewer switches, static routing leave of a rate.

    effect(system, "ring", ["link-down=leaf3:spine1", "ecmp=4"]).factor

The factor is the slowest transfer's share of the rate that its NICs alone would give it.  `slowed(system, factor)` is
a system whose NICs are as slow as that transfer, for which the equation holds.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from collbench.errors import UsageError, unknown
from collbench.model.network import Fault, Scenario, Slowest, drawings, median_drawing, solve
from collbench.model.schedule import schedule_of
from collbench.topology import files
from collbench.topology.products import TRAYS
from collbench.topology.system import System, Tier

TREES = ("tree", "nvlstree", "collnet", "collnetchain", "collnetdirect", "pat")  # algorithms that send along trees
TRAY = 4  # GPUs of a host of GB200's and GB300's racks
_WHOLE = 0.995  # a share above this counts as the whole rate
_BEYOND = 1.25  # of what a slot carries, the most that cards may have: those sold have up to 1.04


@dataclass(frozen=True)
class Effect:
    """What the network leaves of the NICs' rate."""

    factor: float  # of the slowest transfer: 1 where the network does not slow it
    explanation: str  # one line


def effect(system: System, pattern: str, what_ifs: Sequence[str] = ()) -> Effect:
    """Return the effect of the network on a pattern of `PATTERNS`, with all what-ifs together.

    UsageError where a what-if is unknown, or impossible on this system.
    """
    before = Scenario(system)
    after = scenario(system, what_ifs)
    slowest = _median(after, pattern)
    unchanged = slowest if after == before else _median(before, pattern)
    words = _explain(after, slowest)
    if after != before and unchanged.share < _WHOLE:
        words += f"; {unchanged.share:.0%} as the system is described"
    return Effect(slowest.share, words)


def slowed(system: System, factor: float) -> System:
    """Return the system with NICs of that fraction of their rate."""
    if not system.nics:
        return system
    return replace(system, nics=replace(system.nics, rate=system.nics.rate * factor))


def changed(system: System, what_ifs: Sequence[str]) -> System:
    """Return the system with the nodes and network cards that the what-ifs give it, and all else as it was."""
    scenario(system, what_ifs)  # raises if one of them is impossible
    return scenario(system, [text for text in what_ifs if WHAT_IFS[text.partition("=")[0]].node]).system


def pattern_of(collective: str, algorithm: str = "ring") -> str:
    """Return the pattern that a collective makes between nodes, given NCCL's name for the algorithm."""
    return schedule_of(collective).pattern or ("tree" if algorithm in TREES else "ring")


def scenario(system: System, what_ifs: Sequence[str]) -> Scenario:
    """Apply all what-ifs in the order given; UsageError naming the choices."""
    after = Scenario(system)
    for text in what_ifs:
        word, equals, value = text.partition("=")
        if word not in WHAT_IFS:
            raise unknown("what-if", text, (known.form for known in WHAT_IFS.values()))
        known = WHAT_IFS[word]
        takes_value = "=" in known.form
        complete = bool(value) == takes_value or (known.optional and not equals)
        if not complete:
            raise UsageError(f"--what-if {text!r} is not complete or says too much; write {known.form}")
        after = known.apply(after, word, value)
    cards, slot = after.system.nics, system.pcie_rate
    if cards and cards != system.nics and (each := cards.rate * cards.per_node / system.gpus) > _BEYOND * slot:
        raise UsageError(
            f"--what-if {', '.join(what_ifs)}: {each / 1e9:.3g} GB/s of cards for a GPU, whose PCIe slot carries "
            f"{slot / 1e9:.3g}; give fewer or slower cards, or a FILE.toml of a node with another pcie_gen"
        )
    return after


@dataclass(frozen=True)
class WhatIf:
    """A word of `--what-if`: `apply` takes the network as it is, the word and its value."""

    form: str
    meaning: str
    apply: Callable[[Scenario, str, str], Scenario]
    optional: bool = False  # whether the word may stand without a value
    node: bool = False  # whether it changes the nodes or their cards, and not what is between them


def _fault(now: Scenario, word: str, link: str) -> Scenario:
    return replace(now, faults=(*now.faults, Fault(link, {"link-down": 0.0, "link-half": 0.5}[word])))


def _oversubscription(now: Scenario, word: str, value: str) -> Scenario:
    try:
        ratio = float(value)
    except ValueError:
        ratio = -1.0
    if not 1 <= ratio <= 1000:
        raise UsageError(f"oversubscription={value} is impossible; write a number from 1 to 1000")
    first, *above = _tiers(now, word)
    return _with_tiers(now, replace(first, oversubscription=ratio), *above)


def _routing(now: Scenario, word: str, value: str) -> Scenario:
    if value and not (value.isdecimal() and 1 <= int(value) <= 1024):
        raise UsageError(f"ecmp={value} is no number of queue pairs; write ecmp or ecmp=1 to ecmp=1024")
    tiers = _tiers(now, word)
    return _with_tiers(now, *(replace(tier, routing=word, flows=int(value or tier.flows)) for tier in tiers))


def _in_order(now: Scenario, word: str, value: str) -> Scenario:
    return replace(now, in_order=True)


def _first_tier(now: Scenario, word: str, value: str) -> Scenario:
    first, *above = _tiers(now, word)
    return _with_tiers(now, replace(first, name={"rail": "leaf", "fat-tree": "tor"}[word]), *above)


def _card(now: Scenario, word: str, value: str) -> Scenario:
    return replace(now, system=files.with_cards(now.system, word.removeprefix("nic."), value))


def _nvlinks_between_hosts(now: Scenario, word: str, value: str) -> Scenario:
    """Return the rack as nodes of one tray each, where its NVLinks do not leave a tray (NCCL_MNNVL_ENABLE=0)."""
    system, cards = now.system, now.system.nics
    trays = system.gpus // TRAY
    if value not in ("0", "1") or not (re.search(TRAYS, system.gpu) and cards):
        raise UsageError(f"mnnvl={value} is impossible on {system.name}; write mnnvl=0 for racks of GB200 or GB300")
    if value == "1" or system.gpus <= TRAY:
        return now
    if system.gpus % TRAY or cards.per_node % trays:
        raise UsageError(f"mnnvl=0 needs whole trays; {system.gpus} GPUs are not; give a multiple of {TRAY}")
    tiers = *(replace(tier, radix=tier.radix * trays) for tier in system.tiers[:1]), *system.tiers[1:]
    nics, sockets = replace(cards, per_node=cards.per_node // trays), min(TRAY, system.per_socket)
    tray = replace(system, gpus=TRAY, nodes=system.nodes * trays, nics=nics, per_socket=sockets, tiers=tiers)
    return replace(now, system=tray)


WHAT_IFS = {
    "link-down": WhatIf("link-down=leaf3:spine1|nic:NODE.NIC", "a link fails", _fault),
    "link-half": WhatIf("link-half=leaf3:spine1|nic:NODE.NIC", "a link runs at half its rate", _fault),
    "oversubscription": WhatIf("oversubscription=RATIO", "fewer links above the first switches", _oversubscription),
    "ecmp": WhatIf("ecmp[=QUEUE_PAIRS]", "each queue pair keeps to one hashed path", _routing, optional=True),
    "adaptive": WhatIf("adaptive", "switches spread traffic over all paths", _routing),
    "in-order": WhatIf("in-order", "nodes in the order of the network; else in random order", _in_order),
    "nic.per_node": WhatIf("nic.per_node=N", "so many network cards in a node", _card, node=True),
    "nic.rate": WhatIf("nic.rate=GB/s", "of each, in one direction (400 Gb/s are 50)", _card, node=True),
    "nic.transport": WhatIf("nic.transport=NAME", "other cards, as roce or tcp", _card, node=True),
    "nic.gdr": WhatIf("nic.gdr=true|false", "whether cards reach the GPUs' memory", _card, node=True),
    "sharp": WhatIf("sharp=0|1", "whether InfiniBand's switches add (SHARP), and NCCL uses it", _card, node=True),
    "mnnvl": WhatIf("mnnvl=0|1", "whether NVLinks join the hosts of a rack", _nvlinks_between_hosts, node=True),
    "rail": WhatIf("rail", "each NIC of a node on switches of its own rail", _first_tier),
    "fat-tree": WhatIf("fat-tree", "all NICs of a node on one switch", _first_tier),
}


def _tiers(now: Scenario, word: str) -> tuple[Tier, ...]:
    if len(now.system.tiers) < 2:
        has = f"{now.system.name} has {len(now.system.tiers)}"
        raise UsageError(f"{word} needs two tiers of switches; {has}: add [[tier]]")
    return now.system.tiers


def _with_tiers(now: Scenario, *tiers: Tier) -> Scenario:
    return replace(now, system=replace(now.system, tiers=tiers))


def _median(now: Scenario, pattern: str) -> Slowest:
    """Return the middle one of some drawings of hashes and order, always the same ones."""
    first = solve(now, pattern, 0)
    return median_drawing([first, *(solve(now, pattern, seed) for seed in range(1, drawings(now, pattern)))])


def _explain(now: Scenario, slowest: Slowest) -> str:
    order = "nodes in order" if now.in_order else "nodes in random order"
    if slowest.share >= _WHOLE:
        return f"every NIC gets its whole rate: {order}, {slowest.apart:.0%} of the transfers between leaves"
    shared = f"{slowest.flows} flows share" if slowest.flows > 1 else "1 flow uses"
    per_node = now.system.nics.per_node if now.system.nics else 1
    some = "" if slowest.alike else f"; {slowest.rails} of {per_node} rails followed"
    return (
        f"the slowest NIC ({slowest.sender}) gets {slowest.share:.0%} of its rate: {shared} {slowest.bottleneck}; "
        f"all get {slowest.mean:.0%} on average, {order}{some}"
    )
