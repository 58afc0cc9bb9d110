"""A table of interconnects as records, for JSON and CSV."""

from typing import Any

from collbench.analysis.interconnects.interconnect import Interconnect, origin
from collbench.analysis.interconnects.reigns import Lead
from collbench.analysis.interconnects.table import Cell, Table
from collbench.runfile.schema import case_fields


def records(table: Table) -> list[dict[str, Any]]:
    """A record for each size and interconnect: seconds, and the ratio of the first's time to this one's; no NaN."""
    found = []
    for line in table.lines:
        for interconnect, cell in zip(table.interconnects, line.cells, strict=True):
            found += [_record(interconnect, cell, line.lead)] if cell else []
    return found


def _record(interconnect: Interconnect, cell: Cell, lead: Lead) -> dict[str, Any]:
    row, over = cell.row, cell.advantage
    low, high = row.band
    return case_fields(row.case) | {
        "interconnect": interconnect.name,
        "origin": origin(row),
        "implementation": row.implementation,
        "algorithm": getattr(row, "algorithm", ""),
        "protocol": getattr(row, "protocol", ""),
        "seconds": row.typical,
        "low": low if low == low else None,
        "high": high if high == high else None,
        "ratio": over.ratio if over else None,
        "told_apart": over.apart if over else None,
        "fastest": _place(interconnect.name, lead),
    }


def _place(name: str, lead: Lead) -> str:
    """`surely`, `likely`, `perhaps` (not told apart from the fastest), or empty: not the fastest, or nothing to be."""
    if name not in lead.names:
        return ""
    return "perhaps" if len(lead.names) > 1 else "surely" if lead.surely else "likely"
