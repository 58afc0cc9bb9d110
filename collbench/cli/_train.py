"""A plan from its request to its run file: the request is parsed, planned as a whole, then printed and stored."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import click

from collbench.analysis.plans import UNHIDDEN, cheapest, front, leaving, scaled
from collbench.api.requests import default_folder, find_system
from collbench.cli.running import say_where
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.measure.session import Session
from collbench.planner.cost import OnSystem, interconnects, same_cost, sizes
from collbench.planner.curves import ModelCurves
from collbench.planner.job import MOST_GPUS, Job
from collbench.planner.layouts import Choices, parse_layout
from collbench.planner.memory import PARTS as MEMORY_PARTS
from collbench.planner.models import load_model, parse_count, parse_duration, usual_tokens, with_sequence
from collbench.planner.rows import Plans, row, sweep_of
from collbench.planner.search import Plan, Planned, plan_on
from collbench.planner.sensitivity import Gain, anchored, explain_best, largest_batch, parse_anchor, sensitivities
from collbench.planner.setting import Setting, machine_of, with_user_rates
from collbench.results import PlannedStep, words
from collbench.runfile.store import NAME, Run, read
from collbench.topology.products import GIB
from collbench.topology.system import System
from collbench.units import format_count, format_duration, format_seconds

GPUS = 64  # of a described system, by default
MOST_COUNTS = 64  # of numbers of GPUs


@dataclass(frozen=True)
class TrainOptions:
    """The options of `collbench train` as click parses them; None where an option is not given."""

    model: str
    on: str
    gpus: int | None
    batch: int
    sequence: int | None
    precision: str
    optimiser: str
    gradients: str
    stack: str | None
    layout: str | None
    top: int
    anchor: str | None
    loader: float | None  # samples/s
    scale: str | None
    compare_interconnects: str | None
    price: float | None  # of a GPU's hour
    deadline: str | None
    tokens: str | None
    up_or_out: tuple[str, ...]
    noise_scale: float  # samples
    reserve: float  # per cent of the memory
    noise: float  # per cent of a GPU's speed
    tflops: float | None
    memory: float | None  # GiB
    fitted: bool
    machine: str | None
    formats: tuple[str, ...]
    out: Path | None


class TrainRequest(NamedTuple):
    """The parsed request: the setting, the fixed choices of the layout, and the layout of the anchor."""

    setting: Setting
    fixed: Choices
    anchor: Planned | None


def parse_request(options: TrainOptions) -> TrainRequest:
    """Parse the options; UsageError, with a way out, for what cannot be planned."""
    model = load_model(options.model)
    if options.sequence is not None:
        model = with_sequence(model, options.sequence)
    fixed = parse_layout(options.layout) if options.layout else {}
    run = read(Path(options.on)) if _is_run(options.on) else None
    gpus = options.gpus if options.gpus is not None else run.header.topology.ranks if run else GPUS
    if not 1 <= gpus <= MOST_GPUS:
        raise UsageError(f"--gpus {gpus} is impossible; give 1 to {MOST_GPUS}")
    names = ("precision", "optimiser", "gradients")
    how = {name: getattr(options, name) for name in names} | {
        "reserve": _share(options, "reserve"),
        "noise": _share(options, "noise"),
    }

    def job(stack: str) -> Job:
        whole = Job(model, gpus, options.batch, model.sequence, stack=options.stack or stack, **how)
        return whole.checked()

    setting = _of_run(run, job, options) if run else _described(gpus, job, options)
    if options.anchor:
        setting, layout = anchored(setting, parse_anchor(options.anchor), fixed)
        return TrainRequest(setting, fixed, layout)
    return TrainRequest(setting, fixed, None)


def _share(options: TrainOptions, name: str) -> float:
    value = float(getattr(options, name))
    if not 0 <= value < 100:
        raise UsageError(f"--{name} {value:g} is no share; give per cent from 0 to less than 100")
    return value / 100


def _described(gpus: int, job: Callable[[str], Job], options: TrainOptions) -> Setting:
    """Return the setting on a described system, by the model's curves."""
    if options.fitted:
        raise UsageError(f"--fitted is of a run's curves; {options.on} is described, and has those of the model")
    system = find_system(options.on)
    curves = ModelCurves(system, gpus)
    machine = with_user_rates(machine_of(curves.system), options.tflops, options.memory)
    return Setting(job(machine.stack), curves, machine, _loader(options))


