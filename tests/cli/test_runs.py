"""`collbench runs`: what it prints, where, and how it says no; in real processes and on a real sweep."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from collbench import cli
from collbench.runs.file import NAME, Writer
from collbench.runs.header import Header
from collbench.runs.listing import History
from tests.conftest import Command, measurement

DAYS = {"old": "2026-03-01", "middle": "2026-03-02", "new": "2026-03-03"}


def write(folder: Path, started: str, topology: str = "2 sockets", micros: float = 1) -> Path:
    with Writer(folder) as writer:
        writer.header(
            Header.from_json({"started": started, "environment": {"host": "node1"}, "topology": {"name": topology}})
        )
        writer.append(measurement(seconds=(micros * 1e-6,) * 7))
        writer.end(started, 0)
    return writer.path


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Three runs where a sweep leaves them; the middle one is the fastest."""
    for name, day in DAYS.items():
        write(tmp_path / "results" / "runs" / name, day, micros=1 if name == "middle" else 2)
    return tmp_path / "results" / "runs"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """`collbench runs ...` with a cache of its own, from the command line's words to its exit; in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLLBENCH_CACHE", str(tmp_path / "cache"))

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["collbench", "runs", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main()
        return subprocess.CompletedProcess(arguments, int(str(end.value)), *capfd.readouterr())

    return run


def test_a_real_sweep_is_listed_tagged_and_a_baseline(here: Command, runs: Command, tmp_path: Path) -> None:
    """From measuring to choosing, without a path but the ones that were printed."""
    arguments = ("--on", "cpu", "--impl", "mpi", "-e", "64", "-n", "3", "--no-plot")
    for _ in range(2):
        done = here("sweep", *arguments)
        assert done.returncode == 0, done.stderr
    listed = runs()
    assert (listed.returncode, listed.stderr) == (0, "")
    heading, *rows = listed.stdout.splitlines()
    assert heading.split() == ["started", "host", "topology", "collectives", "implementations", "rows", "run"]
    newest, oldest = (row.split()[-1] for row in rows)
    assert runs("--tag", "good", oldest).stdout == f"{oldest}: good\n"
    for word in ("last", "best", "good"):
        assert runs("--baseline", word, newest).stdout == f"{oldest}/{NAME}\n"
    (fields,) = json.loads(runs("--tag-is", "good", "--json").stdout)
    assert (fields["path"], fields["tags"], fields["complete"]) == (f"{oldest}/{NAME}", ["good"], True)
    assert (fields["collectives"], fields["implementations"], fields["rows"]) == (["allreduce"], ["mpi"], 2)


@pytest.mark.usefixtures("three")
def test_options_choose_what_is_listed(runs: Command) -> None:
    """Each by itself; the newest first."""

    def listed(*arguments: str) -> list[str]:
        done = runs(*arguments)
        assert done.returncode == 0, done.stderr
        return [row.split("/")[-1] for row in done.stdout.splitlines()[1:]]

    assert listed() == ["new", "middle", "old"]
    assert listed("-n", "1") == ["new"]
    assert listed("--since", "2026-03-02") == ["new", "middle"]
    assert listed("--until", "2026-03-02") == ["middle", "old"]
    assert listed("--op", "all_reduce_perf,broadcast", "--on", "cpu", "--host", "node*", "--topology", "SOCK") == [
        "new",
        "middle",
        "old",
    ]
    assert listed("results/runs/old") == ["old"]


@pytest.mark.parametrize(("options", "what"), [((), "-n 3 lists them too"), (("--json",), "-n 3 lists them too")])
@pytest.mark.usefixtures("three")
def test_what_is_left_out_is_said_on_stderr(runs: Command, options: tuple[str, ...], what: str) -> None:
    """So that nobody takes a part for all, and JSON stays JSON."""
    done = runs("-n", "1", *options)
    assert what in done.stderr
    assert "lists" not in done.stdout


def test_a_first_look_says_what_to_do(runs: Command, tmp_path: Path) -> None:
    """No runs are no error; but a folder that is named must be there."""
    done = runs()
    assert (done.returncode, done.stdout) == (0, "")
    assert "no runs in results/runs yet: `collbench sweep" in done.stderr
    assert json.loads(runs("--json").stdout) == []
    assert list(tmp_path.iterdir()) == [tmp_path / "cache"] or not list(tmp_path.iterdir())
    missing = runs("nowhere")
    assert missing.returncode == 2
    assert "no folder nowhere" in missing.stderr


@pytest.mark.usefixtures("three")
def test_filters_that_let_nothing_pass_say_so(runs: Command) -> None:
    """Rather than look like an empty folder."""
    done = runs("--host", "node2")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "nothing to list in results/runs: none of its 3 runs match\n"


REFUSED = {
    "unknown collective": (("--op", "allreduc"), "choose from: allreduce"),
    "unknown platform": (("--on", "tpu"), "choose from: gpu, cpu, model"),
    "no date": (("--since", "soon"), "--since 'soon' is no time"),
    "two jobs": (("--tag", "a", "new", "--baseline", "last", "new"), "--tag and --baseline are two jobs"),
    "reserved tag": (("--tag", "last", "new"), "'last' cannot be a tag"),
    "no such run": (("--baseline", "last", "nix"), "nix"),
    "no such tag": (("--baseline", "nix", "new"), "choose from: last, best"),
    "not tagged": (("--untag", "good", "new"), "its tags: none"),
    "nothing before": (("--baseline", "last", "old"), "no last run"),
    "a file": ((f"results/runs/new/{NAME}",), "give the folder"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.usefixtures("three")
def test_wrong_words_are_one_line_and_exit_status_2(runs: Command, name: str) -> None:
    """Which names what is right."""
    arguments, message = REFUSED[name]
    done = runs(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.usefixtures("three")
def test_a_run_may_be_named_by_its_place_in_the_folder(runs: Command) -> None:
    """Or by its path, or its file's."""
    for new in ("new", "results/runs/new", f"results/runs/new/{NAME}"):
        assert runs("--baseline", "last", new).stdout == f"results/runs/middle/{NAME}\n"
        assert runs("--tag", "good", new).returncode == runs("--untag", "good", new).returncode == 0
    assert runs("--baseline", "best", "new").stdout == f"results/runs/middle/{NAME}\n"


