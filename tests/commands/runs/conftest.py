"""`collbench runs ...` in this process."""

import subprocess
import sys
from pathlib import Path

import pytest

from collbench import cli
from tests.conftest import Command


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs the command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["collbench", "runs", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main()
        return subprocess.CompletedProcess(arguments, int(str(end.value)), *capfd.readouterr())

    return run
