"""Runs with fast paths of NCCL and with what ran, in every command that reads runs."""

import csv
import io
import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.cli.results_table import row as table_row
from collbench.model.predict import curve
from collbench.results import Explanation, Measurement, Note
from collbench.results.facts import NO_NOTE
from collbench.topology import files
from tests.commands.conftest import write_run
from tests.conftest import Command, case

FAST = "nccl@copy-engine"


def run(folder: Path, took: str = "", times: float = 1.0, note: Note = NO_NOTE) -> None:
    """A DGX H100 as modelled: NCCL takes what it should or something else, and symmetric windows are faster."""
    rows = []
    for expected in curve(files.load("dgx-h100"), [case(nbytes=2**power, ranks=8) for power in range(3, 34, 3)]):
        algorithm, _, protocol = (took or expected.method).partition("/")
        for name, factor, *ran in (("nccl", times, algorithm, protocol), (FAST, 0.7 * times, "symm", "AGxLL_R")):
            samples = tuple(factor * expected.seconds * (1 + place / 1000) for place in range(9))
            row = Measurement(expected.case, name, "gpu", 1, samples, channels=16)
            rows.append(replace(row, algorithm=ran[0], protocol=ran[1], note=note))
    write_run(folder, *rows)


@pytest.fixture
def both(tmp_path: Path) -> None:
    run(tmp_path / "base")
    run(tmp_path / "new", "tree/ll", 1.6, Note(buffers="cudaMalloc, not registered"))


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize("command", ["compare", "check", "report", "plot", "list", "export", "predict"])
def test_every_command_that_reads_runs_reads_those_of_fast_paths(command: str, here: Command) -> None:
    words = {
        "compare": "base new",
        "check": "base --reference base",
        "report": "base new -o page.html",
        "plot": "base -o pictures --view all",
        "list": "runs .",
        "export": "base --to nccl-tests",
        "predict": "--fit base -o mine.toml --on dgx-h100",
    }
    done = here(command, *words[command].split())
    assert (done.returncode, "Warning" in done.stderr) == (0, False), done.stderr


@pytest.mark.usefixtures("both")
def test_compare_names_what_ran_before_its_table_and_has_it_in_every_row(here: Command) -> None:
    lines = here("compare", "base", "new").stdout.splitlines()
    first = next(line for line in lines if line.startswith("note: "))
    assert (first.startswith("note: nccl at 8 B"), first.endswith("tree/ll in NEW")) == (True, True)
    assert len({line.rindex("  SLOW") for line in lines if line.endswith("  SLOW")}) == 1
    written = csv.DictReader(io.StringIO(here("compare", "base", "new", "--csv").stdout))
    (comparison,) = json.loads(here("compare", "base", "new", "--json").stdout)["comparisons"]
    assert len(comparison["rows"]) == 2 * 11
    for row, other in zip(comparison["rows"], written, strict=True):
        assert (
            row["new_method"] == other["new_method"] == ("symm/AGxLL_R" if row["implementation"] == FAST else "tree/ll")
        )
        assert row["base_method"] == other["base_method"] != ""


@pytest.mark.usefixtures("both")
def test_check_says_what_nccl_took_before_any_reason(here: Command) -> None:
    *lines, answer = here("check", "new", "--on", "dgx-h100").stdout.splitlines()
    assert "; likely: " in answer
    starts = [next(line for line in lines if line.startswith(word)) for word in ("SLOW: ", "  NCCL chose", "  1. ")]
    assert starts == sorted(starts, key=lines.index)
    assert sum(line.startswith("UNKNOWN: ") for line in lines) == 1, "the fast path"
    curves = json.loads(here("check", "new", "--on", "dgx-h100", "--json").stdout)["curves"]
    assert ["NCCL chose" in " ".join(found["details"]) for found in curves] == [True, False]


def test_explain_and_its_report_say_what_a_library_ran(here: Command, tmp_path: Path) -> None:
    library = Explanation(case(), "nccl", "gpu", 1e-5, 1e-5, (), algorithm="ring", protocol="ll", channels=4)
    assert "ring/ll, 4 channels; no parts: libraries keep no log" in table_row(library)
    assert "  no parts: libraries" in table_row(replace(library, algorithm="", protocol="", channels=None))
    write_run(tmp_path / "run", library)
    here("report", "run", "-o", "page.html")
    assert "ring/ll, 4 channels" in (tmp_path / "page.html").read_text()


@pytest.mark.usefixtures("both")
def test_exports_hold_what_ran_and_a_calibration_is_of_plain_nccl(here: Command, tmp_path: Path) -> None:
    rows = csv.DictReader(io.StringIO(here("export", "new", "--to", "csv").stdout))
    said = [[row[name] for name in ("algorithm", "protocol", "channels")] for row in rows]
    assert said[:2] == [["tree", "ll", "16"], ["symm", "AGxLL_R", "16"]]
    here("fit", "base", "--on", "dgx-h100", "-o", "mine.toml")
    factors = tomllib.loads((tmp_path / "mine.toml").read_text())["calibration"]
    ratios = [*dict(factors.pop("ratios")).values(), *factors.values()]
    assert ratios == pytest.approx([1] * len(ratios), abs=0.01)
