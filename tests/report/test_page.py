"""How a report is laid out: verdict and figure first, no filler, no empty column, a link to every figure, and small."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from collbench import report
from collbench.figures.kinds import Wanted, kinds
from collbench.figures.palette import PHASES
from collbench.measurement import Prediction, Reported, Result, Skipped
from collbench.note import Note
from collbench.report.anchors import SECTIONS, Anchors
from collbench.report.data import VIEWS
from collbench.report.sections import TextTable
from collbench.runs.file import read
from tests.conftest import ROOT, case, measurement
from tests.report.test_report import SIZES, Text, built, data_of, times, write

RUNS = sorted(path.parent for path in (ROOT / "results").rglob("run.jsonl"))
USUAL = 1_000_000
"""Bytes of the report of a committed run."""
FILLER = (
    "nothing to say",
    "no lesson",
    "nobody to compare it with",
    "stands below",
    "nothing can be said",
    "fetches nothing",
    "the run file does not say.",
    "Nobody measured any of it",
)


class Tables(HTMLParser):
    """Tables as rows of texts; a cell that spans several columns has its text in the first of them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self._open = False
        self.feed(re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1] += [""] * int(dict(attrs).get("colspan") or 1)
            self._span = int(dict(attrs).get("colspan") or 1)
            self._open = True
        elif tag == "span" and self._open and "bar" in (dict(attrs).get("class") or ""):
            self.tables[-1][-1][-1] += "bar"

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag not in ("td", "th", "tr", "table")

    def handle_data(self, data: str) -> None:
        if self._open:
            self.tables[-1][-1][-self._span] += data


def empty_columns(page: str) -> list[str]:
    """Headings of columns below which no row has a text."""
    return [
        heading
        for head, *rows in Tables(page).tables
        for place, heading in enumerate(head)
        if rows and not any(row[place].strip() for row in rows if place < len(row))
    ]


def imported() -> list[Result]:
    """Rows of another tool: one figure each, so no interval and no spread."""
    return [Reported(case(nbytes=size), "nccl", "gpu", 1e-5 + size / 1e9, "mean", wrong_elements=0) for size in SIZES]


def predicted() -> list[Result]:
    """Rows of a model."""
    return [Prediction(case(nbytes=size), "nccl", 1e-5, 9e-6, 2e-5) for size in SIZES]


@pytest.mark.parametrize("folder", RUNS, ids=[str(path.relative_to(ROOT / "results")) for path in RUNS])
def test_every_committed_run_has_a_page_without_waste(folder: Path) -> None:
    """Small, without filler and empty columns; its verdict stands first, and what it links to is there, once."""
    page = built(folder)
    text, elements = Text(page).text, Text(page).elements
    ids = [str(attributes["id"]) for _, attributes in elements if attributes.get("id")]
    links = [str(attributes["href"]) for tag, attributes in elements if tag == "a"]
    assert len(page.encode()) < USUAL
    assert not [words for words in FILLER if words in text]
    assert empty_columns(page) == []
    assert [name for name in ids if name in SECTIONS] == [name for name in SECTIONS if name in ids]
    assert ids.index("verdict") < min(ids.index(name) for name in SECTIONS if name in ids and name != "verdict")
    assert re.search(r'id="verdict".*?<li>.+?</li>', page, re.DOTALL)
    assert len(ids) == len(set(ids))
    assert {link.removeprefix("#") for link in links} <= {*ids}


def test_every_figure_can_be_linked_to() -> None:
    """Each quantity of each operation, each picture and each bar chart."""
    explained, planned, several = (
        built(ROOT / "results" / name) for name in ("cpu-2-ranks-explained", "dgx-a100-train", "cpu-2-ranks")
    )
    for page, tag in ((planned, "figure"), (several, "section"), (explained, "section")):
        places = [attributes["id"] for name, attributes in Text(page).elements if name == tag]
        assert places
        for place in places:
            assert f'href="#{place}"' in page
    for figure in data_of(several)["figures"]:  # type: ignore[attr-defined]
        assert [*figure["anchors"]] == [*VIEWS]
        assert all(f'id="{place}"' in several for place in figure["anchors"].values())
    assert 'id="latency-allreduce-float-sum-2-ranks"' in several
    assert 'href="#spent-allreduce-float-sum-2-ranks-8-b"' in explained


