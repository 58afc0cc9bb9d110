"""The group of all commands: one file each, found by its presence and imported when it is called.

A command's file defines `command`; the first line of its docstring is its line in `collbench --help`, read without
importing it, so that the help needs none of what the commands need.  What stands there as an example is the end of its
own help.
"""

import ast
import difflib
import importlib
import pkgutil
import sys
from pathlib import Path

import click

from collbench import __version__
from collbench.cli._perf import perf

EXAMPLES = "For example:"
_FOLDER = Path(__file__).parent


class Commands(click.Group):
    """The commands that this folder holds; names with an underscore in front are no commands."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Names of all commands."""
        names = (module.name for module in pkgutil.iter_modules([str(_FOLDER)]))
        return sorted(name for name in names if not name.startswith("_"))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import one command, or make that of a program of nccl-tests."""
        if name not in self.list_commands(context):
            return perf(name)
        command: click.Command = importlib.import_module(f"{__package__}.{name}").command
        parts = (sys.modules[f"{__package__}.{name}"].__doc__ or "").split("\n\n")
        command.epilog = "\n\n".join(f"\b\n{part}" for part in parts if EXAMPLES in part)
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the choices where a command does not exist."""
        known = self.list_commands(context)
        if (
            arguments[0] not in known
            and not arguments[0].startswith("-")
            and not self.get_command(context, arguments[0])
        ):
            raise click.UsageError(f"unknown command {arguments[0]!r}; choose from: {', '.join(known)}")
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
@click.version_option(__version__, "-V", "--version", prog_name="collbench")
def group() -> None:
    """Find out how fast your GPUs talk to each other, whether that number is right, and where the time goes.

    Start with `collbench sweep`, an all-reduce on all GPUs, or without any on two cores.  `collbench verify` checks a
    new machine, `collbench predict dgx-h100` needs none, and `collbench help COMMAND` has examples.
    """


def unknown_option(error: click.NoSuchOption) -> str:
    """In one line: the option, those that look like it, and where all of them are."""
    if not error.ctx:
        return error.format_message()
    command = error.ctx.command
    known = [name for param in command.params if isinstance(param, click.Option) for name in param.opts]
    wanted = error.option_name
    alike = [name for name in known if name.lower() == wanted.lower()] if len(wanted) == 2 else []
    alike += difflib.get_close_matches(wanted, [name for name in known if name.startswith("--")], 3)
    near = f"did you mean {' or '.join(dict.fromkeys(alike))}? " if alike else ""
    return f"unknown option {wanted}; {near}`{error.ctx.command_path} --help` has all"
