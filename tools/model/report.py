"""`make model-report`: fits the constants, leaves every operator out once, and writes what is left into docs/model.md.

Takes minutes.  It writes constants, bands and levels into collbench/model, and keeps the constants without each
operator in held_out.json, from which the tests take them.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from collbench.model.constants import Constants
from collbench.model.equation import Floats
from collbench.model.predict import LARGE, SMALL
from tools import ROOT, write_block
from tools.model.accuracy import Errors, errors, fitted, healthy, left_out, probes, smallest
from tools.model.classes import CLASSES, by_class, links
from tools.model.spread import bands, levels, sight_factors
from tools.model.systems import Published

HELD_OUT = Path(__file__).parent / "held_out.json"
PAGE, SHIPPED = ROOT / "docs" / "model.md", ROOT / "collbench" / "model"
MEASURED: dict[str, tuple[Callable[[Published], Iterable[int]], int]] = {  # and how many rows a sweep needs for it
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
    """The constants without each operator's machines, as the last report found them."""
    found: dict[str, Constants] = json.loads(HELD_OUT.read_text())
    return found


def tables(without: dict[str, Constants], sweeps: Sequence[Published]) -> dict[str, list[Errors]]:
    """Errors on every machine of a model that has seen none of its operator, by what of it was measured."""
    return {
        name: [errors(sweep, without[sweep.operator], choose(sweep)) for sweep in sweeps if len(sweep.rows) >= rows]
        for name, (choose, rows) in MEASURED.items()
    }


def together(found: Sequence[Errors], part: Part) -> Floats:
    """Relative errors of all rows of a part."""
    return np.concatenate([row.relative[np.asarray(part(row), bool)] for row in found])


def percent(share: float) -> str:
    """Of a relative error."""
    return f"{100 * share:.1f}"


def summary(found: dict[str, list[Errors]]) -> Iterable[str]:
    """A table of medians and ninth deciles."""
    yield "| measured before | part | median, % | p90, % | sweeps | rows |"
    yield "|---|---|---|---|---|---|"
    for name, every in found.items():
        for part, rows in PARTS.items():
            wrong = together(every, rows)
            sweeps = sum(bool(np.any(rows(prediction))) for prediction in every)
            low, high = percent(float(np.median(wrong))), percent(float(np.quantile(wrong, 0.9)))
            yield f"| {name} | {part} | {low} | {high} | {sweeps} | {len(wrong)} |"


def worst(found: dict[str, list[Errors]]) -> Iterable[str]:
    """The five sweeps with the largest median error, by what was measured."""
    yield "| measured before | sweep | median, % | p90, % |"
    yield "|---|---|---|---|"
    for name, every in found.items():
        for off in sorted(every, key=lambda one: -float(np.median(one.relative)))[:5]:
            middle, high = np.median(off.relative), np.quantile(off.relative, 0.9)
            yield f"| {name} | `{off.sweep.name}` | {percent(float(middle))} | {percent(float(high))} |"


@cache
def meanings() -> dict[str, str]:
    """What stands beside the constants in their module; KeyError later on for one that has none."""
    return dict(re.findall(r"(?m)^(\w+) = \S+  # (.+)$", (SHIPPED / "constants.toml").read_text()))


def main() -> None:
    """Fit, leave out, tell."""
    sweeps = healthy()
    known = fitted(sweeps)
    without = left_out(sweeps, known, lambda sweep: sweep.operator)
    HELD_OUT.write_text(json.dumps({name: _short(constants) for name, constants in without.items()}, indent=0) + "\n")
    found = tables(held_out(), sweeps)
    by_machine = left_out(sweeps, known, lambda sweep: sweep.machine)
    kin = [errors(sweep, by_machine[sweep.machine]) for sweep in sweeps]
    for name, lines in (
        ("errors", summary(found)),
        ("classes", by_class(found["nothing"], kin, found["five sizes"])),
        ("worst", worst(found)),
    ):
        text = list(lines)
        print("\n".join(text), end="\n\n")
        write_block(PAGE, name, text)
    ship(known, found)


def ship(known: Constants, found: dict[str, list[Errors]]) -> None:
    """Write what was fitted and measured into collbench/model: constants, bands, levels."""
    path = SHIPPED / "constants.toml"
    lines = [line for line in path.read_text().splitlines() if line.startswith("#")]
    lines += ["", *(f"{name} = {value!r}  # {meanings()[name]}" for name, value in _short(known).items())]
    path.write_text("\n".join(lines) + "\n")
    path = SHIPPED / "error_bands.toml"
    lines = [line for line in path.read_text().splitlines() if line.startswith("#")]
    for name, table in (
        ("bands", bands(found["nothing"])),
        ("calibrated_bands", bands(found["five sizes"])),
        ("levels", levels(found["nothing"])),
        ("calibrated_levels", levels(found["five sizes"])),
    ):
        lines += ["", f"[{name}]"]
        lines += [f"{json.dumps(kind)} = {[list(pair) for pair in sizes]!r}" for kind, sizes in table.items()]
    lines += ["", "[sight_factors]", *(f"{name} = {times}" for name, times in sight_factors(found["nothing"]).items())]
    path.write_text("\n".join(lines) + "\n")


def _short(known: Constants) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in known.items()}


if __name__ == "__main__":
    main()
