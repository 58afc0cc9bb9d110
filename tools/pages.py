"""Writes pages, tables and package data from the code, from committed runs and from published data.

    python -m tools.pages [--check] [NAME ...]

Without a name all that take seconds are written.  `--check` writes nothing; it lists the files that would change, and
then the exit status is 1.
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
    writer: str  # module and function; the function yields paths and contents, and the first is written before the next
    needs: str = ""  # why it is written only if it is named: its time, or a program that it needs

    def files(self) -> Iterator[tuple[Path, bytes]]:
        """Yield each file and its content as it should be."""
        module, _, function = self.writer.partition(":")
        for path, content in getattr(import_module(module), function)():
            yield path, content.encode() if isinstance(content, str) else content

    def outdated(self) -> Iterator[Path]:
        """Yield the files whose content is another one."""
        for path, content in self.files():
            if not path.exists() or path.read_bytes() != content:
                yield path


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
"""In the order in which they are written: later ones read what earlier ones have written."""


@click.command(help=(__doc__ or "").partition("\n")[0])
@click.option("--check", is_flag=True, help="List the files that would change, and write nothing.")
@click.argument("names", nargs=-1, type=click.Choice([page.name for page in PAGES]))
def main(check: bool, names: Sequence[str]) -> None:
    outdated = False
    for page in PAGES:
        if page.name not in names if names else page.needs:
            continue
        for path, content in page.files():
            if path.exists() and path.read_bytes() == content:
                continue
            outdated = True
            print(f"{path.relative_to(ROOT)}: python -m tools.pages {page.name}" if check else path.relative_to(ROOT))
            if not check:
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content)
    sys.exit(check and outdated)


if __name__ == "__main__":
    main()
