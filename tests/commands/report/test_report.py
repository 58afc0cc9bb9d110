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
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from matplotlib.colors import to_rgb

from collbench.commands.report import chart
from collbench.commands.report import command as reports
from collbench.commands.report.chart import data_block
from collbench.commands.report.command import command
from collbench.errors import UsageError
from collbench.present.figures import LOOKS
from collbench.present.page import asset
from collbench.results import Explanation, Failed, Measurement, Mismatch, Note, Prediction, Reported, Skipped
from collbench.runfile.store import NAME, BadRow, read
from tests.commands.report.pages import SCRIPT, SIZES, Text, built, data_of, times, without_library, write
from tests.commands.step.made_up_steps import overlapped
from tests.conftest import ROOT, Command, case, measurement
from tests.plots.made_up_runs import MADE_UP
from tests.runfile.test_store import RESULTS

COMMITTED = ROOT / "results" / "cpu-2-ranks-epyc"


@pytest.fixture(scope="module")
def measured() -> str:
    return built(COMMITTED)


def test_every_part_is_there(measured: str) -> None:
    page = Text(measured)
    ids = {attributes["id"] for _, attributes in page.elements if attributes.get("id")}
    assert {"verdict", "curves", "crossovers", "fits", "verdicts", "machine", "environment", "table"} <= ids
    for words in (
        "2 ranks on 1 x AMD EPYC, 2 cores",
        "ring-flags beats mpi at every size",
        "MPICH Version: 5.0.2",
        "UNKNOWN: the model knows GPUs only",
    ):
        assert words in page.text
    assert len(re.findall(r"<tr>", measured[measured.index('id="rows"') :])) == len(read(COMMITTED).results) + 1


@pytest.mark.full
def test_the_same_runs_give_the_same_text_whatever_the_order_of_sets(tmp_path: Path) -> None:
    place = write(tmp_path / "run", *RESULTS, *times(1e-6, 1e9, "mpi"), *times(2e-6, 2e9, "two-shot"))
    script = "import pathlib, sys; from collbench.commands.report import command as reports; "
    script += "from collbench.runfile import store; "
    script += f"p = pathlib.Path({str(place)!r}); sys.stdout.buffer.write(reports.build([store.read(p)]).encode())"
    seed = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)}
    page = subprocess.run([sys.executable, "-c", script], env=seed, capture_output=True, check=True)
    assert page.stdout == built(place).encode()


def test_nothing_is_fetched_and_no_script_runs_but_those_that_the_policy_names(measured: str) -> None:
    elements = Text(measured).elements
    policy = next(attributes["content"] for name, attributes in elements if "http-equiv" in attributes)
    (script,) = re.findall(r"<script>(.*?)</script>", measured, re.DOTALL)
    library = re.search(r'id="library">([^<]*)<', measured)
    assert library
    unpacked = zlib.decompress(base64.b64decode(library[1]), -zlib.MAX_WBITS)
    assert unpacked == (ROOT / "collbench" / "present" / "assets" / "plotly" / "plotly-basic.min.js").read_bytes()
    hashes = {base64.b64encode(hashlib.sha256(text).digest()).decode() for text in (script.encode(), unpacked)}
    assert policy
    assert set(re.findall(r"'sha256-([^']+)'", policy)) == hashes
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert re.search(r"script-src[^;]*unsafe", policy) is None
    for name, attributes in elements:
        for key in ("src", "href", "xlink:href", "data", "action", "poster", "srcset"):
            value = attributes.get(key)
            assert value is None or value.startswith(("#", "data:")), (name, key, value)
    assert "@import" not in without_library(measured)
    assert "url(" not in re.search(r"<style>(.*?)</style>", measured, re.DOTALL)[1]  # type: ignore[index]


def test_every_kind_of_result_has_its_row_with_its_reason(tmp_path: Path) -> None:
    mismatch = Mismatch(1, 7, 0, "3.5", "4.5", 12)
    kinds = [*RESULTS, replace(measurement("ring-ll"), seconds=(), mismatch=mismatch)]
    kinds += [
        Reported(case(nbytes=64), "nccl", "gpu", 1e-5, "mean", wrong_elements=3),
        measurement("two-shot", (), nbytes=8),
    ]
    assert {type(kind) for kind in kinds} >= {Measurement, Skipped, Failed, Reported, Prediction, Explanation}
    text = Text(built(write(tmp_path / "run", *kinds))).text
    for words in (
        "skipped: allreduce only",
        "FAILED: a rank died",
        "WRONG: rank 1, element 7",
        "WRONG: 3 elements",
        "reported median, x",
        "predicted, ring/ll, NICs at 50%",
        "explained: launch",
        "not usable: checked, but not timed",
    ):
        assert words in text


