"""From a measured run to a file that brings the model to its machine, and back."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from collbench.analysis.calibration import calibration, write_calibration
from collbench.errors import UsageError
from collbench.model.equation import SPREAD, Calibration, calibrate, calibration_of
from collbench.model.nccl_terms import terms
from collbench.model.predict import curve
from collbench.results import Measurement
from collbench.runfile.schema import Header
from collbench.runfile.store import Run
from collbench.topology import files
from collbench.topology.files import to_toml
from collbench.topology.system import System
from tests.conftest import case

H100 = files.load("dgx-h100")
SIZES = [2**power for power in range(3, 34, 3)]
MACHINE = Calibration(latency=1.3, filling=1.2, rate=0.93)


def run_of(system: System, how: Calibration | None) -> Run:
    rows = []
    for name in ("allreduce", "allgather"):
        for row in curve(system, [case(name, size, ranks=system.ranks) for size in SIZES], calibration=how):
            rows.append(Measurement(row.case, "nccl", "gpu", 1, (row.seconds,) * 7))
    return Run(Path("run.jsonl"), Header(), tuple(rows), complete=True)


def test_every_preset_survives_being_written(tmp_path: Path) -> None:
    path = tmp_path / "written.toml"
    for name in files.names():
        system = files.load(name)
        path.write_text(to_toml(system, {"rate": 0.9}))
        assert files.load(str(path)) == replace(system, calibration=str(path)), name
    path.write_text(to_toml(replace(H100, name='a "b" \\ c d')))
    assert files.load(str(path)).name == 'a "b" \\ c d'
    factors = tuple(field.name for field in fields(Calibration))
    assert ("file", *factors) == files.CalibrationTable.__struct_fields__
    assert factors == (*SPREAD, "ratios")


def test_a_calibration_finds_the_machine_and_predicts_it(tmp_path: Path) -> None:
    path = write_calibration(tmp_path / "mine.toml", [run_of(H100, MACHINE)], "dgx-h100")
    mine = files.load(str(path))
    cases = [case("reducescatter", size * 5, ranks=8) for size in SIZES]
    for row, like in zip(curve(mine, cases), curve(H100, cases, calibration=MACHINE), strict=True):
        assert row.seconds == pytest.approx(like.seconds, rel=0.03)
    found = calibration_of(mine)
    assert found
    assert found.rate == pytest.approx(MACHINE.rate, rel=0.02)
    other = tmp_path / "other.toml"
    other.write_text(to_toml(H100) + '\n[calibration]\nfile = "mine.toml"\n')
    assert calibration_of(files.load(str(other))) == calibration_of(files.load(str(tmp_path / "mine.toml")))


def test_files_without_factors_and_runs_without_enough_of_the_library_are_refused(tmp_path: Path) -> None:
    text = to_toml(H100)
    bare, path = tmp_path / "bare.toml", tmp_path / "a.toml"
    bare.write_text(text)
    for table, message in (('file = "bare.toml"', "has no factors"), ('file = "none.toml"', "cannot be read")):
        path.write_text(f"{text}\n[calibration]\n{table}\n")
        with pytest.raises(UsageError, match=message):
            calibration_of(files.load(str(path)))
    path.write_text(f'{text}\n[calibration]\nfile = "bare.toml"\nrate = 1.0\n')
    with pytest.raises(UsageError, match="give it or factors"):
        files.load(str(path))
    few = replace(run_of(H100, None), results=())
    with pytest.raises(UsageError, match="needs 4 sizes or more of `nccl`, and the runs have 0"):
        calibration([few], "dgx-h100")
    with pytest.raises(UsageError, match="name it with --on"):
        calibration([run_of(H100, None)], None)


Rows = list[tuple[float, float]]  # bytes, seconds


def measured(described: System, truth: Calibration, sizes: list[int]) -> Rows:
    times = terms(described, "allreduce").at(np.array(sizes, np.float64), truth)
    return list(zip(map(float, sizes), times.tolist(), strict=True))


def test_a_calibration_finds_a_machine_that_follows_the_equation() -> None:
    assert calibrate([(terms(H100, "allreduce"), [])]) == Calibration()
    described = H100.of(4)
    truth = Calibration(network=4.0, filling=1.3, rate=0.9)
    probes = [8, 32 << 10, 1 << 20, 16 << 20, 1 << 30]
    parts = terms(described, "allreduce")
    found = calibrate([(parts, measured(described, truth, probes))])
    sizes = [1 << 12, 1 << 18, 1 << 24, 1 << 32]
    wanted = [seconds for _, seconds in measured(described, truth, sizes)]
    assert parts.at(np.array(sizes, float), found) == pytest.approx(np.array(wanted), rel=0.05)
    # Small sizes leave bandwidth alone, and a spoiled one does not decide.
    rows = measured(described, Calibration(network=4.0), [8, 64, 512])
    assert calibrate([(parts, rows)]).rate == pytest.approx(1.0, abs=0.02)
    spoiled = calibrate([(parts, [(8.0, 3 * rows[0][1]), *rows[1:]])])
    assert parts.at(np.array([64.0]), spoiled) == pytest.approx(rows[1][1], rel=0.1)


def test_measured_sizes_are_met_and_their_neighbours_follow(tmp_path: Path) -> None:
    sizes = [1 << power for power in range(10, 31, 4)]
    rows = measured(H100, Calibration(), sizes)
    bump = sizes.index(1 << 22)
    rows[bump] = (rows[bump][0], 1.5 * rows[bump][1])
    found = calibrate([(terms(H100, "allreduce"), rows)])
    path = tmp_path / "mine.toml"
    path.write_text(to_toml(H100, {"rate": found.rate, "ratios": found.ratios}))
    read = calibration_of(files.load(str(path)))
    assert read
    assert read.ratios == found.ratios
    for nbytes, ratio in ((1 << 22, 1.5), (1 << 24, 1.5**0.5), (1 << 14, 1.0), (1 << 33, 1.0)):
        ((_, plain),) = measured(H100, Calibration(), [nbytes])
        ((_, calibrated),) = measured(H100, found, [nbytes])
        assert calibrated == pytest.approx(ratio * plain, rel=0.08), nbytes
