"""How commands end that nobody foresaw: one line, a status, and a place for the traceback."""

import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from collbench import interrupts
from collbench.cli import TOGETHER, _last_resort, _streams, group
from tests.conftest import ROOT, Command


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command with a fault of ours."""

    @click.command()
    def command() -> int:
        return int({}["no such key"])

    monkeypatch.setattr(group, "get_command", lambda context, name: command)


def test_an_error_that_nobody_foresaw_is_one_line_and_a_file(here: Command, broken: None, tmp_path: Path) -> None:
    """It has the traceback, and the line says where it is."""
    done = here("list", COLLBENCH_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("collbench: error: KeyError: 'no such key'; this was not foreseen: the traceback is in ")
    (file,) = (tmp_path / "cache").iterdir()
    assert str(file) in line
    assert file.read_text().startswith("Traceback")


@pytest.mark.parametrize("number", interrupts.ENDING)
def test_a_signal_that_python_took_for_an_error_is_a_signal(
    here: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    """One that comes while a class gets its attributes is a RuntimeError to Python 3.11; nobody has to report that.

    Later ones leave it what it is, and click begins a new line, as after any ^C.
    """

    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            signal.raise_signal(number)

    @click.command()
    def command() -> None:
        type("Made", (), {"field": Field()})

    monkeypatch.setattr(group, "get_command", lambda context, name: command)
    done = here("list", COLLBENCH_CACHE=str(tmp_path / "cache"))
    assert (done.returncode, done.stderr.lstrip("\n")) == (128 + number, "collbench: error: interrupted\n")
    assert not (tmp_path / "cache").exists()


def test_the_traceback_can_be_asked_for(here: Command, broken: None, tmp_path: Path) -> None:
    done = here("list", COLLBENCH_CACHE=str(tmp_path / "cache"), COLLBENCH_TRACEBACK="1")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert not (tmp_path / "cache").exists()


def test_where_no_folder_takes_it_the_line_says_how_to_see_it(
    here: Command, broken: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_last_resort, "_written", lambda text: None)
    done = here("list")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "COLLBENCH_TRACEBACK=1 shows the traceback" in done.stderr


@pytest.mark.parametrize("filters", ["ignore", "default", "error"])
def test_what_is_missing_of_a_run_is_said_whatever_python_is_told_of_warnings(
    collbench: Command, tmp_path: Path, filters: str
) -> None:
    """Once, in a line, and the rest is read."""
    run = tmp_path / "run.jsonl"
    run.write_bytes((ROOT / "results" / "cpu-2-ranks" / "run.jsonl").read_bytes()[:-20])
    done = collbench("compare", str(run), str(run), PYTHONWARNINGS=filters)
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("collbench: ")
    assert "run.jsonl" in line


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("{command} >/dev/full", 1, "collbench: error: cannot write to standard output: No space left on device"),
        ("{command} >&-", 1, "collbench: error: cannot write to standard output: Bad file descriptor"),
        ("{command} 2>/dev/full", 0, ""),
        ("( {command}; echo $? >&2 ) | true", 0, "141"),
    ],
)
def test_streams_that_take_nothing(
    words: str, status: int, said: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """What is lost of the output is said, unless its reader chose to go; messages may be lost."""
    shell = words.format(
        command=f"{sys.executable} -m collbench predict aws-p5 -b 8 -e 64 --no-plot --out {tmp_path}/out"
    )
    done = subprocess.run(["sh", "-c", shell], env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status
    messages = done.stderr.removeprefix("AWS p5.48xlarge, 8 GPUs\n")  # before there was anything to print
    assert messages.startswith(said)
    assert len(messages.splitlines()) == bool(said)


def test_a_character_that_the_terminal_lacks_is_a_question_mark(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="ascii") as file:
        stream = _streams._text((tmp_path / "text").open("wb"), file)
    stream.write("1 µs\n")
    stream.close()
    assert (tmp_path / "text").read_bytes() == b"1 ?s\n"


def test_commands_that_ranks_of_a_launcher_share_are_those_that_ask_for_it() -> None:
    """A command that measures under a launcher must be known before it is imported."""
    asking = {path.stem for path in (ROOT / "collbench" / "cli").glob("[a-z]*.py") if "launched()" in path.read_text()}
    assert asking == set(TOGETHER)
