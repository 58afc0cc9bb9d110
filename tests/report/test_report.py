"""A report has everything in one file, says only what the runs say, and trusts none of them."""

import base64
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from collbench import report
from collbench.cli.report import command
from collbench.errors import RunFileError, UsageError
from collbench.figures.styles import LOOKS
from collbench.flaws import Mismatch
from collbench.measurement import Explanation, Failed, Measurement, Prediction, Reported, Result, Skipped
from collbench.note import Note
from collbench.report import data
from collbench.report.data import data_block
from collbench.report.lesson import lesson
from collbench.report.sanitize import oddity, plain, sound
from collbench.runs.file import NAME, BadRow, Writer, read
from collbench.runs.header import Header
from tests.conftest import ROOT, case, measurement
from tests.figures.made_up_runs import MADE_UP, late
from tests.runs.test_file import RESULTS

MOST = 1_500_000  # bytes of a report
SIZES = [8 * 4**power for power in range(10)]
SCRIPT = "<script>document.title='owned'</script>"


def times(latency: float, rate: float, name: str) -> Iterator[Measurement]:
    """A curve of made-up samples."""
    for nbytes in SIZES:
        seconds = latency + nbytes / rate
        yield measurement(name, tuple(seconds * (1 + 0.001 * step) for step in range(9)), nbytes=nbytes)


def write(folder: Path, *results: Result, header: dict[str, object] | None = None) -> Path:
    """A run file."""
    with Writer(folder) as writer:
        writer.header(Header.from_json({"topology": {"name": "here"}, **(header or {})}))
        for result in results:
            writer.append(result)
        writer.end("2026-01-01T00:00:00+00:00", 0)
    return folder / NAME


def built(*paths: Path) -> str:
    """The report of run files."""
    return report.build([read(path) for path in paths])


def data_of(page: str) -> dict[str, object]:
    """What the page's script reads."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    loaded: dict[str, object] = json.loads(found[1])
    return loaded


class Text(HTMLParser):
    """Elements with their attributes, and text outside of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def without_library(page: str) -> str:
    """The page as it is but for what is Plotly's."""
    return re.sub(r'(<script type="text/plain" id="library"[^>]*>)[^<]*', r"\1", page)


@pytest.fixture(scope="module")
def measured() -> str:
    """The report of a committed run."""
    return built(ROOT / "results" / "cpu-2-ranks-epyc")


def test_every_part_is_there(measured: str) -> None:
    """Lesson, curves, crossovers, fits, verdicts, machine, environment and table, below the machine's name."""
    page = Text(measured)
    ids = {attributes["id"] for _, attributes in page.elements if attributes.get("id")}
    assert {"verdict", "lesson", "curves", "crossovers", "fits", "verdicts", "machine", "environment", "table"} <= ids
    assert "2 ranks on 1 x AMD EPYC, 2 cores" in page.text
    assert "ring-flags beats mpi at every size" in page.text
    assert "MPICH Version: 5.0.2" in page.text
    assert "unknown: the cpu platform has no GPUs" in page.text
    rows = read(ROOT / "results" / "cpu-2-ranks-epyc").results
    assert len(re.findall(r"<tr>", measured[measured.index('id="rows"') :])) == len(rows) + 1


def test_curves_hold_the_medians_and_intervals_but_no_samples(measured: str) -> None:
    """Every right row is a point, in seconds and bytes, to four digits."""
    (figure,) = data_of(measured)["figures"]  # type: ignore[misc]
    found = {
        (line["name"], size): (middle, low, high)
        for line in figure["lines"]
        for size, middle, low, high in zip(line["sizes"], line["seconds"], line["low"], line["high"], strict=True)
    }
    rows = [
        result
        for result in read(ROOT / "results" / "cpu-2-ranks-epyc").results
        if isinstance(result, Measurement) and result.right
    ]
    assert len(found) == len(rows) > 100
    for row in rows:
        expected = (row.typical, *row.interval)
        assert found[row.implementation, row.case.nbytes] == pytest.approx(expected, rel=1e-3)
        assert f"{row.seconds[0]!r}" not in without_library(measured)


def test_the_same_runs_give_the_same_text(tmp_path: Path) -> None:
    """No clock and no order of a set is in it."""
    place = write(tmp_path / "run", *RESULTS, *times(1e-6, 1e9, "mpi"), *times(2e-6, 2e9, "two-shot"))
    script = "import pathlib, sys; from collbench import report; from collbench.runs import file; "
    script += f"p = pathlib.Path({str(place)!r}); sys.stdout.buffer.write(report.build([file.read(p)]).encode())"
    seeds = [os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)} for seed in ("1", "2")]
    pages = [
        subprocess.run([sys.executable, "-c", script], env=seed, capture_output=True, check=True) for seed in seeds
    ]
    assert pages[0].stdout == pages[1].stdout == built(place).encode()


