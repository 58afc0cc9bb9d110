"""Which collbench a process runs: ranks may load another one than the command does, or than ranks of other nodes do.

The working folder, PYTHONPATH and each node's disk may have a copy of their own, and a checkout may be edited while a
command runs.
"""

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from collbench import __version__
from collbench.errors import PlatformError
from collbench.platforms import compiler

_LEFT_OUT = ("analysis", "cli", "figures", "formats", "model", "report")  # folders that no rank imports
_SOURCES = (".py", ".cu", ".cuh", ".hpp", ".cpp")


class Installation(NamedTuple):
    """A copy of collbench."""

    version: str
    code: str  # the SHA-256 of all source that ranks can run
    folder: str

    def __str__(self) -> str:
        """As errors name it."""
        return f"collbench {self.version} in {self.folder} (code {self.code[:8]})"


UNKNOWN = Installation("of unknown version", "unknown", "an unknown folder")
"""One that is so old that it does not say."""


@cache
def installation() -> Installation:
    """That of this process, as its files are when it is first asked for; 6 ms."""
    package = str(Path(__file__).parents[1])
    code = hashlib.sha256()
    for folder in (package, str(compiler.own_folder())):
        for path in sorted(_sources(folder)):
            code.update(path.removeprefix(folder).encode() + b"\0" + Path(path).read_bytes())
    return Installation(__version__, code.hexdigest(), package)


def _sources(folder: str) -> Iterator[str]:
    for entry in os.scandir(folder):
        if entry.name.endswith(_SOURCES):
            yield entry.path
        elif entry.name not in (*_LEFT_OUT, "_kernels", "__pycache__") and entry.is_dir():
            yield from _sources(entry.path)


def refuse_other(who: str, theirs: Installation, whose: str, ours: Installation) -> None:
    """PlatformError unless both have the same code, wherever it is."""
    if (theirs.version, theirs.code) != (ours.version, ours.code):
        raise PlatformError(
            f"{who} runs {theirs}, but {whose} runs {ours}: keep one of them on PYTHONPATH and on every node, "
            "and start again"
        )
