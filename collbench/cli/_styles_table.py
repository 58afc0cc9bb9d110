"""The race of styles as lines: a row for each run, and a table over seeds."""

from collections.abc import Iterator

from collbench.analysis.race import Race
from collbench.analysis.standings import COLUMNS, Standing, standings
from collbench.results import Result, Skipped, Trained, Untimed
from collbench.units import format_seconds

LEGEND = (
    "time: until the last rank was done; samples/s: of all ranks; steps: the fewest and the most of a rank\n"
    "age: of a gradient, in updates between reading weights and changing them, the mean; loss: on samples held out\n"
    "check: every update is held against NumPy's gradient in float64, within a bound on rounding that is proved"
)
_RUN = "{seed:>5}  {style:<17} {time:>9} {rate:>11} {steps:>11} {age:>5} {loss:>9}  {check}"
_OVERALL = "{style:<17} {seconds:>30} {steps:>24} {rate:>28} {ratio:>22}"


def heading() -> str:
    """The names of the columns of runs."""
    names = ("time", "steps", "age", "loss", "check")
    return _RUN.format(seed="seed", style="", rate="samples/s", **{name: name for name in names}).rstrip()


def row(result: Result) -> str:
    """One run."""
    seed = result.case.job.seed if result.case.job else ""
    if not isinstance(result, Trained) or not result.right:
        return f"{seed:>5}  {result.implementation:<17} {_reason(result)}"
    fewest, most = min(result.steps), max(result.steps)
    return _RUN.format(
        seed=seed,
        style=result.implementation,
        time=format_seconds(result.seconds),
        rate=f"{result.rate:,.0f}",
        steps=f"{fewest}" if fewest == most else f"{fewest} .. {most}",
        age=f"{result.age:.1f}",
        loss=f"{result.points[-1].loss:.4g}",
        check=", ".join(filter(None, [result.check, str(result.note)])),
    )


def _reason(result: Result) -> str:
    if isinstance(result, Untimed):
        return f"{'skipped' if isinstance(result, Skipped) else 'FAILED'}: {result.reason}"
    return f"WRONG: {result.wrong}"


def overall(race: Race) -> Iterator[str]:
    """A line for each style, the first to the target first."""
    names = dict(zip(Standing._fields, COLUMNS, strict=True))
    yield _OVERALL.format(**names | {"style": "", "seconds": f"seconds to loss {race.target:g}"}).rstrip()
    for standing in standings(race):
        yield _OVERALL.format(**standing._asdict()).rstrip()