@pytest.mark.parametrize(("collective", "rate"), [("barrier", False), ("pingpong", True)])
def test_the_verdict_of_one_curve_alone_has_a_rate_where_messages_have_a_size(
    tmp_path: Path, collective: str, rate: bool
) -> None:
    """What it takes is told in any case."""
    write(tmp_path, measurement("mpi", collective=collective, nbytes=4))
    (told,) = re.findall(r"<li>([^<]*mpi takes[^<]*)", built(tmp_path))
    assert "1 us at 4 B" in told
    assert ("GB/s" in told) == rate


def test_names_of_places_do_not_meet() -> None:
    """Not even where the texts are alike, or empty, or those of a part of the page."""
    anchors = Anchors()
    assert [anchors.new(text) for text in ("a b", "A, b!", "a-b", "", "verdict", "\u202e")] == [
        "a-b",
        "a-b-2",
        "a-b-3",
        "figure",
        "verdict-2",
        "figure-2",
    ]


def test_a_point_says_what_its_row_says() -> None:
    """At every size of every curve, the text of the table's check: also which rung `auto` picked there."""
    run = ROOT / "results" / "cpu-2-ranks"
    page = built(run)
    (figure,) = data_of(page)["figures"]  # type: ignore[misc]
    rows = {(row[0], row[1]): row[-1] for row in Tables(page).tables[-1][1:]}
    sizes = sorted({result.case.nbytes for result in read(run).results})
    names = list(dict.fromkeys(size for _, size in rows))
    told = {
        (line["name"], names[sizes.index(size)]): line["said"][place]
        for line in figure["lines"]
        for size, place in zip(line["sizes"], line["says"], strict=True)
    }
    assert told == {key: text for key, text in rows.items() if text.startswith("ok")}
    assert "picked two-shot" in told["auto", "128 KiB"]
    assert "picked one-shot-ll" in told["auto", "8 B"]


def test_each_run_says_how_its_numbers_are_known(tmp_path: Path) -> None:
    """Measured, imported or predicted, each beside its own name."""
    kinds_of = {
        "one": times(1e-6, 1e9, "mpi"),
        "two": imported(),
        "three": predicted(),
        "four": [*predicted(), *imported()],
    }
    kinds_of["five"] = [Skipped(case(), "nvls", "cpu", "no switch")]
    page = built(*(write(tmp_path / name, *rows) for name, rows in kinds_of.items()))
    found = re.findall(r'<p class="subtitle"><strong>(\w+)</strong>\s*(.*?)</p>', page, re.DOTALL)
    assert {label: re.findall(r'class="status[^"]*">([^<]+)<', text) for label, text in found} == {
        "one": ["measured"],
        "two": ["imported"],
        "three": ["predicted"],
        "four": ["imported", "predicted"],
        "five": ["no numbers"],
    }
    assert [run["status"] for run in data_of(page)["runs"]][3] == "imported and predicted"  # type: ignore[attr-defined]


def test_a_run_that_was_cut_off_is_called_partial(tmp_path: Path) -> None:
    """Without its last line; or stopped by a signal; or where the log ends before its time.  A whole one is not."""
    whole = write(tmp_path / "whole", *times(1e-6, 1e9, "mpi"))
    cut = write(tmp_path / "cut", *times(1e-6, 1e9, "mpi"))
    cut.write_text("".join(cut.read_text().splitlines(keepends=True)[:-1]))
    stopped = write(tmp_path / "stopped", *times(1e-6, 1e9, "mpi"))
    stopped.write_text(stopped.read_text().replace('"status": 0', '"status": 130'))
    log = write(tmp_path / "log", *imported(), header={"imported": {"tool": "nccl-tests", "complete": False}})
    assert "partial" not in Text(built(whole)).text
    for place, words in (
        (cut, "the run was cut off"),
        (stopped, "the run was interrupted"),
        (log, "the log was cut off"),
    ):
        assert f'<span class="status partial">partial: {words}</span>' in built(place)


