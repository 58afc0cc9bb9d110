"""How often `collbench scan` is right on made-up clusters, and what others would cost: the tables of docs/scanning.md.

`python -m tools.scan_report --seeds 1000` draws so many clusters of 1,024 nodes of each kind, by the noise of
collbench/commands/scan/simulated.py; an hour on two cores.  Rivals are drawn with the same noise, as what they do with
pairs: whoever's figure is above a limit is called slow, and the limit is what one healthy cluster in a hundred exceeds.
"""

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from collbench.commands.scan.choice import RoundPlan
from collbench.commands.scan.rows import Scan
from collbench.commands.scan.scanner import Scanner
from collbench.commands.scan.simulated import Cluster
from collbench.requests.sweeps import find_system

NODES, SIZE, SYSTEM = 1024, "1M", "dgx-h100"
FAULTS = {
    "nothing": "",
    "a node by 10 %": "node=37:0.9",
    "two nodes, by 10 and 20 %": "node=37:0.9,node=500:0.8",
    "a leaf by 30 %": "leaf=3:0.7",
    "a node by 40 % in a fifth of the rounds": "flaky=99:0.6@0.2",
    "a node by 20 % where it sends": "send=7:0.8",
}
NAMES = {"node": "node", "flaky": "node", "send": "node", "leaf": "leaf"}
Drawn = np.ndarray


class ScanOutcome(NamedTuple):
    """Of one scan."""

    right: bool  # all that is slow was named, and nobody else
    wrong: bool  # somebody was named who is not
    named: int  # rounds until all that is slow was
    rounds: int
    rank_seconds: float


def wanted(inject: str) -> set[str]:
    """The names of who is slow."""
    words = [word.partition(":")[0].partition("=") for word in inject.split(",") if word]
    return {f"{NAMES[kind]} {number}" for kind, _, number in words}


def scanned(inject: str, group: int, seed: int) -> ScanOutcome:
    """A scan of a cluster."""
    work = Scan(group)
    cluster = Cluster(find_system(SYSTEM).of(NODES), work, SIZE, inject, seed)
    scanner, slow, named = Scanner(cluster.members, work), wanted(inject), 0
    for each in cluster.rounds(scanner):
        if {finding.name for finding in scanner.verdict.faulty} != slow:
            named = each.number + 2
    verdict = scanner.verdict
    found = {finding.name for finding in verdict.faulty}
    return ScanOutcome(found == slow, bool(found - slow), max(1, named), verdict.rounds, verdict.rank_seconds)


def rates(name: str, outcomes: list[ScanOutcome]) -> str:
    """A row of the table."""
    right, wrong = (100 * np.mean([getattr(one, word) for one in outcomes]) for word in ("right", "wrong"))
    soon = 100 * np.mean([one.right and one.named <= 20 for one in outcomes])
    named, rounds = ([getattr(one, word) for one in outcomes] for word in ("named", "rounds"))
    cost = np.median([one.rank_seconds for one in outcomes])
    after, until = (f"{np.median(each):.0f}; {np.percentile(each, 99):.0f}" for each in (named, rounds))
    return f"| {name} | {right:.1f} % | {soon:.1f} % | {wrong:.1f} % | {after} | {until} | {cost:.0f} |"


# --------------------------------------------------------------------------------------------------------------- rivals


@dataclass(frozen=True)
class Rival:
    """What somebody else does: rounds of pairs, and a figure of each node."""

    name: str
    rounds: int
    figure: Callable[[Cluster, int], tuple[Drawn, float]]  # of each node, and rank-seconds


