"""The group of all commands: one file each, found by its presence and imported when it is called.

A command's file defines `command`; the first line of its docstring is its line in `collbench --help`, read without
importing it, so that the help needs none of what the commands need.
"""

import ast
import importlib
import pkgutil
from pathlib import Path

import click

from collbench import __version__

_FOLDER = Path(__file__).parent


class Commands(click.Group):
    """The commands that this folder holds; names with an underscore in front are no commands."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Names of all commands."""
        names = (module.name for module in pkgutil.iter_modules([str(_FOLDER)]))
        return sorted(name for name in names if not name.startswith("_"))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import one command."""
        if name not in self.list_commands(context):
            return None
        command: click.Command = importlib.import_module(f"{__package__}.{name}").command
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the choices where a command does not exist."""
        if arguments[0] not in self.list_commands(context) and not arguments[0].startswith("-"):
            choices = ", ".join(self.list_commands(context))
            raise click.UsageError(f"unknown command {arguments[0]!r}; choose from: {choices}")
        return super().resolve_command(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in --help."""
        rows = []
        for name in self.list_commands(context):
            text = (_FOLDER / f"{name}.py").read_text(encoding="utf-8")
            rows.append((name, (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="collbench")
def group() -> None:
    """Find out how fast your GPUs talk to each other, whether that number is right, and where the time goes.

    Start with `collbench sweep --op allreduce`; it needs no GPU.
    """
