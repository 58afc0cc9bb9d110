"""Predict what a collective should take on a described system: a sweep on which nothing runs."""

from typing import Any

import click

from collbench.cli._shared import DEFAULTS, shared
from collbench.cli.sweep import MEASURING

_OPTIONS = shared(*(name for name in DEFAULTS if name not in (*MEASURING, "on", "impl")), impl="library")


@click.command(context_settings={"show_default": True}, params=_OPTIONS)
@click.argument("system", metavar="SYSTEM|FILE.toml")
@click.option(
    "--what-if",
    "what_ifs",
    multiple=True,
    metavar="CHANGE",
    help="Change the network between nodes, and compare: link-down=leaf0:spine0, oversubscription=4, ecmp, ...; may be "
    "given several times.",
)
def command(system: str, what_ifs: tuple[str, ...], **options: Any) -> int:
    """Predict what a collective should take on a described system; nothing runs, no GPU is needed.

    SYSTEM is one that comes with collbench, FILE.toml one of your own.  The same as `collbench sweep --on SYSTEM`, but
    for the library alone unless --impl says otherwise.
    """
    from collbench.cli._expect import compare, predict
    from collbench.cli._systems import find_system

    found = find_system(system, ())
    assert found  # there is nothing else that it could be
    return compare(found, options, what_ifs) if what_ifs else predict(found, options)
