"""README and documents say what the code does; every command that a page shows is run and prints what it shows."""

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

import collbench
from collbench.cli.group import group
from tests.conftest import ROOT
from tools.shown import LOG, LOG_NAME, RUN, Shown, shown, with_own

README, INDEX = ROOT / "README.md", ROOT / "docs" / "README.md"
ABOUT = [ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "results/README.md")]
PAGES = [README, *ABOUT, ROOT / "tools" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SLOWED = "results/cpu-ab-slowed-ring"  # a comparison with a regression
HERE = {  # for words that stand for a user's own
    **dict.fromkeys(("results/runs/...", "results/runs/MY-RUN", "RUN"), RUN),
    "BEFORE": f"{SLOWED}/as-is",
    "AFTER": f"{SLOWED}/COLLBENCH_KERNELS=my-kernels",
    "DIR": "results",
}
QUICK = {  # what makes commands that measure short
    "all_reduce_perf": "-e 1K -n 3",
    "check": "--budget 1s -e 64",
    "explain": "--impl mpi,one-shot",
    "lesson": "results/cpu-2-ranks results/cpu-2-ranks-explained",
    "step scale": "--budget 0.2 --compute 50us",
    "sweep": "-e 64 -n 7 --impl mpi --no-plot",
    "verify": "--impl mpi --op reduce",
    "verify --races": "--impl one-shot -g 2",
}
MODEL = "layers = 4\nhidden = 256\nheads = 4\nvocabulary = 1000\n"


def anchors(page: Path) -> list[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings]


def test_links_lead_to_files_and_headings_that_exist() -> None:
    for page in PAGES:
        prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)", prose):
            if not target.startswith("http"):
                path, _, anchor = target.partition("#")
                linked = page.parent / path if path else page
                assert linked.exists(), f"{page.name}: {target}"
                assert not anchor or anchor in anchors(linked), f"{page.name}: {target}"


def test_the_index_of_questions_leads_to_every_command_and_page_and_the_readme_to_the_index() -> None:
    text = INDEX.read_text()
    for name in group.list_commands(None):  # type: ignore[arg-type]
        assert f"`collbench {name}" in text, name
    for page in (page for page in PAGES if page.parent == INDEX.parent and page != INDEX):
        assert f"]({page.name}" in text, page.name
    assert "](docs/README.md)" in README.read_text()


def asked() -> list[tuple[str, str, str]]:
    rows = re.findall(r"^\| ([^|*]+) \| `([^`]+)` \| (.+) \|$", INDEX.read_text(), re.MULTILINE)
    return [row for row in rows if row[0].endswith("?")]


def test_a_question_has_a_command_and_a_page() -> None:
    lines = [line for line in INDEX.read_text().splitlines() if "?" in line and line.startswith("|")]
    assert len(asked()) == len(lines) >= 20
    assert len({question for question, *_ in asked()}) == len(lines)
    assert all("](" in page for *_, page in asked())
    targets = {words.removeprefix("make ") for _, words, _ in asked() if words.startswith("make ")}
    assert targets <= set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    calls = [words for _, words, _ in asked() if words.endswith("()")]
    assert all(callable(getattr(collbench, call.removeprefix("collbench.").removesuffix("()"))) for call in calls)


@pytest.mark.full
@pytest.mark.parametrize("words", [words for _, words, _ in asked() if words.startswith("collbench ")])
def test_a_command_of_the_index_answers(words: str, home: Path) -> None:
    one = Shown(INDEX, words, ".", ())
    done = run(f"{with_own(words, HERE)} {quick(words)}", home)
    assert done.returncode in one.statuses, done.stderr
    assert done.stdout


def test_every_path_in_a_page_exists() -> None:
    for page in PAGES:
        for path in re.findall(r"`((?:collbench|kernels|tests|tools|results|docs)/[\w./-]*\w)`", page.read_text()):
            known = path.partition("NAME")[0]
            there = any((folder / known).exists() for folder in (ROOT, page.parent))
            assert there or known.startswith("results/runs"), f"{page.name}: {path}"


def test_a_command_in_a_sentence_has_options_that_exist() -> None:
    current = [page for page in PAGES if page.name != "CHANGELOG.md"]  # which names what is gone, too
    said = [(page, words) for page in current for words in re.findall(r"`collbench ([a-z][^`]*)`", page.read_text())]
    said += [(README, words) for words in re.findall(r"collbench (sweep [^`\n]*)", README.read_text())]
    for page, words in said:
        name, *rest = words.replace("\n", " ").partition(" || ")[0].split()
        command = group.get_command(None, name)  # type: ignore[arg-type]
        if isinstance(command, click.Group) and rest:
            command = command.get_command(click.Context(command), rest[0])
        assert command, f"{page.name}: {words}"
        options = [param for param in command.params if isinstance(param, click.Option)]
        known = {"--help", *(word for option in options for word in (*option.opts, *option.secondary_opts))}
        named = {word for word in rest if re.fullmatch(r"--?[a-zA-Z][\w-]*", word)}
        assert named <= known, f"{page.name}: {words}"


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
    program = [sys.executable, "-m", "collbench"]
    if command[0] == "mpirun":
        program = [str(Path(sys.executable).parent / "mpiexec"), "-n", "2", *program]
        command = command[3:]
    own = command[1:] if command[0] == "collbench" else command
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment |= {"PYTHONPATH": str(ROOT), "COLLBENCH_STATE": str(folder / "state")}
    return subprocess.run(
        [*program, *own], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=250
    )


def name_of(words: str) -> str:
    command = shlex.split(words)
    if "collbench" not in command:
        return command[0]
    place = command.index("collbench") + 1
    two = " ".join(command[place : place + 2])
    return two if command[place] == "step" or two in QUICK else command[place]


def quick(words: str) -> str:
    """What makes a command short; a check of what was measured is."""
    name = name_of(words)
    measures = name != "check" or words.split()[-1] == "check"
    return QUICK.get(name, "") if measures else ""


def shape(line: str) -> str:
    numbers = re.sub(r"\d[\d,.]*(e[+-]?\d+)?", "N", line)
    return " ".join(re.sub(r"N ?(ns|us|ms|s|k|B|KiB|MiB|GiB|%|x)\b", "N", numbers).split())


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page for page in PAGES if shown(page)], ids=lambda page: page.name)
def test_shown_commands_work_and_print_what_is_shown(page: Path, home: Path) -> None:
    for one in shown(page):
        name = name_of(one.words)
        done = run(f"{with_own(one.words, HERE)} {quick(one.words)}", home / one.folder)
        assert done.returncode in one.statuses, f"{one.words}: {done.stderr}"
        seen = str if name == "compare" else shape
        there = {seen(line) for line in done.stdout.splitlines()}
        lacking = [line for line in one.lines if line.strip() != "..." and seen(line) not in there]
        assert not lacking, f"{one.words}: {done.stdout}"