def test_the_policy_names_exactly_the_scripts_of_the_page(measured: str) -> None:
    """Nothing may be fetched, and no script may run but those whose hashes the policy has."""
    policy = next(attributes["content"] for name, attributes in Text(measured).elements if "http-equiv" in attributes)
    (script,) = re.findall(r"<script>(.*?)</script>", measured, re.DOTALL)
    library = re.search(r'id="library">([^<]*)<', measured)
    assert library
    unpacked = zlib.decompress(base64.b64decode(library[1]), -zlib.MAX_WBITS)
    assert unpacked == (ROOT / "collbench" / "report" / "plotly" / "plotly-basic.min.js").read_bytes()
    hashes = {base64.b64encode(hashlib.sha256(text).digest()).decode() for text in (script.encode(), unpacked)}
    assert policy
    assert set(re.findall(r"'sha256-([^']+)'", policy)) == hashes
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert re.search(r"script-src[^;]*unsafe", policy) is None


def test_nothing_is_fetched(measured: str) -> None:
    """No element of the page refers to anything outside of it."""
    for name, attributes in Text(measured).elements:
        for key in ("src", "href", "xlink:href", "data", "action", "poster", "srcset"):
            value = attributes.get(key)
            assert value is None or value.startswith(("#", "data:")), (name, key, value)
    assert "@import" not in without_library(measured)
    assert "url(" not in re.search(r"<style>(.*?)</style>", measured, re.DOTALL)[1]  # type: ignore[index]


def test_every_kind_of_result_has_its_row(tmp_path: Path) -> None:
    """With its reason where there is no number."""
    mismatch = Mismatch(1, 7, 0, "3.5", "4.5", 12)
    kinds = [*RESULTS, replace(measurement("ring-ll"), seconds=(), mismatch=mismatch)]
    kinds += [
        Reported(case(nbytes=64), "nccl", "gpu", 1e-5, "mean", wrong_elements=3),
        measurement("two-shot", (), nbytes=8),
    ]
    assert {type(kind) for kind in kinds} >= {Measurement, Skipped, Failed, Reported, Prediction, Explanation}
    text = Text(built(write(tmp_path / "run", *kinds))).text
    for words_ in (
        "skipped: allreduce only",
        "FAILED: a rank died",
        "WRONG: rank 1, element 7",
        "WRONG: 3 elements",
        "reported median, ok, x",
        "predicted, ring/ll, NICs at 50%",
        "explained: launch",
        "not usable: it was checked, and not timed",
    ):
        assert words_ in text


@pytest.mark.parametrize(
    ("kind", "words_"),
    [
        ("scaling", ("weak scaling, auto", "auto, weak: 4 ranks give 2.67x", "poor (healthy is 75% and more)")),
        ("overlap", ("auto: thread with buckets of 1 KiB is fastest", "overlap helps")),
        ("lateness", ("rank 1 is late: last in 100% of the steps, by 50", "Late ranks, mpi: 1,600 steps", "clear")),
        ("losses", ("Styles: to loss 0.11", "local-sgd reaches loss 0.11 first; ring, the next, needs 2.00x")),
    ],
)
def test_steps_and_training_have_their_tables_and_verdicts(tmp_path: Path, kind: str, words_: tuple[str, ...]) -> None:
    """As the commands say them; and nobody is told that nothing was right."""
    text = Text(built(write(tmp_path / "run", *MADE_UP[kind]))).text
    assert "Steps and training" in text
    for word in words_:
        assert word in text
    assert "no numbers" not in text
    assert "no row has a time" not in text


def test_a_report_blames_nobody_where_nobody_is_late(tmp_path: Path) -> None:
    """Or where nobody can tell."""
    assert "nobody is late as a rule" in Text(built(write(tmp_path / "quiet", *late(slow=1.0)))).text
    short = Text(built(write(tmp_path / "short", *late(steps=20, parts=2)))).text
    assert "inconclusive: rank 1 may be late" in short
    assert "rank 1 is late" not in short


