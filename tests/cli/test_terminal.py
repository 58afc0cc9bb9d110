"""What a terminal shows: tables of its width, rows as they arrive, colours, and what is waited for."""

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from click.testing import CliRunner

from collbench.cli import progress
from collbench.cli.progress import LiveTable
from collbench.present import notices
from collbench.present.terminal import wrapped
from collbench.results import Failed, Mismatch, Reported, Result, Skipped
from tests.conftest import ROOT, Command, case, measurement, of_a_user

WAITED = (1.0, 7.9, 8.1, 9.0, 15.0, 16.2, 30.0)  # seconds
RESULTS = ROOT / "results"
AB = RESULTS / "cpu-ab-slowed-ring"
FEW = {  # and a word with which a line must begin, whatever the width; the last is for programs
    "sweep --on cpu --impl mpi,two-shot,ring-flags -e 512K -f 256 --no-plot": "8 B",
    "predict dgx-h100,ethernet-100g-tcp -b 8 -e 128M -f 4096": "128 MiB",
    "topo dgx-h100 --json": "{",
}
MORE = {
    "sweep --on cpu --impl mpi -e 64 -I --no-plot": "8 B",
    "verify --on cpu --impl mpi --op broadcast": "mpi",
    "predict dgx-h100 --nodes 64 -b 64M -f 16 --what-if oversubscription=4 --no-plot": "64 MiB",
    "list": "ring-flags",
    f"compare {AB}/as-is {AB}/COLLBENCH_KERNELS=my-kernels": "8 MiB",
    "list --help": "Usage",
    "topo dgx-h100": "DGX",
}


