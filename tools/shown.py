"""The commands in the blocks of pages, with their folders and the output that the page shows.

Only the standard library is imported, because pages are tried before anything is installed.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

OURS = ("collbench", "all_reduce_perf", "mpirun")
STATUSES = {"--gate": (3,), "check": (0, 3, 4), "scan": (0, 3, 4)}
"""Right exit statuses by a word of the command: the shown gate finds a regression; check and scan judge."""

RUN = "results/cpu-2-ranks"  # a committed run
LOG = f"collbench export {RUN} --to nccl-tests"
"""The command that writes the log of nccl-tests that pages call LOG_NAME."""

LOG_NAME = "all_reduce.log"


@dataclass(frozen=True)
class Shown:
    """A command of a page, its folder, and the lines below it."""

    page: Path
    words: str
    folder: str
    lines: tuple[str, ...]

    @property
    def statuses(self) -> tuple[int, ...]:
        return next((found for word, found in STATUSES.items() if word in self.words.split()), (0,))


def shown(page: Path, programs: Collection[str] = OURS) -> list[Shown]:
    """Return the commands of a page's blocks without comments; without a `$`, lines that start with a program."""
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
    """Return a command with other names in place of the page's placeholders."""
    for theirs, ours in own.items():
        words = re.sub(rf"(?<!\S){re.escape(theirs)}(?!\S)", ours, words)
    return words


def _bare(line: str) -> str:
    return re.sub(r"\s+# .*$", "", line)
