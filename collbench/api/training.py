"""The function that plans a training run: `collbench.train`, which the command of this name calls too."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from collbench.api.reading import RunOrPath, read
from collbench.api.requests import find_system, split_names
from collbench.api.words import Names
from collbench.cases import Sweep
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.measure.predicted import Predicted
from collbench.measure.session import Session
from collbench.model.what_if import changed_system
from collbench.notebook import Shown
from collbench.planner.cost import OnSystem, elsewhere, sizes
from collbench.planner.curves import ModelCurves
from collbench.planner.job import MOST_GPUS, Job
from collbench.planner.layouts import parse_layout
from collbench.planner.models import Model, load_model, parse_count, usual_tokens
from collbench.planner.run_curves import Given, setting_of
from collbench.planner.search import Plan, Planned, plan_on
from collbench.planner.sensitivity import anchored, parse_anchor
from collbench.planner.setting import Setting, machine_of, with_user_rates
from collbench.results import PlannedStep
from collbench.runfile.store import NAME, Run
from collbench.units import parse_duration, parse_numbers

GPUS = 64  # of a described system, by default
MOST_COUNTS = 64  # of numbers of GPUs
MOST_SHOWN = 100  # layouts
AROUND = 16
"""How many times fewer and more GPUs than are planned for are priced, where `scale` does not say which."""

_FIGURE = lambda figure: 0 < figure < 1e9, "is impossible; give a number above 0"
_SHARE = lambda share: 0 <= share < 100, "is no share; give per cent from 0 to less than 100"
_POSSIBLE: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "loader": (lambda rate: 0 < rate < inf, "is no rate; give samples a second, above 0"),
    "tflops": _FIGURE,
    "memory": _FIGURE,
    "reserve": _SHARE,
    "noise": _SHARE,
    "top": (lambda count: 1 <= count <= MOST_SHOWN, f"is no number of layouts; give 1 to {MOST_SHOWN}"),
}
"""Which numbers are possible, and the end of the sentence for one that is not."""


@dataclass(frozen=True)
class TrainingPlan(Shown):
    """A planned training run: the layouts that fit, and where they were asked for other sizes, systems and costs."""

    SHOWN = ("title", "price", "currency", "best", "ranked", "sizes", "systems")
    TABLE = "ranked"
    plan: Plan  # every layout that fits, and what it was made from
    unchanged: Planned | None  # with a what-if: the best layout on the system as it is
    ranked: tuple[Planned, ...]  # the best of them, evaluated
    anchor: Planned | None  # the layout of the measured step
    sizes: tuple[OnSystem, ...]  # on other numbers of GPUs
    scaled: tuple[PlannedStep, ...]  # those of them that fit, as rows; likewise the next
    priced: tuple[PlannedStep, ...]
    systems: tuple[OnSystem, ...]  # with as many GPUs
    price: float  # of a GPU's hour
    currency: str  # of that, such as USD
    tokens: float  # of the whole run
    deadline: float  # seconds

    @property
    def best(self) -> Planned:
        """The best layout: `layout.name`, `step` in seconds with `low` and `high`, `parts`, `memory` in bytes."""
        return self.ranked[0]

    @property
    def title(self) -> str:
        """What is trained on what."""
        return f"{self.plan.setting.job.model.name} on {self.plan.setting.machine.name}"

    def here(self) -> OnSystem:
        """Return the best layout on the system itself, to be compared with other systems."""
        return OnSystem(self.plan.setting.machine, self.plan.setting.job.gpus, self.best)

    def rows(self) -> Iterator[PlannedStep]:
        """Yield everything as rows of a run."""
        name = self.plan.setting.machine.name
        yield from (planned.row("layout", name) for planned in self.ranked)
        yield from (*self.scaled, *self.priced)
        for place in (self.here(), *self.systems) if self.systems else ():
            if place.best:
                yield place.best.row("interconnect", place.system.name)

    def session(self, folder: Path | None) -> Session:
        """Return the session that stores the rows in that new folder, if there is one."""
        rows = list(self.rows())
        case = rows[0].case
        sweep = Sweep(
            (case.collective,), (case.nbytes,), (case.dtype,), (case.redop,), case.ranks, ("nccl",), in_place=True
        )
        return Session(Predicted(self._topology(), rows), sweep, launched(), folder, modelled=True)

    def run(self, out: Path | str | None = None) -> Run:
        """Return the plan as a run, and store it in that new folder if there is one; UsageError if that cannot be."""
        with self.session(Path(out) if out else None) as session:
            list(session.run())
        return session.as_run()

    def _topology(self) -> dict[str, Any]:
        """Return the topology for the header of the run file."""
        curves, ranks = self.plan.setting.curves, self.plan.setting.job.gpus
        described = {"system": asdict(curves.system)} if isinstance(curves, ModelCurves) else {}
        where = {"name": self.title, "shared": False, "platform": "gpu", "ranks": ranks, "model": True}
        return {**where, **described, "curves": curves.origin}


def train(
    model: str = "llama3-8b",
    on: RunOrPath = "dgx-h100",
    *,
    gpus: int | None = None,
    batch: int = 512,
    sequence: int | None = None,
    precision: str = "bf16",
    optimiser: str = "adam",
    gradients: str = "fp32",
    stack: str | None = None,
    layout: str | None = None,
    top: int = 10,
    anchor: str | None = None,
    loader: float | None = None,
    scale: str | None = None,
    what_if: Sequence[str] = (),
    compare_interconnects: Names | None = None,
    price: float | str | None = None,
    deadline: str | None = None,
    tokens: str | None = None,
    reserve: float = 6.0,
    noise: float = 1.0,
    tflops: float | None = None,
    memory: float | None = None,
    fitted: bool = False,
    machine: str | None = None,
    out: Path | str | None = None,
) -> TrainingPlan:
    """Plan a training run, as `collbench train` does: layouts that fit, how long a step takes, and what it costs.

    Args:
        model: A preset, FILE.toml, or dimensions: "layers=32,hidden=4096,heads=32".
        on: What it is trained on: a preset, FILE.toml, or a run whose curves are taken.
        gpus: How many GPUs; by default 64, of a run its ranks.
        batch: Samples of a step, all GPUs together.
        sequence: Tokens of a sample; by default the model's.
        precision: Of matrix products: "bf16" or "fp8".
        optimiser: "adam", "adam8bit", "adam-bf16" or "sgd".
        gradients: As they are added up and sent: "fp32" or "bf16".
        stack: Software; by default that of the GPUs' published runs.
        layout: Choices that are fixed, such as "tp8 pp16".
        top: How many layouts to evaluate.
        anchor: A measured step: "32s", "45%", "32s,gpus=1024,layout=tp8 pp16".
        loader: Samples that can be read in a second.
        scale: Also on these numbers of GPUs: "8..8192" doubles.
        what_if: Changes of the system, such as "nic.rate=25" or "oversubscription=4".
        compare_interconnects: Also on these systems, as they are.
        price: Of a GPU's hour, in USD or another currency: 2.5, "2.5EUR".
        deadline: With a price, until when the run must be done: "30d", "12h".
        tokens: With a price, tokens of the whole run: "300B"; by default as published, or 20 a parameter at work.
        reserve: Per cent of the memory that fragments make useless.
        noise: Per cent by which GPUs' speeds differ (standard deviation).
        tflops: Of a GPU, dense, on 16 bits; by default its data sheet's.
        memory: GiB of a GPU; by default its data sheet's.
        fitted: Of a run, take the fit to its curves instead of its points.
        machine: What machine the run is of.
        out: New folder in which the plan is stored; without it nothing is stored.

    Returns:
        `best` and `ranked` layouts, each with `step` (seconds), `low`, `high`, `parts` and `memory`; `sizes`, `systems`
        and costs where they were asked for; `run()` has all of it as rows.

    Raises:
        UsageError: Something does not exist, or no layout fits; the message says what would.

    >>> import collbench
    >>> plan = collbench.train("gpt3-175b", "dgx-a100", gpus=1024, batch=1536, layout="tp8 pp16")
    >>> plan.best.layout.name, 29 < plan.best.step < 35
    ('tp8 pp16 dp8 mb1 ddp full', True)

    """
    _refuse_impossible(loader=loader, tflops=tflops, memory=memory, reserve=reserve, noise=noise, top=top)
    for name, given in (("deadline", deadline), ("tokens", tokens)):
        if given and not price:
            raise UsageError(f"--{name} needs a --price, of an hour of a GPU")
    paid, currency = (0.0, "") if price is None else _parse_price(price, "--price")
    known = load_model(model) if sequence is None else replace(load_model(model), sequence=sequence).checked()

    def job(count: int, usual_stack: str) -> Job:
        return Job(
            known,
            count,
            batch,
            known.sequence,
            stack=stack or usual_stack,
            precision=precision,
            optimiser=optimiser,
            gradients=gradients,
            reserve=reserve / 100,
            noise=noise / 100,
        ).checked()

    fixed, measured = parse_layout(layout) if layout else {}, None
    setting = _setting(on, gpus, job, Given(machine, tflops, memory, fitted), loader or inf, what_if)
    if anchor:
        setting, measured = anchored(setting, parse_anchor(anchor), fixed)
    plan, unchanged = plan_on(setting, fixed), None
    if what_if:
        as_it_is = replace(setting, curves=ModelCurves(find_system(str(on)), setting.job.gpus))
        unchanged = plan_on(as_it_is, fixed, advised=False).best
    others = tuple(sizes(setting, fixed, _counts(scale, setting.job.gpus, priced=bool(paid))))
    named = map(find_system, split_names(compare_interconnects or ""))
    compared = [system for system in named if system.name != setting.machine.name]
    total = _tokens(known, tokens)
    money = {"price": paid, "currency": currency, "total": total}
    of_sizes = [(size.best, setting.machine.name) for size in others if size.best]
    planned = TrainingPlan(
        plan=plan,
        unchanged=unchanged,
        ranked=tuple(plan.ranked(top)),
        anchor=measured,
        sizes=others,
        scaled=tuple(best.row("scale", where) for best, where in of_sizes) if scale else (),
        priced=tuple(best.row("cost", where, **money) for best, where in of_sizes) if paid else (),
        systems=tuple(elsewhere(setting, fixed, system) for system in compared),
        price=paid,
        currency=currency,
        tokens=total,
        deadline=parse_duration(deadline, "--deadline", alone="") if deadline else 0.0,
    )
    if out:
        planned.run(out)
    return planned


def _refuse_impossible(**figures: float | None) -> None:
    """Raise UsageError for a number that cannot be."""
    for name, figure in figures.items():
        possible, instead = _POSSIBLE[name]
        if figure is not None and not possible(figure):
            raise UsageError(f"--{name} {figure:g} {instead}")


def _setting(
    on: RunOrPath,
    gpus: int | None,
    job: Callable[[int, str], Job],
    hardware: Given,
    loader: float,
    what_if: Sequence[str],
) -> Setting:
    """Return the setting on a run's curves, or on a described system with the model's."""
    run = on if isinstance(on, Run) else read(on) if _is_run(Path(on)) else None
    count = gpus if gpus is not None else run.header.topology.ranks if run else GPUS
    if not 1 <= count <= MOST_GPUS:
        raise UsageError(f"--gpus {count} is impossible; give 1 to {MOST_GPUS}")
    if run:
        if what_if:
            raise UsageError("--what-if changes a described system, and a run has its own times; leave it out")
        return setting_of(run, partial(job, count), hardware, loader)
    if hardware.fitted:
        raise UsageError(f"--fitted is of a run's curves; {on} is described, and has those of the model")
    first, *others = map(str.strip, str(on).split(","))
    if others:
        instead = f"--on {first} --compare-interconnects {','.join(others)}"
        raise UsageError(f"--on {on} names several systems, and one is planned for; to compare them: {instead}")
    system = find_system(str(on))
    curves = ModelCurves(changed_system(system, what_if) if what_if else system, count)
    there = with_user_rates(machine_of(curves.system), hardware.tflops, hardware.memory)
    return Setting(job(count, there.stack), curves, there, loader)


def _is_run(place: Path) -> bool:
    return place.suffix == ".jsonl" or (place.suffix != ".toml" and (place / NAME).exists())


def _counts(scale: str | None, gpus: int, *, priced: bool) -> Sequence[int]:
    """Return the numbers of GPUs to plan for besides the requested number."""
    if scale:
        counts = parse_numbers(scale)
        if not counts or not counts[0]:
            raise UsageError(f"--scale {scale!r} is no list of GPUs; write 8..8192, which doubles, or 64,96,128")
        if len(counts) > MOST_COUNTS or counts[-1] > MOST_GPUS:
            most = f"give at most {MOST_COUNTS} numbers, up to {MOST_GPUS} GPUs"
            raise UsageError(f"--scale {scale!r} is too much; {most}")
        return counts
    if not priced:
        return []
    steps = [gpus / AROUND * 2**power for power in range(2 * AROUND.bit_length() - 1)]
    return sorted({round(step * more) for step in steps for more in (1, 1.5) if step * more >= 1})


def _tokens(model: Model, text: str | None) -> float:
    """Return the tokens of the whole run."""
    tokens = parse_count(text, "--tokens") if text else usual_tokens(model)
    if not 1 <= tokens <= 1e18:
        raise UsageError(f"--tokens {text} is impossible; give 1 to 1e18, such as 300B")
    return tokens


def _parse_price(value: float | str, option: str) -> tuple[float, str]:
    """Return a price of a GPU's hour and its currency, by default USD; UsageError if it is none."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?) ?([A-Z]{3})?", str(value).strip().upper(), re.ASCII)
    if not match or not float(match[1]):
        raise UsageError(f"{option} {value} is no price of a GPU's hour; write one above 0, such as 2.5 or 2.5EUR")
    return float(match[1]), match[2] or "USD"
