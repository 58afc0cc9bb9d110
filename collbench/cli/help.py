"""Explain a command or a topic: environment, nccl-tests, status.

For example:
  collbench help sweep
  collbench help environment
"""

import click

from collbench.cli._topics import TOPICS


@click.command()
@click.argument("what", required=False, metavar="[COMMAND|TOPIC]")
@click.pass_context
def command(context: click.Context, what: str | None) -> None:
    """Explain a command, or a topic: environment, nccl-tests, status."""
    from collbench.errors import unknown

    above = context.parent
    assert above
    group = above.command
    assert isinstance(group, click.Group)
    if what is None:
        click.echo(group.get_help(above))
    elif what in TOPICS:
        click.echo(TOPICS[what]())
    elif (known := group.get_command(above, what)) is not None:
        with click.Context(known, info_name=what, parent=above, **known.context_settings) as own:
            click.echo(known.get_help(own))
    else:
        raise unknown("command or topic", what, (*TOPICS, *group.list_commands(above)))
