"""Predict what a collective should take on a described system: a sweep on which nothing runs."""

from typing import Any

import click

from collbench.cli._sweep_options import DEFAULTS, shared
from collbench.cli.sweep import MEASURING

_OPTIONS = shared(*(name for name in DEFAULTS if name not in (*MEASURING, "on", "impl")), impl="library")


class _Command(click.Command):
    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Every what-if, looked up for this help alone: the model takes a while to import."""
        from collbench.model.network.what_if import WHAT_IFS

        with formatter.section("What-ifs"):
            formatter.write_dl([(what_if.form, what_if.meaning) for what_if in WHAT_IFS.values()])


@click.command(cls=_Command, context_settings={"show_default": True}, params=_OPTIONS)
@click.argument("system", metavar="SYSTEM|FILE.toml")
@click.option(
    "--what-if",
    "what_ifs",
    multiple=True,
    metavar="CHANGE",
    help="Change the network between nodes, and compare (below); may be given several times.",
)
def command(system: str, what_ifs: tuple[str, ...], **options: Any) -> int:
    """Predict what a collective should take on a described system; nothing runs, no GPU is needed.

    SYSTEM is one that comes with collbench, FILE.toml one of your own.  The same as `collbench sweep --on SYSTEM`, but
    for the library alone unless --impl says otherwise.
    """
    from collbench.cli._predict import compare, find_system, predict

    described = find_system(system, ())
    assert described  # there is nothing else that it could be
    return compare(described, options, what_ifs) if what_ifs else predict(described, options)
