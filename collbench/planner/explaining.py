"""Every term of a plan with its formula, its numbers and its source, to be checked with a pocket calculator."""

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from collbench.planner.candidates import coded
from collbench.planner.layout import Layout
from collbench.planner.ledger import Network, Read, Section, Term, reckon
from collbench.planner.planner import SECTIONS
from collbench.planner.setting import Setting, choices, inputs
from collbench.units import format_seconds, format_size

_GIVEN = "inputs"


def explained(given: Setting, layout: Layout) -> Iterator[str]:
    """Lines: what goes in, and then the terms in the order in which they are reckoned."""
    known = inputs(given) | choices({name: np.asarray(value) for name, value in coded(layout).items()}, given)
    used = {name for section in SECTIONS for term in section.terms for name in term.inputs}
    yield f"{layout.name} of {given.job.model.name} on {given.machine.name}"
    yield ""
    yield _GIVEN
    yield from (f"  {name} = {_number(known[name])}" for name in known if name in used)
    values: dict[str, Any] = dict(known)
    for section in SECTIONS:
        yield ""
        yield section.title
        for term in section.terms:
            values = reckon([Section("", [term])], {**values, "network": Network(given.curves)})
            yield from _lines(term, values, _reads(term, values, given))


class _OneWay(ast.NodeTransformer):
    """`where(condition, this, that)` as an expression that looks at one of the two only."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call, and those in it."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "where":
            return ast.IfExp(*node.args)
        return node


def _reads(term: Term, values: Mapping[str, Any], given: Setting) -> list[Read]:
    """What a term reads of curves, on the way that this layout takes."""
    if "network" not in term.inputs:
        return []
    reads: list[Read] = []
    formula = ast.fix_missing_locations(_OneWay().visit(ast.parse(term.formula, mode="eval")))
    names = {**term.function.__globals__, **values, "network": Network(given.curves, reads=reads)}
    eval(compile(formula, term.name, "eval"), names)
    return reads


def _lines(term: Term, values: Mapping[str, Any], reads: list[Read]) -> Iterator[str]:
    yield f"  {term.name} = {_number(values[term.name])}{_unit(term, values)}"
    yield f"      {term.meaning}"
    yield f"      = {term.formula}"
    numbers = [f"{name} {_number(values[name])}" for name in term.inputs if name != "network"]
    if numbers:
        yield f"      with {', '.join(numbers)}"
    for read in reads:
        yield (
            f"      read: {read.collective} of {format_size(read.nbytes)} among {read.group.ranks} GPUs, "
            f"{read.group.inside} in a node: {format_seconds(read.seconds)} ({read.origin})"
        )
    if term.source:
        yield f"      source: {term.source}"


def _number(value: Any) -> str:
    """With all digits that matter, and whole ones whole."""
    number = float(np.asarray(value).reshape(-1)[0])
    if np.asarray(value).dtype == bool:
        return str(bool(number)).lower()
    return f"{number:.0f}" if abs(number) < 1e15 and number == round(number) else f"{number:.6g}"


def _unit(term: Term, values: Mapping[str, Any]) -> str:
    number = float(np.asarray(values[term.name]).reshape(-1)[0])
    known: dict[str, Callable[[float], str]] = {"s": format_seconds, "bytes": format_size}
    readable = known.get(term.unit)
    return f" {term.unit} ({readable(number)})" if readable and number > 0 else f" {term.unit}" if term.unit else ""
