"""What tests of commands share: one real sweep, and ranks whose times are made up."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import Result

from collbench.errors import CollbenchError
from collbench.results.base import CaseResult
from collbench.runfile.schema import Header
from collbench.runfile.store import Writer
from tests.commands.made_up_ranks import made_up_ranks
from tests.conftest import ROOT, carried_out, of_a_user

__all__ = ["made_up_ranks"]

RIGHT = r"(?:ok|disturbed: ranks had to wait for a core in \d+% of the samples)"
"""What a row of really measured times says that is right; which of both, is the machine's business."""


class Whole(NamedTuple):
    """A sweep as most users start it, in an empty folder."""

    done: subprocess.CompletedProcess[str]
    start: Path
    folder: Path  # the one that it made


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Real ranks, once for all who look at what came of it."""
    start = tmp_path_factory.mktemp("whole")
    environment = of_a_user() | {"SECRET_TOKEN": "hush", "NCCL_ALGO": "Ring"}
    few = ("-e", "1M", "-f", "131072", "-n", "3", "--starts", "1")
    done = carried_out(start, environment, "sweep", "--on", "cpu", *few)
    assert done.returncode == 0, done.stderr
    (folder,) = (start / "results" / "runs").iterdir()
    return Whole(done, start, folder)


def write_run(folder: Path, *results: CaseResult, status: int | None = 0, **header: Any) -> Path:
    """Write a run with these parts of a header into a folder; without an end where the status is None."""
    with Writer(folder) as writer:
        writer.header(Header.from_json({"started": "2026-01-01T00:00:00+00:00", **header}))
        for result in results:
            writer.append(result)
        if status is not None:
            writer.end("2026-01-01T00:00:01+00:00", status)
    return folder


@pytest.fixture
def broken_ring(tmp_path: Path) -> Path:
    kernels = shutil.copytree(ROOT / "kernels", tmp_path / "kernels")
    right, wrong = "count - tail, world.ranks);", "0, world.ranks);"
    text = (kernels / "ring.cu").read_text()
    assert right in text
    (kernels / "ring.cu").write_text(text.replace(right, wrong))
    return kernels


def refusal(result: Result, status: int = 2) -> str:
    """The one line that the command line would print of an error, with this exit status."""
    assert isinstance(result.exception, CollbenchError), result.output
    assert "\n" not in str(result.exception)
    assert result.exception.exit_status == status
    return str(result.exception)
