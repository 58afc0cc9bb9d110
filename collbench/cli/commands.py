"""The group of all commands: a module of this folder that defines `command` is one, and is imported when it is called.

The first line of the module's docstring is the command's line in `collbench --help`, which reads the files without
importing them; what stands in the docstring as an example ends the command's own help.
"""

import importlib
import re
from functools import cache
from pathlib import Path

import click

from collbench import __version__

SECTIONS = {
    "Measure": ("check", "sweep", "verify", "explain", "step", "launch"),
    "Understand": ("compare", "diagnose", "fit", "plot", "report"),
    "Predict": ("predict", "train", "topo"),
    "Learn": ("lesson", "exercise"),
    "Files": ("runs", "import", "export"),
}
"""Where `--help` lists a command; the others stand in a last section."""

_FOLDER = Path(__file__).parent
_IS_COMMAND = re.compile(r"^(def command\(|command\b.*=)", re.MULTILINE)
_SUMMARY = re.compile(r'"""(.*)')


class Commands(click.Group):
    """The commands that this folder holds, and the programs of nccl-tests by their names."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(_summaries())

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import one command, or make the one of a program of nccl-tests."""
        if name.endswith("_perf"):
            from collbench.cli._perf import perf

            return perf(name)
        if name not in _summaries():
            return None
        module = importlib.import_module(f"{__package__}.{name}")
        command: click.Command = module.command
        examples = [part for part in (module.__doc__ or "").split("\n\n") if part.startswith("For example:")]
        command.epilog = "\n\n".join(f"\b\n{part}" for part in examples)
        return command

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the choices where a command does not exist."""
        name = arguments[0]
        if not name.startswith("-") and self.get_command(context, name) is None:
            from collbench.errors import unknown

            raise unknown("command", name, self.list_commands(context))
        return super().resolve_command(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands in --help, by section."""
        summaries = dict(sorted(_summaries().items()))
        for title, names in SECTIONS.items():
            rows = [(name, summaries.pop(name)) for name in names if name in summaries]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        with formatter.section("More"):
            formatter.write_dl(list(summaries.items()))


@cache
def _summaries() -> dict[str, str]:
    """Return the line of every command's file in --help, by its name."""
    summaries = {}
    for path in _FOLDER.glob("[a-z]*.py"):
        text = path.read_text(encoding="utf-8")
        summary = _SUMMARY.match(text)
        if summary and _IS_COMMAND.search(text):
            summaries[path.stem] = summary[1]
    return summaries


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="collbench")
def group() -> None:
    """Find out how fast your GPUs talk to each other, whether that number is right, and where the time goes.

    Start with `collbench sweep`, an all-reduce on all GPUs, or without any on two cores.  `collbench verify` checks a
    new machine, `collbench predict dgx-h100` needs none, and `collbench help COMMAND` has examples.
    """
