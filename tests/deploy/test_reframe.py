"""The ReFrame check, carried out by ReFrame's local scheduler on this machine's CPU."""

import json
import re
from pathlib import Path

import pytest

from tests.conftest import of_a_user
from tests.deploy.programs import DEPLOY, GOOD, SLOW, collbench_with, program, run

pytestmark = pytest.mark.deploy


def test_a_machine_that_is_right_passes_with_its_figures_and_one_that_is_not_fails_with_the_line(
    tmp_path: Path,
) -> None:
    for options, status, outcome in ((GOOD, 0, "pass"), (SLOW, 1, "fail")):
        collbench = collbench_with(tmp_path / "bin", options) / "collbench"
        words = ["--nocolor", "--prefix", tmp_path, "-c", DEPLOY / "reframe" / "collbench_check.py", "-r"]
        words += ["-S", f"CollbenchCheck.executable={collbench}", f"--report-file={tmp_path}/{outcome}.json"]
        mine = {"COLLBENCH_STATE": str(tmp_path / "state"), "RFM_ENABLE_RESULTS_STORAGE": "0"}
        done = run(program("reframe"), *words, cwd=tmp_path, env=of_a_user() | mine)
        [record] = json.loads((tmp_path / f"{outcome}.json").read_text())["runs"][-1]["testcases"]
        assert (done.returncode, record["result"]) == (status, outcome), done.stdout
        if options == SLOW:
            assert "collbench: SLOW allreduce" in record["fail_reason"], done.stdout
            continue
        figures = {re.sub(r".*:", "", name): value for name, value in record["perfvalues"].items()}
        assert len(figures) > 1
        for name in figures:
            _, nbytes, *_, figure = name.split("_")
            if figure == "time":  # in microseconds; of two ranks bus and algorithm bandwidth are the same
                time, busbw = figures[name][0], figures[name.removesuffix("time") + "busbw"][0]
                assert busbw == pytest.approx(int(nbytes) / time / 1e3), name
