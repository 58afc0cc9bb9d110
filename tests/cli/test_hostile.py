"""Every command that reads a file gets every hostile file: no traceback, one line, and nothing that a terminal obeys.

Here one in forty of all trials, the same each time; `HOSTILE_PARTS=1` tries all of them.
"""

import os
import re
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import pytest

from collbench.cli import group
from tests.conftest import Command
from tests.hostile_files import ARGUMENTS, COMMANDS, FILE, GOOD, HOSTILE, THINGS, Hostile, run_text

PARTS = int(os.environ.get("HOSTILE_PARTS", "40"))
LONGEST = 20.0  # seconds for one command on a loaded machine; most take a tenth
WIDEST = 6000  # characters of a line for people
WITHOUT_FILES = {"completion", "explain", "help", "jitter", "list", "styles", "verify"}

pytestmark = pytest.mark.filterwarnings("default")


def trials() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Kind of file, command and its arguments."""
    for kind, commands in COMMANDS.items():
        for command, ways in commands.items():
            yield from ((kind, command, arguments) for arguments in ways)


def chosen(*words: str) -> bool:
    """Whether a trial is in this share."""
    return zlib.crc32(" ".join(words).encode(errors="replace")) % PARTS == 0


def complaints(done: CompletedProcess[str], verbatim: bool = False) -> Iterator[str]:
    """What is wrong with how a command ended."""
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
    """What is wrong with the files that it wrote."""
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
    words = {FILE: str(place), GOOD: str(folder / "good"), "{folder}": str(folder)}
    start = time.monotonic()
    done = here(command, *(words.get(word, word) for word in arguments))
    wrong = list(complaints(done, command == "export"))
    if hostile in THINGS and command != "runs" and done.returncode != 2:
        wrong.append(f"status {done.returncode} for what is no file to read")
    if (took := time.monotonic() - start) > LONGEST:
        wrong.append(f"{took:.1f} s")
    return wrong + list(left(folder.parent)) + list(left(folder))


@pytest.mark.parametrize(("kind", "command", "arguments"), list(trials()), ids=str)
def test_hostile_files_end_in_one_line(
    here: Command, tmp_path: Path, kind: str, command: str, arguments: tuple[str, ...]
) -> None:
    """Or are read as far as they can be."""
    wrong = {}
    for number, hostile in enumerate(HOSTILE[kind]):
        if chosen(hostile.name, command, *arguments):
            folder = tmp_path / str(number)
            try:
                if found := tried(here, folder, kind, hostile, command, arguments):
                    wrong[hostile.name] = found
            except Exception as error:
                where = error.__traceback__
                while where and where.tb_next:
                    where = where.tb_next
                at = f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where else ""
                wrong[hostile.name] = [f"{type(error).__name__}: {str(error)[:200]} at {at}"]
            outputs = (
                "figures",
                "report.html",
                "junit.xml",
                "summary.md",
                "ratios.svg",
                "fit.toml",
                "imported",
                "predicted",
            )
            for name in outputs:
                if (tmp_path / name).exists():
                    (tmp_path / name).rename(folder / name)
    assert not wrong, "\n".join(f"{name}: {found}" for name, found in wrong.items())


def test_hostile_words_end_in_one_line(here: Command) -> None:
    """Of whatever length, with whatever signs and numbers."""
    wrong = []
    for arguments in ARGUMENTS:
        if chosen(*arguments):
            start = time.monotonic()
            shown = " ".join(word[:30] for word in arguments)
            try:
                found = list(complaints(here(*arguments)))
            except Exception as error:
                found = [f"{type(error).__name__}: {str(error)[:200]}"]
            found += [f"{took:.1f} s"] if (took := time.monotonic() - start) > LONGEST else []
            wrong += [f"{shown!r}: {found}"] if found else []
    assert not wrong, "\n".join(wrong)


def test_no_command_is_forgotten() -> None:
    """Another command is tried too, or said to read no file."""
    tried_ones = {command for commands in COMMANDS.values() for command in commands}
    assert sorted(tried_ones | WITHOUT_FILES) == group.list_commands(None)  # type: ignore[arg-type]
