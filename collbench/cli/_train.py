"""A plan from its question to its run file: reckoned as a whole, then printed and stored."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import chain
from typing import Any

import click

from collbench.api.requests import default_folder
from collbench.cli import _train_table as table
from collbench.cli._train_options import (
    Question,
    parse_counts,
    parse_priced,
    parse_systems,
    parse_tokens,
    question,
)
from collbench.cli.running import say_where
from collbench.errors import UsageError
from collbench.launcher import launched
from collbench.measure.session import Session
from collbench.planned import PlannedStep
from collbench.planner.advice import largest_batch, sensitivities, why
from collbench.planner.curves import Modelled
from collbench.planner.explaining import explained
from collbench.planner.layout import parse_layout
from collbench.planner.length import parse_duration, usual_tokens
from collbench.planner.planner import Planned
from collbench.planner.planning import Plan, best_of, plan_on
from collbench.planner.recorded import Plans, row, sweep_of
from collbench.planner.sizes import Elsewhere, interconnects, same_cost, sizes

AROUND = 16
"""How many times fewer and more GPUs than are planned for are priced, where --scale does not say which."""


def carry_out(options: Mapping[str, Any]) -> int:
    """Print the plan, store it, draw it; 0."""
    _refuse(options)
    asked = question(options)
    if options["explain"]:
        _explain(asked, options["explain"])
        return 0
    answer = _Answer(plan_on(asked.setting, asked.said), asked, options)
    with _session(answer, options) as session:
        for _ in session.run():
            pass
    if not session.leader:
        return 0
    for line in answer.lines():
        click.echo(line)
    click.echo(f"\n{table.LEGEND}", err=True)
    say_where(session, options["formats"])
    return 0


def _refuse(options: Mapping[str, Any]) -> None:
    """Options that are of no use without another one, and prices that are none."""
    for name in ("deadline", "up_or_out", "tokens"):
        if options[name] and not options["price"]:
            raise UsageError(f"--{name.replace('_', '-')} needs a --price, of an hour of a GPU")
    if options["price"] is not None and not 0 < options["price"] < 1e6:
        raise UsageError(f"--price {options['price']:g} is no price of a GPU's hour; give one above 0")
    if not 0 <= options["noise_scale"] < 1e15:
        raise UsageError(f"--noise-scale {options['noise_scale']:g} is none; give samples, above 0")
    for name in ("tflops", "memory"):
        if options[name] is not None and not 0 < options[name] < 1e9:
            raise UsageError(f"--{name} {options[name]:g} is impossible; give a number above 0")


def _explain(asked: Question, words: str) -> None:
    answer = plan_on(asked.setting, asked.said) if words == "best" else None
    layout = answer.best if answer else best_of(asked.setting, {**asked.said, **parse_layout(words)})
    for line in explained(asked.setting, layout.layout):
        click.echo(line)


class _Answer:
    """All that was asked for, reckoned."""

    def __init__(self, plan: Plan, asked: Question, options: Mapping[str, Any]) -> None:
        self._plan, self._asked, self._options = plan, asked, options
        self.ranked = plan.ranked(options["top"])
        self._given, self._said = plan.setting, plan.said
        self._price = options["price"] or 0.0
        self._sizes = list(sizes(self._given, self._said, self._counts()))
        systems = parse_systems(options["compare_interconnects"]) if options["compare_interconnects"] else []
        self._systems = interconnects(self._given, self._said, systems)
        self._tokens = parse_tokens(options["tokens"]) if options["tokens"] else usual_tokens(self._given.job.model)
        self._deadline = parse_duration(options["deadline"], "--deadline") if options["deadline"] else 0.0
        priced = parse_priced(options["up_or_out"])
        self._same_cost = same_cost(self._given, self._said, self._price, priced) if priced else []

    def _counts(self) -> Sequence[int]:
        """Numbers of GPUs to plan for, besides the one that is asked for."""
        if self._options["scale"]:
            return parse_counts(self._options["scale"])
        gpus = self._given.job.gpus
        steps = [gpus / AROUND * 2**power for power in range(2 * AROUND.bit_length() - 1)] if self._price else []
        return sorted({round(step * more) for step in steps for more in (1, 1.5) if step * more >= 1})

    @property
    def best(self) -> Planned:
        """The first of the ranking."""
        return self.ranked[0]

    @property
    def title(self) -> str:
        """What the run file calls it."""
        return f"{self._given.job.model.name} on {self._given.machine.name}"

    def topology(self) -> dict[str, Any]:
        """For the run file's header."""
        curves = self._given.curves
        described = {"system": asdict(curves.system)} if isinstance(curves, Modelled) else {}
        where = {"name": self.title, "shared": False, "platform": "gpu", "ranks": self._given.job.gpus, "model": True}
        return {**where, **described, "curves": curves.origin}

    def rows(self) -> Iterator[PlannedStep]:
        """All of it as rows of a run file."""
        name = self._given.machine.name
        yield from (row(plan, "layout", name) for plan in self.ranked)
        yield from self._scaled
        yield from self._priced
        compared = (*self._systems, *self._same_cost)
        for one in (self._here(self._price), *compared) if compared else ():
            if one.best:
                yield row(one.best, "interconnect", one.system.name, one.price)

    @cached_property
    def _scaled(self) -> list[PlannedStep]:
        return self._by_size("scale") if self._options["scale"] else []

    @cached_property
    def _priced(self) -> list[PlannedStep]:
        return self._by_size("cost", self._price, self._tokens) if self._price else []

    def _by_size(self, purpose: str, *more: float) -> list[PlannedStep]:
        return [row(size.best, purpose, self._given.machine.name, *more) for size in self._sizes if size.best]

    def lines(self) -> Iterator[str]:
        """All of it in words."""
        yield from table.heading(self._plan)
        if self._asked.anchor:
            at = self._given.job.efficiency
            yield f"anchored on {self._asked.anchor.layout.name}: computing is {at:.2f} times as fast as expected"
        yield ""
        yield from table.ranking(self.ranked)
        yield ""
        yield from why(self._plan)
        yield ""
        yield from table.gains(sensitivities(self._given, self.best.layout, self._said))
        yield ""
        yield from table.memory(self._given, self.best)
        yield ""
        yield largest_batch(self._given.job.batch, self._options["noise_scale"])
        yield from chain(self._scaling(), self._elsewhere(), self._costs())

    def _scaling(self) -> Iterator[str]:
        if self._options["scale"]:
            yield ""
            yield from table.scaling(self._sizes, self._scaled)

    def _elsewhere(self) -> Iterator[str]:
        if self._systems:
            yield ""
            yield from table.elsewhere([self._here(), *self._systems])
        if self._same_cost:
            yield "\nfor the same money an hour"
            yield from table.elsewhere([self._here(self._price), *self._same_cost], self._price)

    def _here(self, price: float = 0.0) -> Elsewhere:
        return Elsewhere(self._given.machine, self._given.job.gpus, self.best, price=price)

    def _costs(self) -> Iterator[str]:
        if not self._priced:
            return
        yield f"\na run of {self._tokens:.3g} tokens at {self._price:g} an hour and GPU"
        if not self._options["tokens"]:
            usual = "as many as were published" if self._given.job.model.trained else "20 a parameter at work"
            yield f"({usual}; --tokens says otherwise)"
        yield from table.costs(self._priced, self._deadline)


def _session(answer: _Answer, options: Mapping[str, Any]) -> Session:
    rows = list(answer.rows())
    sweep = sweep_of(rows[0].case)
    name = re.sub(r"[^a-z0-9]+", "-", f"train-{answer.title}".lower()).strip("-")
    folder = options["out"] or default_folder(sweep, name)
    return Session(Plans(rows, answer.topology()), sweep, launched(), folder, modelled=True)