def in_a_terminal(command: list[str], folder: Path, width: int, **variables: str) -> str:
    """What a program writes to a terminal of that width on standard output; its messages are not looked at."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = of_a_user() | {"TERM": "xterm"} | variables
    with tempfile.TemporaryFile() as errors:
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


def test_what_open_mpi_gives_its_processes_is_no_terminal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "collbench", "list"]
    written = in_a_terminal(command, tmp_path, 40, OMPI_COMM_WORLD_RANK="0")
    assert max(map(len, written.splitlines())) > 80
    assert "\x1b" not in written


@pytest.mark.parametrize(
    ("commands", "widths"), [(FEW, (50,)), pytest.param(MORE | FEW, (50, 80), marks=pytest.mark.full)], ids=["", "all"]
)
def test_no_line_is_too_long_and_no_word_is_broken(
    tmp_path: Path, commands: dict[str, str], widths: tuple[int, ...]
) -> None:
    """Words are those of the pipe, where every column stands in full, but paths may be longer.

    Rows that are right have no escape codes, and JSON stays whole: a line of it is a program's, however long.
    """
    program = [sys.executable, "-m", "tests.commands.made_up_ranks", *commands]
    piped = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path, env=of_a_user(), check=True).stdout
    for width in widths:
        (folder := tmp_path / str(width)).mkdir()
        shown = in_a_terminal(program, folder, width)
        *told, json_line, _ = shown.split("\f\n")
        assert json.loads(json_line)
        assert "\x1b" not in shown + piped
        for (words, begins), text, whole in zip(
            list(commands.items())[:-1], told, piped.split("\f\n")[:-2], strict=True
        ):
            lines = text.split("\n")
            assert not [line for line in lines if len(line) > width and "/" not in line], (words, width)
            assert any(line.strip().startswith(begins) for line in lines), (words, width)
            there = set(re.sub(r"[\d.]+", "N", whole).split())
            text = re.sub(r"columns left out for want of room: .*", "", text)
            broken = {word for word in re.sub(r"[\d.]+", "N", text).split() if word not in there and "/" not in word}
            assert not {word for word in broken if word.isalpha() and len(word) > 3}, (words, width)


def test_the_paths_of_runs_stay_whole_in_every_terminal() -> None:
    program = [sys.executable, "-m", "collbench", "list", "runs", "results", "-v"]
    paths = {f"results/{path.parent.relative_to(RESULTS)}" for path in RESULTS.rglob("run.jsonl")}
    for width in (50, 80, 120):
        lines = in_a_terminal(program, ROOT, width).splitlines()
        assert paths <= {line.split()[-1] for line in lines}, width
        assert lines[0].split()[-1] == "path"


def test_lines_are_broken_at_words_and_never_between_a_number_and_its_unit() -> None:
    line = "  one-shot wins from 8 B to 64 KiB, 4x at 64 KiB, ± 10 % or 3.5 us"
    for width in range(20, 70):
        parts = wrapped(line, width).split("\n")
        assert max(map(len, parts)) <= width
        assert " ".join(part.strip() for part in parts) == line.strip()
        assert not any(re.search(r"\d$", part) for part in parts), parts


def test_footnotes_are_as_narrow_as_the_table_and_an_error_is_one_line(collbench: Command) -> None:
    done = collbench("predict", "dgx-h100", "-e", "64", "--no-plot", COLUMNS="60")
    assert "busbw" in done.stderr
    assert max(len(line) for line in (done.stdout + done.stderr).splitlines() if "/" not in line) <= 60
    assert collbench("predict", "moon", COLUMNS="60").stderr.count("\n") == 1


RED = "\x1b[31m"
WRONG = Mismatch(1, 7, 0, "3.5", "4.5", 12)


@contextmanager
def output(color: bool) -> Iterator[io.BytesIO]:
    """What is printed inside, as to a terminal that knows colours, or to none."""
    wanted = mock.patch("collbench.cli.progress.coloured", return_value=color)
    with CliRunner().isolation(color=color) as (stdout, *_), wanted:
        yield stdout


def shown(*rows: tuple[str, Result], color: bool = False, heading: str = "columns") -> str:
    with output(color) as stdout:
        table = LiveTable()
        for title, result in rows:
            table.show(title, heading, [(result, f"row of {result.implementation}")])
        table.close()
        return stdout.getvalue().decode()


def test_columns_are_named_where_the_title_changes() -> None:
    rows = [("one", measurement("mpi")), ("one", measurement("nccl")), ("two", measurement("mpi"))]
    assert shown(*rows) == "\none\ncolumns\nrow of mpi\nrow of nccl\n\ntwo\ncolumns\nrow of mpi\n"
    assert shown(*rows, heading="") == "row of mpi\nrow of nccl\nrow of mpi\n"


def test_what_is_wrong_or_failed_is_red() -> None:
    for result, red in (
        (Failed(case(), "mpi", "cpu", "a rank died"), True),
        (Skipped(case(), "FAILED", "cpu", "WRONG is but a word here"), False),
        (Reported(case(), "mpi", "cpu", 1e-6, "mean", wrong_elements=3), True),
    ):
        assert (RED in shown(("one", result), color=True)) is red, result
    pair = [(measurement("mpi"), "right"), (replace(measurement("mpi"), mismatch=WRONG), "wrong")]
    with output(color=True) as stdout:
        LiveTable().show("one", "columns", pair)
        said = stdout.getvalue().decode()
    assert f"{RED}wrong" in said
    assert f"{RED}right" not in said


def test_ranks_that_start_slowly_are_waited_for_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    said, lines = threading.Event(), []
    monkeypatch.setattr(notices, "say", lambda line: (lines.append(line), said.set()))
    monkeypatch.setattr(notices, "SECONDS", 0.01)

    @contextmanager
    def session(seconds: float) -> Iterator[None]:
        said.wait(seconds)
        yield

    with notices.started(session(60)):
        assert lines == [f"collbench: {notices.RANKS}"]
        assert "GPU" not in lines[0], "there may be none here"
    monkeypatch.setattr(notices, "SECONDS", 3600)
    with notices.started(session(0)):
        assert len(lines) == 1


def test_without_a_terminal_the_first_line_of_what_is_at_work_is_said_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for what, said in (("the first row", (8.1, 16.2, 30.0)), ("", ())):
        now[0] = 0.0
        with progress.waiting(what) as tell:
            for now[0] in WAITED:
                tell(f"after {now[0]} s\ntimes so far")
        assert capsys.readouterr().err == "".join(f"collbench: at work: after {at} s\n" for at in said)
