"""Simulated scan of a described system, with times of the model and measured noise.

Nodes of a healthy cluster differ by 0.22 % (nine nodes of an H100 cluster, from its operator).  A pair's times vary
between rounds as published times of large messages vary between starts: one in 25 takes 12 % longer on average
(docs/checking.md).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from collbench.cases import Sweep
from collbench.commands.scan.effects import Booleans, Integers
from collbench.commands.scan.measured import RoundPlan, Scanner
from collbench.commands.scan.rows import MemberLevel, Members, Round, Scan
from collbench.errors import UsageError
from collbench.measure.predicted import NAME, Predicted, topology_record
from collbench.model.predict import curve
from collbench.requests.sweeps import SweepRequest, predicted_sweep
from collbench.topology.system import System

NODES = 0.0022  # standard deviation of the logarithms of nodes' times
START, ROUND = 0.003, 0.0015  # standard deviations of starts and of rounds, also logarithms
STRAGGLERS, STRAGGLING = 0.04, 0.12  # share of a pair's rounds that take longer, and their mean excess
_FAULT = re.compile(r"(node|flaky|leaf|link|send|receive)=(\d+)(?:-(\d+))?:(0?\.\d+)(?:@(0?\.\d+|1))?")
_SAMPLES = 9  # samples of a round


@dataclass(frozen=True)
class Injected:
    """An injected fault of a node, a leaf, or a link between two nodes."""

    kind: str
    of: int  # node or leaf
    to: int  # other end of a link
    slower: float  # ratio
    often: float  # share of the rounds

    def slows(self, plan: RoundPlan, leaves: Integers) -> Booleans:
        """Mark the groups that the fault slows; `leaves` has the leaf of each node."""
        mine = (leaves if self.kind == "leaf" else np.arange(len(leaves)))[plan.groups] == self.of
        if self.kind == "leaf":
            return np.asarray(mine.any(axis=1) & ~mine.all(axis=1))
        if self.kind == "link":
            return np.asarray(mine.any(axis=1) & (plan.groups == self.to).any(axis=1))
        if plan.one_way and self.kind in ("send", "receive"):
            return np.asarray(mine[:, int(self.kind == "receive")])
        return np.asarray(mine.any(axis=1))


def faults_of(texts: Sequence[str], nodes: int, leaves: int) -> tuple[Injected, ...]:
    """Parse faults as in `node=37:0.9,leaf=3:0.7,flaky=99:0.6@0.2`: relative speeds and shares of the rounds."""
    faults = []
    for word in filter(None, ",".join(texts).replace(" ", "").split(",")):
        match = _FAULT.fullmatch(word)
        if not match or (match[1] == "link") != bool(match[3]) or match[2] == match[3]:
            raise UsageError(
                f"--inject {word} is not valid; give KIND=NUMBER:SPEED[@SHARE] with a speed below 1, for example "
                "node=37:0.9, leaf=3:0.7, link=1-2:0.5, send=4:0.8, receive=4:0.8 or flaky=99:0.6@0.2"
            )
        kind, most = match[1], leaves if match[1] == "leaf" else nodes
        ends = [int(end) for end in (match[2], match[3] or "0")]
        if kind == "leaf" and leaves == 1:
            raise UsageError(f"--inject {word}: all nodes are on one leaf, so no traffic crosses it; give more --nodes")
        if max(ends) >= most or not float(match[4]) * float(match[5] or 1):
            raise UsageError(f"--inject {word}: choose from 0 to {most - 1}, and a speed and share above 0")
        often = float(match[5] or (0.2 if kind == "flaky" else 1))
        faults.append(Injected(kind, ends[0], ends[1], 1 / float(match[4]), often))
    return tuple(faults)


class Cluster:
    """The simulated nodes of a system; times of rounds come from the model, with noise and faults."""

    def __init__(self, system: System, work: Scan, inject: Sequence[str], seed: int) -> None:
        size = max(work.sizes)
        request = SweepRequest("sendrecv", on=system.name, impl="nccl", minbytes=size, maxbytes=size)
        pair, sweep = predicted_sweep(system.of(2), request)
        cases = [replace(next(sweep.cases()), nbytes=each) for each in work.sizes]
        self._seconds = {row.case.nbytes: row.seconds for row in curve(pair, cases)}
        self.sweep = replace(sweep, ranks=system.nodes, works=(work,))
        self.cases = {case.nbytes: replace(case, ranks=system.nodes, work=work) for case in cases}
        self._random = np.random.default_rng(seed)
        self._speeds = np.exp(self._random.normal(0, NODES, system.nodes))
        radix = next((tier.radix for tier in system.tiers if tier.radix), system.nodes)
        self._leaves = np.arange(system.nodes) // radix
        names = tuple(f"node {node}" for node in range(system.nodes))
        leaves = MemberLevel("leaf", tuple(f"leaf {leaf}" for leaf in self._leaves.tolist()))
        self.members = Members(self.cases[size], "nccl", platform=NAME, names=names, levels=(leaves,))
        self._faults = faults_of(inject, system.nodes, int(self._leaves[-1]) + 1)

    def measure(self, plan: RoundPlan, number: int) -> Round:
        """Simulate a round."""
        random, count = self._random, len(plan.groups)
        logs = random.normal(0, START, count) + random.normal(0, ROUND, count)
        logs += np.where(random.random(count) < STRAGGLERS, random.exponential(STRAGGLING, count), 0.0)
        slower = np.ones(count)
        for fault in self._faults:
            if random.random() < fault.often:  # the slowest fault on a path counts
                slower = np.where(fault.slows(plan, self._leaves), np.maximum(slower, fault.slower), slower)
        times = self._seconds[plan.nbytes] * self._speeds[plan.groups].max(axis=1) * np.exp(logs) * slower
        groups, case = tuple(map(tuple, plan.groups.tolist())), self.cases[plan.nbytes]
        took = _SAMPLES * float(times.max())
        return Round(case, "nccl", NAME, number, groups, tuple(times.tolist()), took, plan.one_way)

    def rounds(self, scanner: Scanner) -> Iterator[Round]:
        """Yield rounds until the scanner is sure."""
        while plan := scanner.next():
            measured = self.measure(plan, scanner.count)
            scanner.add(measured)
            yield measured


def simulated(system: System, work: Scan, inject: Sequence[str], seed: int) -> tuple[Predicted, Sweep]:
    """Return the ranks and the sweep of a Session that simulates a scan."""
    cluster = Cluster(system, work, inject, seed)
    rows = [cluster.members, *cluster.rounds(Scanner(cluster.members, work))]
    return Predicted(topology_record(system), rows), cluster.sweep
