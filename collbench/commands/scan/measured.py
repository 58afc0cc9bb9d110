"""Measurement of a scan: rounds of pairs, until the verdict is sure.

All processes of the run execute this code alike; only the first one chooses the groups.

With few members, each pair comes once in a cycle (the circle method: E. Lucas, 1883), so that all links are measured.
With many members, pairs are drawn anew each round, with suspects in different pairs.  In every second round, half of
each leaf's members are paired within the leaf, which tells a leaf's nodes from its uplinks.  In some rounds only the
first member of each pair sends.  A link that looks slow is measured again.
"""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from collbench.cases import Case, Sampling
from collbench.commands.scan.effects import EVERY_LINK, Fit, Integers
from collbench.commands.scan.every_pair import matchings
from collbench.commands.scan.rows import MemberLevel, Members, Round, Scan
from collbench.commands.scan.verdict import LEAST_ROUNDS, MOST_ROUNDS, Evidence, ScanVerdict
from collbench.errors import Unsupported
from collbench.measure.exchanges import COPY, IN_FLIGHT, Exchanges, To, quartile, together
from collbench.measure.sampling import Heartbeat
from collbench.platforms.interface import Platform
from collbench.platforms.processes import node_name
from collbench.results import Result

REGION, SAMPLES = 1e-3, 9  # seconds of a sample, and samples of a group in a round
_CROWDED = 25  # samples if ranks share a core
_FEWEST = 3  # undisturbed samples that a group needs
_CYCLE, _ONE_WAY = 3, 3  # every third cycle or round is one way
_SPELL = 6  # rounds before a link is measured again; short disturbances are over by then
_LINKS = 8  # members per link that is measured again in a round
_ENOUGH = 12  # groups after which a slow member is left out, from that many rounds before LEAST_ROUNDS on


class RoundPlan(NamedTuple):
    """A round of disjoint pairs, shape (pairs, 2); with `one_way` only the first member of each sends."""

    groups: Integers
    one_way: bool = False
    nbytes: int = 0


def measure(
    case: Case, names: Sequence[str], platform: Platform, sampling: Sampling, heartbeat: Heartbeat, *_: object
) -> Iterator[Result]:
    """*Collective*: yield the members, then each round; CaseFailed if an exchange fails or takes too long."""
    work, team = case.work, platform.team
    assert isinstance(work, Scan)
    heartbeat(names[0], "finding the members")
    case = replace(case, work=replace(work, before=(), lost=()))
    row = members_of(platform, case, names[0])
    if not work.before and not work.lost:
        yield row
    heartbeat(names[0], "first messages")
    sizes = work.sizes or (case.nbytes,)
    by_size = {size: _calibrated(replace(case, nbytes=size), names[0], platform, work) for size in sizes}
    way = next(iter(by_size.values()))[0].way
    scanner = None
    if team.leader:
        so_far = []
        for number, (groups, seconds, one_way, took, size) in enumerate(work.before):
            of_size = replace(case, nbytes=size)
            so_far.append(Round(of_size, way, platform.name, number, groups, seconds, took, one_way))
        scanner = Scanner(row, work, so_far)
    begun, longest = time.perf_counter(), 0.0
    while True:
        plan = None
        if scanner and time.perf_counter() - begun + longest <= sampling.budget:
            plan = scanner.next()
        plan = team.broadcast(plan)
        if plan is None:
            return
        number = scanner.count if scanner else 0
        exchanges, launches = by_size[plan.nbytes]
        since = time.perf_counter()
        times = _round(exchanges, plan, launches, partial(heartbeat, names[0], f"round {number + 1}"))
        (number, took), *_rest = team.exchange((number, time.perf_counter() - since))
        groups, seconds = tuple(times), tuple(times.values())
        measured = Round(exchanges.case, way, platform.name, number, groups, seconds, took, plan.one_way)
        if scanner:
            scanner.add(measured)
            longest = max(longest, took)
        yield measured