def test_predictions_have_the_picture_of_their_system(tmp_path: Path, collbench: object) -> None:
    """As an element of the page; names of several pictures do not meet."""
    done = [
        collbench("sweep", "--on", name, "--impl", "library", "--no-plot", "--out", name)
        for name in ("dgx-h100", "dgx-a100")
    ]  # type: ignore[operator]
    assert [process.returncode for process in done] == [0, 0]
    page = built(tmp_path / "dgx-h100", tmp_path / "dgx-a100")
    assert without_library(page).split("const data =")[0].count("<svg") == 2
    assert "8 x InfiniBand, 50 GB/s each way" in Text(page).text
    ids = re.findall(r' id="([^"]+)"', without_library(page))
    assert len(ids) == len(set(ids))
    assert 'id="verdicts"' not in page
    (figure,) = data_of(page)["figures"]  # type: ignore[misc]
    assert {line["run"] for line in figure["lines"]} == {0, 1}
    assert all(line["predicted"] and line["symbol"].endswith("-open") for line in figure["lines"])


def test_verdicts_come_with_the_name_of_the_machine(tmp_path: Path) -> None:
    """`--as` says what it should have been, and the table says how far off it was."""
    rows = [
        Reported(case(nbytes=2**power, ranks=8), "nccl", "gpu", 2**power / 1e9 + 1e-3, "mean", wrong_elements=0)
        for power in range(10, 30)
    ]
    page = report.build([read(write(tmp_path / "run", *rows))], "dgx-h100")
    assert "against DGX H100, 8 GPUs" in Text(page).text
    assert '<span class="verdict slow">slow</span>' in page
    with pytest.raises(UsageError, match="unknown system"):
        report.build([read(tmp_path / "run")], "no-such-machine")


def test_the_lesson_says_what_the_numbers_say(tmp_path: Path) -> None:
    """Made-up curves whose latency, bandwidth and crossover are known."""
    slow_start = times(8e-6, 10e9, "mpi")
    quick_start = times(1e-6, 1e9, "ring-flags")
    run = sound([read(write(tmp_path / "run", *slow_start, *quick_start))])
    who = Text(built(tmp_path / "run")).text
    told = lesson(run, [report.fitted(run[0])])
    assert told
    why = " ".join(told.sentences)
    assert "fastest: ring-flags 8 B to 2 KiB; mpi or ring-flags 8 KiB; mpi 32 KiB to 2 MiB" in who
    assert "the largest gain over mpi, the library, is that of ring-flags: 7.9x at 8 B" in who
    assert "With mpi, 8 KiB takes 1.1 times the time of 8 B, and has 1,024 times the bytes: there latency" in why
    assert "half of that is reached at 128 KiB" in why
    latency = re.search(r"The latency of its fitted curve, ([\d.]+) us", why)
    assert latency
    assert float(latency[1]) == pytest.approx(8.0, rel=0.05)


def test_the_lesson_claims_no_winner_among_equals(tmp_path: Path) -> None:
    """Two whose intervals overlap are level, and the words say so; nothing is said of a curve with too few sizes."""
    rows = [
        measurement(name, tuple(1e-6 + step * 1e-8 + shift for step in range(9)), nbytes=size)
        for size in SIZES
        for name, shift in (("mpi", 0), ("two-shot", (size % 3 - 1) * 1e-9))
    ]
    who = Text(built(write(tmp_path / "run", *rows))).text
    assert "fastest at every size, 8 B to 2 MiB: mpi or two-shot none is told apart from mpi, the library" in who
    page = Text(built(write(tmp_path / "two", *list(times(1e-6, 1e9, "mpi"))[:2])))
    assert "mpi takes 1.01 us at 8 B, 1.04 us at 32 B" in page.text
    assert "lesson" not in [attributes.get("id") for _, attributes in page.elements]


def test_text_of_a_run_file_stays_text(tmp_path: Path) -> None:
    """In every field that is shown: nothing in it becomes an element, an attribute or the end of a script."""
    nasty = f'{SCRIPT}</title></style><img src=x onerror="1">\u2028\u202e\ud800"\''
    rows = [
        measurement(nasty, nbytes=64),
        Skipped(case(), nasty, nasty, nasty),
        Failed(case(), "mpi", "cpu", nasty),
        replace(measurement(), note=Note(spin=nasty, picked=nasty, remarks=(nasty,))),
        Prediction(case(), nasty, 2e-6, 1e-6, 3e-6, nasty, nasty, nasty),
    ]
    environment = {"host": nasty, "versions": {nasty: nasty}, "variables": {nasty: nasty}}
    header = {"topology": {"name": nasty}, "environment": environment, "command": [nasty], "started": nasty}
    page = built(write(tmp_path / "run", *rows, header=header))
    found = Text(page)
    assert not [
        element for element in found.elements if element[0] == "img" or any(key.startswith("on") for key in element[1])
    ]
    assert len([name for name, _ in found.elements if name == "script"]) == 3
    assert SCRIPT in found.text
    assert "\ud800" not in page
    assert "\u202e" not in page
    page.encode()


