"""Programs for the people who build collbench, run by hand and nightly; tools/README.md lists them."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def output_of(
    words: Sequence[str], folder: Path | str, tree: Path = ROOT, statuses: Collection[int] = (0,), **variables: str
) -> str:
    """Return what `collbench ...` of a source tree prints in a folder; SystemExit where it ends with another status."""
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    environment = kept | {"PYTHONPATH": str(tree)} | variables
    command = [sys.executable, "-P", "-m", "collbench", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in statuses:
        raise SystemExit(f"collbench {' '.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def write_block(page: Path, name: str, lines: Iterable[str]) -> None:
    """Write lines between the marks of that name; AssertionError if a page has no such marks."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    body = begin + "".join(f"{line}\n" for line in lines) + end
    text, count = re.subn(f"{begin}.*?{end}", lambda _: body, page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert count == 1, f"{page} has no marks of {name}"
    page.write_text(text, encoding="utf-8")


def in_nvidia_wheels(pattern: str) -> list[Path]:
    """Return the files of the installed wheels of NVIDIA that fit, such as `*/include/cuda.h`."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    return [path for folder in folders for path in sorted(folder.glob(pattern))]
