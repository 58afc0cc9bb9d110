"""Programs for developers of collbench; tools/README.md lists them."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
ONE_H100 = "nvidia-h100-1-gpu-4-ranks-later"
"""The newest run in results/ of one H100 that ranks share: pages, lesson, gallery and fitted costs have its numbers."""


def output_of(
    words: Sequence[str], folder: Path | str, tree: Path = ROOT, statuses: Collection[int] = (0,), **variables: str
) -> str:
    """Return the output of `collbench ...` of a source tree in a folder; SystemExit if it ends with another status."""
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment = kept | {"PYTHONPATH": str(tree)} | variables
    command = [sys.executable, "-P", "-m", "collbench", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in statuses:
        raise SystemExit(f"collbench {' '.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_row(heads), "|---" * len(heads) + "|", *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def block(page: str, name: str, lines: Iterable[str]) -> tuple[Path, str]:
    """Return a page's path, and its text with these lines between the marks of that name.

    AssertionError if the page does not have these marks once.
    """
    path = ROOT / page
    marks = rf"(<!-- {name} -->\n).*?(<!-- end(?: of {name})? -->)"
    body = "".join(f"{line}\n" for line in lines)
    text, count = re.subn(marks, lambda match: match[1] + body + match[2], path.read_text("utf-8"), flags=re.DOTALL)
    assert count == 1, f"{path} has no marks of {name}"
    return path, text


def table_in(page: str, lines: Sequence[str]) -> tuple[Path, str]:
    """Return a page's path, and its text with these lines in place of the table that has the same heads.

    AssertionError if the page does not have such a table once.
    """
    path, new = ROOT / page, "".join(f"{line}\n" for line in lines)
    text, count = re.subn(re.escape(lines[0]) + r"\n(\|.*\n)+", lambda _: new, path.read_text("utf-8"))
    assert count == 1, f"{path} has no table with the heads {lines[0]}"
    return path, text


def in_nvidia_wheels(pattern: str) -> list[Path]:
    """Return the files in the installed wheels of NVIDIA that match a pattern, such as `*/include/cuda.h`."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    return [path for folder in folders for path in sorted(folder.glob(pattern))]
