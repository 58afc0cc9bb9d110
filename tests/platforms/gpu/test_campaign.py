"""The GPU campaign: its commands are commands, and what hangs is ended."""

import os
import sys
from pathlib import Path

import pytest

from collbench.cli.group import group
from tests.commands.sweep.test_command import alive, wait_for
from tools.gpu.campaign import FAILED, PASSED, SKIPPED, TIMED_OUT, Campaign, Outcome, chosen_stages, in_time, sources
from tools.gpu.stages import STAGES

HANGS = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.usefixtures("all_commands")
def test_every_stage_has_a_name_and_options_that_its_command_takes() -> None:
    assert len({stage.name for stage in STAGES}) == len(STAGES)
    for stage in STAGES:
        program, *words = stage.command
        command, context = group, None
        while program == "collbench" and hasattr(command, "get_command"):
            context = command.make_context(words[0], words, parent=context, resilient_parsing=False)
            name, command, words = command.resolve_command(context, words)
            assert command, stage.name
        if program == "collbench":
            assert command.make_context(name, list(words)), stage.name


def test_a_stage_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.gpu.campaign.GRACE", 0.2)
    with (tmp_path / "log").open("wb") as log:
        assert in_time([sys.executable, "-c", HANGS], 1.0, log.fileno(), dict(os.environ)) is None
        assert in_time([sys.executable, "-c", "raise SystemExit(77)"], 60, log.fileno(), dict(os.environ)) == 77
    child = int((tmp_path / "log").read_text().split()[0])
    wait_for(lambda: not alive([child]))


def test_the_same_command_again_does_what_is_left_then_what_failed_then_the_rest(tmp_path: Path) -> None:
    stages = chosen_stages(["targets", "explain", "kernels", "topology", "verify"])
    campaign = Campaign(tmp_path, stages, 720.0, gpus=1)
    names = [stage.name for stage in stages]
    assert (names, campaign.status()) == (["kernels", "verify", "targets", "explain", "topology"], 3)
    outcomes = (PASSED, TIMED_OUT, SKIPPED, FAILED)
    for stage, outcome in zip(stages, outcomes, strict=False):
        campaign.save(stage, Outcome(outcome, sources(), lines=("41 apples",)))
    assert [stage.name for stage in campaign.order()] == ["topology", "verify", "explain", "targets", "kernels"]
    assert campaign.status() == 1
    page = campaign.page()
    assert page.index("## Failed (1)") < page.index("## Timed out (1)") < page.index("## Passed (1)")
    assert page.count("  - 41 apples") == 4
    assert "Left: topology." in page
    campaign.save(stages[0], Outcome(PASSED, "other sources"))
    assert campaign.order()[0].name == "kernels", "as if it had never begun"
