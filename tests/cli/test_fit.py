"""`collbench fit`: its table, held-back sizes, what it refuses."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from collbench.analysis.fit.runs import curves
from collbench.cli.fit import command
from collbench.errors import CollbenchError
from collbench.measurement import Measurement
from collbench.runs import file
from collbench.runs.file import Writer
from collbench.runs.header import Header
from tests.conftest import ROOT, case

COMMITTED = ROOT / "results" / "cpu-2-ranks-epyc"


def run_file(folder: Path, sizes: int = 10, topology: str = "a", slope: float = 1e-9) -> Path:
    """A run whose times are a + b*S, for `mpi` and a rung that is quicker for small messages only."""
    with Writer(folder) as writer:
        writer.header(Header.from_json({"topology": {"name": topology}}))
        for place in range(sizes):
            nbytes = 8 * 4**place
            for name, start, per_byte in (("mpi", 10e-6, slope), ("one-shot", 1e-6, 4 * slope)):
                exact = start + per_byte * nbytes
                spread = tuple(exact * (1 + 0.01 * (sample % 5 - 2)) for sample in range(place, place + 9))
                writer.append(Measurement(case(nbytes=nbytes), name, "cpu", 1, spread))
    return folder


def fit(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def refusal(result: Result) -> str:
    """The one line that a user sees."""
    assert isinstance(result.exception, CollbenchError), result.output
    assert "\n" not in str(result.exception)
    return str(result.exception)


def test_a_run_becomes_latency_rate_and_crossing(tmp_path: Path) -> None:
    """The rung and the library cross at (10 us - 1 us) / 3 ns = 3 kB."""
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
    """One line a curve; what lies beyond the largest size is said to be extrapolated."""
    out = fit(run_file(tmp_path / "run")).stdout
    assert "mpi" in out
    assert "one-shot and mpi cross between" in out
    assert "beyond 2 MiB, the largest size fitted, these curves are extrapolations" in out


def test_a_rate_that_no_size_reaches_is_called_extrapolated(tmp_path: Path) -> None:
    """Ten microseconds of latency and at most half a kilobyte."""
    assert "the rate is extrapolated: 2 KiB, the largest size" in fit(run_file(tmp_path / "run", sizes=5)).stdout


def test_runs_are_joined(tmp_path: Path) -> None:
    """Two runs of one machine are one curve each; of two machines they are refused."""
    first, second = run_file(tmp_path / "a"), run_file(tmp_path / "b")
    assert len(json.loads(fit(first, second, "--json").stdout)["curves"]) == 2
    assert "different machines (a; b)" in refusal(fit(first, run_file(tmp_path / "c", topology="b")))


def test_what_cannot_be_fitted_says_why(tmp_path: Path) -> None:
    """Too few sizes, a size that is not there, no run."""
    few = run_file(tmp_path / "few", sizes=3)
    assert "mpi: 3 sizes, 4 are needed" in refusal(fit(few))
    assert "--held-back 16: no such size" in refusal(fit(run_file(tmp_path / "run"), "--held-back", "16"))
    assert "is not a size" in refusal(fit(few, "--held-back", "x"))
    assert "cannot read" in refusal(fit(tmp_path / "nowhere"))
    assert "must end in .toml" in refusal(fit(tmp_path / "run", "-o", tmp_path / "x.json"))


def test_one_curve_without_a_fit_does_not_hide_the_others(tmp_path: Path) -> None:
    """It stands in the table with its reason; the legend alone says the unit of the rates."""
    run = file.read(run_file(tmp_path / "run"))
    with Writer(tmp_path / "more") as writer:
        writer.header(run.header)
        for place, result in enumerate(run.results):
            writer.append(result)
            if result.implementation == "mpi":  # beside it one that is quick and slow by turns
                writer.append(replace(result, implementation="auto", seconds=(1e-6 * 9 ** (place // 2 % 2),) * 9))
    done = fit(tmp_path / "more")
    assert done.exit_code == 0
    assert "auto      not fitted: a tenth of the sizes lies" in done.stdout
    assert "one-shot and mpi cross between" in done.stdout
    assert done.stdout.count("GB/s") == 1


def test_what_was_held_back_is_said_to_be_covered_or_not(tmp_path: Path) -> None:
    """A line for each of the curves."""
    out = fit(run_file(tmp_path / "run"), "--held-back", "512").stdout
    assert out.count("512 B held back: took") == 2
    assert out.count(": covered") == 2


def test_the_committed_run_covers_sizes_that_are_held_back() -> None:
    """Small, middle, and where a cache ends, which is hardest: three of four curves; nine of ten of inner sizes."""
    run = file.read(COMMITTED)
    thirds = sorted({result.case.nbytes for result in run.results})[1:-1:3]
    hard = (512, 2**17, 2**21)
    held = {size: [one for curve in curves([run], [size]) for one in curve.held] for size in {*thirds, *hard}}
    for size in hard:
        assert len(held[size]) >= 8, size
        assert sum(one.covered for one in held[size]) >= 0.75 * len(held[size]), size
    inner = [one for size in thirds for one in held[size] if not one.warning]
    assert len(inner) > 30
    assert sum(one.covered for one in inner) >= 0.88 * len(inner)
    assert all(one.predicted != one.measured for one in inner)


def test_a_calibration_of_a_cpu_is_refused(tmp_path: Path) -> None:
    """The structural model describes GPUs."""
    assert "no GPUs to make a system of" in refusal(fit(COMMITTED, "-o", tmp_path / "x.toml"))
    assert not (tmp_path / "x.toml").exists()
