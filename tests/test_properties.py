"""A property of a case: titles, layouts, keys, headers, columns and `--only` follow its record."""

from dataclasses import replace
from pathlib import Path

import pytest

from collbench.analysis.headers import differences
from collbench.analysis.matching import selection
from collbench.cases import Case
from collbench.commands.formats import tidy
from collbench.plots.panels import panels
from collbench.properties import PROPERTIES
from collbench.runfile.schema import Header, record, to_line, to_result
from collbench.runfile.store import Run
from tests.conftest import case, measurement
from tests.test_cases import sweep

STRIDE = replace(
    PROPERTIES["unalign"],
    name="stride",
    usual=1,
    other=2,
    title="stride {}".format,
    word="stride{}".format,
    value={"stride1": 1, "stride2": 2}.get,
    shift=lambda stride: stride - 1,
)


class Strided(Case, frozen=True):
    stride: int = 1


def test_each_property_is_in_the_header_the_row_the_title_the_figure_and_the_key() -> None:
    for name, each in PROPERTIES.items():
        asked = replace(sweep(1024), **{name: each.other})
        header = Header(sweep=asked)
        assert Header.from_json(header.to_json()) == header
        usual = Header(sweep=sweep(1024)).to_json()
        assert [found.name for found in differences(header.to_json(), usual)] == [f"sweep.{name}"]
        (unlike,), (alike,) = asked.cases(), sweep(1024).cases()
        assert unlike.kind != alike.kind
        assert each.title(each.other) in unlike.title
        row = replace(measurement(), case=unlike)
        assert (to_result(to_line(row)), record(row)[name]) == (row, each.other)
        assert name in tidy.COLUMNS
        (figure,) = panels([Run(Path("run.jsonl"), header, (row,), True)])
        assert figure.place == each.word(each.other)


def test_a_made_up_property_is_known_by_its_record_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROPERTIES, "stride", STRIDE)
    usual = Strided(**{name: getattr(case(), name) for name in Case.__struct_fields__})
    other = replace(usual, stride=2)
    assert other.title == usual.title.replace("float, sum", "float, sum, stride 2")
    assert (usual.misalignment, other.misalignment) == (0, other.dtype.itemsize)
    assert record(replace(measurement(), case=other))["stride"] == 2
    for word, chosen in (("stride1", [True, False]), ("stride2", [False, True]), ("stride1,stride2", [True, True])):
        assert [selection(f"{word},1K", [])(one, "mpi") for one in (usual, other)] == chosen, word
    rows = [case(in_place=in_place, unalign=unalign) for in_place in (False, True) for unalign in (0, 3)]
    for words, places in (("in-place", [2, 3]), ("out-of-place,unalign3", [1]), ("unalign0", [0, 2])):
        assert [at for at, row in enumerate(rows) if selection(words, [])(row, "mpi")] == places, words
