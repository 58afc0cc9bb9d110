"""The numbers of runs in pages, both lessons in docs/, and what the package brings of committed runs: times, chapters.

`python -m tools.lesson` writes all of them anew.

In a page such a number is a link to the run that it comes from, whose title says what it is, such as
[7.8x](../results/cpu-2-ranks-epyc "mpi / ring-flags at 8 B").  A title is one of `lesson`'s numbers.py.  The tables
between the marks of BLOCKS are computed: from the textbooks' closed forms, or from runs.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from collbench.algorithms import implementations, is_library
from collbench.cases import Case
from collbench.commands.lesson.numbers import Numbers, hand_written, ratio
from collbench.results import family
from collbench.runfile.store import read
from collbench.units import format_seconds, format_size
from tools import ROOT, lesson_chapters, lesson_page, lesson_places
from tools.model import closed_forms as forms

WRITTEN = {"lesson": lesson_page.page, "lesson-scaling": lesson_page.scaling_page}
"""Pages in docs/ that are written from the texts of `collbench lesson`."""
WITH_NUMBERS = ("kernels", "lesson", "measuring", "model")
PAGES = ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in WITH_NUMBERS)
NUMBER = re.compile(r'\[([^\]\n]+)\]\((\.\./results/[\w-]+) "([^"]+)"\)')

RANKS, GPUS = 64, 8  # in all, and of a node
BETWEEN, INSIDE = (5e-6, 1 / 50e9), (1e-6, 1 / 370e9)  # seconds of a message and of a byte: a network card, NVLink
TEXTBOOK: dict[str, Callable[[float], float]] = {
    "ring": lambda size: forms.ring_allreduce(RANKS, size, *BETWEEN),
    "recursive doubling": lambda size: forms.recursive_doubling(RANKS, size, *BETWEEN),
    "halving-doubling": lambda size: forms.halving_doubling(RANKS, size, *BETWEEN),
    "binomial tree, up and down": lambda size: forms.binomial_allreduce(RANKS, size, *BETWEEN),
    "chain, pipelined": lambda size: forms.chain_allreduce(RANKS, size, *BETWEEN),
    "two trees, pipelined": lambda size: forms.double_tree_allreduce(RANKS, size, *BETWEEN),
    "parameter server, one": lambda size: forms.parameter_server(RANKS, 1, size, *BETWEEN),
    "hierarchical": lambda size: forms.hierarchical(GPUS, RANKS // GPUS, size, INSIDE, BETWEEN),
}
LIBRARIES = ROOT / "results" / "cpu-2-ranks-libraries"
LIBRARY_SIZES = (8, 2**11, 2**17, 2**23, 2**27)
TEXTBOOK_SIZES = (2**10, 2**20, 2**26, 2**30)
ONE_GPU = ROOT / "results" / "nvidia-h100-1-gpu-4-ranks-later"
GPU_SIZES = (8, 2**15, 2**19, 2**21, 2**27)


@cache
def numbers(folder: Path) -> Numbers:
    """What the all-reduces of a run say."""
    return Numbers.of(read(folder).results)


def value(folder: Path, title: str) -> str:
    """What a title says; KeyError if the run has no such thing."""
    return numbers(folder).value(title)


def textbook() -> str:
    """What the algorithms take by their closed forms, as a table."""
    sizes = " | ".join(map(format_size, TEXTBOOK_SIZES))
    lines = [f"| algorithm | {sizes} |", "|---|" + "---|" * len(TEXTBOOK_SIZES)]
    for name, seconds in TEXTBOOK.items():
        lines.append(f"| {name} | {' | '.join(format_seconds(seconds(size)) for size in TEXTBOOK_SIZES)} |")
    return "\n".join(lines)


def several_libraries() -> str:
    """Every MPI library, the best rung, and how much faster that is."""
    sizes = " | ".join(map(format_size, LIBRARY_SIZES))
    lines = [f"| | {sizes} |", "|---|" + "---|" * len(LIBRARY_SIZES)]
    measured = numbers(LIBRARIES).timed
    own = dict.fromkeys(name for name, _ in measured if family(name) == "mpi")
    for name in own:
        rows = [measured[name, size] for size in LIBRARY_SIZES]
        lines.append(f"| {rows[0].label} | {' | '.join(format_seconds(row.typical) for row in rows)} |")
    rungs = [_fastest(size, hand_written) for size in LIBRARY_SIZES]
    mpis = [_fastest(size, is_library) for size in LIBRARY_SIZES]
    lines.append(f"| the best rung | {' | '.join(f'{rung}, {format_seconds(took)}' for rung, took in rungs)} |")
    factors = (f"{ratio(slow / fast)}" for (_, slow), (_, fast) in zip(mpis, rungs, strict=True))
    lines.append(f"| the best MPI over it | {' | '.join(factors)} |")
    return "\n".join(lines)


def _fastest(size: int, wanted: Callable[[str], bool]) -> tuple[str, float]:
    """Implementation and seconds."""
    rows = numbers(LIBRARIES).timed.items()
    times = {name: row.typical for (name, nbytes), row in rows if nbytes == size and wanted(name)}
    name = min(times, key=lambda name: times[name])
    return name, times[name]


def one_h100() -> str:
    """NCCL, three rungs of the ring and the best rung on one GPU that ranks share: the README's table."""
    measured, sizes = numbers(ONE_GPU), (8, 2**21, 2**27)
    lines = [f"| | {' | '.join(map(format_size, sizes))} |", "|---|" + "---|" * len(sizes)]
    rungs = {measured.timed[measured.library, 8].label: "library", "`ring-host`: the host waits": "ring-host"}
    rungs |= {"`ring-flags`: flags in memory": "ring-flags", "`ring-ll`: data with flags": "ring-ll", "the best": ""}
    for words, name in rungs.items():
        cells = (_over_the_library(measured, name, size) for size in sizes)
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


