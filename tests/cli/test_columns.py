"""Tables at 50, 80 and 120 columns, and in a pipe: no line too long, no word broken, what matters stays."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from collbench.cli._columns import Table, wrapped
from collbench.runs.file import read
from tests.cli.held_ranks import go, held
from tests.conftest import ROOT, Command, of_a_user

WIDTHS = (50, 80, 120)
TABLE = Table("{size:>9}  {name:<10} {time:>9} {rate:>8}  {check}", ("rate",))
CELLS = {"size": "8 B", "name": "mpi", "time": "1.5 us", "rate": "0.01", "check": "ok, picked one-shot-ll of them all"}
COMMANDS = {  # and a word that must stand in a line of its own beginning, whatever the width
    "sweep": ("sweep --on cpu --impl mpi,two-shot,ring-flags -e 512K -f 16 --no-plot", "8 B"),
    "sweep of percentiles": ("sweep --on cpu --impl mpi -e 64 -I --no-plot", "8 B"),
    "predict": ("predict dgx-h100 --nodes 4 -b 8 -f 64 --no-plot", "128 MiB"),
    "predict of several": ("predict dgx-h100,ethernet-100g-tcp -b 8 -e 128M -f 4096", "128 MiB"),
    "what if": ("predict dgx-h100 --nodes 64 -b 64M -f 16 --what-if oversubscription=4 --no-plot", "64 MiB"),
    "verify": ("verify --on cpu --impl mpi --op broadcast", "mpi"),
    "list": ("list", "ring-flags"),
    "compare": ("compare {results}/cpu-ab-slowed-ring/as-is {results}/cpu-ab-slowed-ring/{other}", "8 MiB"),
    "diagnose": ("diagnose {results}/cpu-2-ranks", "verdict:"),
    "fit": ("fit {results}/cpu-2-ranks", "two-shot"),
    "scale": ("scale --on dgx-h100 --ranks 8..64 --compute 50ms --gradients 4G", "64"),
    "overlap": ("overlap --on dgx-h100 --compute 20ms --gradients 1G", "nccl"),
    "train": ("train --model gpt2-small --on dgx-a100 --gpus 8 --batch 64", "1"),
    "topo": ("topo dgx-h100", "DGX"),
    "environment": ("help environment", "CXX"),
}


def program(words: list[str]) -> list[str]:
    """The command; that of a sweep has ranks whose times are made up, so that it says the same each time."""
    return [sys.executable, "-m", "tests.cli.made_up_ranks" if words[0] == "sweep" else "collbench", *words]


def on_a_terminal(words: list[str], width: int, folder: Path, **variables: str) -> str:
    """What a command writes to a terminal of that width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = of_a_user() | {"TERM": "xterm"} | variables
    with tempfile.TemporaryFile() as errors:
        command = program(words)
        with subprocess.Popen(command, stdout=theirs, stderr=errors, cwd=folder, env=environment) as process:
            os.close(theirs)
            written = b"".join(parts(ours))
        os.close(ours)
        errors.seek(0)
        assert process.returncode == 0, errors.read().decode()
    return written.decode().replace("\r\n", "\n")


def parts(terminal: int) -> Iterator[bytes]:
    """What is written to a terminal, until nobody holds its other end any more."""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            return
        if not part:
            return
        yield part


def words_of(name: str) -> list[str]:
    """A command with the committed runs in it."""
    other = "COLLBENCH_KERNELS=my-kernels"
    return COMMANDS[name][0].format(results=ROOT / "results", other=other).split()


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_is_too_long_and_no_word_is_broken(name: str, tmp_path: Path) -> None:
    """At three widths; words are those of the pipe, where every column stands in full, but paths may be longer."""
    piped = subprocess.run(
        program(words_of(name)), capture_output=True, text=True, cwd=tmp_path, env=of_a_user(), check=False
    )
    assert piped.returncode == 0, piped.stderr
    there = set(re.sub(r"[\d.]+", "N", piped.stdout).split())
    for width in WIDTHS:
        (folder := tmp_path / str(width)).mkdir()
        told = on_a_terminal(words_of(name), width, folder)
        long = [line for line in told.split("\n") if len(line) > width and "/" not in line]
        assert not long, long
        assert any(line.split()[:1] for line in told.split("\n") if line.strip().startswith(COMMANDS[name][1]))
        broken = {word for word in re.sub(r"[\d.]+", "N", told).split() if word not in there and "/" not in word}
        assert not {word for word in broken if word.isalpha() and len(word) > 3}, broken


