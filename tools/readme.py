"""What pages show of commands: `python -m tools.readme` writes it anew, as the commands print it.

The README's first table is of the committed run `results/cpu-2-ranks`, predictions are made again.
"""

import re
import tempfile
from collections.abc import Iterator

from collbench.analysis.crossover import library_of
from collbench.cli.results_table import row, timed_table
from collbench.cli.sweeping import findings
from collbench.results import family
from collbench.runfile.store import read
from tools import ROOT, output_of

README = ROOT / "README.md"
PAGES = (README, ROOT / "docs" / "model.md", ROOT / "docs" / "formats.md")
BLOCK = re.compile(r"\$ collbench (predict [^\n]*)\n(.*?)```", re.DOTALL)
TABLE = re.compile(r"```\nallreduce, float, sum, 2 ranks\n.*?```", re.DOTALL)
SHOWN = {8: ("mpi", "one-shot-ll"), 2**27: ("mpi", "two-shot")}
WIDTH = 24  # of a name with its library


def printed(arguments: str) -> str:
    """Return what such a command prints of its results."""
    with tempfile.TemporaryDirectory() as folder:
        said = output_of([*arguments.split(), "--no-plot"], folder)
    return said.strip().partition("\nrun file:")[0].rstrip() + "\n"


def table() -> str:
    """Return the table of the README: some rows of the run, and the lines below the table."""
    return "```\n" + "\n".join(_lines()) + "\n```"


def _lines() -> Iterator[str]:
    results = read(ROOT / "results" / "cpu-2-ranks").results
    table = timed_table("mpi", width=WIDTH)
    yield from ("allreduce, float, sum, 2 ranks", table.heading())
    for size, names in SHOWN.items():
        for name in names:
            result = next(one for one in results if (one.case.nbytes, one.implementation) == (size, name))
            library = None if family(name) == "mpi" else library_of(results, ["mpi"], result)
            yield row(result, library, table)
    yield from ("", *findings(results))


if __name__ == "__main__":
    for page in PAGES:
        text = BLOCK.sub(lambda match: f"$ collbench {match[1]}\n{printed(match[1])}```", page.read_text())
        page.write_text(TABLE.sub(lambda _: table(), text))
