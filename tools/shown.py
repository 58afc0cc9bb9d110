"""The commands that pages show: what stands in their blocks, where it is run, and what is printed below it.

Only Python's own library is imported here: a page is tried before anything is installed, too.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

OURS = ("collbench", "all_reduce_perf", "mpirun")
STATUSES = {"--gate": (3,), "check": (0, 3, 4), "scan": (0, 3, 4)}
"""By a word, the exit statuses that are right: a gate is shown with a regression; check and scan judge."""

RUN = "results/cpu-2-ranks"  # a committed one
LOG = f"collbench export {RUN} --to nccl-tests"
"""What prints a log of nccl-tests, which pages take for granted as LOG_NAME."""

LOG_NAME = "all_reduce.log"


@dataclass(frozen=True)
class Shown:
    """A command of a page, where it is run, and the lines that stand below it."""

    page: Path
    words: str
    folder: str
    lines: tuple[str, ...]

    @property
    def statuses(self) -> tuple[int, ...]:
        """With any of which it should end."""
        return next((found for word, found in STATUSES.items() if word in self.words.split()), (0,))


def shown(page: Path, programs: Collection[str] = OURS) -> list[Shown]:
    """Commands of a page's blocks, as they stand there but for a comment behind; without a `$`, of these programs."""
    every = []
    for block in re.findall(r"```(?:console|sh|bash)?\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        folder = "."
        parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
        for line in parts[0].splitlines():
            if line.split()[:1] and line.split()[0] in programs:
                every.append(Shown(page, _bare(line), folder, ()))
        for part in parts[1:]:
            first, *rest = part.splitlines()
            if first.startswith("cd "):
                folder = first.split()[1]
            else:
                every.append(Shown(page, _bare(first), folder, tuple(filter(str.strip, rest))))
    return every


def with_own(words: str, own: dict[str, str]) -> str:
    """With a reader's own things in the place of the words that stand for them."""
    for theirs, ours in own.items():
        words = re.sub(rf"(?<!\S){re.escape(theirs)}(?!\S)", ours, words)
    return words


def _bare(line: str) -> str:
    return re.sub(r"\s+# .*$", "", line)
