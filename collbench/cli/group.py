"""The group of all commands, each imported when it is called.

Records in collbench/presence.py name the commands.  The help of a command ends with the examples in its module's
docstring.
"""

import os
import sys
from pathlib import Path
from typing import Any

import click

from collbench import __version__
from collbench.errors import UsageError, unknown
from collbench.host.launcher import RENDEZVOUS
from collbench.presence import SECTIONS, Command, commands, found
from collbench.present.notices import renamed

_MEETING = (
    "Under a launcher: connect the processes through this shared folder, not through MPI or torch's store. May also "
    "follow the command."
)


class Commands(click.Group):
    """The commands of all folders, and families of commands, such as the programs of nccl-tests."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of all listed commands."""
        return sorted(name for name, record in commands().items() if record.listed)

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Accept the earlier form `help COMMAND` of `COMMAND --help`."""
        if arguments[:1] == ["help"]:
            asked = " ".join([*arguments[1:2], "--help"])
            renamed(" ".join(arguments), asked)
            arguments = asked.split()
        return super().parse_args(context, arguments)

    def resolve_command(self, context: click.Context, arguments: list[str]) -> Any:
        """Resolve a command; an unknown one is an error with the choices, a renamed one prints its present name."""
        if self.get_command(context, arguments[0]) is None:
            raise unknown("command", arguments[0], self.list_commands(context))
        record = found(arguments[0])
        if record and record.now:
            renamed(record.name, record.now)
        if record and record.together:
            arguments = _without_rendezvous(context, arguments)
        return super().resolve_command(context, arguments)

    def invoke(self, context: click.Context) -> Any:
        """Carry out a command; an option without its argument is an error of that command."""
        try:
            return super().invoke(context)
        except click.BadOptionUsage as error:
            command = self.get_command(context, context.invoked_subcommand or "")
            if command and not isinstance(command, click.Group):
                error.ctx = click.Context(command, context, context.invoked_subcommand)
            raise

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Import a command, or make it if its name belongs to a family."""
        record = found(name)
        if not record:
            return None
        code: Any = record.load(record.code)
        command: click.Command | None = code(name) if record.family else code
        if command and not record.family:
            command.epilog = "" if record.now else _examples(record)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands in --help, by section."""
        for title, records in by_section().items():
            formatter.write(f"\n{title}\n")  # no colon: a title may be a question
            with formatter.indentation():
                formatter.write_dl([(record.name, record.line) for record in records])


def by_section() -> dict[str, list[Command]]:
    """Return the records of all listed commands by section, in the order of --help."""
    sections: dict[str, list[Command]] = {title: [] for title in SECTIONS}
    for record in sorted(commands().values(), key=lambda record: record.place):
        if record.listed:
            sections.setdefault(record.section, []).append(record)
    return {title: records for title, records in sections.items() if records}


def _examples(record: Command) -> str:
    """Return the examples of a command's module as paragraphs that click does not wrap."""
    text = sys.modules[f"{record.package}.{record.code.partition(':')[0]}"].__doc__ or ""
    return "\n\n".join(f"\b\n{part}" for part in text.split("\n\n") if part.startswith("For example:"))


def _meet_in(context: click.Context, option: click.Parameter | None, folder: str | None) -> None:
    """Put the folder into the environment, which is read when the processes connect."""
    if folder == "":
        raise UsageError("--rendezvous names no folder; give one that all processes see")
    if folder:
        os.environ[RENDEZVOUS] = str(Path(folder).absolute())


def _without_rendezvous(context: click.Context, arguments: list[str]) -> list[str]:
    """Return a command line without --rendezvous, which may also follow the command."""
    words, left = iter(arguments), []
    for word in words:
        option, equals, folder = word.partition("=")
        if option == "--rendezvous":
            _meet_in(context, None, folder if equals else next(words, ""))
        else:
            left += [word, *words] if word == "--" else [word]
    return left


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="collbench")
@click.option("--rendezvous", help=_MEETING, metavar="FOLDER", expose_value=False, callback=_meet_in)
def group() -> None:
    """Measure how fast your GPUs communicate, check the results, and see where the time goes.

    Start with `collbench sweep`: an all-reduce on all GPUs, or on two CPU cores without one.  `collbench verify` checks
    a new machine, `collbench predict dgx-h100` needs no GPU, and `collbench COMMAND --help` shows examples.
    """
