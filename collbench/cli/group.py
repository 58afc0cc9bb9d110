"""All commands: each file in a folder of `commands/` that defines `command`; imported when called.

`command.py` has the name of its folder, any other file its own.  A file that defines SUFFIX makes a command for every
name that ends so.  The first line of a file's docstring is the command's line in `collbench --help`, which reads the
files without importing them; what stands in the docstring as an example ends the command's own help.
"""

from functools import cache
from pathlib import Path
from typing import Any

import click

from collbench import __version__
from collbench.errors import unknown
from collbench.presence import imported, modules

SECTIONS = {
    "Measure": ("check", "sweep", "verify", "explain", "init", "step", "launch"),
    "Understand": ("compare", "diagnose", "fit", "plot", "report"),
    "Predict": ("predict", "train", "topo"),
    "Learn": ("lesson", "exercise"),
    "Files": ("runs", "import", "export"),
}
"""Where `--help` lists a command; the others stand in a last section."""

_COMMAND = r"^(def command\(|command\b.*=)"
_SUFFIX = r'^SUFFIX = "(.+)"'


class Commands(click.Group):
    """The commands of all folders, and those that a family makes, as the programs of nccl-tests."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(_files())

    def resolve_command(self, context: click.Context, arguments: list[str]) -> Any:
        """Name the choices where a command does not exist."""
        if self.get_command(context, arguments[0]) is None:
            raise unknown("command", arguments[0], self.list_commands(context))
        return super().resolve_command(context, arguments)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import one command, or make the one whose name has the ending of a family."""
        if name in _files():
            module: Any = imported(_files()[name])
            command: click.Command = module.command
            examples = [part for part in (module.__doc__ or "").split("\n\n") if part.startswith("For example:")]
            command.epilog = "\n\n".join(f"\b\n{part}" for part in examples)
            return command
        # A family has more names than a list would help with: all_reduce_perf, and every alias of a collective.
        for path, suffix in modules("commands/*/*.py", _SUFFIX):
            if name.endswith(suffix[1]):
                family: Any = imported(path)
                program: click.Command = family.command_named(name)
                return program
        return None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands in --help, by section."""
        summaries = {}
        for name, path in sorted(_files().items()):
            summaries[name] = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix('"""')
        for title, names in SECTIONS.items():
            rows = [(name, summaries.pop(name)) for name in names if name in summaries]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        with formatter.section("More"):
            formatter.write_dl(list(summaries.items()))


@cache
def _files() -> dict[str, Path]:
    """Return the file of every command by its name."""
    files = {}
    for path, _ in modules("commands/*/*.py", _COMMAND):
        # commands/sweep/command.py, but commands/formats/import.py
        files[path.parent.name if path.stem == "command" else path.stem] = path
    return files


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="collbench")
def group() -> None:
    """Find out how fast your GPUs talk to each other, whether that number is right, and where the time goes.

    Start with `collbench sweep`, an all-reduce on all GPUs, or without any on two cores.  `collbench verify` checks a
    new machine, `collbench predict dgx-h100` needs none, and `collbench COMMAND --help` has examples.
    """
