"""The campaign's tests under pytest: each stage a child that is ended in time; skipped where it says that it cannot."""

import os
import sys
from pathlib import Path

import pytest

from collbench.platforms.gpu import probe
from tools.gpu import bounded, said
from tools.gpu.stages import MOST, STAGES, Stage

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(MOST + 30)]


@pytest.mark.parametrize("stage", [one for one in STAGES if one.part == "tests"], ids=lambda record: record.name)
def test_on_a_gpu(stage: Stage, tmp_path: Path) -> None:
    if not probe.available():
        pytest.skip("no GPU here")
    log = tmp_path / "log.txt"
    program, *arguments = (word.format(folder=tmp_path) for word in stage.command)
    command = [sys.executable, "-m", f"tools.gpu.{program}", *arguments]
    ended = bounded.run(command, log, stage.limit, os.environ, lambda text: None)
    if ended.status == said.SKIPPED:
        pytest.skip(said.why_skipped(log.read_text()))
    assert ended.status == said.GOOD, log.read_text()
