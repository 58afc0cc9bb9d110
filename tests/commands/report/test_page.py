"""How a report is laid out: verdict and figure first, no filler, no empty column, a link to every figure, and small."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.commands.report.chart import VIEWS
from collbench.commands.report.sections import SECTIONS, Anchors
from collbench.plots.kinds import TextTable
from collbench.results import Measurement, Note, Prediction, Reported, Result, Skipped
from collbench.runfile.store import read
from tests.commands.report.pages import (
    SIZES,
    Tables,
    Text,
    built,
    data_of,
    empty_columns,
    times,
    without_library,
    write,
)
from tests.conftest import ROOT, case

RESULTS = ROOT / "results"
RUNS = sorted(path.parent for path in RESULTS.rglob("run.jsonl"))
QUICK = ("cpu-2-ranks", "cpu-2-ranks-explained", "dgx-h100-narrow")
USUAL = 1_000_000
"""Bytes of the report of a committed run."""


def imported() -> list[Result]:
    """Rows of another tool: one figure each, so no interval and no spread."""
    return [Reported(case(nbytes=size), "nccl", "gpu", 1e-5 + size / 1e9, "mean", wrong_elements=0) for size in SIZES]


def predicted() -> list[Result]:
    return [Prediction(case(nbytes=size), "nccl", 1e-5, 9e-6, 2e-5) for size in SIZES]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: built(RESULTS / name) for name in ("cpu-2-ranks", "cpu-2-ranks-explained", "dgx-h100-scale")}


@pytest.mark.parametrize(
    "folder", [pytest.param(run, id=run.name, marks=() if run.name in QUICK else pytest.mark.full) for run in RUNS]
)
def test_a_committed_run_has_a_small_page_with_its_verdict_first_and_no_empty_column(folder: Path) -> None:
    page = built(folder)
    elements = Text(page).elements
    ids = [str(attributes["id"]) for _, attributes in elements if attributes.get("id")]
    links = [str(attributes["href"]) for tag, attributes in elements if tag == "a"]
    assert len(page.encode()) < USUAL
    assert empty_columns(page) == []
    assert [name for name in ids if name in SECTIONS] == [name for name in SECTIONS if name in ids]
    assert ids.index("verdict") < min(ids.index(name) for name in SECTIONS if name in ids and name != "verdict")
    assert re.search(r'id="verdict".*?<li>.+?</li>', page, re.DOTALL)
    assert len(ids) == len(set(ids))
    assert {link.removeprefix("#") for link in links} <= {*ids}


def test_every_figure_can_be_linked_to(pages: dict[str, str]) -> None:
    several, explained, scaled = pages.values()
    for page, tag in ((scaled, "figure"), (several, "section"), (explained, "section")):
        places = [attributes["id"] for name, attributes in Text(page).elements if name == tag]
        assert places
        assert not [place for place in places if f'href="#{place}"' not in page]
    for figure in data_of(several)["figures"]:  # type: ignore[attr-defined]
        assert [*figure["anchors"]] == [*VIEWS]
        assert all(f'id="{place}"' in several for place in figure["anchors"].values())
    assert 'id="latency-allreduce-float-sum-2-ranks"' in several
    assert 'href="#spent-allreduce-float-sum-2-ranks-8-b"' in explained
    texts = ("a b", "A, b!", "a-b", "", "verdict", "\u202e")
    anchors = Anchors({*SECTIONS})
    assert [anchors.new(text) for text in texts] == ["a-b", "a-b-2", "a-b-3", "figure", "verdict-2", "figure-2"]


def test_curves_hold_medians_intervals_and_checks_of_all_right_rows_but_no_samples(pages: dict[str, str]) -> None:
    page, run = pages["cpu-2-ranks"], read(RESULTS / "cpu-2-ranks")
    (figure,) = data_of(page)["figures"]  # type: ignore[misc]
    found = {
        (line["name"].partition(":")[0], size): (middle, low, high)
        for line in figure["lines"]
        for size, middle, low, high in zip(line["sizes"], line["seconds"], line["low"], line["high"], strict=True)
    }
    rows = [row for row in run.results if isinstance(row, Measurement) and row.right]
    assert len(found) == len(rows) > 100
    plain = without_library(page)
    for row in rows:
        expected = (row.typical, *row.interval)
        assert found[row.implementation, row.case.nbytes] == pytest.approx(expected, rel=1e-3)
    assert not [row for row in rows if f"{row.seconds[0]!r}" in plain]
    checks = {(row[0], row[1]): row[-1] for row in Tables(page).tables[-1][1:]}
    sizes, names = sorted({row.case.nbytes for row in run.results}), list(dict.fromkeys(size for _, size in checks))
    told = {
        (line["name"], names[sizes.index(size)]): line["checks"][place]
        for line in figure["lines"]
        for size, place in zip(line["sizes"], line["check_of"], strict=True)
    }
    assert told == {key: text for key, text in checks.items() if text.startswith("ok")}
    assert "picked two-shot" in told["auto", "128 KiB"]
    assert "picked one-shot-ll" in told["auto", "8 B"]


def test_an_uncertain_time_has_a_mark_in_its_curve_and_no_ratio(tmp_path: Path) -> None:
    wide = [replace(row, seconds=(1.0, 3.0, 9.0) * 9) for row in times(2e-6, 9e9, "two-shot")]
    page = built(write(tmp_path, *times(2e-6, 5e9, "mpi"), *wide))
    assert re.findall(r'"unsure":\[(.*?)\]', page) == ["", "0,1,2,3,4,5,6,7,8,9"]
    assert "vs library" not in Tables(page).tables[-1][0]


def test_each_run_says_how_its_numbers_are_known(tmp_path: Path) -> None:
    rows = {
        "one": (times(1e-6, 1e9, "mpi"), ["measured"]),
        "two": (imported(), ["imported"]),
        "three": (predicted(), ["predicted"]),
        "four": ([*predicted(), *imported()], ["imported", "predicted"]),
        "five": ([Skipped(case(), "nvls", "cpu", "no switch")], ["no numbers"]),
    }
    page = built(*(write(tmp_path / name, *made) for name, (made, _) in rows.items()))
    found = re.findall(r'<p class="subtitle"><strong>(\w+)</strong>\s*(.*?)</p>', page, re.DOTALL)
    stated = {label: re.findall(r'class="status[^"]*">([^<]+)<', text) for label, text in found}
    assert stated == {name: status for name, (_, status) in rows.items()}
    assert [run["status"] for run in data_of(page)["runs"]][3] == "imported and predicted"  # type: ignore[attr-defined]


def test_there_are_no_empty_columns(tmp_path: Path) -> None:
    rows = [*imported(), Skipped(case(), "nvls", "cpu", "no switch")]
    page = built(write(tmp_path / "one", *rows))
    (head, *body) = Tables(page).tables[-1]
    assert head == ["implementation", "size", "time", "algbw", "busbw", "check"]
    assert {len(row) for row in body} == {len(head)}
    assert body[-1][2] == "skipped: no switch"
    mixed = built(write(tmp_path / "two", *times(1e-6, 1e9, "mpi"), *times(2e-6, 1e9, "two-shot"), *rows))
    measured = ["time", "interval", "min", "p95", "max", "algbw", "busbw"]
    assert Tables(mixed).tables[-1][0][2:] == [*measured, "vs library", "check"]
    straight = built(write(tmp_path / "three", *times(1e-6, 1e9, "mpi")))
    fits = next(table for table in Tables(straight).tables if "latency" in table[0])
    assert fits[0][-1] == "off"
    assert "bend" not in fits[0]
    assert [empty_columns(one) for one in (page, mixed, straight)] == [[], [], []]
    dense = TextTable("caption", ("", "b", "c"), [("", "", "1"), ("", "", "")]).dense
    assert (dense.heading, dense.rows) == (["", "c"], [("", "1"), ("", "")])


def test_a_curve_in_pieces_says_why_how_far_it_is_off_and_what_each_takes(tmp_path: Path) -> None:
    lines = ((10 if row.case.nbytes >= 8192 else 1, row) for row in times(1e-5, 1e11, "mpi"))
    rows = [replace(row, seconds=tuple(by * seconds for seconds in row.seconds)) for by, row in lines]
    said = Text(built(write(tmp_path / "run", *rows))).text
    assert "mpi: a single curve misses one size in ten by " in said
    pieces = re.escape("8 B to 2 KiB: 10 us + S / 99.6 GB/s; 8 KiB to 2 MiB: 100 us + S / 9.960 GB/s.")
    assert re.search(f", so 2 straight pieces are used [^:]*: {pieces}", said)


def test_several_machines_have_a_table_of_interconnects(tmp_path: Path) -> None:
    headers = [{"topology": {"name": name, "model": True}} for name in ("Left", "Right")]
    fast = [Prediction(case(nbytes=size), "nccl", 1e-6, 9e-7, 2e-6) for size in SIZES]
    left = write(tmp_path / "left", *predicted(), header=headers[0])
    right = write(tmp_path / "right", *fast, header=headers[1])
    page = built(left, right)
    text = Text(page).text
    assert "right should be fastest: 8 B to 2 MiB" in text[text.index("Verdict # all runs") : text.index("Curves #")]
    assert "right, predicted: Right" in text
    table = next(table for table in Tables(page).tables if table[0][0] == "size" and len(table[0]) == 4)
    assert table[:2] == [["size", "left", "right (vs left)", "fastest"], ["8 B", "10 us", "1 us (10x)", "right"]]
    same = write(tmp_path / "again", *fast, header=headers[0])
    assert 'id="which"' not in built(same, left), "one machine alone has none"


def test_a_page_of_long_notes_is_no_larger_and_says_what_is_left_out(tmp_path: Path) -> None:
    rows = [replace(row, note=Note.of(f"{row.case.nbytes} <&> " * 40)) for row in times(1e-6, 1e9, "mpi")] * 200
    page = built(write(tmp_path, *rows))
    assert len(page.encode()) <= 1_500_000
    assert "more rows are left out" in page