def _calibrated(case: Case, name: str, platform: Platform, work: Scan) -> tuple[Exchanges, int]:
    """*Collective*: return the exchanges and the messages per sample; without a library, messages are copies."""
    pairs: To = [rank ^ 1 if rank ^ 1 < case.ranks else None for rank in range(case.ranks)]
    exchanges = Exchanges(case, name, platform, dict(work.slow))
    try:
        return exchanges, exchanges.calibrate(pairs, REGION)
    except Unsupported:
        exchanges = Exchanges(case, COPY, platform, dict(work.slow))
        return exchanges, exchanges.calibrate(pairs, REGION)


def _round(exchanges: Exchanges, plan: RoundPlan, launches: int, begin: partial[None]) -> dict[tuple[int, ...], float]:
    """*Collective*: return the seconds of each group of a round, without groups that other programs disturbed."""
    # If ranks share cores, the groups run one after another: ranks of several groups would wait for each other.
    crowded = exchanges.platform.note.oversubscribed
    turns = [[group] for group in plan.groups.tolist()] if crowded else [plan.groups.tolist()]
    seconds: dict[tuple[int, ...], float] = {}
    for turn in turns:
        begin()
        peers: list[int | None] = [None] * exchanges.case.ranks
        for group in turn:
            for place, rank in enumerate(group[: 1 if plan.one_way else None]):
                peers[rank] = group[(place + 1) % len(group)]
        active_ranks = [rank for group in turn for rank in group]
        samples = _CROWDED if crowded else SAMPLES
        times = exchanges.seconds(exchanges.prepared(peers), active_ranks, launches, samples, IN_FLIGHT)
        exchanges.refuse_wrong(peers)
        for group in turn:
            _, undisturbed = together(times, group)
            if len(undisturbed) >= _FEWEST:
                seconds[tuple(group)] = quartile(undisturbed)
    return seconds


def members_of(platform: Platform, case: Case, implementation: str) -> Members:
    """*Collective*: return the names of ranks, and their nodes, switches and rails if the launcher gives them."""
    path = os.environ.get("SLURM_TOPOLOGY_ADDR", "").split(".")[:-1]  # switches, the topmost first
    where: dict[int, tuple[str, ...]] = {}
    for of_process in platform.team.exchange({rank: (node_name()[0], *reversed(path)) for rank in platform.local}):
        where |= of_process
    places = [where[rank] for rank in range(case.ranks)]
    nodes = [place[0] for place in places]
    within = [nodes[:rank].count(node) for rank, node in enumerate(nodes)]
    names = [f"rank {rank}" for rank in range(case.ranks)]
    if max(within) == 0:
        names = nodes
    elif len(set(nodes)) > 1:
        names = [f"{node}:{place}" for node, place in zip(nodes, within, strict=True)]
    levels = [MemberLevel("node", tuple(nodes))]
    if max(within) and len(set(nodes)) > 1:
        levels.append(MemberLevel("rail", tuple(f"rail {place}" for place in within)))
    for height, kind in enumerate(("leaf", "spine"), 1):
        if all(len(place) > height for place in places):
            levels.append(MemberLevel(kind, tuple(place[height] for place in places)))
    return Members(case, implementation, platform=platform.name, names=tuple(names), levels=tuple(levels))


