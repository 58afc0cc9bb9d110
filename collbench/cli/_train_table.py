"""What `collbench train` prints: the ranking, the memory of the best, why it is, and what else was asked for."""

from collections.abc import Iterator, Sequence

from collbench.analysis.plans import UNHIDDEN, cheapest, front, leaving, scaled
from collbench.planner.advice import Gain
from collbench.planner.footprint import PARTS as MEMORY_PARTS
from collbench.planner.planner import Planned
from collbench.planner.planning import Plan
from collbench.planner.setting import Setting
from collbench.planner.sizes import Elsewhere, Size
from collbench.results import PlannedStep, words
from collbench.topology.products import GIB
from collbench.units import format_count, format_duration, format_seconds

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
    """What is planned, on what, by which curves."""
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
    """The table of layouts."""
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
    """What a GPU's memory is needed for."""
    lines = {words(name): best.memory[name] for name in MEMORY_PARTS if best.memory[name] >= 2**20}
    lines[f"all, of {given.capacity / GIB:.3g} GiB"] = best.needed
    yield f"memory of a GPU, {best.layout.name}"
    for name, size in lines.items():
        yield f"  {name:<22} {size / GIB:>8.2f} GiB {size / given.capacity:>5.0%}"


def gains(most_first: Sequence[Gain]) -> Iterator[str]:
    """Sensitivity."""
    yield "ten per cent more of"
    for gain in most_first:
        yield f"  {gain.resource:<24} gives {gain.factor:.3f}x"


def scaling(sizes: Sequence[Size], rows: Sequence[PlannedStep]) -> Iterator[str]:
    """By the number of GPUs; `rows` are those that fit, in their order."""
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
        kept = f"{curves[0].efficiency(row):>10.1%}" if curves else ""
        yield (
            f"{row.gpus:>7,}  {row.implementation:<{width}} {format_seconds(row.typical):>8} {band:>19} "
            f"{format_count(row.tokens / row.typical):>9} {kept}"
        )
    for curve in curves:
        words = [
            f"{level:.0%} {f'beyond about {gpus:,.0f} GPUs' if gpus else 'nowhere up to there'}"
            for level, gpus in leaving(curve).items()
        ]
        yield f"against {curve.rows[0].gpus:,} GPUs, the same batch: it leaves {', '.join(words)}"


def elsewhere(places: Sequence[Elsewhere], price: float = 0.0) -> Iterator[str]:
    """By the system; with a price, what a million tokens cost."""
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
    """What tables say of a layout."""
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


def costs(rows: Sequence[PlannedStep], deadline: float) -> Iterator[str]:
    """By the number of GPUs; those that no other one beats have a mark, and the cheapest that is done in time."""
    best, chosen = front(rows), cheapest(rows, deadline) if deadline else None
    yield f"{'GPUs':>7}  {'whole run':>10} {'cost':>12} {'of 1M tokens':>13}"
    for row in rows:
        marks = [*(["Pareto"] if row in best else []), *(["cheapest in time"] if row is chosen else [])]
        yield (
            f"{row.gpus:>7,}  {format_duration(row.seconds):>10} {row.cost:>12,.0f} {row.cost / row.total * 1e6:>13.4g}"
            + (f"  {', '.join(marks)}" if marks else "")
        )
    if deadline and not chosen:
        quickest = min(rows, key=lambda row: row.seconds)
        wanted, needed = format_duration(deadline), format_duration(quickest.seconds)
        yield f"none is done in {wanted}: the quickest, {quickest.gpus:,} GPUs, takes {needed}"