def test_steps_and_training_have_their_tables_and_verdicts(tmp_path: Path) -> None:
    made_up = MADE_UP | {"overlap": overlapped()}
    for kind, verdicts in {
        "scaling": ("weak scaling, auto", "auto, weak: 4 ranks give 2.67x", "poor (healthy from 75%)"),
        "overlap": ("auto: thread with buckets of 1 KiB is fastest", "overlap helps"),
        "lateness": ("rank 1 is late: last in 100% of the steps, by 31.2%", "Late ranks, mpi: 1,600 steps", "clear"),
        "losses": ("Strategies: to loss 0.11", "local-sgd reaches loss 0.11 first; ring, the next, needs 2.00x"),
    }.items():
        text = Text(built(write(tmp_path / kind, *made_up[kind]))).text
        for words in ("Steps and training", *verdicts):
            assert words in text, kind
        for words in ("no numbers", "no row has a time"):
            assert words not in text, kind


def test_pictures_are_in_the_page_and_those_that_have_no_room_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (write(tmp_path / name, *MADE_UP["scaling"], *MADE_UP["losses"]) for name in "ab")
    left_out = []
    for room in (500_000, 100_000):
        monkeypatch.setattr(reports, "PICTURES", room)
        page = built(one, other)
        images = [attributes for tag, attributes in Text(without_library(page)).elements if tag == "img"]
        for image in images:
            kind, _, data = str(image["src"]).partition(",")
            assert kind == "data:image/svg+xml"
            assert ElementTree.fromstring(unquote(data)).tag.endswith("svg")
        assert len(images) + page.count("1 more picture") == 4
        assert sum(len(str(image["src"])) for image in images) <= room
        left_out.append(page.count("1 more picture"))
    assert "img-src data:" in page
    assert left_out == [0, 2]


def test_an_operation_whose_log_made_another_program_of_it_is_marked_where_its_time_goes(tmp_path: Path) -> None:
    plain, other = MADE_UP["timeline"]
    assert isinstance(other, Explanation)
    text = Text(built(write(tmp_path, plain, replace(other, traced=3 * other.seconds)))).text
    assert text.count(f"{other.implementation}, logged: +200%, another program") == 1
    assert text.count("another program") == 2


def test_predictions_have_their_systems_in_words(tmp_path: Path, here: Command) -> None:
    for name in ("dgx-h100", "dgx-a100"):
        done = here("sweep", "--on", name, "--impl", "library", "--no-plot", "--out", name)
        assert done.returncode == 0, done.stderr
    page = built(tmp_path / "dgx-h100", tmp_path / "dgx-a100")
    assert "8 x InfiniBand, 50 GB/s each way" in Text(page).text
    assert "8 x InfiniBand, 25 GB/s each way" in Text(page).text
    ids = re.findall(r' id="([^"]+)"', without_library(page))
    assert len(ids) == len(set(ids)), "names of several parts do not meet"
    assert 'id="verdicts"' not in page
    (figure,) = data_of(page)["figures"]  # type: ignore[misc]
    assert {line["run"] for line in figure["lines"]} == {0, 1}
    assert all(line["predicted"] and line["open"] for line in figure["lines"])


def test_the_verdict_says_who_is_fastest_where_and_by_how_much(tmp_path: Path) -> None:
    slow_start, quick_start = times(8e-6, 10e9, "mpi"), times(1e-6, 1e9, "ring-flags")
    who = Text(built(write(tmp_path / "run", *slow_start, *quick_start))).text
    assert "fastest: ring-flags 8 B to 8 KiB; mpi 32 KiB to 2 MiB; others may be as fast at 8 KiB" in who
    assert "ring-flags beats mpi up to" in who


def test_the_verdict_claims_no_winner_among_equals(tmp_path: Path) -> None:
    rows = [
        measurement(name, tuple(1e-6 + step * 1e-8 + shift for step in range(9)), nbytes=size)
        for size in SIZES
        for name, shift in (("mpi", 0), ("two-shot", (size % 3 - 1) * 1e-9))
    ]
    who = Text(built(write(tmp_path / "run", *rows))).text
    assert "fastest: mpi or two-shot 8 B to 2 MiB two-shot and mpi are not distinguishable at any size" in who
    page = Text(built(write(tmp_path / "two", *list(times(1e-6, 1e9, "mpi"))[:2])))
    assert "mpi takes 1.01 us at 8 B, 1.04 us at 32 B" in page.text


