"""The campaign's tests under pytest: each stage a child that is ended in time; skipped where it says that it cannot."""

from pathlib import Path

import pytest

from collbench.platforms.gpu import probe
from tools.gpu.campaign import LOG, PASSED, SKIPPED, Campaign
from tools.gpu.stages import STAGES, Stage

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage.tests], ids=lambda stage: stage.name)
def test_on_a_gpu(stage: Stage, tmp_path: Path) -> None:
    gpus = len(probe.memories())
    if gpus < stage.gpus:
        pytest.skip(f"needs {stage.gpus} GPUs")
    campaign = Campaign(tmp_path, [stage], stage.limit + 60.0, gpus)
    campaign.run()
    outcome = campaign.load(stage)
    assert outcome
    if outcome.outcome == SKIPPED:
        pytest.skip("; ".join(outcome.lines))
    assert outcome.outcome == PASSED, (tmp_path / stage.name / LOG).read_text()
