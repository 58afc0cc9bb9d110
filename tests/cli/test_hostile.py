"""Every command that reads a file gets every hostile file: no traceback, one line, and nothing that a terminal obeys.

`make test` has one in sixty of all trials, the same each time, `make test-all` one in twenty; `HOSTILE_PARTS=1` all.
"""

import os
import re
import traceback
import zlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import pytest

from collbench.cli.group import group
from tests.conftest import Command
from tools.hostile_files import ARGUMENTS, COMMANDS, FILE, GOOD, HOSTILE, THINGS, Hostile, run_text

SHARES = [60, pytest.param(int(os.environ.get("HOSTILE_PARTS", "20")), marks=pytest.mark.full)]
WIDEST = 6000  # characters of a line for people
WITHOUT_FILES = {"exercise", "explain", "startup", "sweep", "verify"}

pytestmark = pytest.mark.filterwarnings("default")


def chosen(share: int, *words: str) -> bool:
    return zlib.crc32(" ".join(words).encode(errors="replace")) % share == 0


def complaints(done: CompletedProcess[str], verbatim: bool = False) -> Iterator[str]:
    if done.returncode not in range(5):
        yield f"status {done.returncode}"
    for text in (done.stdout, done.stderr):
        if "Traceback" in text or "Error:" in text.replace("collbench: error:", ""):
            yield "a traceback"
        if bad := {sign for sign in text if not sign.isprintable() and sign not in ("\n\t\r" if verbatim else "\n")}:
            yield f"signs that a terminal obeys: {sorted(bad)}"
    if wide := max(map(len, done.stderr.split("\n"))) > WIDEST:
        yield f"a line of {wide} characters"
    errors = re.findall(r"^collbench: error: .*", done.stderr, re.MULTILINE)
    if done.returncode in (1, 2) and len(errors) != 1:
        yield f"{len(errors)} lines of error"
    if done.returncode == 2 and not done.stderr.endswith(f"{errors[-1]}\n" if errors else "?"):
        yield "more after the error"


def left(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.suffix in (".svg", ".xml"):
            try:
                ElementTree.parse(path)
            except ElementTree.ParseError as error:
                yield f"{path.name} is no XML: {error}"
        elif path.suffix in (".html", ".md", ".csv") and path.parent == folder:
            text = re.sub(r"<script>.*?</script>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)  # a library's
            if bad := {sign for sign in text if not sign.isprintable() and sign not in "\n\t\u2028\u2029\xa0"}:
                yield f"{path.name} has {sorted(bad)[:5]}"


def tried(
    here: Command, folder: Path, kind: str, hostile: Hostile, command: str, arguments: tuple[str, ...]
) -> list[str]:
    """One trial in a folder of its own, and what went wrong."""
    folder.mkdir()
    (folder / "good").mkdir()
    (folder / "good" / "run.jsonl").write_text(run_text())
    (folder / "bad").mkdir()
    place = folder / "bad" / kind
    hostile.make(place)
    lesson = folder.parent / "lesson"
    lesson.mkdir(exist_ok=True)
    (lesson / "breaks.json").write_text("[]")  # else every trial compiles and breaks kernels
    words = {FILE: str(place), GOOD: str(folder / "good"), "{folder}": str(folder)}
    done = here(command, *(words.get(word, word) for word in arguments))
    wrong = list(complaints(done, command == "export"))
    if hostile in THINGS and command != "list" and "--fleet" not in arguments and done.returncode != 2:
        wrong.append(f"status {done.returncode} for what is no file to read")
    return wrong + list(left(folder.parent)) + list(left(folder))


OUTPUTS = (
    "figures",
    "lesson",
    "report.html",
    "junit.xml",
    "fit.toml",
    "imported",
    "predicted",
    "planned",
)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.timeout(1800)
def test_hostile_files_end_in_one_line(here: Command, tmp_path: Path, kind: str, share: int) -> None:
    wrong, number = [], 0
    for command, ways in COMMANDS[kind].items():
        for arguments, hostile in product(ways, HOSTILE[kind]):
            if not chosen(share, hostile.name, command, *arguments):
                continue
            folder = tmp_path / str(number := number + 1)
            try:
                found = tried(here, folder, kind, hostile, command, arguments)
            except Exception as error:
                found = [traceback.format_exc()[-500:], f"{type(error).__name__}: {str(error)[:200]}"]
            wrong += [f"{command} {arguments}, {hostile.name}: {found}"] if found else []
            for name in OUTPUTS:
                if (tmp_path / name).exists():
                    (tmp_path / name).rename(folder / name)
    assert number
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.timeout(600)
def test_hostile_words_end_in_one_line(here: Command, share: int) -> None:
    wrong = []
    for arguments in ARGUMENTS:
        if chosen(share, *arguments):
            try:
                found = list(complaints(here(*arguments)))
            except Exception as error:
                found = [f"{type(error).__name__}: {str(error)[:200]}"]
            wrong += [f"{[word[:30] for word in arguments]}: {found}"] if found else []
    assert not wrong, "\n".join(wrong)


@pytest.mark.usefixtures("all_commands")
def test_no_command_is_forgotten() -> None:
    tried_ones = {command for commands in COMMANDS.values() for command in commands}
    assert sorted(tried_ones | WITHOUT_FILES) == group.list_commands(None)  # type: ignore[arg-type]
