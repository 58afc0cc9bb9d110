"""The books of a plan: every term of it is one function, whose parameters name the terms and inputs that it needs.

Terms are evaluated for all layouts at once, as arrays, or for a single one, whose every number can be shown with the
formula that made it: the text of the formula is the function's own.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from collbench.planner.curves import TYPICAL, Array, Curve, Curves, Group, group_of

Value = Any  # an array with a number for every layout, or one number; `network` is a Network
Values = Mapping[str, Value]


@dataclass(frozen=True)
class Term:
    """One quantity of a plan."""

    function: Callable[..., Value]
    unit: str  # s, bytes, FLOP, or nothing
    source: str  # where the formula is from

    @property
    def name(self) -> str:
        """What other terms call it."""
        return self.function.__name__

    @property
    def meaning(self) -> str:
        """What it is."""
        return (self.function.__doc__ or "").partition("\n")[0]

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """What it needs."""
        return tuple(inspect.signature(self.function).parameters)

    @property
    def formula(self) -> str:
        """The expression that it returns."""
        tree = ast.parse(textwrap.dedent(inspect.getsource(self.function)))
        (returned,) = (node for node in ast.walk(tree) if isinstance(node, ast.Return))
        assert returned.value
        return ast.unparse(returned.value)


@dataclass
class Section:
    """Terms that belong together, in the order in which they are reckoned."""

    title: str
    terms: list[Term] = field(default_factory=list)

    def term(self, unit: str = "", source: str = "") -> Callable[[Callable[..., Value]], Callable[..., Value]]:
        """Enter a function as the next term."""

        def entered(function: Callable[..., Value]) -> Callable[..., Value]:
            self.terms.append(Term(function, unit, source))
            return function

        return entered


def reckon(sections: Iterable[Section], values: Values) -> dict[str, Value]:
    """The values with those of all terms; a term that is there already stays as it is."""
    known = dict(values)
    for section in sections:
        for term in section.terms:
            if term.name not in known:
                known[term.name] = term.function(*[known[name] for name in term.inputs])
    return known


@dataclass(frozen=True)
class Read:
    """A value that was read from a curve."""

    collective: str
    group: Group
    nbytes: float
    seconds: float
    origin: str


@dataclass
class Network:
    """The curves as terms use them: seconds of a collective in groups that differ from layout to layout.

    `edges` says where in their band the curves are read: one word, or one for each of several books of one layout.
    """

    curves: Curves
    edges: str | tuple[str, ...] = TYPICAL
    reads: list[Read] | None = None  # a list: every value that is read is entered

    def time(self, collective: str, nbytes: Value, ranks: Value, stride: Value) -> Array:
        """Seconds for arrays of that many bytes, in groups of GPUs that are each `stride` behind the one before."""
        sizes, counts, strides = np.broadcast_arrays(
            np.asarray(nbytes, np.float64), np.asarray(ranks, np.int64), np.asarray(stride, np.int64)
        )
        if sizes.size == 1:
            return self._of_one(collective, sizes, int(counts.flat[0]), int(strides.flat[0]))
        seconds = np.zeros(sizes.shape)
        keys = counts * (1 << 32) + strides
        for key in np.unique(keys[(counts > 1) & (sizes > 0)]):
            there = (keys == key) & (sizes > 0)
            curve = self._curve(collective, int(key >> 32), int(key & 0xFFFFFFFF))
            seconds[there] = curve.time(sizes[there], self.edges if isinstance(self.edges, str) else TYPICAL)
        return seconds

    def _of_one(self, collective: str, size: Array, count: int, stride: int) -> Array:
        """Of a single layout, at every edge."""
        edges = (self.edges,) if isinstance(self.edges, str) else self.edges
        if count < 2 or not float(size.flat[0]) > 0:
            return np.zeros(len(edges)) if len(edges) > 1 else np.zeros(size.shape)
        curve = self._curve(collective, count, stride)
        seconds = {edge: curve.time(size, edge) for edge in dict.fromkeys(edges)}
        if self.reads is not None:
            took = float(seconds[edges[0]].flat[0])
            group = group_of(count, stride, self.curves.system.gpus)
            self.reads.append(Read(collective, group, float(size.flat[0]), took, curve.origin))
        if len(edges) == 1:
            return seconds[edges[0]]
        return np.array([float(seconds[edge].flat[0]) for edge in edges])

    def _curve(self, collective: str, count: int, stride: int) -> Curve:
        return self.curves.curve(collective, group_of(count, stride, self.curves.system.gpus))
