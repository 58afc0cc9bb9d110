"""`make noisy`: sweeps of one and the same code under two names, on a busy machine; whatever tells them apart is false.

In a copy of the package `two-shot-b` is `two-shot` once more, as a library, so that the summary holds a contest of the
two.  Beside each sweep as many processes as there are cores do nothing but run.  Counted are the sentences of the
summary that name a winner or a ratio: with any the exit status is 1.

Told besides are the rows of `collbench compare` of one sweep with the next that are faster or slower.  They need not be
false: a busy machine is another one a minute later, which only an interleaved run (`sweep --ab`) tells from a change.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tools import ROOT

NAMES = ("two-shot", "two-shot-b")
TWIN = '''"""`two-shot-b`: the same code under another name."""

from dataclasses import replace

from collbench.algorithms.direct import TWO_SHOT

IMPLEMENTATION = replace(TWO_SHOT, name="two-shot-b", order=0)
'''
SAMPLING = (("-n", "7"), ("-n", "15"), ("--budget", "0.1"))
"""One after the other: as few samples as an interval can be made of, some more, and what a short time allows."""
APART = ("faster", "slower")


@dataclass
class Found:
    """What tells the twins apart, in the words in which it was printed, and how much was looked at."""

    facts: list[str] = field(default_factory=list)  # of summaries
    verdicts: list[str] = field(default_factory=list)  # of comparisons
    sweeps: int = 0
    rows: int = 0  # of comparisons

    def __str__(self) -> str:
        """In three lines or more."""
        lines = [f"{self.sweeps} sweeps: {len(self.facts)} false facts in their summaries"]
        lines += [f"  false: {line}" for line in self.facts]
        lines += [f"{self.rows} rows of comparisons of each with the next: {len(self.verdicts)} faster or slower"]
        return "\n".join([*lines, *(f"  {line}" for line in self.verdicts)])


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


def false_facts(printed: str) -> list[str]:
    """The sentences of a sweep's summary that tell the twins apart."""
    found = []
    for line in printed.splitlines():
        if line.startswith("fastest: "):
            ranges = line.partition(": ")[2].partition("; others ")[0].split("; ")
            found += [f"fastest: {one}" for one in ranges if not all(f"{name} " in one for name in NAMES)]
        elif line.startswith(f"{NAMES[0]} ") and "not distinguishable at any size" not in line:
            found.append(line.strip())
    return found


def collbench(copy: Path, folder: Path, *words: str) -> str:
    """What `collbench ...` of the copy prints; whatever its status says of a comparison, it must not fail."""
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "collbench", *words],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"collbench {' '.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def sweep(copy: Path, folder: Path, number: int, sampling: tuple[str, ...]) -> list[str]:
    """One sweep into a folder of its number, and what is false in its summary."""
    sizes = ("-b", "8", "-e", "1M", "-f", "8")
    words = ("sweep", "--on", "cpu", "--impl", ",".join(NAMES), *sizes, *sampling, "--no-plot", "--out", str(number))
    printed = collbench(copy, folder, *words)
    if "fastest: " not in printed:
        raise RuntimeError(f"a sweep without a summary:\n{printed}")
    return [f"sweep {number}: {line}" for line in false_facts(printed)]


def compared(copy: Path, folder: Path, one: int, other: int) -> tuple[int, list[str]]:
    """How many rows a comparison of two sweeps has, and those that are said to have changed."""
    told = json.loads(collbench(copy, folder, "compare", str(one), str(other), "--json"))
    (comparison,) = told["comparisons"]
    rows = [*comparison["rows"], *comparison["all_sizes"]]
    apart = [row for row in rows if row["verdict"] in APART]
    return len(rows), [
        f"compare {one} {other}: {row['implementation']} at {row.get('nbytes', 'all sizes')} is {row['verdict']}, "
        f"{row['ratio']:.3f} ({row['low']:.3f} .. {row['high']:.3f})"
        for row in apart
    ]


def tried(sweeps: int, folder: Path) -> Found:
    """So many sweeps into a folder, each compared with the one before."""
    found = Found()
    copy = twins(folder / "copy")
    collbench(copy, folder, "verify", "--on", "cpu", "--impl", NAMES[0], "-q")  # compiles the kernels
    for number in range(sweeps):
        with busy(os.cpu_count() or 2):
            found.facts += sweep(copy, folder, number, SAMPLING[number * len(SAMPLING) // sweeps])
        found.sweeps += 1
        if number:
            rows, verdicts = compared(copy, folder, number - 1, number)
            found.rows += rows
            found.verdicts += verdicts
    return found


def main(words: Sequence[str]) -> int:
    """Try it, and say what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[2])
    parser.add_argument("--sweeps", type=int, default=20)
    parser.add_argument("--out", type=Path, help="Folder to keep the runs in.")
    chosen = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as scratch:
        found = tried(chosen.sweeps, chosen.out or Path(scratch))
    sys.stdout.write(f"{found}\n")
    return int(bool(found.facts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
