"""The reference of all options, docs/options.md, from the commands."""

from collections.abc import Iterator
from pathlib import Path

import click

from collbench.cli.group import by_section, group
from tools import ROOT

HEAD = """# Options

Written by `python -m tools.pages options`; `collbench COMMAND --help` adds examples. TIME is `500ms`, `5s`, `2min` or
`12h` (a number alone: seconds), SHARE `5%` or `0.05`, SIZE bytes or `64K`, `1.5G`. An option that an earlier table has
in the same words is only named below a table. See also [variables](measuring.md#variables-of-the-environment), [exit
statuses](measuring.md#exit-statuses) and [programs of nccl-tests](formats.md#the-programs-of-nccl-tests).
"""


def written() -> Iterator[tuple[Path, str]]:
    yield ROOT / "docs" / "options.md", "\n".join([HEAD, *_sections()])


def _sections() -> Iterator[str]:
    said: set[tuple[str, str]] = set()
    context = click.Context(group, info_name="collbench", max_content_width=100)
    records = filter(None, (_record(option, context) for option in group.params))
    yield from ("| option of `collbench` | means |", "|---|---|")
    yield from (f"| `{_cell(names)}` | {_cell(meaning)} |" for names, meaning in records)
    yield ""
    for title, commands in by_section().items():
        yield f"## {title}\n"
        for record in commands:
            command = group.get_command(context, record.name)
            assert command
            yield from _command(command, context, record.name, said)


def _command(command: click.Command, above: click.Context, name: str, said: set[tuple[str, str]]) -> Iterator[str]:
    """Yield the heading of a command, its new options, and the names of options that an earlier command has alike."""
    context = click.Context(command, info_name=name, parent=above, **command.context_settings)
    if isinstance(command, click.Group):
        yield f"### `collbench {name}`\n"
        yield f"{command.get_short_help_str(200)}\n"
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found
            yield from _command(found, above, f"{name} {below}", said)
        return
    yield f"### `{' '.join(['collbench', name, *command.collect_usage_pieces(context)])}`\n"
    yield f"{command.get_short_help_str(200)}\n"
    rows, again = [], []
    for option in command.params:
        record = _record(option, context)
        if record in said:
            again.append(f"`{max(option.opts, key=len)}`")
        elif record:
            said.add(record)
            rows.append(f"| `{_cell(record[0])}` | {_cell(record[1])} |")
    if rows:
        yield from ("| option | means |", "|---|---|", *rows, "")
    if again:
        yield f"As above: {', '.join(again)}.\n"


def _record(option: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    """Return the option's line in the help, even if the option is hidden."""
    hidden = isinstance(option, click.Option) and option.hidden
    if hidden:
        option.hidden = False
    try:
        return option.get_help_record(context)
    finally:
        if hidden:
            option.hidden = True


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