def test_broken_files_are_told_beside_the_list(runs: Command, three: Path) -> None:
    """A few by their reason, all of them in JSON."""
    for number in range(7):
        (three / f"bad{number}").mkdir()
        (three / f"bad{number}" / NAME).write_text("what is this\nwhat\n")
    done = runs()
    assert done.returncode == 0
    assert done.stdout.count("broken") == 7
    assert "bad6/run.jsonl: run.jsonl:1: not JSON\n" in done.stderr
    assert done.stderr.count("not JSON") == 5
    assert "and 2 more broken ones" in done.stderr
    assert len([entry for entry in json.loads(runs("--json").stdout) if "not JSON" in entry["broken"]]) == 7


@pytest.mark.usefixtures("three")
def test_whoever_reads_a_few_lines_only_gets_them(environment: dict[str, str], tmp_path: Path) -> None:
    """`collbench runs | head -1`, in a shell: no traceback behind it."""
    command = f"'{sys.executable}' -m collbench runs | head -1"
    environment |= {"COLLBENCH_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True
    )
    assert done.stdout.startswith("started")
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")


def test_a_narrow_terminal_keeps_the_paths(
    runs: Command, three: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """In a real terminal; a pipe gets everything."""
    topology = "8 x NVIDIA H100 80GB HBM3, NVSwitch of the third generation, and a long list of other hardware"
    write(three / "far", "2026-03-04", topology=topology)
    assert topology in runs().stdout
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 70, 0, 0))
    environment |= {"COLLBENCH_CACHE": str(tmp_path / "cache"), "TERM": "dumb"}
    command = [sys.executable, "-m", "collbench", "runs"]
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, cwd=tmp_path, env=environment, check=True)
    os.close(theirs)
    text = os.read(ours, 65536).decode().replace("\x1b[2m", "").replace("\x1b[0m", "")
    os.close(ours)
    rows = text.splitlines()
    assert done.stderr == b""
    assert len(rows) == 5
    assert all(len(row) <= 70 for row in rows)
    assert "…" in rows[1]
    assert [row.split()[-1] for row in rows[1:]] == [f"results/runs/{name}" for name in ("far", *reversed(DAYS))]


def test_the_path_of_a_baseline_is_printed_byte_for_byte(
    runs: Command, three: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """A script can open it, even if its name is no text; the list shows it as far as it is."""
    odd = Path(os.fsdecode(os.fsencode(three) + b"/\xff \x1b"))
    write(odd, "2026-03-02T12:00")
    environment |= {"COLLBENCH_CACHE": str(tmp_path / "cache"), "PYTHONIOENCODING": "utf-8:strict"}
    command = [sys.executable, "-m", "collbench", "runs", "--baseline", "last", "new"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment, check=True)
    assert done.stdout == b"results/runs/\xff \x1b/run.jsonl\n"
    assert "\x1b" not in runs().stdout
    assert [entry.path.parent for entry in History(three).entries][1] == odd
