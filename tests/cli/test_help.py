"""What a user sees before anything runs, and how commands end: help, completion, closed streams, tracebacks."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from collbench.algorithms import implementations
from collbench.cli.group import group
from collbench.cli.options import completed
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.presence import SECTIONS
from tests.conftest import ROOT, Command

NAMES = group.list_commands(None)  # type: ignore[attr-defined]
PARENTS: list[Any] = [group.get_command(None, name) for name in (*NAMES, "all_reduce_perf")]  # type: ignore[arg-type]
COMMANDS = [
    part if name is None else part.get_command(None, name)
    for part in PARENTS
    for name in (part.list_commands(None) if isinstance(part, click.Group) else (None,))
]
TIMES = {"budget", "timeout"}


def helped(*words: str) -> str:
    done = CliRunner().invoke(group, [*words, "--help"], standalone_mode=False)  # type: ignore[arg-type]
    assert done.exception is None, done.exception
    return done.output


def test_bare_collbench_prints_its_help_and_is_no_error(here: Command) -> None:
    for words in ((), ("step",)):
        bare = here(*words)
        assert (bare.returncode, bare.stderr) == (0, "")
        assert bare.stdout == here(*words, "--help").stdout
    for option in ("-V", "--version"):
        assert re.fullmatch(r"collbench, version \d+\.\d+\.\d+(\.dev\d+)?\n", here(option).stdout)


def test_list_names_everything(here: Command) -> None:
    done = here("list")
    assert done.returncode == 0
    for name in (*COLLECTIVES, *implementations(), *DATATYPES, *REDUCTIONS):
        assert name in done.stdout


def test_every_command_ends_its_help_with_examples_of_itself() -> None:
    for name in NAMES:
        examples = re.findall(rf"(?<=collbench ){name}\b([^|)\n]*)", helped(name).partition("For example:")[2])
        assert examples, name
        command = group.get_command(None, name)  # type: ignore[arg-type]
        for example in examples:
            command.make_context(name, example.split(), resilient_parsing=False)


@pytest.mark.usefixtures("all_commands")
def test_help_of_a_command_or_of_one_in_a_group_is_what_its_own_option_prints() -> None:
    words = [(name,) for name in NAMES]
    for name in ("step", "exercise", "list"):
        below: Any = group.get_command(None, name)  # type: ignore[arg-type]
        words += [(name, part) for part in below.list_commands(click.Context(below))]
    for names in words:
        shown = CliRunner().invoke(group, [*names, "--help"], standalone_mode=False)  # type: ignore[arg-type]
        assert helped(*names) == shown.output, names
        assert f" {' '.join(names)} " in shown.output.splitlines()[0]


def test_the_help_of_an_option_says_a_single_default_and_o_is_the_folder() -> None:
    for command in COMMANDS:
        context = click.Context(command, **command.context_settings)
        of_o = "redop" if str(command.name).endswith("_perf") else "out"
        for option in command.params:
            told = option.get_help_record(context)
            assert not told or told[1].count("default: ") < 2, told
            assert ("-o" in option.opts) is (option.name == of_o), (command.name, option)
    assert "[default: 1]" in helped("all_reduce_perf")
    assert "every GPU" not in helped("all_reduce_perf")


def test_an_option_that_takes_a_time_takes_a_unit_in_every_command() -> None:
    context = click.Context(click.Command("any"))
    seen = set()
    for command in COMMANDS:
        for option in command.params:
            if option.name in TIMES:
                seen.add(option.name)
                texts = ("5s", "5000ms", "5", "2min")
                assert [option.type_cast_value(context, text) for text in texts] == [5.0, 5.0, 5.0, 120.0], command.name
                assert option.make_metavar(context) == "TIME", command.name
            elif isinstance(option.type, click.types.FloatParamType):
                assert "seconds" not in (getattr(option, "help", "") or "").lower(), option.opts
    assert seen == TIMES


def test_a_shell_completes_commands_options_and_names() -> None:
    for words, offered in {
        "collbench sw": "sweep",
        "collbench sweep --percen": "--percentiles",
        "collbench sweep --impl mpi,two": "mpi,two-shot",
        "collbench sweep --op allreduce,broad": "allreduce,broadcast",
        "collbench predict hgx-h2": "hgx-h200",
        "collbench verify -d bf": "bfloat16",
        "collbench verify --redop ma": "max",
    }.items():
        asked = {"_COLLBENCH_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        done = CliRunner().invoke(group, [], env=asked, prog_name="collbench")  # type: ignore[arg-type]
        assert [line.partition(",")[2] for line in done.output.split()] == [offered], words
    complete = completed(lambda: ["mpi", "two-shot", "auto"])
    context = click.Context(click.Command("any"))
    assert complete(context, click.Option(["--impl"]), "mpi,") == ["mpi,two-shot", "mpi,auto"]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def command() -> int:
        return int({}["no such key"])

    monkeypatch.setattr(group, "get_command", lambda context, name: command)


def test_a_command_is_a_file_that_defines_one() -> None:
    assert {"sweep", "import", "list"} <= set(NAMES)
    assert not {"library", "ab", "importing"} & set(NAMES)
    lines = CliRunner().invoke(group, ["--help"]).output.splitlines()
    assert [line for line in lines if line and line[0] != " "][2:] == [*SECTIONS]
    for name in NAMES:
        assert len([line for line in lines if line.startswith(f"  {name} ")]) == 1, name


def test_an_error_that_nobody_foresaw_is_one_line_and_a_file(
    here: Command, broken: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    done = here("list")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("collbench: error: KeyError: 'no such key'; this was not foreseen: the traceback is in ")
    (file,) = (tmp_path / "temporary").iterdir()
    assert str(file) in line
    assert file.read_text().startswith("Traceback")


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
    shell = words.format(
        command=f"{sys.executable} -m collbench predict aws-p5 -b 8 -e 64 --no-plot --out {tmp_path}/out"
    )
    done = subprocess.run(["sh", "-c", shell], env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == bool(said)
