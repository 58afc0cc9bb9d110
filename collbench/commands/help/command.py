"""Explain a command, with examples; without a name, list all commands.

For example:
  collbench help sweep
  collbench help step scale
"""

import click

from collbench.errors import UsageError


@click.command()
@click.argument("names", nargs=-1, metavar="[COMMAND...]")
@click.pass_context
def command(context: click.Context, names: tuple[str, ...]) -> None:
    """Explain a command, with examples; without a name, list all commands."""
    shown = context.parent
    assert shown
    for name in names:
        group = shown.command
        if not isinstance(group, click.Group):
            raise UsageError(
                f"`{shown.command_path}` has no commands of its own; `{shown.command_path} --help` explains it"
            )
        _, below, _ = group.resolve_command(shown, [name])
        assert below
        shown = click.Context(below, info_name=name, parent=shown, **below.context_settings)
    click.echo(shown.command.get_help(shown))
