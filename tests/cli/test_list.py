"""What there is, derived from the registries."""

import click

from collbench import cli
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.implementations import implementations
from tests.conftest import Command


def test_list_names_everything(here: Command) -> None:
    """Collectives, implementations, types and reductions."""
    done = here("list")
    assert done.returncode == 0
    for name in (*COLLECTIVES, *implementations(), *DATATYPES, *REDUCTIONS):
        assert name in done.stdout


def test_an_unknown_command_names_the_choices(here: Command) -> None:
    """One line, exit status 2."""
    done = here("swep")
    assert done.returncode == 2
    choices = ", ".join(cli.group.list_commands(click.Context(cli.group)))
    assert f"unknown command 'swep'; choose from: {choices}\n" in done.stderr
    assert "sweep" in choices
    assert len(done.stderr.strip().splitlines()) == 1
