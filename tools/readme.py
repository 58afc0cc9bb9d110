"""The output of commands in README and pages: the table of the run `results/cpu-2-ranks`, and predictions."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from collbench.analysis.crossover import library_of
from collbench.cli.results_table import row, timed_table
from collbench.cli.sweeping import findings
from collbench.results import family
from collbench.runfile.store import read
from tools import ROOT, output_of

BLOCK = re.compile(r"\$ collbench (predict [^\n]*)\n(.*?)```", re.DOTALL)
TABLE = re.compile(r"```\nallreduce, float, sum, 2 ranks\n.*?```", re.DOTALL)
SHOWN = {8: ("mpi", "one-shot-ll"), 2**27: ("mpi", "two-shot")}
WIDTH = 24  # columns of a name with its library


def printed(arguments: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        said = output_of([*arguments.split(), "--no-plot"], folder)
    return said.strip().partition("\nrun file:")[0].rstrip() + "\n"


def table() -> str:
    """Return the README's table: some rows of the run, and the lines below the table."""
    results = read(ROOT / "results" / "cpu-2-ranks").results
    table = timed_table("mpi", width=WIDTH)
    lines = ["allreduce, float, sum, 2 ranks", table.heading()]
    for size, names in SHOWN.items():
        for name in names:
            result = next(one for one in results if (one.case.nbytes, one.implementation) == (size, name))
            library = None if family(name) == "mpi" else library_of(results, ["mpi"], result)
            lines.append(row(result, library, table))
    return "\n".join(["```", *lines, "", *findings(results), "```"])


def written() -> Iterator[tuple[Path, str]]:
    """Yield each page with the output of its commands."""
    for page in (ROOT / "README.md", ROOT / "docs" / "model.md", ROOT / "docs" / "formats.md"):
        text, count = BLOCK.subn(lambda match: f"$ collbench {match[1]}\n{printed(match[1])}```", page.read_text())
        assert count, f"{page} has no prediction"
        yield page, TABLE.sub(lambda _: table(), text)
