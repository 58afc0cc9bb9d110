"""`collbench predict --fit`: its table, what it refuses."""

import json
import tomllib
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from collbench.cli.group import group
from collbench.commands.predict.command import command
from collbench.model.predict import curve
from collbench.results import Measurement
from collbench.runfile import store
from collbench.topology import files
from collbench.topology.system import System
from collbench.units import counted
from tests.commands.conftest import refusal, write_run
from tests.conftest import ROOT, case

COMMITTED = ROOT / "results" / "cpu-2-ranks-epyc"


def run_file(folder: Path, sizes: int = 10, topology: str = "a", slope: float = 1e-9) -> Path:
    """A run whose times are a + b*S, for `mpi` and a rung that is quicker for small messages only."""
    rows = []
    for place in range(sizes):
        nbytes = 8 * 4**place
        for name, start, per_byte in (("mpi", 10e-6, slope), ("one-shot", 1e-6, 4 * slope)):
            rows.append(scattered(place, name, start + per_byte * nbytes))
    return write_run(folder, *rows, topology={"name": topology})


def scattered(place: int, name: str, seconds: float) -> Measurement:
    samples = tuple(seconds * (1 + 0.01 * (sample % 5 - 2)) for sample in range(place, place + 9))
    return Measurement(case(nbytes=8 * 4**place), name, "cpu", 1, samples)


def run_on(folder: Path, *systems: System) -> Path:
    """What NCCL takes on machines that are exactly as modelled; nothing in it says what they are."""
    rows = []
    for system in systems:
        for expected in curve(system, [case(nbytes=2**power, ranks=system.ranks) for power in range(3, 34, 3)]):
            rows.append(Measurement(expected.case, "nccl", "gpu", 1, (expected.seconds,) * 7))
    return write_run(folder, *rows)


def fit(*arguments: object) -> Result:
    """`predict --fit RUN` for each of the runs that the arguments begin with."""
    words = [str(argument) for argument in arguments]
    runs = list(takewhile(lambda word: not word.startswith("-"), words))
    return CliRunner().invoke(command, [*(f"--fit={run}" for run in runs), *words[len(runs) :]])


def test_a_run_becomes_latency_rate_and_crossing(tmp_path: Path) -> None:
    done = fit(run_file(tmp_path / "run"), "--json")
    said = json.loads(done.stdout)
    mpi = next(curve for curve in said["curves"] if curve["implementation"] == "mpi")
    assert mpi["latency"] == pytest.approx(10e-6, rel=0.03)
    assert mpi["rate"] == pytest.approx(1e9, rel=0.03)
    (crossing,) = said["crossings"]
    assert crossing["low"] <= crossing["nbytes"] <= crossing["high"]
    assert crossing["nbytes"] == pytest.approx(3000, rel=0.1)
    assert crossing["measured"] == [[2048, 8192]]  # the sizes next to it


def test_the_table_names_every_curve_and_warns_of_extrapolation(tmp_path: Path) -> None:
    out = fit(run_file(tmp_path / "run")).stdout
    assert "mpi" in out
    assert "one-shot and mpi cross between" in out
    assert "beyond 2 MiB: extrapolated" in out
    assert "the rate is extrapolated: 2 KiB, the largest size" in fit(run_file(tmp_path / "few", sizes=5)).stdout


def test_runs_are_joined(tmp_path: Path) -> None:
    first, second = run_file(tmp_path / "a"), run_file(tmp_path / "b")
    assert len(json.loads(fit(first, second, "--json").stdout)["curves"]) == 2
    assert "different machines (a; b)" in refusal(fit(first, run_file(tmp_path / "c", topology="b")))


def test_what_cannot_be_fitted_says_why(tmp_path: Path) -> None:
    few = run_file(tmp_path / "few", sizes=1)
    assert "mpi: a curve needs 2 sizes or more" in refusal(fit(few))
    run_file(tmp_path / "run")
    assert "cannot read" in refusal(fit(tmp_path / "nowhere"))
    assert "the model knows GPUs only" in refusal(fit(COMMITTED, "-o", tmp_path / "x.toml"))
    assert not (tmp_path / "x.toml").exists()
    assert "must end in .toml" in refusal(fit(tmp_path / "run", "-o", tmp_path / "x.json"))


