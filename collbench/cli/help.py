"""Explain a command, with examples; without a name, list all commands.

For example:
  collbench help sweep
"""

import click


@click.command()
@click.argument("name", required=False, metavar="[COMMAND]")
@click.pass_context
def command(context: click.Context, name: str | None) -> None:
    """Explain a command, with examples; without a name, list all commands."""
    from collbench.errors import unknown

    above = context.parent
    assert above
    group = above.command
    assert isinstance(group, click.Group)
    if name is None:
        click.echo(group.get_help(above))
        return
    known = group.get_command(above, name)
    if known is None:
        raise unknown("command", name, group.list_commands(above))
    with click.Context(known, info_name=name, parent=above, **known.context_settings) as of_command:
        click.echo(known.get_help(of_command))