def test_a_pipe_has_no_escape_codes_and_a_terminal_hardly_any(tmp_path: Path, collbench: Command) -> None:
    """Rows that are right have none even on a terminal; NO_COLOR and a dumb one have none at all."""
    words = ["sweep", "--on", "cpu", "--impl", "mpi,ring-ll", "-b", "8", "-e", "8", "-n", "7", "--no-plot"]
    assert "\x1b" not in collbench(*words).stdout
    (tmp_path / "terminal").mkdir()
    assert "\x1b" not in on_a_terminal(words, 100, tmp_path / "terminal")


@pytest.mark.parametrize(
    ("variables", "red"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"TERM": ""}, False)]
)
def test_what_failed_is_red_where_colours_are_wanted(variables: dict[str, str], red: bool, tmp_path: Path) -> None:
    """A terminal that knows them, and nobody who asked for none."""
    script = (
        "from collbench.cli._live_table import LiveTable\n"
        "from collbench.measurement import Failed\nfrom tests.conftest import case\n"
        "LiveTable().show('', '', [(Failed(case(), 'mpi', 'cpu', 'died'), 'FAILED: died')])"
    )
    ours, theirs = pty.openpty()
    environment = of_a_user() | {"TERM": "xterm"} | variables
    with subprocess.Popen([sys.executable, "-c", script], stdout=theirs, env=environment) as process:
        os.close(theirs)
        written = b"".join(parts(ours))
    os.close(ours)
    assert process.returncode == 0
    assert b"FAILED: died" in written
    assert (b"\x1b[31m" in written) == red


def test_columns_are_left_out_by_their_importance() -> None:
    """The last one wraps at words, below itself, or below the row where there is hardly any room."""
    assert TABLE.line(CELLS, 120) == "      8 B  mpi           1.5 us     0.01  ok, picked one-shot-ll of them all"
    assert TABLE.left_out(CELLS, 46) == ["rate"]
    assert TABLE.line(CELLS, 50).split("\n") == [
        "      8 B  mpi           1.5 us  ok, picked",
        "                                 one-shot-ll of",
        "                                 them all",
    ]
    assert TABLE.line(CELLS, 40).split("\n") == [
        "      8 B  mpi           1.5 us",
        "           ok, picked one-shot-ll of",
        "           them all",
    ]


@pytest.mark.parametrize("width", [20, 37, 50, 80])
def test_words_go_on_below_their_own_beginning(width: int) -> None:
    """With all words in order, none broken and no line too long."""
    line = "  two-shot beats mpi at every size: 2x at 8 B, 3x at 128 B; not told apart at 512 B"
    told = wrapped(line, width).split("\n")
    assert " ".join(told).split() == line.split()
    assert max(map(len, told)) <= width
    assert all(part.startswith("    ") for part in told[1:])


def test_json_stays_whole_on_a_terminal(tmp_path: Path) -> None:
    """A line of it is a program's, however long."""
    assert json.loads(on_a_terminal(["topo", "dgx-h100", "--json"], 50, tmp_path))


def test_a_reader_that_has_seen_enough_leaves_a_whole_run_file(tmp_path: Path) -> None:
    """`| head -3`: the status of a pipe that nobody reads, no word on stderr but those of before, and rows to read."""
    words = ["sweep", "--on", "cpu", "--impl", "mpi", "-e", "1M", "-n", "7", "--no-plot", "--out", "own"]
    command, environment = [sys.executable, "-m", "collbench", *words], of_a_user() | held(tmp_path, "own", rows=1)
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=tmp_path, env=environment) as process:
            assert process.stdout
            for _ in range(3):
                process.stdout.readline()
            process.stdout.close()
            go(tmp_path)
            assert process.wait(60) == 141
        errors.seek(0)
        assert b"Traceback" not in errors.read()
    run = read(tmp_path / "own")
    assert run.results
    assert all(result.outcome.value == "ok" for result in run.results)
