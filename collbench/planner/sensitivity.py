"""Why a layout comes first, what more of a resource would bring, and plans that are anchored on a measured step."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf

import numpy as np

from collbench.analysis.plans import UNHIDDEN
from collbench.errors import UsageError
from collbench.planner.curves import TYPICAL, Array, Curve, Curves, Group, ModelCurves
from collbench.planner.layouts import Choices, Layout, parse_layout
from collbench.planner.search import EQUAL, Plan, Planned, best_of, evaluate_layout, resized
from collbench.planner.setting import Setting
from collbench.results import words
from collbench.topology.system import System
from collbench.units import duration, format_seconds

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


def anchored(given: Setting, anchor: Anchor, fixed: Choices) -> tuple[Setting, Planned]:
    """Return the setting with computing as fast as the anchor implies, and the layout of the anchor.

    UsageError where no speed of computing explains the anchor.
    """
    request = resized(given, anchor.gpus) if anchor.gpus else given
    request = replace(request, loader=inf, job=replace(request.job, batch=anchor.batch or request.job.batch).checked())
    named = fixed if anchor.fixed is None else anchor.fixed
    layout = best_of(request, named)
    requested = layout.step * layout.utilisation / anchor.value if anchor.utilisation else anchor.value
    low, high = FASTEST, SLOWEST
    for _ in range(50):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _at(request, layout, middle).step > requested else (low, middle)
    if not FASTEST * 1.01 < middle < SLOWEST / 1.01:
        fastest = _at(request, layout, SLOWEST).step
        raise UsageError(
            f"--anchor {requested:.3g} s cannot be the step of {layout.layout.name}, planned as {layout.step:.3g} s, "
            f"and {fastest:.3g} s without computing; give layout= and gpus= of the run that was measured"
        )
    return replace(given, job=replace(given.job, efficiency=middle)), _at(request, layout, middle)


def _at(given: Setting, layout: Planned, efficiency: float) -> Planned:
    return evaluate_layout(replace(given, job=replace(given.job, efficiency=efficiency)), layout.layout)


MORE = 1.1
"""Of a resource, for a sensitivity."""


@dataclass(frozen=True)
class Gain:
    """What more of a resource brings: the present step over the step with more of it."""

    resource: str
    factor: float


class Faster:
    """Curves with so many times the bandwidth, as if the library used all of it: inside a node, or across nodes."""

    def __init__(self, curves: Curves, factor: float, across: bool) -> None:
        self.system, self.origin = curves.system, curves.origin
        self._curves, self._factor, self._across = curves, factor, across

    def curve(self, collective: str, group: Group) -> Curve:
        """Return the known curve, with more bandwidth where it applies."""
        known = self._curves.curve(collective, group)
        return _Shorter(known, self._factor) if (group.nodes > 1) == self._across else known


@dataclass(frozen=True)
class _Shorter:
    known: Curve
    factor: float

    def time(self, nbytes: Array, edge: str = TYPICAL) -> Array:
        """Return the seconds at these sizes: latency stays, all beyond it is shorter."""
        seconds = self.known.time(nbytes, edge)
        latency = np.minimum(self.known.time(np.asarray(1.0), edge), seconds)
        return np.asarray(latency + (seconds - latency) / self.factor)


Change = Callable[[Setting, float], Setting | None]


def _product(given: Setting, factor: float, *names: str) -> Setting:
    """Return the setting with these figures of a GPU multiplied."""
    product = given.machine.product
    more = replace(product, **{name: getattr(product, name) * factor for name in names})
    return replace(given, machine=replace(given.machine, product=more))


def _links(given: Setting, factor: float, across: bool) -> Setting | None:
    gpus = given.curves.system.gpus
    used = given.job.gpus > gpus if across else gpus > 1 and given.job.gpus > 1
    return replace(given, curves=Faster(given.curves, factor, across)) if used else None


def _loader(given: Setting, factor: float) -> Setting | None:
    return replace(given, loader=given.loader * factor) if np.isfinite(given.loader) else None


RESOURCES: dict[str, Change] = {
    "FLOP/s": lambda given, factor: _product(given, factor, "flops", "flops_fp8"),
    "memory bandwidth": lambda given, factor: _product(given, factor, "memory_rate"),
    "links inside a node": partial(_links, across=False),
    "network cards": partial(_links, across=True),
    "rate of loading samples": _loader,
}
"""What there can be more of, and how a setting changes with it; memory is another matter: it changes what fits."""
LINKS = ("links inside a node", "network cards")


def sensitivities(given: Setting, layout: Layout, fixed: Choices) -> list[Gain]:
    """Return what ten per cent more of every resource brings, largest gain first."""
    before = evaluate_layout(given, layout).step
    changed = {name: change(given, MORE) for name, change in RESOURCES.items()}
    gains = [Gain(name, before / evaluate_layout(one, layout).step) for name, one in changed.items() if one]
    gains.append(Gain("memory", max(1.0, before / best_of(_product(given, MORE, "memory"), fixed).step)))
    return sorted(gains, key=lambda gain: -gain.factor)


def explain_best(plan: Plan) -> list[str]:
    """Return sentences: what the best layout spends its step on, what bounds it, and what its neighbours lose."""
    best = plan.best
    shares = {name: seconds / best.step for name, seconds in best.parts.items()}
    largest = sorted(shares.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{words(name)} {share:.0%}" for name, share in largest if share >= 0.005)
    # A layout that is likely slower, but depends on more certain curves.
    surest = min(plan.ranked(), key=lambda planned: planned.high)
    surer = []
    if surest.high < best.high / (1 + EQUAL):
        loss, ends = surest.step / best.step - 1, (format_seconds(surest.high), format_seconds(best.high))
        surer.append(f"{surest.layout.name} is likely {loss:.1%} slower, but its band ends at {ends[0]}, not {ends[1]}")
    return [
        f"{best.layout.name}: {listed}",
        *_exposed(plan.setting, best),
        *_neighbours(plan.setting, best),
        *surer,
        *_starving(plan.setting, best),
    ]


def _exposed(given: Setting, best: Planned) -> Iterator[str]:
    """Yield which links hold the step up most besides computing, and what twice of their rate would bring."""
    faster = {name: RESOURCES[name](given, 2.0) for name in LINKS}
    gains = {name: best.step / evaluate_layout(one, best.layout).step for name, one in faster.items() if one}
    resource = max(gains, key=lambda name: gains[name], default="")
    if gains.get(resource, 1.0) <= 1 + EQUAL:
        yield f"next bottleneck: none but computing; no link of twice the rate makes the step {EQUAL:.0%} faster"
        return
    most, share = max(UNHIDDEN, key=best.parts.__getitem__), sum(best.parts[name] for name in UNHIDDEN) / best.step
    rates = f" ({_rates(given.curves.system, resource)})" if isinstance(given.curves, ModelCurves) else ""
    what = f"{share:.1%} of the step is communication, most of it {words(most)}"
    yield f"next bottleneck: {resource}{rates}; {what}; twice the rate makes the step {gains[resource]:.2f}x as fast"


def _rates(system: System, resource: str) -> str:
    if resource == "network cards" and system.nics:
        rate = system.nics.rate * 8 / 1e9
        return f"{rate:.0f} -> {2 * rate:.0f} Gb/s a card"
    return f"{system.gpu_rate / 1e9:.0f} -> {2 * system.gpu_rate / 1e9:.0f} GB/s a GPU"


def _neighbours(given: Setting, best: Planned) -> Iterator[str]:
    """Yield what twice, or half, of a kind of parallelism would change, with all other choices made anew."""
    kinds = {"tensor": "tp", "pipeline": "pp", "context": "cp"}
    for name, short in kinds.items():
        for size in (2 * getattr(best.layout, name), getattr(best.layout, name) // 2):
            same = {other: getattr(best.layout, other) for other in (*kinds, "expert")} | {name: size}
            if size < 1 or (name == "context" and best.layout.context == 1):
                continue
            try:
                other = best_of(given, same)
            except UsageError:
                continue
            what = f"{short}{size} instead of {short}{getattr(best.layout, name)}"
            yield compared(best, other, what, given.capacity)


def compared(best: Planned, other: Planned, what: str, capacity: float) -> str:
    """Return what another layout loses against the best in time, or why it is not the best although it gains."""
    if other.needed > capacity:
        return f"{what} does not fit: {(other.needed - capacity) / 2**30:.1f} GiB short"
    changes = {name: other.parts[name] - best.parts[name] for name in best.parts}
    most = max(changes, key=lambda name: changes[name])
    loss = other.step / best.step - 1
    if abs(loss) < 0.0005:
        return f"{what} is as fast"
    if loss < 0:  # and yet it comes later
        gain = best.step / other.step - 1
        more = round((other.needed - best.needed) / 2**30, 1)
        memory = f"for {more:.1f} GiB more" if more > 0 else f"with {-more:.1f} GiB less" if more else ""
        return ", ".join(filter(None, (f"{what} is {gain:.1%} faster", "as good as nothing" * (gain <= EQUAL), memory)))
    return f"{what} is {loss:.1%} slower: {words(most)} {changes[most]:+.3g} s"


def _starving(given: Setting, best: Planned) -> Iterator[str]:
    needed = given.job.batch / float(best.values["busy"])
    if lost := best.parts["loading"] / best.step:
        yield f"GPUs wait for samples {lost:.0%} of the step: {given.loader:.4g}/s come, they take {needed:.4g}/s"
    elif np.isfinite(given.loader):
        yield f"samples come fast enough: {given.loader:.4g}/s, the GPUs take {needed:.4g}/s"
