"""In a narrow terminal tables keep the columns that answer."""

from dataclasses import replace

import pytest

from collbench.commands.check.fleet import COLUMNS as FLEET
from collbench.commands.check.outputs import INPUTS, SIZES
from collbench.commands.compare.command import TABLE
from collbench.commands.list.runs import COLUMNS as RUNS
from collbench.commands.step.section import OVERLAP, SCALING
from collbench.present.terminal import Table, lines

CELLS = {
    "": "SLOW",
    "input": "all_reduce_node-0417.log",
    "node": "node-0417",
    "host": "node-0417",
    "run": "20260101-010203-allreduce-node-0417",
    "ranks": "8",
}


def test_the_word_and_the_ratio_stay_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for width, columns, names in (
        (60, SIZES, "size time ratio"),
        (60, FLEET, "node time curve"),
        (60, INPUTS, "input ratio"),
        (60, TABLE.columns, "size ratio"),
        (60, RUNS, "host run"),
        (60, SCALING.columns, "step speed-up"),
        (60, OVERLAP.columns, "step gain"),
        (80, RUNS, "host collectives ranks run"),
    ):
        monkeypatch.setenv("COLUMNS", str(width))
        cells = [(column, CELLS.get(column.name, "some cell")) for column in columns]
        texts = [replace(column, value=lambda _, cell=cell: cell, text=str) for column, cell in cells]
        table = Table(texts)
        heading, row = lines(texts, [None]) if columns in (FLEET, INPUTS, RUNS) else (table.heading(), table.row(None))
        assert set(names.split()) <= set(heading.split()), heading
        assert ("SLOW" in row) is ("" in [column.name for column in columns]), row
        assert max(map(len, [heading, *row.split("\n")])) <= width, row