def _pairs(cluster: Cluster, rounds: int, every: bool) -> tuple[Drawn, float]:
    """The median of each node over random pairs, or over pairs of the circle method that come once each."""
    random, times, cost = np.random.default_rng(1), np.zeros((rounds, NODES)), 0.0
    around = np.arange(NODES)
    for number in range(rounds):
        order = random.permutation(NODES) if not every else around
        groups = np.column_stack([order[: NODES // 2], order[NODES // 2 :][::-1]])
        measured = cluster.measure(RoundPlan(groups), number)
        times[number, groups] = np.array(measured.seconds)[:, None]
        cost += measured.took * NODES
        around = np.concatenate([around[:1], around[-1:], around[1:-1]])
    return np.median(times, axis=0), cost


def _two_passes(cluster: Cluster, rounds: int) -> tuple[Drawn, float]:
    """Neighbours as pairs; the slowest pairs' nodes are then measured with nodes of fast pairs, as often."""
    groups = np.arange(NODES).reshape(-1, 2)
    figure, cost = np.zeros(NODES), 0.0
    first = np.median([cluster.measure(RoundPlan(groups), number).seconds for number in range(rounds)], axis=0)
    cost += rounds * 9 * float(np.max(first)) * NODES
    order = np.argsort(-first)
    suspects, known = groups[order[:16]].ravel(), groups[order[-32:]].ravel()[:32]
    again = np.column_stack([suspects, known])
    second = np.median([cluster.measure(RoundPlan(again), number).seconds for number in range(rounds)], axis=0)
    figure[groups] = np.median(first)
    figure[suspects] = second
    return figure, cost + rounds * 9 * float(np.max(second)) * len(again) * 2


def _bisection(cluster: Cluster, rounds: int) -> tuple[Drawn, float]:
    """Halves, as often each; the slower half is halved again, and its last pair's nodes are measured with another."""
    suspects, figure, cost = np.arange(NODES), np.zeros(NODES), 0.0
    while len(suspects) > 1:
        halves = np.array_split(suspects, 2)
        times = []
        for half in halves:
            group = half if len(half) > 1 else np.append(half, (half[0] + NODES // 2) % NODES)
            taken = [cluster.measure(RoundPlan(group[None]), number) for number in range(rounds)]
            times.append(np.median([one.seconds[0] for one in taken]))
            cost += sum(one.took for one in taken) * len(group)
        suspects = halves[int(times[1] > times[0])]
        figure[:] = min(times)
        figure[suspects] = max(times)
    return figure, cost


RIVALS = {
    "all pairs (ClusterKit, nvloom, gcm, cvs)": (partial(_pairs, every=True), (NODES - 1,)),
    "random pairs, the median (nvloom)": (partial(_pairs, every=False), (1, 3, 5, 7, 9, 13, 19)),
    "pairs, then suspects with good ones (cluster-health-scanner, ncclscout)": (_two_passes, (1, 3, 5, 7, 9)),
    "bisection (cvs; by hand)": (_bisection, (1, 3, 5, 9, 15)),
}


def _figures(method: Callable[[Cluster, int], tuple[Drawn, float]], rounds: int, inject: str, seed: int) -> Drawn:
    """How far the slowest node is from the median, which node it is, and what it cost."""
    cluster = Cluster(find_system(SYSTEM).of(NODES), Scan(), SIZE, inject, seed)
    figure, cost = method(cluster, rounds)
    return np.array([np.log(figure.max() / np.median(figure)), float(np.argmax(figure)), cost])


def rivals(pool: ProcessPoolExecutor, seeds: int) -> Iterator[str]:
    """Rows: the fewest rounds with which 99 % of 10 % slow nodes are named, or the most, and what they cost."""
    for name, (method, tries) in RIVALS.items():
        for rounds in tries:
            few = min(seeds, max(20, 20_000 // rounds))
            healthy = np.array(list(pool.map(partial(_figures, method, rounds, ""), range(few))))
            slow = np.array(list(pool.map(partial(_figures, method, rounds, "node=37:0.9"), range(few))))
            limit = np.quantile(healthy[:, 0], 0.99)
            named = float(np.mean((slow[:, 0] > limit) & (slow[:, 1] == 37)))
            if named >= 0.99 or rounds == tries[-1]:
                yield f"| {name} | {rounds} | {100 * named:.1f} % | {np.median(slow[:, 2]):.0f} |"
                break


_HEAD = "right | by round 20 | wrongly named | named after rounds | rounds | rank-seconds |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--only", choices=("rates", "groups", "rivals"), action="append")
    options = parser.parse_args()
    only = options.only or ["rates", "groups", "rivals"]
    with ProcessPoolExecutor() as pool:
        if "rates" in only:
            print(f"| slow is | {_HEAD}")
            print("|---|---|---|---|---|---|---|")
            for name, inject in FAULTS.items():
                print(rates(name, list(pool.map(partial(scanned, inject, 2), range(options.seeds)))), flush=True)
        if "groups" in only:
            print(f"\n| members of a group | {_HEAD}")
            print("|---|---|---|---|---|---|---|")
            for group in (2, 4, 8, 16, 32):
                outcomes = list(pool.map(partial(scanned, "node=37:0.9", group), range(options.seeds // 10)))
                print(rates(str(group), outcomes), flush=True)
        if "rivals" in only:
            print("\n| strategy | rounds | names a node slow by 10 % | rank-seconds |")
            print("|---|---|---|---|")
            for row in rivals(pool, options.seeds):
                print(row, flush=True)


if __name__ == "__main__":
    main()
