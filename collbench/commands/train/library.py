"""`collbench.train`: the request and the plan of a training run."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from collbench.cases import Sampling, Sweep
from collbench.commands.train.curves import ModelCurves
from collbench.commands.train.layouts import Choices, layout_of, parse_layout
from collbench.commands.train.models import MOST_GPUS, STACKS, Model, TrainingJob, load_model, parse_count, usual_tokens
from collbench.commands.train.rows import PlannedStep
from collbench.commands.train.search import OnSystem, Plan, best_of, best_on, evaluate_layout, plan_on, resized
from collbench.commands.train.setting import PlanSetting, machine_of
from collbench.errors import UsageError
from collbench.host.launcher import launched
from collbench.measure.predicted import Predicted
from collbench.measure.session import Session
from collbench.notebook import Shown
from collbench.requests.declared import Opt, Request, takes
from collbench.requests.sweeps import find_system, split_names
from collbench.requests.words import Names
from collbench.runfile.schema import TopologyPart
from collbench.runfile.store import NAME, Run
from collbench.units import duration, parse_numbers

MOST_COUNTS = 64  # numbers of GPUs in `scale`
MOST_SHOWN = 100  # layouts
AROUND = 16
"""Factor below and above the requested number of GPUs up to which costs are computed, without `scale`."""

FASTEST, SLOWEST = 0.05, 5.0
"""Credible ratios of the anchor's computing speed to the expected one."""
_FORM = "write 32s or 45%, optionally followed by ,gpus=1024,batch=1536,layout=tp8 pp16"


@dataclass(frozen=True)
class TrainRequest(Shown, Request):
    """The training run to plan, its GPUs, and questions about the plan."""

    model: Annotated[
        str, Opt("--model", "A preset, FILE.toml, or dimensions: layers=32,hidden=4096,heads=32.", metavar="MODEL")
    ] = "llama3-8b"
    on: Annotated[str, Opt("--on", "A preset, or FILE.toml.", metavar="SYSTEM|FILE")] = "dgx-h100"
    _: KW_ONLY
    gpus: Annotated[int, Opt("-g --gpus", "Number of GPUs.", least=1, most=MOST_GPUS)] = 64
    batch: Annotated[int, Opt("--batch", "Samples per step, all GPUs together.")] = 512
    sequence: Annotated[int | None, Opt("--sequence", "Tokens of a sample.", "the model's")] = None
    precision: Annotated[str, Opt("--precision", "Type of matrix products.", metavar="bf16|fp8|tf32")] = "bf16"
    optimiser: Annotated[str, Opt("--optimiser", "adam, adam8bit, adam-bf16 or sgd.", metavar="NAME")] = "adam"
    gradients: Annotated[str, Opt("--gradients", "Type of gradients in sums and messages.", metavar="fp32|bf16")] = (
        "fp32"
    )
    stack: Annotated[
        str | None,
        Opt("--stack", f"Software: {', '.join(STACKS)}.", "that of the GPUs' published runs", metavar="NAME"),
    ] = None
    layout: Annotated[
        str | None, Opt("--layout", 'Fixed choices, such as "tp8 pp16 mb1 full zero1".', metavar="WORDS")
    ] = None
    top: Annotated[int, Opt("--top", "Layouts to show.", least=1, most=MOST_SHOWN)] = 10
    anchor: Annotated[
        str | None, Opt("--anchor", "A measured step: 32s, 45%, 32s,gpus=1024,layout=tp8 pp16.", metavar="STEP|MFU%")
    ] = None
    scale: Annotated[
        str | None, Opt("--scale", "Also plan on these numbers of GPUs: 8..8192 doubles.", metavar="N..N")
    ] = None
    compare_interconnects: Annotated[
        Names | None,
        Opt(
            "--compare-interconnects",
            "Also plan on these systems.",
            metavar="SYSTEM,...",
            complete="topology.files.names",
        ),
    ] = None
    price: Annotated[
        float | str | None,
        Opt("--price", "Price of a GPU-hour, by default in USD: 2.5, 2.5EUR.", metavar="PRICE", click={"type": str}),
    ] = None
    tokens: Annotated[
        str | None, Opt("--tokens", "Tokens of the run: 300B.", "as published, or 20 per active parameter", metavar="N")
    ] = None
    out: Annotated[
        Path | str | None, Opt("", "New folder in which the plan is stored; without it nothing is stored.")
    ] = None


