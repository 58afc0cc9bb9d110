"""`make noisy`: sweeps of one and the same code under two names, on a busy machine; whatever tells them apart is false.

In a copy of the package `two-shot-b` is `two-shot` once more, as a library, so that the summary holds a contest of the
two.  Beside each sweep as many processes as there are cores do nothing but run.  Counted are the sentences of the
summary that name a winner or a ratio: with any the exit status is 1.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools import ROOT, output_of

NAMES = ("two-shot", "two-shot-b")
TWIN = '''"""`two-shot-b`: the same code under another name."""

from dataclasses import replace

from collbench.algorithms.direct import TWO_SHOT

IMPLEMENTATION = replace(TWO_SHOT, name="two-shot-b", order=0)
'''
SAMPLING = (("-n", "7"), ("-n", "15"), ("--budget", "0.1"))
"""One after the other: as few samples as an interval can be made of, some more, and what a short time allows."""


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes beside that do nothing but run."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def twins(folder: Path) -> Path:
    """A copy of the package, in that folder, which has the same code twice."""
    for name in ("collbench", "kernels"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "collbench" / "algorithms" / "two_shot_b.py").write_text(TWIN)
    return folder


def false_facts(summary: str) -> list[str]:
    """The sentences of a sweep's summary that tell the twins apart."""
    found = []
    for line in summary.splitlines():
        if line.startswith("fastest: "):
            ranges = line.partition(": ")[2].partition("; others ")[0].split("; ")
            found += [f"fastest: {one}" for one in ranges if not all(f"{name} " in one for name in NAMES)]
        elif line.startswith(f"{NAMES[0]} ") and "not distinguishable at any size" not in line:
            found.append(line.strip())
    return found


def sweep(copy: Path, folder: Path, number: int, sampling: tuple[str, ...]) -> list[str]:
    """One sweep into a folder of its number, and what is false in its summary."""
    sizes = ("-b", "8", "-e", "1M", "-f", "8")
    words = ("sweep", "--on", "cpu", "--impl", ",".join(NAMES), *sizes, *sampling, "--no-plot", "--out", str(number))
    said = output_of(words, folder, copy)
    if "fastest: " not in said:
        raise RuntimeError(f"a sweep without a summary:\n{said}")
    return [f"sweep {number}: {line}" for line in false_facts(said)]


def tried(sweeps: int, folder: Path) -> list[str]:
    """What is false in the summaries of so many sweeps."""
    found = []
    copy = twins(folder / "copy")
    output_of(("verify", "--on", "cpu", "--impl", NAMES[0], "-q"), folder, copy)  # compiles the kernels
    for number in range(sweeps):
        with busy(os.cpu_count() or 2):
            found += sweep(copy, folder, number, SAMPLING[number * len(SAMPLING) // sweeps])
    return found


def main(words: Sequence[str]) -> int:
    """Try it, and say what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--out", type=Path, help="Folder to keep the runs in.")
    chosen = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as scratch:
        found = tried(chosen.sweeps, chosen.out or Path(scratch))
    print(f"{chosen.sweeps} sweeps: {len(found)} false facts in their summaries", *found, sep="\n  false: ")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
