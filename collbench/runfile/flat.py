"""Rows of a run as flat records, in bytes, seconds and bytes per second: for JSON, data frames and other programs.

The names are those of the tidy CSV (collbench/formats/tidy.py) where it has them.  The samples themselves are in the
run file; here are their number, their median with its 95 % interval, and percentiles.
"""

import json
import math
from collections.abc import Iterable
from typing import Any

from collbench.errors import UsageError
from collbench.measurement import Measurement, Result, Untimed
from collbench.observed import Observed, Timed
from collbench.runfile.header import Header
from collbench.runfile.records import case_fields

PERCENTILES = {"fastest": 0, "p95": 95, "p99": 99, "slowest": 100}


def record(result: Result) -> dict[str, Any]:
    """One row: what it is of, what became of it, and its numbers; None for what is not known."""
    case = case_fields(result.case)
    said = {
        "implementation": result.implementation,
        "platform": getattr(result, "platform", ""),
        **{name: case[name] for name in ("collective", "nbytes", "dtype", "redop", "root", "ranks", "in_place")},
        "outcome": result.outcome.name.lower(),
        "reason": result.reason if isinstance(result, Untimed) else result.wrong,
        "note": str(getattr(result, "note", "")),
        "library": getattr(result, "library", ""),
    }
    return said | _numbers(result)


def _numbers(result: Result) -> dict[str, Any]:
    """Seconds and rates; all None where there is no time."""
    names = ("seconds", "low", "high", "algbw", "busbw", "samples", *PERCENTILES, "floor")
    numbers: dict[str, Any] = dict.fromkeys(names)
    if not isinstance(result, Timed) or result.wrong or not result.typical > 0:
        return numbers
    low, high = result.band
    numbers |= {"seconds": result.typical, "low": _known(low), "high": _known(high)}
    if result.case.nbytes and result.case.collective.sized:
        numbers |= {"algbw": result.algbw, "busbw": result.busbw}
    if isinstance(result, Observed) and len(result.times) > 1:
        numbers |= {name: result.percentile(percent) for name, percent in PERCENTILES.items()}
    if isinstance(result, Observed):
        numbers["samples"] = len(result.times)
    if isinstance(result, Measurement):
        numbers["floor"] = result.floor
    return numbers


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def data_frame(rows: list[dict[str, Any]]) -> Any:
    """A pandas.DataFrame of records; UsageError without pandas, which nothing else here needs."""
    try:
        from pandas import DataFrame
    except ImportError:
        raise _lacking("pandas") from None
    return DataFrame(rows)


def arrow_table(rows: list[dict[str, Any]]) -> Any:
    """A pyarrow.Table of records; UsageError without pyarrow, which nothing else here needs."""
    try:
        from pyarrow import Table
    except ImportError:
        raise _lacking("pyarrow") from None
    return Table.from_pylist(rows)


def _lacking(package: str) -> UsageError:
    return UsageError(f"{package} is not installed, and this needs it; fix: pip install {package}")


def document(header: Header, results: Iterable[Result]) -> str:
    """A JSON object with the run's header and its rows."""
    return json.dumps({"header": header.to_json(), "results": [record(result) for result in results]}, indent=1)
