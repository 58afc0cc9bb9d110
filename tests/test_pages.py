"""Every command that a page shows is run, and prints what the page shows: the same words, with other numbers.

Words that stand for a user's own are replaced by what is here (`HERE`); commands that measure are made short (`QUICK`).
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import click
import pytest

from collbench.cli import group
from tests.conftest import ROOT
from tests.test_docs import PAGES
from tools.shown import LOG, LOG_NAME, RUN, Shown, shown, with_own

HERE = {"results/runs/...": RUN, "results/runs/MY-RUN": RUN, "RUN": RUN}
QUICK = {
    "all_reduce_perf": "-e 1K -n 3",
    "explain": "--impl mpi,one-shot",
    "jitter": "--steps 40 --budget 0.2 --compute 50us",
    "sweep": "-e 64 -n 7 --impl mpi --no-plot",
    "verify": "--impl mpi --op broadcast",
}
MODEL = "layers = 4\nhidden = 256\nheads = 4\nvocabulary = 1000\n"


EVERY = [one for page in PAGES for one in shown(page)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a user's own things: the committed runs, a log of nccl-tests, a model."""
    folder = tmp_path_factory.mktemp("home")
    shutil.copytree(ROOT / "results", folder / "results", ignore=shutil.ignore_patterns("runs", "*.png"))
    (folder / "mine.toml").write_text(MODEL)
    (folder / LOG_NAME).write_text(run(LOG, folder).stdout)
    return folder


def run(words: str, folder: Path) -> CompletedProcess[str]:
    """What the words do, by this Python's collbench; mpirun is that of the MPICH that comes with it, with two ranks."""
    command = shlex.split(words)
    if command[0] == "mpirun":
        words_behind = command[4:] if command[3] == "collbench" else command[3:]
        mpiexec = [str(Path(sys.executable).parent / "mpiexec"), "-n", "2", sys.executable, "-m", "collbench"]
        command = [*mpiexec, *words_behind]
    else:
        own = command[1:] if command[0] == "collbench" else command
        command = [sys.executable, "-m", "collbench", *own]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=100
    )


def name_of(words: str) -> str:
    """The command of collbench that is called."""
    command = shlex.split(words)
    return command[command.index("collbench") + 1] if "collbench" in command else command[0]


def shape(line: str) -> str:
    """Without its numbers, their units, and how wide columns are."""
    numbers = re.sub(r"\d[\d,.]*(e[+-]?\d+)?", "N", line)
    return " ".join(re.sub(r"N ?(ns|us|ms|s|k|B|KiB|MiB|GiB|%|x)\b", "N", numbers).split())


@pytest.mark.parametrize("one", EVERY, ids=lambda one: f"{one.page.stem}: {one.words[:60]}")
def test_a_shown_command_works_and_prints_what_is_shown(one: Shown, home: Path) -> None:
    """Line by line, where the page shows some; `...` stands for more."""
    words = f"{with_own(one.words, HERE)} {QUICK.get(name_of(one.words), '')}"
    done = run(words, home / one.folder)
    assert done.returncode == one.status, done.stderr
    there = {shape(line) for line in done.stdout.splitlines()}
    lacking = [line for line in one.lines if line.strip() != "..." and shape(line) not in there]
    assert not lacking, done.stdout


def test_the_pages_show_commands() -> None:
    """And the search finds them, of all kinds."""
    assert {"predict", "compare", "sweep", "verify", "diagnose", "import", "train", "scale", "jitter"} <= {
        name_of(one.words) for one in EVERY
    }
    assert sum(bool(one.lines) for one in EVERY) > 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_command_in_a_sentence_has_options_that_exist(page: Path) -> None:
    """`collbench NAME ...` between backquotes: the name, and every option."""
    for words in re.findall(r"`collbench ([a-z][^`]*)`", page.read_text().replace("\n", " ")):
        name, *rest = words.partition(" || ")[0].split()
        command = group.get_command(None, name)  # type: ignore[attr-defined]
        assert command, words
        known = {option for param in command.params if isinstance(param, click.Option) for option in param.opts}
        known |= {option for param in command.params for option in param.secondary_opts}
        for word in rest:
            if re.fullmatch(r"--?[a-zA-Z][\w-]*", word):
                assert word in known | {"--help"}, f"{words}: {word}"


def test_a_changed_shape_is_seen() -> None:
    """Another word or column is, another number or width is not."""
    assert shape("  8 B  mpi   897 ns  1.0%") == shape("128 MiB  mpi 86.1 ms   9.6%")
    assert shape("  8 B  mpi   897 ns  ok") != shape("  8 B  mpi   897 ns  ok, picked")
