"""`collbench compare`: what it prints and writes, how it exits, and what it refuses."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import CliRunner
from click.testing import Result as Outcome

from collbench.cli.verdicts import SCHEMA
from collbench.commands.compare.command import COLUMNS, command
from collbench.results import Failed, Measurement, Reported, Result
from collbench.units import format_size
from tests.commands.conftest import refusal, write_run
from tests.conftest import ROOT, Command, case, needs_command

NAMES = ("mpi", "ring-flags")
SIZES = (1024, 4096, 65536, 2**20, 2**24)


def sampled(implementation: str = "mpi", factor: float = 1.0, seed: int = 0, count: int = 60, **changes: Any) -> Result:
    """60 samples with 1 % noise: enough to be sure of a few per cent."""
    chosen = case(**changes)
    noise = np.exp(0.01 * np.random.default_rng((seed, chosen.nbytes)).normal(size=count))
    seconds = (1e-6 + chosen.nbytes / 1e10) * factor * noise
    return Measurement(chosen, implementation, "cpu", 1, tuple(float(second) for second in seconds))


def sweep(folder: Path, seed: int, factor: float = 1.0, **header: Any) -> Path:
    """Two implementations at five sizes, the second of them changed by that factor."""
    return write_run(
        folder,
        *(
            sampled(name, factor if name == "ring-flags" else 1.0, seed + 100 * place, nbytes=nbytes)
            for nbytes in SIZES
            for place, name in enumerate(NAMES)
        ),
        **header,
    )


def compare(*arguments: object) -> Outcome:
    return CliRunner().invoke(command, [str(argument) for argument in arguments], standalone_mode=False)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return sweep(tmp_path / "base", 1)


def test_every_row_has_size_ratio_interval_and_word(base: Path, tmp_path: Path) -> None:
    new = sweep(tmp_path / "new", 2, 1.15, environment={"variables": {"NCCL_ALGO": "Ring"}})
    outcome = compare(base, new)
    assert outcome.return_value == 0
    lines = outcome.stdout.splitlines()
    assert lines[0].startswith("answer: SLOW: 5 rows slower by more than 5%")
    assert "differs: environment.variables.NCCL_ALGO: - -> Ring" in lines
    assert "allreduce, float, sum, 2 ranks" in lines
    assert all(f"{format_size(nbytes):>9}  mpi" in outcome.stdout for nbytes in SIZES)
    assert sum(line.endswith("  SLOW") for line in lines) == len(SIZES) + 1
    assert sum(line.endswith("  OK") for line in lines) == len(SIZES) + 1
    assert sum(line.strip().startswith("all 5  ") for line in lines) == 2
    assert "rows: 5 OK, 5 SLOW" in lines
    assert all(len(line) < 80 for line in lines if line.endswith(("  SLOW", "  OK")))


def test_gate_exits_by_what_became_slower_than_the_margin(base: Path, tmp_path: Path) -> None:
    for factor, words, status, word in (
        (1.15, (), 3, "SLOW"),
        (1.15, ("--margin", "0.3"), 0, "OK"),
        (1.15, ("--margin", "10%"), 3, "SLOW"),
        (1.0, (), 0, "OK"),
        (0.8, (), 0, "OK"),
    ):
        new = tmp_path / f"new-{factor}"
        outcome = compare(base, new if new.exists() else sweep(new, 2, factor), "--gate", *words)
        assert outcome.return_value == status, (factor, words)
        assert outcome.stdout.splitlines()[-1].startswith(f"collbench: {word} compare: ")


def test_only_picks_rows(base: Path, tmp_path: Path) -> None:
    new = sweep(tmp_path / "new", 2)
    for only, rows in {"mpi": 5, "all_reduce,4K..1M": 6, "ring-flags,64K": 1, "..4K,16M": 6, "1M..,mpi": 2}.items():
        outcome = compare(base, new, "--only", only, "--csv")
        assert len(list(csv.DictReader(io.StringIO(outcome.stdout)))) == rows, only


def test_csv_and_json_hold_the_same_numbers(base: Path, tmp_path: Path) -> None:
    new = sweep(tmp_path / "new", 2, 1.15)
    rows = list(csv.DictReader(io.StringIO(compare(base, new, "--csv", "--gate").stdout)))
    fields = json.loads(compare(base, new, "--json", "--gate").stdout)
    assert (fields["schema"], fields["word"], fields["limit"]) == (SCHEMA, "SLOW", 1.05)
    (found,) = fields["comparisons"]
    assert list(rows[0]) == list(COLUMNS)
    for row, other in zip(rows, found["rows"], strict=True):
        assert (row["implementation"], row["word"]) == (other["implementation"], other["word"])
        assert [float(row[name]) for name in ("ratio", "low", "high")] == [other[n] for n in ("ratio", "low", "high")]
        assert other["low"] < other["new_seconds"] / other["base_seconds"] < other["high"]
    assert [(kind["implementation"], kind["sizes"], kind["word"]) for kind in found["all_sizes"]] == [
        ("mpi", 5, "OK"),
        ("ring-flags", 5, "SLOW"),
    ]


def test_steps_are_told_apart_in_csv() -> None:
    needs_command("step")  # rows of steps
    run = ROOT / "results" / "cpu-2-ranks-overlap"
    rows = list(csv.DictReader(io.StringIO(compare(run, run, "--csv").stdout)))
    assert {json.loads(row["step"])["schedule"] for row in rows} >= {"compute", "communicate"}


def test_rows_in_place_and_misaligned_are_told_apart_in_csv(tmp_path: Path) -> None:
    run = write_run(tmp_path, sampled(), sampled(in_place=True), sampled(unalign=1))
    rows = csv.DictReader(io.StringIO(compare(run, run, "--csv").stdout))
    assert {(row["in_place"], row["unalign"]) for row in rows} == {("False", "0"), ("True", "0"), ("False", "1")}


def test_what_is_unknown_is_empty_in_csv_and_null_in_json(tmp_path: Path) -> None:
    times = zip("ab", (1e-6, 2e-6), ("mean", "median"), strict=True)
    runs = [write_run(tmp_path / name, Reported(case(), "nccl", "gpu", *time)) for name, *time in times]
    (row,) = csv.DictReader(io.StringIO(compare(*runs, "--csv").stdout))
    assert (row["ratio"], row["low"], row["high"], row["word"]) == ("2.0", "", "", "UNKNOWN")
    ((other,),) = [entry["rows"] for entry in json.loads(compare(*runs, "--json").stdout)["comparisons"]]
    assert (other["low"], other["high"]) == (None, None)


def log(folder: Path, seed: int, factor: float = 1.0, **header: Any) -> Path:
    """Means of 12 sizes, as another tool prints them, with 0.1 % noise."""
    noise = np.exp(0.001 * np.random.default_rng(seed).normal(size=12))
    rows = [
        Reported(case(nbytes=8 << place), "nccl", "gpu", 1e-5 * factor * float(more), "mean of 20")
        for place, more in enumerate(noise)
    ]
    return write_run(folder, *rows, **header)


def test_logs_without_samples_are_judged_with_one_note(tmp_path: Path) -> None:
    base, again = log(tmp_path / "base", 1), log(tmp_path / "again", 1, imported={"file": "a.log"})
    for new, status, word in (
        (again, 0, "OK"),
        (log(tmp_path / "equal", 2), 0, "OK"),
        (log(tmp_path / "slow", 3, 1.3), 3, "SLOW"),
    ):
        outcome = compare(base, new, "--gate")
        assert outcome.return_value == status, new
        lines = outcome.stdout.splitlines()
        assert f"rows: 12 {word}" in lines
        assert len([line for line in lines if line.startswith("note:")]) == 1
        assert "--budget" not in outcome.stdout


def test_runs_whose_sizes_differ_are_told_the_nearest(base: Path, tmp_path: Path) -> None:
    for sizes, told in (
        ((2048, 2**25), "no size in common, nearest 1 KiB and 2 KiB"),
        ((2**25,), "no size in common, nearest 16 MiB and 32 MiB"),
        ((8,), "no size in common, nearest 1 KiB and 8 B"),
    ):
        new = write_run(tmp_path / str(sizes[0]), *(sampled(nbytes=nbytes) for nbytes in sizes))
        assert told in refusal(compare(base, new)), sizes
        assert compare(base, new, "--gate").return_value == 4, sizes
    for other in (sampled("nccl", nbytes=8192), sampled(collective="broadcast", nbytes=8192)):
        assert "no size in common" not in refusal(compare(base, write_run(tmp_path / other.case.title, other)))


def swept(folder: Path, *barriers: float, factor: float = 1.0) -> Path:
    """A run of `mpi` in whose rows a barrier took so long."""
    rows = [
        replace(sampled(factor=factor, nbytes=size), barrier=each) for size, each in zip(SIZES, barriers, strict=True)
    ]
    return write_run(folder, *rows, started=f"2026-01-01T00:00:{len(folder.name):02}+00:00")


def test_runs_between_which_cores_were_moved_are_one_line_and_no_table(tmp_path: Path) -> None:
    base = swept(tmp_path / "base", *[1.3e-7] * 5)
    for name, barriers in (("moved", [3.9e-7] * 5), ("nearer", [4e-8] * 5)):
        new = swept(tmp_path / name, *barriers, factor=3.0)
        outcome = compare(base, new, "--gate")
        assert outcome.return_value == 4, name
        lines = outcome.stdout.splitlines()
        assert sum("hypervisor" in line for line in lines) == 1, name
        assert not any("  mpi  " in line or "SLOW: above 1" in line for line in lines), name
        assert "rows: 5 UNKNOWN" in lines, name
        assert "--ab" in lines[-1], name
        (found,) = json.loads(compare(base, new, "--json").stdout)["comparisons"]
        assert [(row["word"], row["low"]) for row in found["rows"]] == [("UNKNOWN", None)] * 5, name
    some = compare(base, swept(tmp_path / "some", *[1.3e-7] * 4, 3.9e-7), "--gate")
    assert some.return_value == 4
    assert "rows: 4 OK, 1 UNKNOWN" in some.stdout.splitlines()
    assert sum("hypervisor" in line for line in some.stdout.splitlines()) == 1


def test_what_is_inconclusive_is_the_same_within_some_share(tmp_path: Path) -> None:
    noise = np.random.default_rng(3).normal(size=(2, 5, 20))
    base, new = (
        write_run(
            tmp_path / str(which),
            *(
                Measurement(case(nbytes=size), "mpi", "cpu", 1, tuple((1e-6 * np.exp(0.08 * row)).tolist()))
                for size, row in zip(SIZES, rows, strict=True)
            ),
            started=str(which),
        )
        for which, rows in enumerate(noise)
    )
    outcome = compare(base, new)
    (line,) = [line for line in outcome.stdout.splitlines() if line.startswith("inconclusive rows: ")]
    assert "by each row's own interval, half are within " in line
    widest = line.split()[-2]
    assert "rows: 5 OK" in compare(base, new, "--margin", f"{float(widest) + 0.5}%").stdout.splitlines()
    (found,) = json.loads(compare(base, new, "--json").stdout)["comparisons"]
    assert max(row["within"] for row in found["rows"]) == pytest.approx(float(widest) / 100, rel=0.06)


def test_junit_tells_regressions_from_what_is_unsure(base: Path, tmp_path: Path) -> None:
    odd = Failed(case(nbytes=1024), "mpi", "cpu", 'a < b & "c" \x00 \x1b[31m ]]>')
    slow = sampled("ring-flags", 1.3, 5, nbytes=4096)
    new = write_run(tmp_path / "new", odd, slow, sampled("mpi", 1.0, 6, nbytes=4096), sampled(count=2, nbytes=65536))
    path = tmp_path / "made" / "junit.xml"
    outcome = compare(base, new, "--gate", "--junit", path)
    assert outcome.return_value == 3
    assert outcome.stdout.count(": WRONG: right in BASE, failed in NEW: a < b") == 1
    suite = ElementTree.parse(path).getroot()
    kinds = {test.get("name"): [child.tag for child in test] for test in suite}
    assert suite.get("tests") == str(len(suite))
    assert (suite.get("failures"), suite.get("skipped")) == ("2", "7"), "six rows of BASE are not in NEW"
    assert kinds["allreduce, float, sum, 2 ranks, 4 KiB, ring-flags"] == ["failure"]
    assert kinds["allreduce, float, sum, 2 ranks, 4 KiB, mpi"] == ["system-out"]
    assert kinds["allreduce, float, sum, 2 ranks, 64 KiB, mpi"] == ["skipped"]
    assert [failure.get("message") for failure in suite.iter("failure") if "a < b" in failure.get("message", "")]


def test_wrong_words_are_refused_with_the_choices(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_command("step")  # rows of steps
    new = sweep(tmp_path / "new", 2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.jsonl").write_text("no header\nnor this\n")
    write_run(tmp_path / "other", sampled("nccl", collective="broadcast", nbytes=8))
    for arguments, told in (
        ([base, new, "--only", "ring-flagz"], "ring-flags"),
        ([base, new, "--only", "alltoall"], "selects no row"),
        ([base, new, "--only", "2K"], "1 KiB to 16 MiB"),
        ([base], "give BASE and NEW, or --against"),
        ([base, "broken.jsonl"], "broken.jsonl:1"),
        (["nowhere", base], "nowhere"),
        ([base, "other"], "nothing to compare"),  # an empty table would look like a success
        ([base, "other"], "broadcast, nccl, 2 ranks, 8 B"),
        (
            [ROOT / "results" / "cpu-2-ranks-styles", ROOT / "results" / "cpu-2-ranks-overlap"],
            "steps, traces and training are drawn by",
        ),
    ):
        assert told in refusal(compare(*arguments)), arguments
    for text in ("x", "0", "150%", "-3%", "nan"):
        assert "5% or 0.05" in refusal(compare(base, base, "--margin", text)), text


def swept_twice(here: Command, **variables: str) -> tuple[int, Any]:
    """`base` and then `new`, for which alone the variables are set: how the gate exits, and what was found."""
    sizes = ("-b", "8", "-e", "64", "-f", "8")
    sweep = ("sweep", "--on", "cpu", "--impl", "mpi,ring-flags", *sizes, "--starts", "1", "--no-plot")
    for folder, changed in (("base", {}), ("new", variables)):
        done = here(*sweep, "--out", folder, **changed)
        assert done.returncode == 0, done.stderr
    done = here("compare", "base", "new", "--gate", "--json")
    (found,) = json.loads(done.stdout)["comparisons"]
    return done.returncode, found


@pytest.mark.usefixtures("made_up_ranks")
@pytest.mark.parametrize(("slow", "status", "word"), [("1.2", 3, "SLOW"), ("1", 0, "OK")])
def test_two_sweeps_are_told_apart_where_they_differ(here: Command, slow: str, status: int, word: str) -> None:
    ended, found = swept_twice(here, SLOW=slow)
    assert ended == status
    words = {name: {row["word"] for row in found["rows"] if row["implementation"] == name} for name in NAMES}
    assert words == {"mpi": {"OK"}, "ring-flags": {word}}


def test_the_last_run_needs_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLLBENCH_CACHE", str(tmp_path / "cache"))
    folder = Path("results", "runs")
    for day in (1, 2):
        sweep(folder / f"day{day}", day, started=f"2026-01-0{day}T00:00:00+00:00")
    new = sweep(Path("new"), 3, 1.5, started="2026-01-03T00:00:00+00:00")
    outcome = compare("--against", "last", new, "--gate")
    assert "BASE  results/runs/day2/run.jsonl" in outcome.output
    assert outcome.return_value == 3
    assert "no last run" in refusal(compare("--against", tmp_path / "elsewhere", new))
