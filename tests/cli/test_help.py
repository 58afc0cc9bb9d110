"""What a user sees before anything runs: help, examples, variables, completion, and words for a wrong option."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from collbench.cli import _names, _topics, group
from tests.conftest import ROOT, Command

NAMES = group.list_commands(None)  # type: ignore[attr-defined]
SOURCES = sorted((ROOT / "collbench").rglob("*.py"))


def helped(*words: str) -> str:
    """Standard output of `collbench help` and these words."""
    done = CliRunner().invoke(group, ["help", *words], standalone_mode=False)  # type: ignore[arg-type]
    assert done.exception is None, done.exception
    return done.output


def test_bare_collbench_prints_its_help_and_is_no_error(collbench: Command) -> None:
    """On standard output, a line a command, as -h does."""
    bare, asked = collbench(), collbench("-h")
    assert bare.returncode == 0
    assert bare.stdout == asked.stdout
    assert all(re.search(rf"^  {name} ", bare.stdout, re.MULTILINE) for name in NAMES)
    assert not bare.stderr


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version_has_a_short_name(option: str, collbench: Command) -> None:
    """As most tools have it."""
    assert re.fullmatch(r"collbench, version \d+\.\d+\.\d+(\.dev\d+)?\n", collbench(option).stdout)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_ends_its_help_with_examples_of_itself(name: str) -> None:
    """`collbench help NAME` is NAME --help, and the words of an example are options and arguments that it has."""
    text = helped(name)
    assert text == CliRunner().invoke(group, [name, "--help"], standalone_mode=False).output  # type: ignore[arg-type]
    examples = re.findall(rf"(?<=collbench ){name}\b([^|)\n]*)", text.partition("For example:")[2])
    assert examples
    command = group.get_command(None, name)  # type: ignore[attr-defined]
    for example in examples:
        command.make_context(name, example.split(), resilient_parsing=False)


@pytest.mark.parametrize("topic", _topics.TOPICS)
def test_every_topic_is_listed_and_explained(topic: str) -> None:
    """In the help's own line, and in columns of 100 at most."""
    assert topic in helped("help")
    assert len(helped(topic).splitlines()) > 4
    assert max(map(len, helped(topic).splitlines())) <= 100


def test_an_unknown_topic_is_one_line_with_all_choices(collbench: Command) -> None:
    """Commands and topics alike."""
    done = collbench("help", "enviroment")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "environment" in done.stderr
    assert "sweep" in done.stderr


def texts(node: ast.Assign) -> dict[str, str]:
    """The texts that an assignment gives names, `A = "x"` or `A, B = "x", "y"`."""
    (target,), value = node.targets, node.value
    both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
    pairs = zip(target.elts, value.elts, strict=False) if both else [(target, value)]  # type: ignore[attr-defined]
    return {ast.unparse(name): text.value for name, text in pairs if isinstance(text, ast.Constant)}


def read_variables() -> set[str]:
    """Names that the package asks the environment for, wherever they are written."""
    constants: dict[str, str] = {}
    asked: set[str] = set()
    for tree in (ast.parse(path.read_text()) for path in SOURCES):
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                constants |= texts(node)
            if isinstance(node, ast.Call) and re.fullmatch(
                r"(os\.)?(environ(ment)?\.get|getenv)", ast.unparse(node.func)
            ):
                asked.add(ast.unparse(node.args[0]))
    names = {str(constants.get(word, word.strip("'\""))) for word in asked}
    return {name for name in names if re.fullmatch(r"[A-Z][A-Z0-9_]+", name)}


def test_every_variable_that_is_asked_for_is_in_the_help() -> None:
    """And none that nobody asks for, but those of libraries and of words that several have."""
    listed = {variable.name for variable in _topics.VARIABLES}
    asked = read_variables()
    assert {"COLLBENCH_CACHE", "CXX", "NCCL_TESTS_MIN_BW"} <= asked, "the search itself"
    launchers = {name for name in asked if re.match(r"(OMPI|PMI|MV2|SLURM|WORLD|RANK)", name)}
    own = {"NCCL_MAX_CTAS", "PYTHONPATH"}  # kept in run files; made safe
    assert asked - launchers - own <= listed
    text = "".join(path.read_text() for path in SOURCES if path.name != "_topics.py")
    assert {name for name in listed if name not in text} <= {"NO_COLOR", "COLUMNS"}
    assert set(re.findall(r"COLLBENCH_(?!LINK|SUPERVISOR|PLATFORM|COMPLETE)[A-Z]+", text)) <= listed


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("sweep", "--minbyte", "8"), "did you mean --minbytes"),
        (("sweep", "-B", "8"), "did you mean -b?"),
        (("plot", "--formats", "png"), "did you mean --format"),
        (("sweep", "-k"), "unknown option -k; `collbench sweep --help`"),
        (("all_reduce_perf", "--iter", "9"), "did you mean --iters"),
    ],
)
def test_an_unknown_option_names_its_neighbours(words: tuple[str, ...], told: str, collbench: Command) -> None:
    """In one line, with status 2."""
    done = collbench(*words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert told in done.stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("collbench sw", {"sweep"}),
        ("collbench sweep --percen", {"--percentiles"}),
        ("collbench sweep --impl mpi,two", {"mpi,two-shot"}),
        ("collbench sweep --op allreduce,broad", {"allreduce,broadcast"}),
        ("collbench sweep --on hgx-h2", {"hgx-h200"}),
        ("collbench verify -d bf", {"bfloat16"}),
        ("collbench verify -o ma", {"max"}),
    ],
)
def test_a_shell_completes_commands_options_and_names(words: str, offered: set[str], collbench: Command) -> None:
    """As bash asks for it; of several names with commas the last."""
    asked = {"_COLLBENCH_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = collbench(**asked)
    assert {line.partition(",")[2] for line in done.stdout.split()} == offered


def test_a_name_that_is_there_is_not_offered_again() -> None:
    """In a list with commas."""
    context = click.Context(click.Command("any"))
    complete = _names.completed(lambda: ["mpi", "mpi-python", "auto"])
    assert complete(context, click.Option(["--impl"]), "mpi,") == ["mpi,mpi-python", "mpi,auto"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_or_installed_where_the_shell_looks(
    shell: str, collbench: Command, tmp_path: Path
) -> None:
    """The same text either way."""
    printed = collbench("completion", shell).stdout
    assert "_COLLBENCH_COMPLETE" in printed
    done = collbench("completion", shell, "--install", XDG_DATA_HOME=str(tmp_path))
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert f"completion: {file}" in done.stdout
    assert file.read_text() + "\n" == printed or file.read_text() == printed


def test_bash_can_read_what_it_is_given(collbench: Command) -> None:
    """By its own check of syntax."""
    text = collbench("completion", "bash").stdout
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
    assert sys.platform.startswith("linux")