class Scanner:
    """The state of a scan on the first process: its rounds so far, and the choice of the next groups."""

    def __init__(self, members: Members, work: Scan, rounds: Sequence[Round] = ()) -> None:
        self._work, self._sizes, self.count = work, work.sizes or (members.case.nbytes,), 0
        self._members, self._evidence = len(members.names), Evidence(members, work.slower, self._sizes)
        for each in rounds:
            self.add(each)
        self.verdict: ScanVerdict = self._evidence.verdict()
        """The verdict of the rounds so far."""

    def add(self, measured: Round) -> None:
        """Add a round."""
        self.count += 1
        self._evidence.add(measured)

    def next(self) -> RoundPlan | None:
        """Return the next round; None if the verdict is sure, or after MOST_ROUNDS."""
        self.verdict = self._evidence.verdict()
        if self.verdict.sure or self.count >= MOST_ROUNDS:
            return None
        size, out = self._sizes[self.count % len(self._sizes)], {*self._work.lost}
        if self.count > LEAST_ROUNDS - _ENOUGH:  # a member that is always slow only slows its peers
            effects = [each.effect for each in self.verdict.faulty if each.effect.fault.kind != "link"]
            lasting = [each for each in effects if each.often == 1 and not each.fault.way]
            slow = {member for each in lasting if each.groups >= _ENOUGH for member in each.members}
            out |= slow if 2 * len(slow) < self._members - 2 else set()
        if self._members - len(out) < 2:
            return None
        return choose(self._evidence.fits[size], bool(self.verdict.findings), sorted(out))._replace(nbytes=size)


def choose(fit: Fit, suspected: bool, out: Sequence[int]) -> RoundPlan:
    """Return the next round of pairs, without the members `out`; `suspected` says that there is a suspect."""
    number, count = fit.times.rounds, fit.times.count
    random, there = np.random.default_rng([number, count]), np.setdiff1d(np.arange(count), out)
    one_way = suspected and number % 2 == 1
    cycle = list(matchings(len(there))) if len(there) <= EVERY_LINK else []
    if cycle and (number < len(cycle) or number % 2 == 0 or not fit.pending):
        groups = there[np.array(cycle[number % len(cycle)])]
        one_way |= number // len(cycle) % _CYCLE == _CYCLE - 1
    else:
        groups = _dealt(fit, number, there, out, random)
        one_way |= number % _ONE_WAY == _ONE_WAY - 1
    if one_way:  # the end that has sent less often sends
        sent = np.bincount(fit.groups[fit.one_way, 0], minlength=count) + random.random(count)
        groups = np.where((sent[groups[:, 0]] > sent[groups[:, 1]])[:, None], groups[:, ::-1], groups)
    return RoundPlan(groups, one_way)


def _dealt(fit: Fit, number: int, there: Integers, out: Sequence[int], random: np.random.Generator) -> Integers:
    """Return the pairs of a round: links that look slow, pairs within units in every second round, and random pairs."""
    parts: list[Integers] = []
    codes, back = np.unique(fit.codes()[::-1], return_index=True)
    last, paired = dict(zip(codes.tolist(), fit.round[::-1][back].tolist(), strict=True)), set(out)
    for first, second in sorted(fit.pending, key=lambda link: -fit.pending[link])[: max(1, len(there) // _LINKS)]:
        if fit.round[-1] - last[first * fit.times.count + second] >= _SPELL and not {first, second} & paired:
            parts.append(np.array([[first, second]]))
            paired |= {first, second}
    rest = np.setdiff1d(there, np.ravel(parts))
    levels = [level for level in fit.times.levels if level.kind != "rail"] if number % 2 else []
    for place, level in enumerate(levels):  # half of each unit; the rest keeps the usual load on its uplinks
        for unit in np.unique(level.units[rest]):
            inside = rest[level.units[rest] == unit]
            turned = np.random.default_rng([number // 2 // (len(levels) + 1), unit]).permutation(inside)
            turned = np.roll(turned, number // 2 * (len(inside) // (len(levels) + 1)))
            pairs = min(len(inside) // 2, int(len(inside) / 2 / (len(levels) + 1 - place) + random.random()))
            parts.append(turned[: 2 * pairs].reshape(-1, 2))
        rest = np.setdiff1d(rest, np.concatenate(parts))

    # Pair the slowest members with the fastest, so that two suspects do not meet.
    mass = np.nan_to_num(fit.middle[rest], nan=1.0)  # members that were found slow have no median left
    order = rest[np.lexsort((random.random(len(rest)), -np.maximum(mass, mass.mean() if len(mass) else 0.0)))]
    half = len(order) // 2
    return np.concatenate([*parts, np.column_stack([order[:half], random.permutation(order[half:])[:half]])])
