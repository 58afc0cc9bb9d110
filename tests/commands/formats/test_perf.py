"""`all_reduce_perf` and its like, options that nccl-tests alone has, and JSON from a sweep; mostly on made-up times."""

import json
import re
import tomllib
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from collbench.collectives import COLLECTIVES, find_collective, of_nccl_tests
from collbench.commands.formats._perf import UNNEEDED, command_named
from collbench.commands.formats.nccl_tests_write import program
from collbench.runfile.schema import document
from collbench.runfile.store import read
from tests.conftest import ROOT, Command

made_up = pytest.mark.usefixtures("made_up_ranks")

QUICK = ("-b", "64", "-e", "1K", "-f", "4", "-g", "2", "-n", "3")
ROW = re.compile(r" *(\d+) +(\d+) +(\w+) +(\w+) +(-?\d+)((?: +\S+){8})$")


def rows(done: CompletedProcess[str]) -> list[re.Match[str]]:
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    matched = [ROW.match(line) for line in lines]
    assert all(matched), done.stdout
    return [match for match in matched if match]


PROGRAMS = [program(collective) for collective in of_nccl_tests()]


def test_every_program_of_nccl_tests_is_installed_and_a_command() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    named = [name for name in PROGRAMS if command_named(name)]
    assert sorted(named) == sorted(name for name in scripts if name.endswith("_perf"))
    assert {find_collective(name).name for name in named} <= set(COLLECTIVES)
    assert command_named("mpi_perf") is None
    assert command_named("sweep") is None


@made_up
def test_a_program_prints_a_row_a_size_with_both_places(here: Command) -> None:
    for name in PROGRAMS:
        done = here(name, *QUICK, "--on", "cpu")
        assert done.returncode == 0, done.stderr
        assert [int(match[1]) for match in rows(done)] == [64, 256, 1024], name
        lacking = not find_collective(name).in_place
        assert all(("N/A" in match[6]) == lacking for match in rows(done)), name
        assert f"# Collective test starting: {name}" in done.stdout
        assert f"# Collective test concluded: {name}" in done.stdout


def test_a_place_that_mpi_does_not_have_is_said_below_every_row(here: Command) -> None:
    done = here("reduce_scatter_perf", *QUICK, "--on", "cpu")
    assert done.returncode == 0, done.stderr
    assert all("N/A" in match[6] for match in rows(done))
    assert "# mpi, in place: MPI leaves" in done.stdout


@made_up
def test_the_table_is_read_back_as_what_was_measured(here: Command, tmp_path: Path) -> None:
    done = here("all_gather_perf", *QUICK, "-d", "float,int32", "-u", "1", "--on", "cpu", "--out", "own")
    (tmp_path / "perf.log").write_text(done.stdout)
    assert here("import", "perf.log", "--out", "again").returncode == 0
    own, again = read(tmp_path / "own"), read(tmp_path / "again").results
    measured = {result.case for result in own.results}
    assert {case.unalign for case in measured} == {1}
    assert measured == {result.case for result in again}
    assert measured == set(own.header.sweep.cases())
    assert {result.implementation for result in again} == {"mpi"}
    text = here("export", "own", "--to", "nccl-tests").stdout
    assert [line for line in text.splitlines() if line[0] != "#"] == [match[0] for match in rows(done)]


@made_up
def test_options_without_effect_are_accepted_and_say_why(here: Command) -> None:
    short = ("-b", "64", "-e", "64", "-n", "3", "--impl", "mpi", "--on", "cpu")
    others = [word for option in UNNEEDED for word in (f"-{option.letter}", str(option.usual + 1))]
    said = here("all_reduce_perf", *short, *others)
    assert said.returncode == 0, said.stderr
    assert [said.stderr.count(option.why) for option in UNNEEDED] == [1] * len(UNNEEDED)
    usual = [word for option in UNNEEDED for word in (f"--{option.name}", str(option.usual))]
    silent = here("all_reduce_perf", *short, *usual)
    assert silent.returncode == 0, silent.stderr
    assert not any(option.why in silent.stderr for option in UNNEEDED)


@made_up
def test_words_of_other_tools_mean_what_they_do_there(here: Command, tmp_path: Path) -> None:
    words = (*QUICK[:-4], "-t", "2", "-g", "1", "--op", "max", "-c", "0", "-J", "perf.json", "--impl", "mpi,two-shot")
    done = here("all_reduce_perf", *words, "-n", "7", "--on", "cpu")
    assert done.returncode == 0, done.stderr
    assert {match[4] for match in rows(done)} == {"max"}
    assert "-c 0 has no effect" in done.stderr
    said = json.loads((tmp_path / "perf.json").read_text())
    assert [row["size"] for row in said["results"]] == [64, 256, 1024]


@made_up
def test_a_least_bandwidth_is_heeded(here: Command) -> None:
    for least, status, word in (("0", 0, "OK"), ("1e9", 1, "FAILED"), ("fast", 2, "")):
        done = here("all_reduce_perf", *QUICK, "--on", "cpu", NCCL_TESTS_MIN_BW=least)
        assert done.returncode == status, least
        verdict = re.search(r"Avg bus bandwidth +: \S+ (\w*)", done.stdout)
        assert (verdict[1] if verdict else "") == word, least


@made_up
def test_json_on_standard_output_is_all_that_is_there(here: Command, tmp_path: Path) -> None:
    words = ("--impl", "mpi,two-shot", "-b", "64", "-e", "256", "--on", "cpu", "--out", "own")
    done = here("sweep", *words, "--no-plot", "--json", "-")
    said = json.loads(done.stdout)
    run = read(tmp_path / "own")
    assert said == json.loads(document(run.header, run.results, assumed=[]))
    assert [row["nbytes"] for row in said["results"]] == [64, 64, 256, 256]
    for row, result in zip(said["results"], run.results, strict=True):
        assert row["low"] <= row["seconds"] <= row["high"]
        assert row["algbw"] == pytest.approx(row["nbytes"] / row["seconds"])
        assert row["samples"] == len(result.seconds)  # type: ignore[union-attr]
        assert row["outcome"] == "ok"
    assert "fastest" in done.stderr


@made_up
def test_a_quiet_sweep_prints_rows_and_where_they_are(here: Command) -> None:
    done = here("sweep", "-q", "--impl", "mpi", "-e", "64", "-n", "7", "--on", "cpu", "--no-plot")
    assert not done.stderr
    assert "run file:" in done.stdout