def test_text_of_a_run_file_never_becomes_an_element_an_attribute_or_the_end_of_a_script(tmp_path: Path) -> None:
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
    names = [name for name, _ in found.elements]
    assert (names.count("img"), names.count("script")) == (0, 3)
    assert not [key for _, attributes in found.elements for key in attributes if key.startswith("on")]
    assert SCRIPT in found.text
    assert "\ud800" not in page
    assert "\u202e" not in page
    page.encode()
    text = "</script><!--<script>&amp;\u2028\u2029'\""
    block = data_block({"a": text})
    assert json.loads(block) == {"a": text}
    assert not set("<>&\u2028\u2029") & set(block)
    with pytest.raises(ValueError):
        data_block(math.nan)


def test_an_odd_header_costs_its_own_part_only(tmp_path: Path) -> None:
    system = {"name": "$\\frac{", "arch": "sm1", "gpus": 10**9, "fabric": "rope", "gpu_rate": -1.0}
    for number, topology in enumerate(({"gpus": [{}] * 5000, "platform": "gpu"}, {"model": True, "system": system})):
        page = built(write(tmp_path / str(number), *times(1e-6, 1e9, "mpi"), header={"topology": topology}))
        assert len(data_of(page)["figures"][0]["lines"][0]["sizes"]) == len(SIZES)  # type: ignore[index]
        assert "unknown" in Text(page).text, topology
    deep = '{"a":' * 400 + "1" + "}" * 400
    (tmp_path / NAME).write_text(f'{{"kind": "header", "format": 1, "imported": {{"tests": [{{"sweep": {deep}}}]}}}}\n')
    assert "no row has a time" in Text(built(tmp_path / NAME)).text


def test_an_impossible_number_is_named_and_left_out(tmp_path: Path) -> None:
    good = write(tmp_path / "run", *times(1e-6, 1e9, "two-shot"))
    row = json.loads(write(tmp_path / "row", measurement("mpi")).read_text().splitlines()[1])
    odd = ({"seconds": [0.0] * 7}, {"seconds": [1e-300] * 7}, {"nbytes": -8}, {"ranks": 0}, {"root": 10**300})
    good.write_text(good.read_text() + "".join(json.dumps(row | fields) + "\n" for fields in odd))
    with pytest.warns(BadRow) as said:
        run = read(good)
    assert f"{NAME}:{2 + len(SIZES) + 1}: " in str(said[0].message)
    assert len(run.left_out) == len(odd)
    page = reports.build([run])
    assert "not usable: line" in Text(page).text
    assert [line["name"] for line in data_of(page)["figures"][0]["lines"]] == ["two-shot"]  # type: ignore[index]


def luminance(colour: str) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_can_be_seen_at_night_and_plotly_knows_every_marker() -> None:
    for name, look in LOOKS.items():
        assert (luminance(chart.for_dark(look.color)) + 0.05) / (luminance("#161a20") + 0.05) >= 4.5, name
        assert f'"{look.marker}": ' in asset("report.js", "collbench.commands.report"), name
        assert look.linestyle in chart.DASHES, name


def test_the_command_writes_beside_the_run_and_again_over_it(tmp_path: Path) -> None:
    place = write(tmp_path / "run", *times(1e-6, 1e9, "mpi"))
    for _ in range(2):
        done = CliRunner().invoke(command, [str(place.parent)])
        assert (done.exit_code, done.output.strip()) == (0, str(place.parent / "report.html"))
    assert (place.parent / "report.html").read_text().startswith("<!doctype html>")


def test_the_command_spares_run_files_and_links_and_says_what_it_cannot_do(tmp_path: Path) -> None:
    place, other = (write(tmp_path / name, *times(1e-6, 1e9, "mpi")) for name in ("run", "other"))
    before = other.read_bytes(), place.read_bytes()
    for out, reason in (
        (place, "is no name of a report"),
        (other, "is no name of a report"),
        (tmp_path / "x.pdf", "is no name of a report"),
        (tmp_path, "is no name of a report"),
        (tmp_path / "no" / "such" / "folder.html", "cannot write"),
    ):
        with pytest.raises(UsageError, match=reason):
            CliRunner().invoke(command, [str(place), "-o", str(out)], catch_exceptions=False)
    assert (other.read_bytes(), place.read_bytes()) == before
    (tmp_path / "precious").write_text("all")
    (place.parent / "report.html").symlink_to(tmp_path / "precious")
    with pytest.raises(UsageError, match=r"report\.html is a link, and is not written through"):
        CliRunner().invoke(command, [str(place)], catch_exceptions=False)
    assert (tmp_path / "precious").read_text() == "all"
