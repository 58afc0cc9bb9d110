"""Carries a scan out: rounds of exchanges in groups, until the first process says that it is sure.

Runs alike on every process of the run; only the first one thinks, since all must choose the same groups.
"""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from collbench.cases import Case, Sampling
from collbench.commands.scan.rows import MemberLevel, Members, Round, Scan
from collbench.commands.scan.scanner import RoundPlan, Scanner
from collbench.errors import Unsupported
from collbench.measure.exchanges import COPY, IN_FLIGHT, Exchanges, To, quartile, together
from collbench.measure.sampling import Heartbeat
from collbench.platforms.interface import Platform
from collbench.platforms.processes import node_name
from collbench.results import Result

REGION, SAMPLES = 1e-3, 9  # seconds of a sample, and samples of a group in a round
_CROWDED = 25  # samples where ranks take turns on a core
_FEWEST = 3  # samples of a group that counts


def measure(
    case: Case, names: Sequence[str], platform: Platform, sampling: Sampling, heartbeat: Heartbeat, *_: object
) -> Iterator[Result]:
    """*Collective*: yield who takes part, and then each round; CaseFailed if an exchange fails or takes too long."""
    work, team = case.work, platform.team
    assert isinstance(work, Scan)
    heartbeat(names[0], "finding out who takes part")
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
    """*Collective*: return what exchanges messages, by copies without a library, and how many a sample has."""
    pairs: To = [rank ^ 1 if rank ^ 1 < case.ranks else None for rank in range(case.ranks)]
    exchanges = Exchanges(case, name, platform, dict(work.slow))
    try:
        return exchanges, exchanges.calibrate(pairs, REGION)
    except Unsupported:
        exchanges = Exchanges(case, COPY, platform, dict(work.slow))
        return exchanges, exchanges.calibrate(pairs, REGION)


def _round(exchanges: Exchanges, plan: RoundPlan, launches: int, begin: partial[None]) -> dict[tuple[int, ...], float]:
    """*Collective*: return the seconds of each group of a round, but of those whose ranks had to wait for a core."""
    # Ranks that take turns on a core would wait for each other: then a group has the cores alone.
    crowded = exchanges.platform.note.oversubscribed
    turns = [[group] for group in plan.groups.tolist()] if crowded else [plan.groups.tolist()]
    seconds: dict[tuple[int, ...], float] = {}
    for turn in turns:
        begin()
        to: list[int | None] = [None] * exchanges.case.ranks
        for group in turn:
            for place, rank in enumerate(group[: 1 if plan.one_way else None]):
                to[rank] = group[(place + 1) % len(group)]
        busy = [rank for group in turn for rank in group]
        samples = _CROWDED if crowded else SAMPLES
        taken = exchanges.seconds(exchanges.prepared(to), busy, launches, samples, IN_FLIGHT)
        exchanges.refuse_wrong(to)
        for group in turn:
            _, good = together(taken, group)
            if len(good) >= _FEWEST:
                seconds[tuple(group)] = quartile(good)
    return seconds


def members_of(platform: Platform, case: Case, implementation: str) -> Members:
    """*Collective*: return the ranks by name, and their nodes, switches and rails as far as the launcher says them."""
    path = os.environ.get("SLURM_TOPOLOGY_ADDR", "").split(".")[:-1]  # of switches, the topmost first
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
