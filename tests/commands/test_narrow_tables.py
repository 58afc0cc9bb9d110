"""In a narrow terminal tables keep the columns that answer."""

from dataclasses import replace
from typing import Any

import pytest

from collbench.commands.check.fleet_outputs import COLUMNS as FLEET
from collbench.commands.check.outputs import SIZES
from collbench.commands.compare.command import TABLE
from collbench.commands.runs.command import COLUMNS as RUNS
from collbench.present.columns import Column
from collbench.present.terminal import Table, lines

HOST, NAME = "gpu-node-0417", "20260101-010203-allreduce-gpu-node-0417"
CELLS = {"": "SLOW", "node": HOST, "host": HOST, "collectives": "allreduce", "ranks": "8", "run": NAME}
KEPT: tuple[tuple[int, tuple[Column[Any], ...], str], ...] = (
    (60, SIZES, "size time ratio"),
    (60, FLEET, "node time curve"),
    (60, tuple(TABLE.columns), "size ratio"),
    (60, RUNS, "host run"),
    (80, RUNS, "host collectives ranks run"),
)


def test_the_word_and_the_ratio_stay_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells without a width of their own are as wide as usual ones."""
    for width, columns, names in KEPT:
        texts = [
            replace(column, value=lambda _, name=column.name: CELLS.get(name, "a cell of 20 signs"), text=str)
            for column in columns
        ]
        table = Table(texts)
        monkeypatch.setenv("COLUMNS", str(width))
        heading, *rows = lines(texts, [None]) if columns in (FLEET, RUNS) else (table.heading(), table.row(None))
        assert set(names.split()) <= set(heading.split()), heading
        assert ("SLOW" in rows[0]) is ("" in [column.name for column in columns]), rows
        assert max(map(len, "\n".join((heading, *rows)).split("\n"))) <= width, rows
