"""The published training runs of published.toml: the models, the GPUs, the layouts, and the times."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from collbench.commands.train.layouts import Choices
from collbench.commands.train.models import MODELS, Model


class Row(NamedTuple):
    """One run; `value` is in the table's unit."""

    label: str
    model: Model
    gpus: int
    batch: int
    fixed: Choices
    value: float
    sequence: int = 0  # 0: the table's
    precision: str = "bf16"


@dataclass(frozen=True)
class Table:
    """Runs by the same operator with the same software on the same machine."""

    name: str
    source: str
    system: str
    stack: str
    unit: str  # "TFLOP/s, recomputed counted", "TFLOP/s", "tokens/s/GPU", "MFU" or "s"
    rows: tuple[Row, ...]
    gradients: str = "fp32"
    sequence: int = 0  # 0: the model's
    operator: str = "NVIDIA"  # the fit leaves out operators as a whole
    others: tuple[str, ...] = ()  # published errors of other models for the same runs


_RECORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_MODELS = MODELS | {name: Model(**{"name": name} | fields) for name, fields in _RECORDS["models"].items()}


def _table(rows: list[dict[str, Any]], fixed: dict[str, Any] | None = None, others: Any = (), **facts: Any) -> Table:
    return Table(rows=tuple(_row(row, fixed or {}) for row in rows), others=tuple(others), **facts)


def _row(record: dict[str, Any], fixed: dict[str, Any]) -> Row:
    """Return a run; fields that a run does not have fix the layout."""
    facts = {name: value for name, value in record.items() if name in Row._fields}
    more = {name: value for name, value in record.items() if name not in Row._fields}
    return Row(**facts | {"model": _MODELS[record["model"]], "fixed": fixed | more})


_FITTED = [record.pop("fitted", False) for record in _RECORDS["table"]]
TABLES = tuple(_table(**record) for record in _RECORDS["table"])
FITTED_TO = tuple(table for table, fitted in zip(TABLES, _FITTED, strict=True) if fitted)
"""Tables that the constants are fitted to; no fit sees the others, except for ZeRO-3's rate of gathering."""


def named(name: str) -> Table:
    return next(table for table in TABLES if table.name == name)
