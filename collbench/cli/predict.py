"""Predict what a collective should take on a described system: a sweep on which nothing runs.

For example:
  collbench predict dgx-h100 --nodes 4 -b 8 -f 64
  collbench predict dgx-h100 --nodes 64 -b 64M -f 16 --what-if oversubscription=4
"""

from typing import Any

import click

from collbench.cli._sweep_options import DEFAULTS, shared
from collbench.cli.sweep import MEASURING

_OPTIONS = shared(*(name for name in DEFAULTS if name not in (*MEASURING, "on", "impl")), impl="library")


class _Command(click.Command):
    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Every what-if, looked up for this help alone: the model takes a while to import."""
        from collbench.model.what_if import WHAT_IFS

        super().format_epilog(context, formatter)
        with formatter.section("What-ifs"):
            formatter.write_dl([(what_if.form, what_if.meaning) for what_if in WHAT_IFS.values()])


@click.command(cls=_Command, context_settings={"show_default": True}, params=_OPTIONS)
@click.argument("system", metavar="SYSTEM|FILE.toml[,...]")
@click.option(
    "--what-if",
    "what_ifs",
    multiple=True,
    metavar="CHANGE",
    help="Change the network between nodes, and compare (below); may be given several times.",
)
@click.option(
    "--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", help="Of several systems."
)
def command(system: str, what_ifs: tuple[str, ...], form: str, **options: Any) -> int:
    """Predict what a collective should take on a described system; nothing runs, no GPU is needed.

    SYSTEM is one that comes with collbench, FILE.toml one of your own.  The same as `collbench sweep --on SYSTEM`, but
    for the library alone unless --impl says otherwise.

    Several with commas between, dgx-h100,ethernet-100g-tcp, are held against each other: one table, with who is fastest
    at which sizes.  Runs may be among them, by path.  All have as many ranks as they can have in common, or --ranks.
    """
    from collbench.api.predicting import find_system
    from collbench.cli._json import STANDARD
    from collbench.cli._outputs import Outputs
    from collbench.cli._predict import compare, predict
    from collbench.errors import UsageError

    if len(words := [word.strip() for word in system.split(",")]) > 1:
        from collbench.cli._interconnects import side_by_side

        return side_by_side(words, options, what_ifs, "json" if options["as_json"] == STANDARD else form)
    if form != "table":
        raise UsageError(f"--format {form} is for several systems; of one: --json FILE, or - for standard output")
    described = find_system(system, ())
    assert described  # there is nothing else that it could be
    outputs = Outputs.of(options)
    with outputs.aside():
        return compare(described, options, what_ifs) if what_ifs else predict(described, options, outputs)