def test_the_data_block_ends_no_script() -> None:
    """Whatever the text, JSON gives it back, and HTML sees nothing in it."""
    text = "</script><!--<script>&amp;\u2028\u2029'\""
    block = data_block({"a": text})
    assert json.loads(block) == {"a": text}
    assert not set("<>&\u2028\u2029") & set(block)
    with pytest.raises(ValueError):
        data_block(math.nan)


HEADERS: list[dict[str, object]] = [
    {"topology": ["a", "list"]},
    {"topology": "text", "environment": 7, "sweep": [1], "command": {"a": 1}, "started": [1]},
    {"topology": {"name": {"deep": [1]}, "platform": "gpu", "ranks": "two", "gpus": [1], "links": {"a": 1}}},
    {"topology": {"platform": "gpu", "ranks": 2, "gpus": [{}] * 5000}},
    {"topology": {"platform": ["gpu"], "ranks": None, "gpus": 3, "sockets": 4.5, "links": "x", "host": "y"}},
    {"topology": {"platform": "gpu", "ranks": 2, "gpus": [{"name": "H100", "index": 0, "bus_id": 1, "host": [2]}]}},
    {"topology": {"model": True, "system": {"gpus": 10**9, "name": "$\\frac{", "nics": 5}}},
    {"topology": {"model": True, "system": ["no"]}},
    {"environment": {"host": {"a": 1}, "versions": [], "variables": {"NCCL_ALGO": ["x"], "y": None}}},
    {"sweep": {"spin": ["busy"]}, "environment": {"variables": {"NCCL_P2P_DISABLE": 1}}},
]


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_an_odd_header_costs_its_own_part_only(tmp_path: Path, header: dict[str, object]) -> None:
    """Wrong types anywhere: the curves and rows are there, and the rest says that it does not know."""
    page = built(write(tmp_path / "run", *times(1e-6, 1e9, "mpi"), header=header))
    assert len(data_of(page)["figures"][0]["lines"][0]["sizes"]) == len(SIZES)  # type: ignore[index]
    assert "unknown" in Text(page).text


def test_a_deep_header_is_no_fault(tmp_path: Path) -> None:
    """A topology that is nested as deeply as JSON is read."""
    place = tmp_path / NAME
    deep = '{"a":' * 400 + "1" + "}" * 400
    place.write_text(
        f'{{"kind": "header", "format": 1, "topology": {{"name": {deep}, "model": true, "system": {deep}}}}}\n'
    )
    assert "no row has a time" in Text(built(place)).text


LINE = {"collective": "allreduce", "dtype": "float", "redop": "sum", "root": 0, "ranks": 2, "in_place": False}
ODD = [
    {"seconds": [0.0] * 7},
    {"seconds": [math.nan, 1e-6]},
    {"seconds": [math.inf]},
    {"seconds": [-1e-6] * 7},
    {"seconds": [1e-300] * 7},
    {"seconds": [1e300] * 7},
    {"nbytes": 10**400},
    {"nbytes": -8},
    {"ranks": 0},
    {"ranks": 10**300},
    {"root": 10**300},
]


@pytest.mark.parametrize("odd", ODD, ids=[json.dumps(value)[:40] for value in ODD])
def test_an_impossible_number_is_named_and_left_out(tmp_path: Path, odd: dict[str, object]) -> None:
    """Of no time, of no size, of no ranks: its row says so, and the others are reckoned with."""
    line = {
        "kind": "measurement",
        "implementation": "mpi",
        "platform": "cpu",
        "nbytes": 8,
        "launches": 1,
        "check": "ok",
    }
    good = write(tmp_path / "run", *times(1e-6, 1e9, "two-shot"))
    good.write_text(good.read_text() + json.dumps(LINE | line | {"seconds": [1e-6] * 7} | odd) + "\n")
    with pytest.warns(BadRow, match=f"{NAME}:{2 + len(SIZES) + 1}: "):
        page = built(good)
    assert "not usable: line" in Text(page).text
    assert [line["name"] for line in data_of(page)["figures"][0]["lines"]] == ["two-shot"]  # type: ignore[index]


