"""`python -m tools.gpu.stepped overlap --out FOLDER`: steps on a GPU, by `collbench step`.

On ranks that share the first GPU, or one on every GPU with --ranks 0.  The folder keeps run file, pictures and trace.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from collbench.commands.step import scaling
from collbench.commands.step.overlap import overlaps, verdict
from collbench.commands.step.stragglers import verdicts
from collbench.errors import CollbenchError
from collbench.platforms.gpu import probe
from collbench.runfile.store import Run
from tools.gpu import said, scale, sweeps


@dataclass(frozen=True)
class Program:
    """A command about steps, and what is to be told of its run."""

    words: Callable[[], Sequence[str]]
    told: Callable[[Run], Iterator[str]]
    files: tuple[str, ...]  # patterns of what it leaves beside its run file
    several: bool = False  # whether it takes several numbers of ranks


def _scaled(found: Run) -> Iterator[str]:
    for curve in scaling.curves(found.results):
        yield from islice(scaling.verdict(curve), 1)


def _overlapped(found: Run) -> Iterator[str]:
    known = overlaps(found.results)
    for name in dict.fromkeys(one.row.implementation for one in known):
        own = [one for one in known if one.row.implementation == name]
        if fastest := min(own, key=lambda one: one.row.typical, default=None):
            yield verdict(fastest, own)


PROGRAMS = {
    "stragglers": Program(lambda: scale.chosen().late, lambda found: iter(verdicts(found.results)), ("*.png",)),
    "scale": Program(lambda: scale.chosen().scaled, _scaled, ("*.png",), several=True),
    "overlap": Program(lambda: scale.chosen().overlapped, _overlapped, ("*.png",)),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.gpu.stepped", description="Training steps of a GPU.")
    parser.add_argument("command", choices=PROGRAMS, help="of collbench step")
    parser.add_argument("--ranks", type=int, default=4, help="that share the first GPU; 0: one on every GPU")
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    chosen = parser.parse_args(arguments)
    gpus = len(probe.memories())
    if not gpus:
        return said.no_gpu("measured")
    if chosen.ranks == 0 and gpus < 2:
        return said.skip("there is one GPU only")
    try:
        return carried_out(chosen.command, scale.chosen().ranks(chosen.ranks), gpus, chosen.out)
    except CollbenchError as error:
        return said.wrong(str(error))


def carried_out(command: str, ranks: int, gpus: int, folder: Path) -> int:
    """Run it: its verdicts as numbers for the page, and what is wrong with its rows and files."""
    program = PROGRAMS[command]
    counts = f"1..{ranks or gpus}" if program.several else ""
    found = sweeps.run(("step", command, *program.words()), folder, ranks, counts=counts)
    told = list(program.told(found))
    for line in told:
        said.key(line)
    defects = sweeps.defects(found, ranks) or ([] if told else ["nothing was told of any step"])
    if not sweeps.cut(found):
        defects += [f"{folder} has no {pattern}" for pattern in program.files if not list(folder.glob(pattern))]
    return said.all_wrong(defects)


if __name__ == "__main__":
    sys.exit(main())