@dataclass(frozen=True)
class TrainingPlan(Shown):
    """A planned training run: the layouts that fit, and if requested other sizes, systems and costs."""

    SHOWN = ("title", "request.price", "best", "ranked", "sizes", "systems")
    TABLE = "ranked"
    request: TrainRequest
    plan: Plan  # every layout that fits, and the setting
    ranked: tuple[PlannedStep, ...]  # the best of them
    anchor: PlannedStep | None  # the layout of the measured step
    sizes: tuple[OnSystem, ...]  # on other numbers of GPUs
    systems: tuple[OnSystem, ...]  # on the same number of GPUs; the requested system is first
    scaled: tuple[PlannedStep, ...]  # the sizes that fit, as rows of scaling
    priced: tuple[PlannedStep, ...]  # the sizes that fit, as rows of cost

    @property
    def best(self) -> PlannedStep:
        """The best layout: `implementation` is its name, `typical` its step in seconds."""
        return self.ranked[0]

    @property
    def title(self) -> str:
        """The model and the system."""
        return f"{self.plan.setting.job.model.name} on {self.plan.setting.machine.name}"

    def rows(self) -> Iterator[PlannedStep]:
        """Yield everything as rows of a run."""
        yield from (*self.ranked, *self.scaled, *self.priced)
        yield from _with_purpose(self.systems, "interconnect")

    def session(self, folder: Path | None) -> Session:
        """Return the session that stores the rows in a new folder, if given."""
        rows = list(self.rows())
        case = rows[0].case
        kinds = (case.collective,), (case.nbytes,), (case.dtype,), (case.redop,), case.ranks, ("nccl",)
        sweep = Sweep(*kinds, in_place=True, spin="auto", bind="core", sampling=Sampling())
        curves, ranks = self.plan.setting.curves, self.plan.setting.job.gpus
        topology = TopologyPart(
            name=self.title, platform="gpu", ranks=ranks, model=True, system=curves.system, curves=curves.origin
        )
        return Session(Predicted(topology, rows), sweep, launched(), folder, modelled=True)

    def run(self, out: Path | str | None = None) -> Run:
        """Return the plan as a run; store it in the new folder *out* if given, UsageError if that fails."""
        with self.session(Path(out) if out else None) as session:
            list(session.run())
        return session.as_run()


@takes(TrainRequest)
def train(request: TrainRequest) -> TrainingPlan:
    """Plan a training run, as `collbench train` does: layouts that fit, time of a step, and cost.

    Returns:
        `best` and `ranked` layouts, each with `implementation`, `typical` seconds of a step, `low`, `high`, `parts` and
        `memory`; `sizes`, `systems` and costs if requested.  `run()` returns all of it as rows.

    Raises:
        UsageError: A name does not exist, or no layout fits; the message says what would.

    >>> import collbench
    >>> plan = collbench.train("gpt3-175b", "dgx-a100", gpus=1024, batch=1536, layout="tp8 pp16")
    >>> plan.best.implementation, 29 < plan.best.typical < 35
    ('tp8 pp16 dp8 mb1 ddp full', True)

    """
    if request.tokens and request.price is None:
        raise UsageError("--tokens needs --price, the price of one GPU hour")
    money = {} if request.price is None else _parse_price(request.price)
    fixed = parse_layout(request.layout) if request.layout else {}
    setting, measured = _setting(request), None
    if request.anchor:
        setting, measured = anchored(setting, parse_anchor(request.anchor), fixed)
    plan = plan_on(setting, fixed)
    ranked = tuple(plan.ranked(request.top))
    tokens = _tokens(setting.job.model, request.tokens)
    counts = _counts(request.scale, setting.job.gpus, priced=bool(money))
    others = tuple(best_on(setting, fixed, count) for count in counts)
    systems = [find_system(name) for name in split_names(request.compare_interconnects or "")]
    compared = [
        best_on(setting, fixed, setting.job.gpus, system) for system in systems if system.name != setting.machine.name
    ]
    here = OnSystem(setting.machine.name, setting.job.gpus, ranked[0])
    planned = TrainingPlan(
        request=request,
        plan=plan,
        ranked=ranked,
        anchor=measured,
        sizes=others,
        systems=(here, *compared) if compared else (),
        scaled=tuple(_with_purpose(others, "scale")) if request.scale else (),
        priced=tuple(_with_purpose(others, "cost", total=tokens, **money)) if money else (),
    )
    if request.out:
        planned.run(request.out)
    return planned


