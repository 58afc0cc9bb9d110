"""Programs that are asked: their answer, their time, and that they end with whoever asked."""

from pathlib import Path

import pytest

from collbench.errors import PlatformError
from collbench.platforms.compiler import ask
from tests.commands.sweep.test_command import alive, wait_for

SLEEP = "sleep 600 & echo $! $$ >{}; wait"


def test_an_answer_is_status_output_and_errors_or_why_there_is_none() -> None:
    assert ask(["sh", "-c", "printf '\\377x'; printf y >&2; exit 3"], 60, "") == (3, "\ufffdx", "y")
    assert ask(["sh", "-c", "kill -9 $$"], 60, "")[0] == 137
    status, output, _ = ask(["sh", "-c", "yes | head -c 1000000"], 60, "")
    assert (status, len(output)) == (0, 1_000_000)
    with pytest.raises(PlatformError, match=r"^no-such-program cannot be run: No such file or directory; buy one$"):
        ask(["no-such-program"], 10, "buy one")


def test_what_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    scratch, numbers = tmp_path / "scratch", tmp_path / "pids"
    scratch.mkdir()
    with pytest.raises(PlatformError, match=r"^sh did not end within 3 s; wait$"):
        ask(["sh", "-c", SLEEP.format(numbers)], 3, "wait", scratch)
    pids = [int(word) for word in numbers.read_text().split()]
    assert len(pids) == 2
    wait_for(lambda: not alive(pids))
