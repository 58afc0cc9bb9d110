"""Completion of commands, options and names in a shell: print what it needs, or install it.

For example:
  collbench completion bash --install
  source <(collbench completion bash)
"""

from pathlib import Path
from typing import Any

import click

from collbench.cli._topics import data_folder

SHELLS = {
    "bash": "bash-completion/completions/collbench",
    "zsh": "zsh/site-functions/_collbench",
    "fish": "fish/vendor_completions.d/collbench.fish",
}
"""Where in the user's data folder a shell looks for it; zsh only where $fpath has that folder."""


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.option("--install", is_flag=True, help="Write it where that shell looks for it, below ~/.local/share.")
def command(shell: str, install: bool) -> None:
    """Print what completes commands, options and names in bash, zsh or fish, or install it for new shells."""
    from click.shell_completion import get_completion_class

    from collbench.cli._commands import group
    from collbench.errors import StorageError, writing

    kind = get_completion_class(shell)
    assert kind
    known: Any = group
    text = kind(known, {}, "collbench", "_COLLBENCH_COMPLETE").source()
    if not install:
        click.echo(text)
        return
    path = data_folder() / SHELLS[shell]
    with writing(path, "XDG_DATA_HOME", StorageError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    click.echo(f"completion: {path}")
    if shell == "zsh":
        click.echo(f"add to ~/.zshrc, before compinit: fpath+=({Path(path).parent})", err=True)