@pytest.mark.parametrize("odd", ['"nbytes": Infinity', '"nbytes": 8, "collective": 5', '"nbytes": 8, "dtype": {}'])
def test_a_case_of_wrong_types_is_a_fault_of_its_line(tmp_path: Path, odd: str) -> None:
    """JSON as Python reads it has infinity, and no integer is that; nor is a number the name of a collective."""
    place = write(tmp_path / "run", measurement())
    line = place.read_text().splitlines()[1]
    fields = {key: value for key, value in json.loads(line).items() if f'"{key}"' not in odd}
    place.write_text(place.read_text().replace(line, json.dumps(fields)[:-1] + f", {odd}}}"))
    with pytest.raises(RunFileError, match=f"{NAME}:2: "):
        read(place)


def test_long_texts_are_cut() -> None:
    """So that one field cannot fill the page."""
    assert len(plain("x" * 10**6)) == 300
    assert plain("a\nb\x00c") == "a b\ufffdc"
    assert oddity(measurement()) == ""


def test_a_large_run_fits(tmp_path: Path) -> None:
    """2,000 rows with many samples are all there; of 6,000 with long notes as many as fit, and it says so."""
    samples = tuple(1.23456789e-6 * (1 + step / 1000) for step in range(50))
    names = [*LOOKS][:10]
    rows = [
        measurement(name, tuple(size * sample for sample in samples), nbytes=64 * size, ranks=ranks)
        for ranks in range(2, 42)
        for size in range(1, 6)
        for name in names
    ]
    page = built(write(tmp_path / "run", *rows))
    assert len(page.encode()) < MOST
    assert page[page.index('id="rows"') :].count('<tr><th scope="row">') == len(rows) == 2000
    drawn = data_of(page)
    assert sum(len(line["sizes"]) for figure in drawn["figures"] for line in figure["lines"]) == 2000  # type: ignore[attr-defined]
    noted = [replace(row, seconds=samples[:7], note=Note.of("<&>" * 200)) for row in rows] * 3
    page = built(write(tmp_path / "more", *noted))
    assert len(page.encode()) < MOST
    assert "more rows are left out" in page


@pytest.mark.parametrize("name", LOOKS)
def test_colours_can_be_seen_at_night(name: str) -> None:
    """Every implementation's, and Plotly knows its marker."""
    assert data.contrast(data.for_dark(LOOKS[name].color), data.DARK) >= data.READABLE
    assert LOOKS[name].marker in data.SYMBOLS
    assert LOOKS[name].linestyle in data.DASHES


def test_runs_of_one_name_get_labels_of_their_own(tmp_path: Path) -> None:
    """Two folders called alike."""
    paths = [write(tmp_path / folder / "same", *times(1e-6, 1e9, "mpi")) for folder in "ab"]
    page = built(*paths)
    assert [run["label"] for run in data_of(page)["runs"]] == ["same (1)", "same (2)"]  # type: ignore[attr-defined]
    first, second = data_of(page)["figures"][0]["lines"]  # type: ignore[index]
    assert first["symbol"] != second["symbol"]


def test_the_command_writes_beside_the_run(tmp_path: Path) -> None:
    """And prints where; the same again writes over it."""
    place = write(tmp_path / "run", *times(1e-6, 1e9, "mpi"))
    for _ in range(2):
        done = CliRunner().invoke(command, [str(place.parent)])
        assert (done.exit_code, done.output.strip()) == (0, str(place.parent / "report.html"))
    assert (place.parent / "report.html").read_text().startswith("<!doctype html>")


def test_the_command_spares_run_files_and_says_what_it_cannot_do(tmp_path: Path) -> None:
    """One line each, and no run is written over, neither one that is read nor another."""
    place = write(tmp_path / "run", *times(1e-6, 1e9, "mpi"))
    other = write(tmp_path / "other", *times(1e-6, 1e9, "mpi"))
    before = other.read_bytes(), place.read_bytes()
    for out, reason in (
        (place, "is a run file"),
        (other, "is a run file"),
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "such" / "folder.html", "cannot write"),
    ):
        with pytest.raises(UsageError, match=reason):
            CliRunner().invoke(command, [str(place), "-o", str(out)], catch_exceptions=False)
    assert (other.read_bytes(), place.read_bytes()) == before


def test_a_link_beside_a_foreign_run_is_not_written_through(tmp_path: Path) -> None:
    """It may lead to any file of the user; where the user names it, it is the user's word."""
    place = write(tmp_path / "run", *times(1e-6, 1e9, "mpi"))
    (tmp_path / "precious").write_text("all")
    (place.parent / "report.html").symlink_to(tmp_path / "precious")
    with pytest.raises(UsageError, match=r"report\.html is a link, and is not written through"):
        CliRunner().invoke(command, [str(place)], catch_exceptions=False)
    assert (tmp_path / "precious").read_text() == "all"
