"""`--json FILE|-` means the same in all commands that have it, and what they took before still works."""

import json
from pathlib import Path

import pytest

from tests.conftest import ROOT, Command

RUN = str(ROOT / "results" / "cpu-2-ranks")
OTHER = str(ROOT / "results" / "cpu-2-ranks-epyc")
COMMANDS = {
    "fit": ("fit", RUN),
    "runs": ("runs", str(ROOT / "results")),
    "topo": ("topo", "dgx-h100"),
    "topo here": ("topo", "--on", "cpu"),
    "compare": ("compare", RUN, OTHER),
    "predict": ("predict", "dgx-h100", "-b", "8", "-e", "8", "--no-plot"),
    "predict of several": ("predict", "dgx-h100,ethernet-100g-tcp", "-b", "8", "-e", "8"),
}
BEFORE = {
    "fit": ("fit", "--json", RUN),
    "runs": ("runs", "--json", str(ROOT / "results")),
    "topo": ("topo", "--json", "dgx-h100"),
    "topo here": ("topo", "--on", "cpu", "--json"),
    "compare": (*COMMANDS["compare"], "--format", "json"),
    "predict of several": (*COMMANDS["predict of several"], "--format", "json"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_gets_what_standard_output_would(name: str, here: Command, tmp_path: Path) -> None:
    """And standard output then what it has without; with `-` it has the JSON and no more."""
    plain, alone, beside = (here(*COMMANDS[name], *more) for more in ((), ("--json", "-"), ("--json", "a.json")))
    assert [done.returncode for done in (plain, alone, beside)] == [0, 0, 0], alone.stderr + beside.stderr
    printed, written = json.loads(alone.stdout), json.loads((tmp_path / "a.json").read_text())
    assert type(printed) is type(written)
    assert len(printed) == len(written) > 0
    assert beside.stdout.splitlines()[0] == plain.stdout.splitlines()[0]


@pytest.mark.parametrize("name", BEFORE)
def test_the_spelling_of_before_prints_it_too(name: str, here: Command) -> None:
    """Also with a run or a folder behind it."""
    assert json.loads(here(*BEFORE[name]).stdout) == json.loads(here(*COMMANDS[name], "--json", "-").stdout)


def test_a_file_of_any_name_follows_an_equals_sign(here: Command, tmp_path: Path) -> None:
    """Where a word alone would be a run."""
    assert here("topo", "dgx-h100", "--json=named").returncode == 0
    assert json.loads((tmp_path / "named").read_text())["name"]


def test_a_file_that_cannot_be_written_is_an_error_of_one_line(here: Command) -> None:
    """By the name of the option."""
    done = here("topo", "dgx-h100", "--json", "nowhere/a.json")
    assert done.returncode != 0
    assert "--json FILE" in done.stderr
    assert done.stderr.count("\n") == 1