def _of_run(run: Run, job: Callable[[str], Job], options: TrainOptions) -> Setting:
    from collbench.planner.run_curves import Given, setting_of

    given = Given(options.machine, options.tflops, options.memory, options.fitted)
    return setting_of(run, job, given, _loader(options))


def _loader(options: TrainOptions) -> float:
    rate = options.loader
    if rate is not None and not 0 < rate < inf:
        raise UsageError(f"--loader {rate:g} is no rate; give samples a second, above 0")
    return rate or inf


def _is_run(on: str) -> bool:
    path = Path(on)
    return not on.endswith(".toml") and (path.suffix == ".jsonl" or (path / NAME).exists())


def parse_counts(text: str) -> list[int]:
    """Return the numbers of GPUs of `8..8192`, which doubles, or `64,96,128`; UsageError for anything else."""
    doubled = []
    for word in text.split(","):
        match = re.fullmatch(r"\s*([1-9]\d{0,6})(?:\.\.([1-9]\d{0,6}))?\s*", word)
        if not match or (match[2] and int(match[2]) < int(match[1])):
            raise UsageError(f"--scale {text!r} is no list of GPUs; write 8..8192, which doubles, or 64,96,128")
        count, last = int(match[1]), int(match[2] or match[1])
        while count <= last:
            doubled.append(count)
            count *= 2
    counts = sorted(set(doubled))
    if len(counts) > MOST_COUNTS or counts[-1] > MOST_GPUS:
        raise UsageError(f"--scale {text!r} is too much; give at most {MOST_COUNTS} numbers, up to {MOST_GPUS} GPUs")
    return counts


def parse_systems(text: str) -> list[System]:
    """Return the systems of `--compare-interconnects`: names and files with commas between."""
    return [find_system(name.strip()) for name in text.split(",")]


def parse_priced(words: Sequence[str]) -> list[tuple[System, float]]:
    """Return the systems and prices of `--up-or-out`: `SYSTEM=PRICE`; UsageError without a price."""
    priced = []
    for word in words:
        name, _, price = word.partition("=")
        if not re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", price) or not float(price):
            raise UsageError(f"--up-or-out {word!r} has no price; write SYSTEM=PRICE, such as dgx-h100=2.5")
        system = find_system(name.strip())
        priced.append((system, float(price)))
    return priced


def parse_tokens(text: str) -> float:
    """Return the number of tokens of the whole run."""
    count = parse_count(text, "--tokens")
    if not 1 <= count <= 1e18:
        raise UsageError(f"--tokens {text} is impossible; give 1 to 1e18, such as 300B")
    return count


_RANK = (
    "{rank:>3}  {layout:<{width}} {step:>8} {band:>19} {mfu:>6} {tokens:>9} {memory:>8}  "
    "{computing:>6} {exposed:>7} {bubble:>6}"
)
_ELSEWHERE = (
    "{system:<{width}} {gpus:>6}  {layout:<{names}} {step:>8} {mfu:>6} {tokens:>9} {computing:>6} {exposed:>6} "
    "{bubble:>6}{cost}"
)
LEGEND = (
    "nothing here is measured: step is what is likely, nine in ten the band, of the curves' bands and computing's\n"
    "ranked by the mean over the curves' bands, in which the likely step counts four times\n"
    "MFU: of the data sheet's FLOP/s, nothing that is computed twice counted; sent: communication that nothing hides"
)


