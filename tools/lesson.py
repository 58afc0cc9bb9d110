"""The lesson's pages and package data, and the numbers of committed runs in pages.

In a page a number is a link to its run, and the title of the link says which number it is:
[7.8x](../results/cpu-2-ranks-epyc "mpi / ring-flags at 8 B").  collbench/commands/lesson/numbers.py defines the titles.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from collbench.algorithms import implementations, is_library
from collbench.cases import Case
from collbench.commands.lesson.numbers import Numbers, hand_written, ratio
from collbench.results import family
from collbench.runfile.store import read
from collbench.units import format_seconds, format_size
from tools import ONE_H100, ROOT, block, lesson_chapters, lesson_page, lesson_places, table
from tools.model import closed_forms as forms

WITH_NUMBERS = ("kernels", "measuring", "model")
PAGES = ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in WITH_NUMBERS)
_SHARED = re.compile(r"nvidia-h100-1-gpu-4-ranks[\w-]*")
NUMBER = re.compile(r'\[([^\]\n]+)\]\((\.\./results/[\w-]+) "([^"]+)"\)')

RANKS, GPUS = 64, 8  # ranks in all, and of a node
BETWEEN, INSIDE = (5e-6, 1 / 50e9), (1e-6, 1 / 370e9)  # seconds a message and a byte: network card, NVLink
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
ONE_GPU = ROOT / "results" / ONE_H100
GPU_SIZES = (8, 2**15, 2**19, 2**21, 2**27)


@cache
def numbers(folder: Path) -> Numbers:
    return Numbers.of(read(folder).results)


def textbook() -> list[str]:
    """Return a table of the algorithms' times by their closed forms."""
    rows = []
    for name, seconds in TEXTBOOK.items():
        rows.append([name, *(format_seconds(seconds(size)) for size in TEXTBOOK_SIZES)])
    return table(["algorithm", *map(format_size, TEXTBOOK_SIZES)], rows)


def several_libraries() -> list[str]:
    """Return a table of every MPI library, the best rung, and the ratio of the best library to it."""
    measured = numbers(LIBRARIES).timed
    rows = []
    for name in dict.fromkeys(name for name, _ in measured if family(name) == "mpi"):
        timed = [measured[name, size] for size in LIBRARY_SIZES]
        rows.append([timed[0].label, *(format_seconds(row.typical) for row in timed)])
    rungs = [_fastest(size, hand_written) for size in LIBRARY_SIZES]
    mpis = [_fastest(size, is_library) for size in LIBRARY_SIZES]
    rows.append(["the best rung", *(f"{rung}, {format_seconds(took)}" for rung, took in rungs)])
    factors = (ratio(slow / fast) for (_, slow), (_, fast) in zip(mpis, rungs, strict=True))
    rows.append(["the best MPI over it", *map(str, factors)])
    return table(["", *map(format_size, LIBRARY_SIZES)], rows)


def _fastest(size: int, wanted: Callable[[str], bool]) -> tuple[str, float]:
    rows = numbers(LIBRARIES).timed.items()
    times = {name: row.typical for (name, nbytes), row in rows if nbytes == size and wanted(name)}
    name = min(times, key=lambda name: times[name])
    return name, times[name]


def one_h100() -> list[str]:
    """Return the README's table of one GPU that ranks share: NCCL, three rungs of the ring and the best rung."""
    measured, sizes = numbers(ONE_GPU), (8, 2**21, 2**27)
    rungs = {measured.timed[measured.library, 8].label: "library", "`ring-host`: the host waits": "ring-host"}
    rungs |= {"`ring-flags`: flags in memory": "ring-flags", "`ring-ll`: data with flags": "ring-ll", "the best": ""}
    rows = [[words, *_over_the_library(measured, name, sizes)] for words, name in rungs.items()]
    return table(["", *map(format_size, sizes)], rows)


def on_a_gpu() -> list[str]:
    """Return a table of one GPU that ranks share: NCCL and every rung, with waits, times and NCCL's time over each."""
    measured, rows = numbers(ONE_GPU), []
    for name in dict.fromkeys(name for name, _ in measured.timed if name != "auto"):
        waits = _waits(name, measured.timed[name, 8].case)
        rows.append([f"`{name}`", waits, *_over_the_library(measured, name, GPU_SIZES)])
    return table(["", "waits", *map(format_size, GPU_SIZES)], rows)


def _waits(name: str, case: Case) -> str:
    """Return how many waits of which kind the implementation counts for its cost."""
    cost = implementations()[name].cost
    return f"{cost(case).steps} x {cost(case).wait.name.lower()}" if cost else ""


def _over_the_library(measured: Numbers, name: str, sizes: Sequence[int]) -> Iterator[str]:
    """Yield the time at each size, and the library's time over it; without a name, of the best rung."""
    for size in sizes:
        found = name or measured.best(size)
        if (found, size) not in measured.timed and found != "library":
            yield ""
            continue
        seconds, library = measured.seconds(found, size), measured.seconds("library", size)
        faster = "" if found in ("library", measured.library) else f", {ratio(library / seconds)}"
        yield f"{'' if name else f'`{found}` '}{format_seconds(seconds)}{faster}"


def with_numbers(text: str) -> str:
    """Return the text of a page with every number as its run has it, of a shared H100 the newest run.

    KeyError if a run does not have the number.
    """

    def link(match: re.Match[str]) -> str:
        run, title = _SHARED.sub(ONE_H100, match[2]), match[3]
        return f'[{numbers((ROOT / "docs" / run).resolve()).value(title)}]({run} "{title}")'

    return NUMBER.sub(link, text)


def written() -> Iterator[tuple[Path, str]]:
    """Yield all files and their texts; the package data come first, because the pages read them."""
    yield from lesson_places.written()
    yield from lesson_chapters.written()
    yield from lesson_page.written()
    yield block("README.md", "one_h100", one_h100())
    yield block("docs/kernels.md", "on_a_gpu", on_a_gpu())
    yield block("docs/measuring.md", "libraries", several_libraries())
    yield block("docs/model.md", "textbook", textbook())
    for page in PAGES:
        yield page, with_numbers(page.read_text())
