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
    above = context.parent
    assert above
    group = above.command
    assert isinstance(group, click.Group)
    if name is None:
        click.echo(group.get_help(above))
        return
    _, known, _ = group.resolve_command(above, [name])
    assert known
    with click.Context(known, info_name=name, parent=above, **known.context_settings) as of_command:
        click.echo(known.get_help(of_command))