def heading(plan: Plan) -> Iterator[str]:
    """Yield what is planned, on what, and by which curves."""
    given = plan.setting
    job, model = given.job, given.job.model
    size = f"{model.parameters / 1e9:.4g} billion parameters"
    active = f", {model.active / 1e9:.4g} billion at work" if model.experts else ""
    yield f"{model.name}: {size}{active}; {job.batch:,} samples of {job.sequence:,} tokens a step"
    memory = given.capacity / GIB
    yield (
        f"{job.gpus:,} {given.machine.unit} of {given.machine.name}, {memory:.3g} GiB each; {job.precision}, "
        f"{job.optimiser}, gradients {job.gradients}; software {job.stack}"
    )
    yield "; ".join(filter(None, (f"curves: {given.curves.origin}", given.machine.note)))
    if not given.machine.known:
        yield "GPUs not known by name: they are taken for others of their architecture; --tflops and --memory say it"
    yield f"{plan.searched.tried:,} layouts, of which {plan.fitting:,} fit"


def ranking(plans: Sequence[Planned]) -> Iterator[str]:
    """Yield the table of layouts."""
    width = max(len(plan.layout.name) for plan in plans)
    yield _RANK.format(
        rank="", layout="layout", width=width, step="step", band="nine in ten", mfu="MFU", tokens="tokens/s",
        memory="memory", computing="comp.", exposed="sent", bubble="bubble",
    )  # fmt: skip
    for rank, plan in enumerate(plans, 1):
        band = f"{format_seconds(plan.low)} - {format_seconds(plan.high)}"
        needed = f"{plan.needed / GIB:.1f} GiB"
        yield _RANK.format(rank=rank, width=width, band=band, memory=needed, **_cells(plan))


def memory(given: Setting, best: Planned) -> Iterator[str]:
    """Yield what the memory of a GPU is needed for."""
    lines = {words(name): best.memory[name] for name in MEMORY_PARTS if best.memory[name] >= 2**20}
    lines[f"all, of {given.capacity / GIB:.3g} GiB"] = best.needed
    yield f"memory of a GPU, {best.layout.name}"
    for name, size in lines.items():
        yield f"  {name:<22} {size / GIB:>8.2f} GiB {size / given.capacity:>5.0%}"


def gains(most_first: Sequence[Gain]) -> Iterator[str]:
    """Yield the table of sensitivities."""
    yield "ten per cent more of"
    for gain in most_first:
        yield f"  {gain.resource:<24} gives {gain.factor:.3f}x"


def scaling(sizes: Sequence[OnSystem], rows: Sequence[PlannedStep]) -> Iterator[str]:
    """Yield the table by number of GPUs; `rows` are those that fit, in their order."""
    curves = scaled(rows)
    width = max((len(row.implementation) for row in rows), default=0)
    yield f"{'GPUs':>7}  {'layout':<{width}} {'step':>8} {'nine in ten':>19} {'tokens/s':>9} {'efficiency':>10}"
    planned = {row.gpus: row for row in rows}
    for size in sizes:
        if not size.best:
            yield f"{size.gpus:>7,}  none: {size.reason}"
            continue
        row = planned[size.gpus]
        band = f"{format_seconds(row.low)} - {format_seconds(row.high)}"
        efficiency = f"{curves[0].efficiency(row):>10.1%}" if curves else ""
        yield (
            f"{row.gpus:>7,}  {row.implementation:<{width}} {format_seconds(row.typical):>8} {band:>19} "
            f"{format_count(row.tokens / row.typical):>9} {efficiency}"
        )
    for curve in curves:
        words = [
            f"{level:.0%} {f'beyond about {gpus:,.0f} GPUs' if gpus else 'nowhere up to there'}"
            for level, gpus in leaving(curve).items()
        ]
        yield f"against {curve.rows[0].gpus:,} GPUs, the same batch: it leaves {', '.join(words)}"


def on_systems(places: Sequence[OnSystem], price: float = 0.0) -> Iterator[str]:
    """Yield the table by system; with a price, what a million tokens cost."""
    width = max([6, *(len(one.system.name) for one in places)])
    names = max([6, *(len(one.best.layout.name) for one in places if one.best)])
    yield _ELSEWHERE.format(
        system="system", width=width, gpus="GPUs", layout="layout", names=names, step="step", mfu="MFU",
        tokens="tokens/s", computing="comp.", exposed="sent", bubble="bubble",
        cost=f" {'of 1M tokens':>12}" if price else "",
    )  # fmt: skip
    for one in places:
        if not one.best:
            yield f"{one.system.name:<{width}} {one.gpus:>6,}  none: {one.reason}"
            continue
        million = one.gpus * one.price / 3600 / one.best.tokens_per_second * 1e6
        cost = f" {million:>12.4g}" if price else ""
        yield _ELSEWHERE.format(
            system=one.system.name, width=width, gpus=f"{one.gpus:,}", names=names, cost=cost, **_cells(one.best)
        )