def test_what_three_numbers_do_not_describe_is_in_pieces_with_their_errors(tmp_path: Path) -> None:
    rows = []
    for place in range(10):
        nbytes = 8 * 4**place
        slower = (10 if nbytes >= 8192 else 1) * (1 + 0.02 * (place % 3))
        rows.append(scattered(place, "mpi", (10e-6 + 1e-11 * nbytes) * slower))
    write_run(tmp_path / "step", *rows, topology={"name": "a"})
    out = fit(tmp_path / "step").stdout
    assert "mpi: a single curve misses one size in ten by " in out
    assert ", so 2 straight pieces are used (typical error 1." in out
    assert "\n    8 B to 2 KiB: 10" in out
    assert "\n    8 KiB to 2 MiB: 10" in out
    (said,) = json.loads(fit(tmp_path / "step", "--json").stdout)["curves"]
    assert [(piece["first"], piece["last"]) for piece in said["pieces"]] == [(8, 2048), (8192, 2**21)]
    assert [piece["latency"] for piece in said["pieces"]] == pytest.approx([1e-5, 1e-4], rel=0.05)
    assert [said["rate"], said["pieces"][1]["rate"]] == pytest.approx([1e10] * 2, rel=0.1)
    assert 0.002 < said["errors"]["median"] < said["errors"]["p90"] < 0.04
    assert said["errors"]["median"] < said["errors"]["median_left_out"] < 0.1
    assert said["coefficients"] is None
    for count in (2, 3):
        few = run_file(tmp_path / f"{count}", sizes=count)
        (said, _) = json.loads(fit(few, "--json").stdout)["curves"]
        assert (said["why_pieces"], len(said["pieces"])) == ("a single curve needs 4 sizes", 1)
        assert said["latency"] == pytest.approx(10e-6, rel=0.03)
    (three, _) = json.loads(fit(run_file(tmp_path / "run"), "--json").stdout)["curves"]
    assert (three["pieces"], three["why_pieces"], len(three["coefficients"])) == ([], "", 3)


def calibrated(path: Path) -> tuple[System, list[float]]:
    """The system of a calibration's file, and its factors, with those at single sizes."""
    table = tomllib.loads(path.read_text())["calibration"]
    return files.load(str(path)), [ratio for _, ratio in table.pop("ratios")] + list(table.values())


def test_a_run_over_several_nodes_is_calibrated_as_such(tmp_path: Path) -> None:
    for nodes, options in ((2, ()), (4, ("--nodes", 4))):
        dgx, out = files.load("dgx-h100"), tmp_path / f"{nodes}.toml"
        run = run_on(tmp_path / f"run-{nodes}", dgx.part(16 // nodes).of(nodes))
        done = fit(run, "--on", "dgx-h100", *options, "-o", out)
        assert done.exit_code == 0, done.output + repr(done.exception)
        system, factors = calibrated(out)
        assert replace(system, calibration="") == dgx.of(nodes)
        assert factors == pytest.approx([1] * len(factors), abs=0.01)


def test_an_imported_log_of_several_nodes_is_calibrated(tmp_path: Path) -> None:
    run, log, out = run_on(tmp_path / "run", files.load("dgx-h100").of(2)), tmp_path / "log", tmp_path / "machine.toml"
    for words in (
        ("export", run, "--to", "nccl-tests", "--out", log),
        ("import", log, "--out", tmp_path / "imported"),
        ("predict", "--fit", tmp_path / "imported", "--on", "dgx-h100", "--nodes", "2", "--out", out),
        ("predict", out, "--no-plot", "--out", tmp_path / "predicted"),
        ("check", tmp_path / "imported", "--on", out, "--nodes", "2"),
    ):
        done = CliRunner().invoke(group, [str(word) for word in words])
        assert done.exit_code == 0, (words, done.output, done.exception)
    assert done.output.splitlines()[-1].startswith("collbench: OK ")
    assert calibrated(out)[0].nodes == 2
    assert {row.case.ranks for row in store.read(tmp_path / "predicted").results} == {16}


def test_nodes_that_cannot_be_are_refused(tmp_path: Path) -> None:
    run, out = run_on(tmp_path / "run", files.load("dgx-h100").of(2)), tmp_path / "machine.toml"
    as_dgx = (run, "--on", "dgx-h100", "--out", out)
    for nodes in (3, 1, 32):
        said = refusal(fit(*as_dgx, "--nodes", nodes))
        spread = f"over {counted(nodes, 'node')} of 8 GPUs"
        assert said == f"16 ranks cannot be spread evenly {spread}; choose --nodes from: 2, 4, 8, 16"
    for nodes in (0, -1):
        assert f"--nodes {nodes} is impossible; give at least 1" in refusal(fit(*as_dgx, "--nodes", nodes))
    assert "Invalid value for '--nodes'" in fit(*as_dgx, "--nodes", "x").output
    assert "--nodes names the machine of a calibration; give --out FILE.toml" in refusal(fit(run, "--nodes", 2))
    assert "--on names the machine of a calibration" in refusal(fit(run, "--on", "dgx-h100", "--nodes", 2))
    alone = tmp_path / "alone.toml"
    alone.write_text('name = "box"\n[gpu]\narch = "sm90"\n[node]\ngpus = 8\nfabric = "nvswitch"\n')
    assert "no network cards" in refusal(fit(run, "--on", alone, "--nodes", 2, "-o", out))
    assert not out.exists()
