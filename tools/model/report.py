"""`make model-report`: the model's constants, bands and levels, and the error tables of docs/model.md.

The constants are fitted to all machines, and once more without each operator, which gives the errors.  held_out.json
keeps the constants without each operator for tests.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from collbench.model.constants import Constants
from collbench.model.equation import Floats
from collbench.model.predict import LARGE, SMALL
from tools import ROOT, block, table
from tools.model.accuracy import Errors, errors, fitted, healthy, left_out, probes, smallest
from tools.model.classes import CLASSES, by_class, links
from tools.model.spread import bands, levels, sight_factors
from tools.model.systems import Published

HELD_OUT = Path(__file__).parent / "held_out.json"
SHIPPED = ROOT / "collbench" / "model"
MEASURED: dict[str, tuple[Callable[[Published], Iterable[int]], int]] = {  # and the number of rows that a sweep needs
    "nothing": (lambda sweep: (), 1),
    "three smallest sizes": (smallest, 5),
    "five sizes": (probes, 7),
}
Part = Callable[[Errors], Floats]
PARTS: dict[str, Part] = {
    "all": lambda misses: np.ones(len(misses.nbytes), bool),
    "all but Slingshot": lambda misses: _all(misses, not CLASSES["Slingshot"](misses.sweep)),
    "one node of NVLinks": lambda misses: _all(misses, links(misses.sweep)),
    "nodes, above 64 MiB": lambda misses: _all(misses, misses.sweep.system.nodes > 1) & (misses.nbytes > LARGE),
    "64 KiB to 64 MiB": lambda misses: (misses.nbytes >= SMALL) & (misses.nbytes <= LARGE),
}


def _all(misses: Errors, wanted: bool) -> Floats:
    return np.full(len(misses.nbytes), wanted)


def held_out() -> dict[str, Constants]:
    """Return the constants without each operator's machines, of the last report."""
    found: dict[str, Constants] = json.loads(HELD_OUT.read_text())
    return found


def tables(without: dict[str, Constants], sweeps: Sequence[Published]) -> dict[str, list[Errors]]:
    """Return the errors on every machine, with constants without its operator, by the sizes measured before."""
    found = {}
    for name, (choose, rows) in MEASURED.items():
        long = [sweep for sweep in sweeps if len(sweep.rows) >= rows]
        found[name] = [errors(sweep, without[sweep.operator], choose(sweep)) for sweep in long]
    return found


def together(found: Sequence[Errors], part: Part) -> Floats:
    return np.concatenate([row.relative[np.asarray(part(row), bool)] for row in found])


def middle_and_high(errors: Floats) -> tuple[str, str]:
    """Return the median and the ninth decile of relative errors, in per cent."""
    return f"{100 * np.median(errors):.1f}", f"{100 * np.quantile(errors, 0.9):.1f}"


def summary(found: dict[str, list[Errors]]) -> list[str]:
    """Return a table of medians and ninth deciles."""
    rows = []
    for name, every in found.items():
        for part, chosen in PARTS.items():
            wrong = together(every, chosen)
            sweeps = sum(bool(np.any(chosen(prediction))) for prediction in every)
            rows.append([name, part, *middle_and_high(wrong), str(sweeps), str(len(wrong))])
    return table(("measured before", "part", "median, %", "p90, %", "sweeps", "rows"), rows)


def worst(found: dict[str, list[Errors]]) -> list[str]:
    """Return a table of the five sweeps with the largest median error, by what was measured."""
    rows = []
    for name, every in found.items():
        for off in sorted(every, key=lambda one: -float(np.median(one.relative)))[:5]:
            rows.append([name, f"`{off.sweep.name}`", *middle_and_high(off.relative)])
    return table(("measured before", "sweep", "median, %", "p90, %"), rows)


@cache
def meanings() -> dict[str, str]:
    """Return the comments of the constants; a constant without one raises KeyError later."""
    return dict(re.findall(r"(?m)^(\w+) = \S+  # (.+)$", (SHIPPED / "constants.toml").read_text()))


def written() -> Iterator[tuple[Path, str]]:
    """Fit, leave out, and yield the constants, the tables of docs/model.md, and the bands and levels."""
    sweeps = healthy()
    known = fitted(sweeps)
    without = left_out(sweeps, known, lambda sweep: sweep.operator)
    yield HELD_OUT, json.dumps({name: _short(constants) for name, constants in without.items()}, indent=0) + "\n"
    found = tables({name: _short(constants) for name, constants in without.items()}, sweeps)
    by_machine = left_out(sweeps, known, lambda sweep: sweep.machine)
    kin = [errors(sweep, by_machine[sweep.machine]) for sweep in sweeps]
    yield block("docs/model.md", "errors", summary(found))
    yield block("docs/model.md", "classes", by_class(found["nothing"], kin, found["five sizes"]))
    yield block("docs/model.md", "worst", worst(found))
    values = [f"{name} = {value!r}  # {meanings()[name]}" for name, value in _short(known).items()]
    yield _below_its_head("constants.toml", ["", *values])
    yield _below_its_head("error_bands.toml", _bands(found))


def _below_its_head(name: str, lines: Iterable[str]) -> tuple[Path, str]:
    """Return a file of collbench/model, and its text with these lines below its comments."""
    path = SHIPPED / name
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    return path, "\n".join([*head, *lines]) + "\n"


def _bands(found: dict[str, list[Errors]]) -> Iterator[str]:
    for name, by_kind in (
        ("bands", bands(found["nothing"])),
        ("calibrated_bands", bands(found["five sizes"])),
        ("levels", levels(found["nothing"])),
        ("calibrated_levels", levels(found["five sizes"])),
    ):
        yield from ("", f"[{name}]")
        yield from (f"{json.dumps(kind)} = {[*map(list, sizes)]!r}" for kind, sizes in by_kind.items())
    yield from ("", "[sight_factors]")
    yield from (f"{name} = {times}" for name, times in sight_factors(found["nothing"]).items())


def _short(known: Constants) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in known.items()}
