"""The ReFrame check, carried out by ReFrame's local scheduler on this machine's CPU."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import of_a_user
from tests.deploy.programs import DEPLOY, program, run, stand_in
from tests.deploy.test_slurm import LEAST, wrong_kernels

pytestmark = pytest.mark.deploy


def carried_out(folder: Path, options: str, **variables: str) -> tuple[int, str, dict[str, Any]]:
    """Exit status, output and the report's record of the check."""
    collbench = stand_in(folder / "bin", "collbench", f'exec {sys.executable} -m collbench "$@"') / "collbench"
    words = ["--nocolor", "--prefix", folder, "-c", DEPLOY / "reframe" / "collbench_check.py", "-r"]
    words += ["-S", f"CollbenchCheck.executable={collbench}", "-S", f"CollbenchCheck.options={options}"]
    words += [f"--report-file={folder}/report.json"]
    mine = {"COLLBENCH_STATE": str(folder / "state"), "RFM_ENABLE_RESULTS_STORAGE": "0"}
    done = run(program("reframe"), *words, cwd=folder, env=of_a_user() | mine | variables)
    [record] = json.loads((folder / "report.json").read_text())["runs"][-1]["testcases"]
    return done.returncode, done.stdout, record


def test_a_machine_that_is_right_passes_and_its_figures_are_logged(tmp_path: Path) -> None:
    (tmp_path / "floors.toml").write_text(LEAST)
    status, said, record = carried_out(tmp_path, f"--reference {tmp_path}/floors.toml -b 4K -e 4K --budget 1s")
    assert (status, record["result"]) == (0, "pass"), said
    figures = {re.sub(r".*:", "", name): value for name, value in record["perfvalues"].items()}
    assert set(figures) == {"allreduce_4096_auto_time", "allreduce_4096_auto_busbw"}
    time, busbw = (figures[f"allreduce_4096_auto_{name}"][0] for name in ("time", "busbw"))
    assert busbw == pytest.approx(4096 / time / 1e3)  # of two ranks bus and algorithm bandwidth are the same


def test_a_machine_that_computes_wrong_fails_with_the_line(tmp_path: Path) -> None:
    wrong = wrong_kernels(tmp_path)
    status, said, record = carried_out(tmp_path, wrong.pop("CHECK"), **wrong)
    assert (status, record["result"]) == (1, "fail")
    assert "collbench: FAIL allreduce" in record["fail_reason"], said
