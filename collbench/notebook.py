"""Representations of library objects: one line in a console, a table in a notebook."""

import math
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from html import escape
from importlib import import_module
from operator import attrgetter, itemgetter
from typing import Any, ClassVar

from collbench.errors import UsageError
from collbench.present.columns import Column, html
from collbench.units import format_rate, format_seconds, format_size, printable

_LONGEST, _LONGEST_TEXT = 200, 120  # characters of a line, and of a text in it
_MOST = 40  # rows of a table
_TIMES = "seconds low high fastest p95 p99 slowest floor step before after latency typical expected"
_UNITS: dict[str, Callable[[float], str]] = {
    **dict.fromkeys(_TIMES.split(), format_seconds),
    **dict.fromkeys(("nbytes", "needed", "half_size"), format_size),
    **dict.fromkeys(("algbw", "busbw", "rate"), lambda rate: f"{format_rate(rate)} GB/s"),
    "utilisation": lambda share: f"{100 * share:.3g} %",
    "ratio": lambda ratio: f"{ratio:.3g}x",
}


class Shown:
    """A dataclass with a short repr, which a notebook shows as a table."""

    SHOWN: ClassVar[tuple[str, ...]] = ()  # shown attributes; by default all fields
    TABLE: ClassVar[str] = ""  # attribute with the table's rows; by default the object is the only row

    def __init_subclass__(cls) -> None:
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]  # keeps @dataclass from writing one

    def __repr__(self) -> str:
        texts = [(name, _text(name, value)) for name, value in self.shown().items()]
        line = f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in texts if text)})"
        return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 4]}...)"

    def shown(self) -> dict[str, Any]:
        """Return the shown attributes by name."""
        names = self.SHOWN or getattr(self, "__dataclass_fields__", ())
        return {name.rpartition(".")[2]: attrgetter(name)(self) for name in names}

    def records(self) -> Iterable[Mapping[str, Any]]:
        """Return the rows that a notebook shows."""
        rows = getattr(self, self.TABLE) if self.TABLE else [self]
        return [row.shown() for row in rows]

    def to_pandas(self) -> Any:
        """Return the records as a pandas.DataFrame; UsageError where pandas is not installed."""
        return _optional("pandas").DataFrame(self.records())

    def to_arrow(self) -> Any:
        """Return the records as a pyarrow.Table; UsageError where pyarrow is not installed."""
        return _optional("pyarrow").Table.from_pylist(self.records())

    def to_polars(self) -> Any:
        """Return the records as a polars.DataFrame; UsageError where polars is not installed."""
        # Polars takes types from the first 100 rows by default, but a column may be None in all of these.
        return _optional("polars").DataFrame(self.records(), infer_schema_length=None)

    def _repr_html_(self) -> str:
        """Return the object as notebooks show it; a run file may hold anything, so every text is escaped."""
        return f"<p>{escape(repr(self).strip('<>'))}</p>{_table(self.records())}"


def _optional(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise UsageError(f"{package} is not installed, and this needs it; fix: pip install {package}") from None


def _text(name: str, value: Any) -> str:
    """Return a value as a short text: a name, a number, or a count and type; "" if there is nothing to show."""
    if isinstance(value, int | float):
        if not value or not math.isfinite(value):
            return ""
        return _UNITS[name](value) if name in _UNITS else f"{value:.6g}"
    if isinstance(value, Enum):
        value = value.value
    value = getattr(value, "name", value)
    if value is None or callable(value) or (isinstance(value, str | list | tuple | Mapping) and not value):
        return ""
    text = printable(str(value))
    if len(text) <= _LONGEST_TEXT:
        return text
    if isinstance(value, str):
        return f"{text[: _LONGEST_TEXT - 3]}..."
    if isinstance(value, list | tuple | Mapping):
        return f"<{len(value)} {type(next(iter(value))).__name__}>"
    return f"<{type(value).__name__}>"


def _table(records: Iterable[Mapping[str, Any]]) -> str:
    every = list(records)
    columns = [Column[Mapping[str, Any]](name, itemgetter(name), partial(_text, name)) for name in (every or [{}])[0]]
    more = f"<p>and {len(every) - _MOST} more</p>" if len(every) > _MOST else ""
    return html(columns, every[:_MOST]) + more