def _cells(plan: Planned) -> dict[str, str]:
    """Return the cells of a layout that several tables share."""
    exposed = sum(plan.parts[name] for name in UNHIDDEN)
    return {
        "layout": plan.layout.name,
        "step": format_seconds(plan.step),
        "mfu": f"{plan.utilisation:.1%}",
        "tokens": format_count(plan.tokens_per_second),
        "computing": f"{plan.parts['computing'] / plan.step:.0%}",
        "exposed": f"{exposed / plan.step:.1%}",
        "bubble": f"{plan.parts['bubble'] / plan.step:.1%}",
    }


def costs(plans: Sequence[PlannedStep], deadline: float) -> Iterator[str]:
    """Yield the table of costs by number of GPUs; marks the Pareto front and the cheapest in time."""
    best, chosen = front(plans), cheapest(plans, deadline) if deadline else None
    yield f"{'GPUs':>7}  {'whole run':>10} {'cost':>12} {'of 1M tokens':>13}"
    for plan in plans:
        marks = ["Pareto"] if plan in best else []
        if plan is chosen:
            marks.append("cheapest in time")
        million = plan.cost / plan.total * 1e6
        line = f"{plan.gpus:>7,}  {format_duration(plan.seconds):>10} {plan.cost:>12,.0f} {million:>13.4g}"
        yield f"{line}  {', '.join(marks)}" if marks else line
    if deadline and not chosen:
        quickest = min(plans, key=lambda plan: plan.seconds)
        limit, fastest = format_duration(deadline), format_duration(quickest.seconds)
        yield f"none is done in {limit}: the quickest, {quickest.gpus:,} GPUs, takes {fastest}"


AROUND = 16
"""How many times fewer and more GPUs than are planned for are priced, where --scale does not say which."""


def run_train(options: TrainOptions) -> int:
    """Print the plan, store it and draw it; return exit status 0."""
    _refuse(options)
    request = parse_request(options)
    answer = _Plans(plan_on(request.setting, request.fixed), request, options)
    with _session(answer, options) as session:
        for _ in session.run():
            pass
    if not session.leader:
        return 0
    for line in answer.lines():
        click.echo(line)
    click.echo(f"\n{LEGEND}", err=True)
    say_where(session, options.formats)
    return 0


def _refuse(options: TrainOptions) -> None:
    """Refuse options that are useless without another option, and impossible prices."""
    for name in ("deadline", "up_or_out", "tokens"):
        if getattr(options, name) and not options.price:
            raise UsageError(f"--{name.replace('_', '-')} needs a --price, of an hour of a GPU")
    if options.price is not None and not 0 < options.price < 1e6:
        raise UsageError(f"--price {options.price:g} is no price of a GPU's hour; give one above 0")
    if not 0 <= options.noise_scale < 1e15:
        raise UsageError(f"--noise-scale {options.noise_scale:g} is none; give samples, above 0")
    for name in ("tflops", "memory"):
        if getattr(options, name) is not None and not 0 < getattr(options, name) < 1e9:
            raise UsageError(f"--{name} {getattr(options, name):g} is impossible; give a number above 0")


