"""A torus of nodes without switches: a node is joined to its neighbours in every dimension, the last to the first.

A system asks for one by tiers of the name "torus", one for each dimension, whose radix is its length.  Every NIC of a
node belongs to a torus of its own and is a router with two links in each dimension, each as fast as the NIC itself.
"""

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from collbench.errors import UsageError
from collbench.model.network.fabric import Fault, nic_links, nic_name
from collbench.model.network.max_min import Integers
from collbench.topology.system import System

Flags = NDArray[np.bool_]


class Torus:
    """Transfers go along the first dimension, then the second, the shorter way round (up, if both are equal)."""

    def __init__(self, system: System, nics: int, faults: Sequence[Fault] = ()) -> None:
        assert system.nics
        self.nics, self.nodes = nics, system.nodes
        self.dimensions = tuple(tier.radix for tier in system.tiers)
        if prod(self.dimensions) != system.nodes:
            shape = "x".join(map(str, self.dimensions))
            raise UsageError(f"a torus of {shape} has {prod(self.dimensions)} nodes, not {system.nodes}")
        self.first = 2 * self.nodes * nics
        links = np.full(2 * len(self.dimensions) * self.nodes * nics, system.nics.rate)
        for fault in faults:
            fault.check("node:node")
            if not fault.nic():
                links[self._between(fault)] *= fault.left
        self.capacity = np.concatenate([nic_links(system, nics, faults), links])

    def route(self, source: Integers, target: Integers, random: np.random.Generator) -> list[Integers]:
        """One path, whatever the hash: the other way round a dimension where the shorter one is broken."""
        way = [source, target + self.nodes * self.nics]
        at, goal = self._place(source // self.nics), self._place(target // self.nics)
        for dimension, length in enumerate(self.dimensions):
            ahead = (goal[dimension] - at[dimension]) % length
            backward = ahead * 2 > length
            steps = self._steps(at, source % self.nics, dimension, ahead, backward)
            dead = self._dead(steps)
            if dead.any():
                steps = self._steps(at, source % self.nics, dimension, ahead, backward ^ dead)
            if self._dead(steps).any():
                cut = int(source[self._dead(steps)][0]) // self.nics
                raise UsageError(f"node {cut} is cut off from others: links are down both ways round a dimension")
            way += steps
            at[dimension] = goal[dimension]
        return way

    def _steps(
        self, start: Integers, nic: Integers, dimension: int, ahead: Integers, backward: Flags
    ) -> list[Integers]:
        length = self.dimensions[dimension]
        distance = np.where(backward, length - ahead, ahead)
        distance[ahead == 0] = 0
        steps, at = [], start.copy()
        for step in range(int(distance.max(initial=0))):
            node = np.ravel_multi_index(tuple(at), self.dimensions)
            link = self._link(node, nic, dimension, backward)
            steps.append(np.where(step < distance, link, -1))
            at[dimension] = (at[dimension] + np.where(backward, -1, 1)) % length
        return steps

    def _place(self, node: Integers) -> Integers:
        return np.array(np.unravel_index(node, self.dimensions))

    def _link(self, node: Integers, nic: Integers, dimension: int, backward: Integers | Flags) -> Integers:
        return self.first + ((node * self.nics + nic) * len(self.dimensions) + dimension) * 2 + backward

    def _dead(self, steps: Sequence[Integers]) -> Flags:
        dead = np.append(self.capacity == 0, False)
        return np.any([dead[step] for step in steps], axis=0) if steps else np.zeros(1, dtype=bool)

    def _between(self, fault: Fault) -> list[int]:
        """What joins two neighbours, counted from the first link of the torus, on NIC 0, both ways."""
        low, high = sorted(fault.ends()[1:])
        if high >= self.nodes:
            raise UsageError(f"no link {fault.link!r}; nodes are 0 to {self.nodes - 1}")
        here, there = self._place(np.array([low]))[:, 0], self._place(np.array([high]))[:, 0]
        lengths = np.array(self.dimensions)
        apart = np.flatnonzero(here != there)
        ahead = ((there - here) % lengths)[apart]
        if len(apart) != 1 or ahead[0] not in (1, lengths[apart[0]] - 1):
            raise UsageError(f"no link {fault.link!r}; nodes {low} and {high} are no neighbours")
        start, end = (low, high) if ahead[0] == 1 else (high, low)
        both = self._link(np.array([start, end]), np.zeros(2, int), int(apart[0]), np.array([0, 1])) - self.first
        return [int(link) for link in both]

    def name(self, link: int) -> str:
        """Both nodes, or the NIC."""
        if link < self.first:
            return nic_name(link % (self.nodes * self.nics), self.nics)
        rest, backward = divmod(link - self.first, 2)
        nic, dimension = divmod(rest, len(self.dimensions))
        here = self._place(np.array([nic // self.nics]))[:, 0]
        here[dimension] = (here[dimension] + (-1 if backward else 1)) % self.dimensions[dimension]
        return f"node {nic // self.nics} - node {np.ravel_multi_index(tuple(here), self.dimensions)}"