def _with_purpose(places: Sequence[OnSystem], purpose: str, **money: Any) -> Iterator[PlannedStep]:
    """Yield the best layout of every place that has one, as a row of that purpose."""
    for place in places:
        if place.best:
            yield replace(place.best, purpose=purpose, system=place.system, **money)


def _setting(request: TrainRequest) -> PlanSetting:
    model = load_model(request.model)
    if request.sequence is not None:
        model = replace(model, sequence=request.sequence).checked()
    curves = _curves(request.on, request.gpus)
    machine = machine_of(curves.system)
    job = TrainingJob(
        model,
        request.gpus,
        request.batch,
        model.sequence,
        stack=request.stack or machine.stack,
        precision=request.precision,
        optimiser=request.optimiser,
        gradients=request.gradients,
    )
    return PlanSetting(job.checked(), curves, machine)


def _curves(on: str, gpus: int) -> ModelCurves:
    first, *others = map(str.strip, on.split(","))
    if others:
        instead = f"--on {first} --compare-interconnects {','.join(others)}"
        raise UsageError(f"--on {on} names several systems; to compare them, give {instead}")
    if Path(on).suffix == ".jsonl" or (Path(on) / NAME).exists():
        raise UsageError(f"--on {on} is a run; fit a system to it: collbench predict SYSTEM --fit {on} -o FILE.toml")
    return ModelCurves(find_system(on), gpus)


def _counts(scale: str | None, gpus: int, *, priced: bool) -> Sequence[int]:
    """Return the numbers of GPUs of scaling or costs."""
    if scale:
        counts = parse_numbers(scale)
        if counts and counts[0] and counts[-1] <= MOST_GPUS and len(counts) <= MOST_COUNTS:
            return counts
        most = f"at most {MOST_COUNTS} numbers, up to {MOST_GPUS} GPUs"
        raise UsageError(f"--scale {scale!r} is no list of GPUs; write 8..8192, which doubles, or 64,96,128: {most}")
    if not priced:
        return []
    # Powers of two around the requested number, and 1.5 times each.
    around: set[int] = set()
    for power in range(2 * AROUND.bit_length() - 1):
        step = gpus / AROUND * 2**power
        around.update(round(count) for count in (step, 1.5 * step) if count >= 1)
    return sorted(around)


def _tokens(model: Model, text: str | None) -> float:
    tokens = parse_count(text, "--tokens") if text else usual_tokens(model)
    if not 1 <= tokens <= 1e18:
        raise UsageError(f"--tokens {text} is impossible; give 1 to 1e18, such as 300B")
    return tokens


