"""The writer of pages, tables and package data, from the code, committed runs and published data.

    python -m tools.pages [--check] [NAME ...]

Without a name, it writes everything that takes seconds.  `--check` writes nothing, lists the outdated files, and exits
with status 1 if there are any.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import click

from tools import ROOT


@dataclass(frozen=True)
class Page:
    """Files that are written together."""

    name: str
    writer: str  # module and function that yields paths and contents; each file is written before the next is made
    needs: str = ""  # the reason to write it only by name: its time, or a program

    def outdated(self) -> Iterator[tuple[Path, bytes]]:
        """Yield each file with another content than it has, and this content."""
        module, _, function = self.writer.partition(":")
        for path, content in getattr(import_module(module), function)():
            data = content.encode() if isinstance(content, str) else content
            if not path.exists() or path.read_bytes() != data:
                yield path, data


PAGES = (
    Page("breaks", "tools.breaks:written"),
    Page("stubs", "tools.stubs:written"),
    Page("options", "tools.options:written"),
    Page("file-map", "tools.file_map:written"),
    Page("readme", "tools.readme:written"),
    Page("lesson", "tools.lesson:written"),
    Page("engines", "tools.model.engines:written"),
    Page("kernels", "tools.kernels.facts:written"),
    Page("gallery", "tools.gallery:written", needs="a minute"),
    Page("pictures", "tools.pictures:written", needs="chromium and chromedriver"),
    Page("fleet", "tools.fleet:written", needs="five minutes"),
    Page("model", "tools.model.report:written", needs="minutes"),
    Page("verdicts", "tools.confusion:written", needs="minutes"),
    Page("training", "tools.training.report:written", needs="minutes"),
)
"""In the order of writing: later ones read files of earlier ones."""


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--check", is_flag=True, help="List the files that would change, and write nothing.")
@click.argument("names", nargs=-1, type=click.Choice([page.name for page in PAGES]))
def main(check: bool, names: Sequence[str]) -> None:
    outdated = False
    for page in PAGES:
        if page.name in names if names else not page.needs:
            for path, content in page.outdated():
                outdated = True
                print(f"{path.relative_to(ROOT)}: python -m tools.pages {page.name}")
                if not check:
                    path.write_bytes(content)
    sys.exit(check and outdated)


if __name__ == "__main__":
    main()
