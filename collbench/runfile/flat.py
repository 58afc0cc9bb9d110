"""Rows of a run as flat records, in bytes, seconds and bytes per second: for JSON, data frames and other programs.

The names are those of the tidy CSV where it has them.  The samples themselves are in the run file; here are their
number, their median with its 95 % interval, and percentiles.
"""

import json
import math
from collections.abc import Iterable
from typing import Any

from collbench.results import Observed, Result, Timed
from collbench.runfile.header import Header
from collbench.runfile.schema import case_fields

PERCENTILES = {"fastest": 0, "p95": 95, "p99": 99, "slowest": 100}
_CASE = ("collective", "nbytes", "dtype", "redop", "root", "ranks", "in_place", "unalign")


def record(result: Result) -> dict[str, Any]:
    """Return a result as a flat record: its case, its outcome, and its numbers; None for what is not known."""
    case = case_fields(result.case)
    facts = {
        "implementation": result.implementation,
        "platform": result.platform,
        **{name: case[name] for name in _CASE if name in case},
        "outcome": result.outcome.value,
        "reason": result.reason or result.wrong,
        "note": str(result.note),
        "library": result.library,
        "algorithm": result.algorithm,
        "protocol": result.protocol,
        "channels": result.channels,
    }
    return facts | _numbers(result)


def _numbers(result: Result) -> dict[str, Any]:
    """Return seconds and rates; all None where there is no time."""
    names = ("seconds", "low", "high", "algbw", "busbw", "samples", *PERCENTILES, "floor")
    numbers: dict[str, Any] = dict.fromkeys(names)
    if not isinstance(result, Timed) or result.wrong or not result.typical > 0:
        return numbers
    numbers["seconds"] = result.typical
    low, high = result.band
    if math.isfinite(low):
        numbers["low"] = low
    if math.isfinite(high):
        numbers["high"] = high
    if result.case.nbytes and result.case.collective.sized:
        numbers |= {"algbw": result.algbw, "busbw": result.busbw}
    if isinstance(result, Observed):
        numbers["samples"] = len(getattr(result, "samples", result.times)) or None
        if len(result.times) > 1:
            numbers |= {name: result.percentile(percent) for name, percent in PERCENTILES.items()}
    numbers["floor"] = result.floor
    return numbers


def document(header: Header, results: Iterable[Result], **more: Any) -> str:
    """Return a JSON object with the run's header and its rows, and before them whether it was measured, and more."""
    facts = {"measured": not header.topology.model, **more, "header": header.to_json()}
    return json.dumps(facts | {"results": [record(row) for row in results]}, indent=1)