def _parse_price(value: float | str) -> dict[str, Any]:
    """Return the `price` of a GPU-hour and its `currency`, by default USD; UsageError for other text."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d+)?) ?([A-Z]{3})?", str(value).strip().upper(), re.ASCII)
    if not match or not float(match[1]):
        raise UsageError(f"--price {value} is no price of a GPU-hour; write one above 0, such as 2.5 or 2.5EUR")
    return {"price": float(match[1]), "currency": match[2] or "USD"}


@dataclass(frozen=True)
class Anchor:
    """A measured step, in seconds or as MFU, of the planned run or of another."""

    value: float
    utilisation: bool
    gpus: int = 0  # 0: those of the plan
    batch: int = 0  # 0: that of the plan
    fixed: Choices | None = None  # None: those of the plan


def parse_anchor(text: str) -> Anchor:
    """Return the anchor of `32s`, `450ms`, `45%` or `32s,gpus=1024,layout=tp8 pp16`; UsageError otherwise."""
    first, *words = (word.strip() for word in text.split(","))
    share = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*%", first)
    value = float(share[1]) / 100 if share else duration(first)
    if not value or (share and value > 1):
        raise UsageError(f"--anchor {text!r} is no measured step; {_FORM}")
    known: dict[str, int | Choices] = {}
    for word in words:
        name, _, value_of = word.partition("=")
        if name in ("gpus", "batch") and re.fullmatch(r"[1-9]\d{0,8}", value_of):
            known[name] = int(value_of)
        elif name == "layout":
            known["fixed"] = parse_layout(value_of)
        else:
            raise UsageError(f"--anchor {text!r}: unknown word {word!r}; {_FORM}")
    return Anchor(value, bool(share), **known)  # type: ignore[arg-type]


def anchored(given: PlanSetting, anchor: Anchor, fixed: Choices) -> tuple[PlanSetting, PlannedStep]:
    """Return the setting with the anchor's computing speed, and the anchor's layout; UsageError if no speed fits."""
    request = resized(given, anchor.gpus) if anchor.gpus else given
    request = replace(request, job=replace(request.job, batch=anchor.batch or request.job.batch).checked())
    plan = best_of(request, fixed if anchor.fixed is None else anchor.fixed)
    layout = layout_of(plan.implementation)
    requested = plan.typical * plan.utilisation / anchor.value if anchor.utilisation else anchor.value

    def at(efficiency: float) -> PlannedStep:
        return evaluate_layout(replace(request, job=replace(request.job, efficiency=efficiency)), layout)

    # Bisection in logarithms: the step gets shorter as computing gets faster.
    low, high = FASTEST, SLOWEST
    for _ in range(50):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if at(middle).typical > requested else (low, middle)
    if not FASTEST * 1.01 < middle < SLOWEST / 1.01:
        raise UsageError(
            f"--anchor {requested:.3g} s cannot be the step of {layout.name}, planned as {plan.typical:.3g} s, and "
            f"{at(SLOWEST).typical:.3g} s without computing; give layout= and gpus= of the measured run"
        )
    return replace(given, job=replace(given.job, efficiency=middle)), at(middle)


@dataclass(frozen=True)
class Gain:
    """The speed-up of a step from 10 % more of a resource, and from twice as much."""

    resource: str
    tenth: float
    twice: float


def _product(given: PlanSetting, factor: float, *names: str) -> PlanSetting:
    """Return the setting with these GPU figures multiplied by *factor*."""
    product = given.machine.product
    more = replace(product, **{name: getattr(product, name) * factor for name in names})
    return replace(given, machine=replace(given.machine, product=more))


RESOURCES: dict[str, Callable[[PlanSetting, float], PlanSetting]] = {
    "FLOP/s": lambda given, factor: _product(given, factor, "flops", "flops_fp8"),
    "memory bandwidth": lambda given, factor: _product(given, factor, "memory_rate"),
    "links inside a node": lambda given, factor: replace(given, inside=factor),
    "network cards": lambda given, factor: replace(given, across=factor),
}
"""Resources to vary, with their change of a setting; memory is separate, as it changes which layouts fit."""


def sensitivities(plan: Plan) -> list[Gain]:
    """Return the gains of the best layout from every resource, the largest first."""
    given, before = plan.setting, plan.best.typical
    layout = layout_of(plan.best.implementation)
    gains = []
    for name, change in RESOURCES.items():
        steps = [evaluate_layout(change(given, factor), layout).typical for factor in (1.1, 2.0)]
        gains.append(Gain(name, *(before / step for step in steps)))

    # More memory only lets other layouts fit.
    steps = [best_of(_product(given, factor, "memory"), plan.fixed).typical for factor in (1.1, 2.0)]
    gains.append(Gain("memory", *(max(1.0, before / step) for step in steps)))
    return sorted(gains, key=lambda gain: -gain.tenth)
