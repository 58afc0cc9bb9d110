"""What is waited for before the first row is said on a terminal, and on a terminal only."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.held_ranks import go, held
from tests.cli.test_columns import parts
from tests.conftest import of_a_user

CLEARED = b"\r\x1b[K"
SLOW = """
import sys, time
from contextlib import contextmanager
from collbench.cli._progress import awaited, begun

@contextmanager
def session():
    time.sleep({seconds})
    yield

def rows():
    time.sleep({seconds})
    yield from ("first", "second", "third")

with begun(session(), {ranks}, {quiet}):
    print("begun", flush=True)
    for row in awaited(rows(), {quiet}):
        print(row, flush=True)
"""
DRAWN = re.compile(rb"\r\x1b\[K((starting|waiting) [^\r\n]*)?")
STARTING = re.compile(rb"starting 2 ranks, [1-9] s")
FIRST = re.compile(rb"waiting for the first row: [^,]*, then checked, [1-9] s")


def slow(terminal: bool, seconds: float = 1.2, ranks: int = 2, quiet: bool = False, term: str = "xterm") -> bytes:
    """What a slow session and its rows write to a terminal, or into a pipe."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    command = [sys.executable, "-c", SLOW.format(seconds=seconds, ranks=ranks, quiet=quiet)]
    environment = of_a_user() | {"TERM": term}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        written = b"".join(parts(ours))
    os.close(ours)
    assert process.returncode == 0, written
    assert DRAWN.sub(b"", written).split() == [b"begun", b"first", b"second", b"third"]
    return written


def test_what_is_waited_for_is_said_with_its_seconds_and_taken_away() -> None:
    """Nothing of it is left where the rows stand."""
    written = slow(terminal=True)
    assert STARTING.search(written)
    assert FIRST.search(written)
    for word in (b"begun", b"first"):
        assert CLEARED + word in written


@pytest.mark.parametrize(
    "otherwise",
    [{"terminal": False}, {"terminal": True, "quiet": True}, {"terminal": True, "term": "dumb"}],
    ids=["a pipe", "quiet", "a terminal that knows nothing"],
)
def test_nothing_is_said_elsewhere(otherwise: dict[str, bool]) -> None:
    """Not a byte besides the rows."""
    written = slow(**otherwise)  # type: ignore[arg-type]
    assert b"\x1b" not in written
    assert b"ranks" not in written


def test_without_ranks_none_are_started() -> None:
    """A model's rows are waited for all the same."""
    written = slow(terminal=True, ranks=0)
    assert b"starting" not in written
    assert FIRST.search(written)


def test_a_sweep_says_what_it_waits_for(tmp_path: Path) -> None:
    """While its first row is held back; then the table follows on a clean line."""
    words = ["sweep", "--on", "cpu", "--impl", "mpi", "-b", "8", "-e", "8", "-n", "7", "--no-plot", "--out", "own"]
    ours, theirs = pty.openpty()
    command, environment = [sys.executable, "-m", "collbench", *words], held(tmp_path, "own", rows=0)
    environment = of_a_user() | environment | {"TERM": "xterm"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=tmp_path, env=environment) as process:
        os.close(theirs)
        written = b""
        for part in parts(ours):
            written += part
            if FIRST.search(written):
                go(tmp_path)
    os.close(ours)
    assert process.returncode == 0, written
    assert FIRST.search(written)
    assert re.search(rb"\r\x1b\[K\r?\nallreduce, float, sum, 2 ranks", written)
