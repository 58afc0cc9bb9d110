"""`make train-report`: the planner's constants, and its errors in docs/training.md.

It prints the constants for collbench/commands/train/rates.toml.  Three errors are compared: with the shipped constants
and no anchor, with constants fitted without the table, and with one step of the table as anchor.
"""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from collbench.commands.train.layouts import Layout, layout_of
from collbench.commands.train.search import values_of
from collbench.commands.train.setting import FITTED, Constants, machine_of
from collbench.topology.files import load
from tools import ROOT, block
from tools import table as markdown
from tools.training.accuracy import anchor, chosen, given, mean_error, miss, misses, published_seconds
from tools.training.published import FITTED_TO, TABLES, Table

SHARED = {"fused": 0.5, "half": 2000.0, "fp8": 0.9, "older": 0.9}
"""Constants that are fitted to dense models of all generations together, and the start of their search."""
EXPERTS = {"narrow": 1000.0, "few": 200.0}
"""The same for models with experts, fitted afterwards, because their runs differ most."""
PRODUCTS = 0.6
"""The start of the search for matrix products, which each generation has for itself."""
STEP = 1e-3  # relative step of the search's derivatives
HELD = 0.01  # weight of the starting values: half as far again counts as a table off by 0.4 %
Fit = Mapping[int, Constants]
Layouts = Mapping[tuple[str, str], Layout]


def fit(tables: Sequence[Table]) -> Fit:
    """Return the constants with the smallest mean square of the steps' logarithmic errors, with equal table weights."""
    layouts = {}
    for table in tables:
        for row in table.rows:
            layouts[table.name, row.label] = layout_of(chosen(given(table, row), row).implementation)
    experts = [table for table in tables if table.rows[0].model.experts]
    dense = [table for table in tables if table not in experts]

    def with_dense(values: Sequence[float]) -> Fit:
        products, shared = values[: len(FITTED)], dict(zip(SHARED, values[len(FITTED) :], strict=True))
        ages = zip(FITTED, products, strict=True)
        return {age: replace(FITTED[age], products=product, **shared) for age, product in ages}

    known = with_dense(_least(dense, with_dense, [PRODUCTS] * len(FITTED) + list(SHARED.values()), layouts))

    def with_experts(values: Sequence[float]) -> Fit:
        more = dict(zip(EXPERTS, values, strict=True))
        return {age: replace(one, **more) for age, one in known.items()}

    return with_experts(_least(experts, with_experts, list(EXPERTS.values()), layouts))


def _least(
    tables: Sequence[Table], constants: Callable[[Sequence[float]], Fit], start: list[float], layouts: Layouts
) -> list[float]:
    """Return the positive values that fit best, near the start if no table depends on them."""
    begin = np.log(start)

    def residuals(logarithms: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> Any:
        known = constants(np.exp(logarithms).tolist())
        parts = [_errors(table, known[generation(table)], layouts) for table in tables]
        return np.concatenate([HELD * (logarithms - begin), *(part / len(part) ** 0.5 for part in parts)])

    found: list[float] = np.exp(least_squares(residuals, begin, diff_step=STEP).x).tolist()
    return found


def generation(table: Table) -> int:
    return machine_of(load(table.system)).constants.generation


def _errors(table: Table, known: Constants, layouts: Layouts) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    found = []
    for row in table.rows:
        request = given(table, row, known)
        values = values_of(request, layouts[table.name, row.label])
        found.append(np.log(float(values["step"]) / published_seconds(table, row, request.machine.product.flops)))
    return np.array(found)


def every_anchor(table: Table, known: Constants | None = None) -> list[float]:
    """Return the mean errors with each row of a table as its anchor, in order."""
    errors = []
    for place in range(len(table.rows)):
        efficiency = anchor(table, known, place)
        errors.append(mean_error(miss(table, row, known, efficiency) for row in table.rows))
    return errors


def summary() -> list[str]:
    """Return a table with a row for every published table."""
    rows = []
    for table in TABLES:
        without = fit([other for other in FITTED_TO if other is not table]) if table in FITTED_TO else None
        known = without[generation(table)] if without else None
        left_out = f"{mean_error(misses(table, known)):.1%}" if without else "not fitted to"
        anchored = every_anchor(table)
        errors = f"{mean_error(misses(table)):.1%}", left_out, f"{anchored[0]:.1%}", f"{max(anchored):.1%}"
        rows.append([table.name, str(len(table.rows)), *errors, "; ".join(table.others) or "-"])
    heads = ("published", "rows", "zero-anchor", "left out", "anchored, first row", "worst row as anchor")
    return markdown((*heads, "others publish"), rows)


def strangers() -> list[str]:
    """Return a table by operator, without an anchor: as shipped, and with the operator's runs left out of the fit.

    NVIDIA's are not left out: all runs of 8 bits, of experts and of older software are theirs.
    """
    found: dict[str, list[float]] = {}
    operators = {table.operator for table in FITTED_TO} - {"NVIDIA"}
    without = {}
    for name in operators:
        without[name] = fit([table for table in FITTED_TO if table.operator != name])
    for table in TABLES:
        seen = "in the fit" if table in FITTED_TO else "not in the fit"
        found.setdefault(f"{table.operator}, {seen}", []).extend(one.relative for one in misses(table))
        if table.operator in operators:
            known = without[table.operator][generation(table)]
            left = found.setdefault(f"{table.operator}, all left out of the fit", [])
            left.extend(one.relative for one in misses(table, known))
    ends = ("not in the fit", "left out of the fit")
    unseen = {name: errors for name, errors in found.items() if name.endswith(ends)}
    others = [errors for name, errors in unseen.items() if not name.startswith("NVIDIA")]
    totals = [
        ("all that no fit has seen", [*chain(*unseen.values())]),
        ("of these, run by operators that no fit has seen", [*chain(*others)]),
    ]
    rows = []
    for name, errors in [*found.items(), *totals]:
        rows.append([name, str(len(errors)), f"{np.abs(errors).mean():.1%}", f"{np.mean(errors):+.1%}"])
    return markdown(("run by", "runs", "mean error", "signed"), rows)


def runs() -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("published", "run", "layout", "published_seconds", "planned_seconds", "error", "anchored_error"))
    for table in TABLES:
        for plain, anchored in zip(misses(table), misses(table, anchored=True), strict=True):
            seconds = f"{plain.published:.3g}", f"{plain.planned:.3g}"
            errors = f"{plain.relative:+.1%}", f"{anchored.relative:+.1%}"
            writer.writerow((table.name, plain.row.label, plain.layout.name, *seconds, *errors))
    return text.getvalue()


def written() -> Iterator[tuple[Path, str]]:
    """Print the fitted constants; yield the page with its tables, and the CSV."""
    for age, known in fit(FITTED_TO).items():
        values = ", ".join(f"{name} {getattr(known, name):.4g}" for name in ("products", *SHARED, *EXPERTS))
        print(f"sm{age}: {values}; shipped {FITTED[age]}")
    yield block("docs/training.md", "summary", summary())
    yield block("docs/training.md", "strangers", strangers())
    yield ROOT / "docs" / "training-runs.csv", runs()
