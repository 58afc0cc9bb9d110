"""Arguments and options that are paths, as several commands take them."""

from pathlib import Path

import click

PATH = click.Path(path_type=Path)
RUN = click.argument("run", metavar="RUN", type=PATH)
RUNS = click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=PATH)
FORMATS = click.Choice(["png", "svg", "pdf"])  # of pictures