def on_a_gpu() -> str:
    """NCCL and every rung on one GPU that ranks share: waits one after the other, times, NCCL's time over each."""
    measured = numbers(ONE_GPU)
    lines = [f"| | waits | {' | '.join(map(format_size, GPU_SIZES))} |", "|---|---|" + "---|" * len(GPU_SIZES)]
    for name in dict.fromkeys(name for name, _ in measured.timed if name != "auto"):
        cells = (_over_the_library(measured, name, size) for size in GPU_SIZES)
        lines.append(f"| `{name}` | {_waits(name, measured.timed[name, 8].case)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _waits(name: str, case: Case) -> str:
    """Return how many waits of which kind the implementation counts for its cost."""
    cost = implementations()[name].cost
    return f"{cost(case).steps} x {cost(case).wait.name.lower()}" if cost else ""


def _over_the_library(measured: Numbers, name: str, size: int) -> str:
    """Return a time, and how many times as fast as the library that is; of the best rung, if none is named."""
    found = name or measured.best(size)
    if (found, size) not in measured.timed and found != "library":
        return ""
    seconds = measured.seconds(found, size)
    faster = "" if found in ("library", measured.library) else f", {ratio(measured.seconds('library', size) / seconds)}"
    return f"{'' if name else f'`{found}` '}{format_seconds(seconds)}{faster}"


BLOCKS = {"textbook": textbook, "libraries": several_libraries, "one_h100": one_h100, "on_a_gpu": on_a_gpu}
BLOCK = re.compile(r"(<!-- (\w+) -->\n)(?:(?!<!--).)*(<!-- end -->)", re.DOTALL)


def rewritten(text: str, root: Path = ROOT) -> str:
    """A lesson with every number as the runs of a checkout have it."""
    text = BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match[2]]()}\n{match[3]}", text)
    return NUMBER.sub(
        lambda match: f'[{value((root / "docs" / match[2]).resolve(), match[3])}]({match[2]} "{match[3]}")', text
    )


if __name__ == "__main__":
    lesson_places.ASSET.write_text(lesson_places.written())  # which the page's texts read
    lesson_chapters.ASSET.write_text(lesson_chapters.written())
    for name, text in WRITTEN.items():
        (ROOT / "docs" / f"{name}.md").write_text(text())
    for page in PAGES:
        page.write_text(rewritten(page.read_text()))
        print(f"{len(NUMBER.findall(page.read_text()))} numbers in {page.relative_to(ROOT)}")
