"""What more of a resource would bring to a plan, and plans that are anchored on a measured step."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from collbench.commands.train.layouts import Choices, layout_of, parse_layout
from collbench.commands.train.rows import PlannedStep
from collbench.commands.train.search import Plan, best_of, evaluate_layout, resized
from collbench.commands.train.setting import PlanSetting
from collbench.errors import UsageError
from collbench.units import duration

FASTEST, SLOWEST = 0.05, 5.0
"""What computing may reach of what is expected; beyond, the anchor is of something else."""
_FORM = "write it as 32s or 45%, and after commas gpus=1024, batch=1536, layout=tp8 pp16"


@dataclass(frozen=True)
class Anchor:
    """A measured step, in seconds or as model FLOPs utilisation, of this run or of another run."""

    value: float
    utilisation: bool
    gpus: int = 0  # 0: as many as are planned for; likewise the batch
    batch: int = 0
    fixed: Choices | None = None  # None: as is said of the layouts planned


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
            raise UsageError(f"--anchor {text!r}: {word!r} is no word of it; {_FORM}")
    return Anchor(value, bool(share), **known)  # type: ignore[arg-type]


def anchored(given: PlanSetting, anchor: Anchor, fixed: Choices) -> tuple[PlanSetting, PlannedStep]:
    """Return the setting with computing as fast as the anchor implies, and the plan of the anchor's layout.

    UsageError where no speed of computing explains the anchor.
    """
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
            f"{at(SLOWEST).typical:.3g} s without computing; give layout= and gpus= of the run that was measured"
        )
    return replace(given, job=replace(given.job, efficiency=middle)), at(middle)


@dataclass(frozen=True)
class Gain:
    """What more of a resource brings: the present step over the step with a tenth more, and with twice of it."""

    resource: str
    tenth: float
    twice: float


def _product(given: PlanSetting, factor: float, *names: str) -> PlanSetting:
    """Return the setting with these figures of a GPU multiplied."""
    product = given.machine.product
    more = replace(product, **{name: getattr(product, name) * factor for name in names})
    return replace(given, machine=replace(given.machine, product=more))


RESOURCES: dict[str, Callable[[PlanSetting, float], PlanSetting]] = {
    "FLOP/s": lambda given, factor: _product(given, factor, "flops", "flops_fp8"),
    "memory bandwidth": lambda given, factor: _product(given, factor, "memory_rate"),
    "links inside a node": lambda given, factor: replace(given, inside=factor),
    "network cards": lambda given, factor: replace(given, across=factor),
}
"""What there can be more of, and how a setting changes with it; memory is another matter: it changes what fits."""


def sensitivities(plan: Plan) -> list[Gain]:
    """Return what a tenth more and twice of every resource bring to the best layout, largest gain first."""
    given, before = plan.setting, plan.best.typical
    layout = layout_of(plan.best.implementation)
    gains = []
    for name, change in RESOURCES.items():
        steps = [evaluate_layout(change(given, factor), layout).typical for factor in (1.1, 2.0)]
        gains.append(Gain(name, *(before / step for step in steps)))

    # More memory makes no step faster by itself; it lets other layouts fit.
    steps = [best_of(_product(given, factor, "memory"), plan.fixed).typical for factor in (1.1, 2.0)]
    gains.append(Gain("memory", *(max(1.0, before / step) for step in steps)))
    return sorted(gains, key=lambda gain: -gain.tenth)