def test_there_are_no_empty_columns(tmp_path: Path) -> None:
    """Of imported rows no spread, of one implementation no ratio; and a row without numbers spans what there is."""
    rows = [*imported(), Skipped(case(), "nvls", "cpu", "no switch")]
    page = built(write(tmp_path / "one", *rows))
    (head, *body) = Tables(page).tables[-1]
    assert head == ["implementation", "size", "time", "algbw", "busbw", "check"]
    assert {len(row) for row in body} == {len(head)}
    assert body[-1][2] == "skipped: no switch"
    assert empty_columns(page) == []
    mixed = built(write(tmp_path / "two", *times(1e-6, 1e9, "mpi"), *times(2e-6, 1e9, "two-shot"), *rows))
    assert Tables(mixed).tables[-1][0][2:] == [
        *(["time", "interval", "min", "p95", "max", "algbw", "busbw"]),
        "vs library",
        "check",
    ]


def test_one_alone_wins_nothing(tmp_path: Path) -> None:
    """What was measured of one implementation has no crossovers; its verdict is what it takes."""
    page = built(write(tmp_path, *imported()))
    assert 'id="crossovers"' not in page
    assert "nccl takes 10 us at 8 B, 2.11 ms at 2 MiB, which is 0.995 GB/s of the array" in Text(page).text


def test_a_table_of_texts_has_no_empty_columns(tmp_path: Path) -> None:
    """A fit without a bend has no such column; the column that names the rows stays in any case."""
    page = built(write(tmp_path, *times(1e-6, 1e9, "mpi")))
    fits = next(table for table in Tables(page).tables if "latency" in table[0])
    assert fits[0][-1] == "off"
    assert "bend" not in fits[0]
    assert empty_columns(page) == []
    dense = TextTable("caption", ("", "b", "c"), [("", "", "1"), ("", "", "")]).dense
    assert (dense.heading, dense.rows) == (["", "c"], [("", "1"), ("", "")])


def test_several_machines_have_a_table_of_interconnects(tmp_path: Path) -> None:
    """Who is fastest from where on, in the words of `collbench compare`; one machine alone has none."""
    headers = [{"topology": {"name": name, "model": True}} for name in ("Left", "Right")]
    fast = [Prediction(case(nbytes=size), "nccl", 1e-6, 9e-7, 2e-6) for size in SIZES]
    paths = [
        write(tmp_path / "left", *predicted(), header=headers[0]),
        write(tmp_path / "right", *fast, header=headers[1]),
    ]
    page = built(*paths)
    text = Text(page).text
    assert "should be fastest: right 8 B to 2 MiB" in text[text.index("Verdict # all runs") : text.index("Curves #")]
    assert "right, predicted: Right" in text
    table = next(table for table in Tables(page).tables if table[0][0] == "size" and len(table[0]) == 4)
    assert table[0] == ["size", "left", "right (vs left)", "fastest"]
    assert table[1] == ["8 B", "10 us", "1 us (10x)", "right"]
    same = [write(tmp_path / "again", *fast, header=headers[0]), paths[0]]
    assert 'id="which"' not in built(*same)


def test_phases_and_implementations_look_as_in_figures() -> None:
    """The colours of a page are those of `collbench plot` of the same run."""
    explained = built(ROOT / "results" / "cpu-2-ranks-explained")
    for name, colour in PHASES.items():
        assert f".part.{name} {{ background: {colour}; }}" in explained
    assert len(re.findall(r"\.part\.\w+ \{ background", explained)) == len(PHASES)
    for folder in ("cpu-2-ranks", "cpu-2-ranks-libraries"):
        run = read(ROOT / "results" / folder)
        (figure,) = data_of(report.build([run]))["figures"]  # type: ignore[misc]
        drawn = next(kinds()["curves"].figures([run], Wanted(coloured=100), lambda reason: None))[1]
        colours = {str(line.get_color()).lower() for axes in drawn.axes for line in axes.get_lines()}
        assert {line["light"].lower() for line in figure["lines"] if line["name"] != "auto"} <= colours


def test_a_page_of_long_notes_is_no_larger(tmp_path: Path) -> None:
    """Curves, pictures and rows share what there is."""
    rows = [replace(row, note=Note.of(f"{row.case.nbytes} <&> " * 40)) for row in times(1e-6, 1e9, "mpi")] * 400
    page = built(write(tmp_path, *rows))
    assert report.LARGEST * 0.9 < len(page.encode()) <= report.LARGEST
    assert "more rows are left out" in page