class _Plans:
    """Everything that was requested, evaluated."""

    def __init__(self, plan: Plan, request: TrainRequest, options: TrainOptions) -> None:
        self._plan, self._asked, self._options = plan, request, options
        self.ranked = plan.ranked(options.top)
        self._given, self._fixed = plan.setting, plan.fixed
        self._price = options.price or 0.0
        self._sizes = list(sizes(self._given, self._fixed, self._counts()))
        systems = parse_systems(options.compare_interconnects) if options.compare_interconnects else []
        self._systems = interconnects(self._given, self._fixed, systems)
        self._tokens = parse_tokens(options.tokens) if options.tokens else usual_tokens(self._given.job.model)
        self._deadline = parse_duration(options.deadline, "--deadline") if options.deadline else 0.0
        priced = parse_priced(options.up_or_out)
        self._same_cost = same_cost(self._given, self._fixed, self._price, priced) if priced else []

    def _counts(self) -> Sequence[int]:
        """Return the numbers of GPUs to plan for besides the requested number."""
        if self._options.scale:
            return parse_counts(self._options.scale)
        gpus = self._given.job.gpus
        steps = [gpus / AROUND * 2**power for power in range(2 * AROUND.bit_length() - 1)] if self._price else []
        return sorted({round(step * more) for step in steps for more in (1, 1.5) if step * more >= 1})

    @property
    def best(self) -> Planned:
        """The first layout of the ranking."""
        return self.ranked[0]

    @property
    def title(self) -> str:
        """Title of the run file."""
        return f"{self._given.job.model.name} on {self._given.machine.name}"

    def topology(self) -> dict[str, Any]:
        """Return the topology for the header of the run file."""
        curves = self._given.curves
        described = {"system": asdict(curves.system)} if isinstance(curves, ModelCurves) else {}
        where = {"name": self.title, "shared": False, "platform": "gpu", "ranks": self._given.job.gpus, "model": True}
        return {**where, **described, "curves": curves.origin}

    def rows(self) -> Iterator[PlannedStep]:
        """Yield everything as rows of a run file."""
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
        return self._by_size("scale") if self._options.scale else []

    @cached_property
    def _priced(self) -> list[PlannedStep]:
        return self._by_size("cost", self._price, self._tokens) if self._price else []

    def _by_size(self, purpose: str, *more: float) -> list[PlannedStep]:
        return [row(size.best, purpose, self._given.machine.name, *more) for size in self._sizes if size.best]

    def lines(self) -> Iterator[str]:
        """Yield everything as lines of text."""
        yield from heading(self._plan)
        if self._asked.anchor:
            at = self._given.job.efficiency
            yield f"anchored on {self._asked.anchor.layout.name}: computing is {at:.2f} times as fast as expected"
        yield ""
        yield from ranking(self.ranked)
        yield ""
        yield from explain_best(self._plan)
        yield ""
        yield from gains(sensitivities(self._given, self.best.layout, self._fixed))
        yield ""
        yield from memory(self._given, self.best)
        yield ""
        yield largest_batch(self._given.job.batch, self._options.noise_scale)
        yield from chain(self._scaling(), self._elsewhere(), self._costs())

    def _scaling(self) -> Iterator[str]:
        if self._options.scale:
            yield ""
            yield from scaling(self._sizes, self._scaled)

    def _elsewhere(self) -> Iterator[str]:
        if self._systems:
            yield ""
            yield from on_systems([self._here(), *self._systems])
        if self._same_cost:
            yield "\nfor the same money an hour"
            yield from on_systems([self._here(self._price), *self._same_cost], self._price)

    def _here(self, price: float = 0.0) -> OnSystem:
        return OnSystem(self._given.machine, self._given.job.gpus, self.best, price=price)

    def _costs(self) -> Iterator[str]:
        if not self._priced:
            return
        yield f"\na run of {self._tokens:.3g} tokens at {self._price:g} an hour and GPU"
        if not self._options.tokens:
            usual = "as many as were published" if self._given.job.model.trained else "20 a parameter at work"
            yield f"({usual}; --tokens says otherwise)"
        yield from costs(self._priced, self._deadline)


def _session(answer: _Plans, options: TrainOptions) -> Session:
    rows = list(answer.rows())
    sweep = sweep_of(rows[0].case)
    name = re.sub(r"[^a-z0-9]+", "-", f"train-{answer.title}".lower()).strip("-")
    folder = options.out or default_folder(sweep, name)
    return Session(Plans(rows, answer.topology()), sweep, launched(), folder, modelled=True)
