"""The GPU campaign: its commands are commands, and what hangs is ended."""

import os
import sys
from pathlib import Path

import pytest

from collbench.cli.group import group
from tests.commands.sweep.test_command import alive, wait_for
from tools.gpu.campaign import in_time
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
