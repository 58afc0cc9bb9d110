"""`make hour`: every command of the README, from top to end, in a fresh copy of the checkout.

Commands run as they are printed and in their order.  Placeholders of the page are replaced by existing names.  The
first failure ends the run with its status and last lines.  A repeated command runs once, and NOT_HERE lists those left
out.

Only the standard library is imported, because nothing is installed yet.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools import ROOT
from tools.shown import LOG, LOG_NAME, OURS, Shown, shown, with_own

NOT_HERE = {
    "git clone ADDRESS collbench && cd collbench": "the copy of the checkout stands for the clone",
    "make test": "not here: it is what continuous integration runs next",
}
OWN = {"pip install": "pip install --dry-run --quiet"}  # resolves CUDA's wheels without the download of a gigabyte
LIMIT = 600.0  # seconds for a command, installation included
LAST = 15  # last lines of a failure that are shown
REASONS = re.compile(r"WRONG|FAILED:|failed:|error:|Error")  # lines of a failure that are always shown
OF_AN_OUTER_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")
STRANGE = ("PYTHON", "VIRTUAL_ENV", "COLLBENCH_", "COLUMNS", "PMI", "OMPI", "SLURM")


@dataclass(frozen=True)
class Ended:
    """The exit status of a command, its time in seconds, and its output."""

    status: int
    seconds: float
    printed: str


def copied(folder: Path) -> Path:
    """Copy all files that git knows, with their current content, into a folder, and return it."""
    listing = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"]
    for name in filter(None, subprocess.check_output(listing, cwd=ROOT, text=True).split("\0")):
        if (ROOT / name).is_file():  # not a removed file that is not committed yet
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def of_a_new_user(home: Path) -> dict[str, str]:
    """Return the variables of a shell with the page's environment active and an empty compile cache.

    pip's cache of downloads is the only thing that is not fresh.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith((*STRANGE, *OF_AN_OUTER_MAKE))}
    kept |= {"PYTHON": os.environ["PYTHON"]} if "PYTHON" in os.environ else {}  # of `make hour PYTHON=python3.12`
    return kept | {"PATH": f"{home}/.venv/bin:{kept['PATH']}", "COLLBENCH_CACHE": f"{home}/.cache"}


def own(words: str, home: Path) -> str:
    """Return a command with the newest run, and as many ranks as there are cores, in place of the page's words."""
    words = re.sub(r"^mpirun -n \d+ ", f"mpirun -n {max(2, os.cpu_count() or 2)} ", words)
    runs = sorted((home / "results" / "runs").glob("*/run.jsonl"), key=lambda path: path.stat().st_mtime)
    newest = str(runs[-1].parent.relative_to(home)) if runs else ""
    return with_own(words, {"results/runs/...": newest, **OWN})


def carried_out(words: str, folder: Path, variables: Mapping[str, str]) -> Ended:
    """Run a command in a shell; a command that takes too long is ended and counts as failed."""
    start = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            ["bash", "-c", words], cwd=folder, env=dict(variables), stdout=output, stderr=subprocess.STDOUT
        )
        try:
            status = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.terminate()  # the command ends its ranks
            status = process.wait()
        output.seek(0)
        return Ended(status, time.monotonic() - start, output.read())


def hour(page: Path, variables: Mapping[str, str], say: Callable[[str], object] = print) -> int:
    """Run every command of a page in its folder; return 0, or the status of the first failure."""
    home = page.parent
    for one in {one.words: one for one in shown(page, (*OURS, "make", "git", "pip"))}.values():
        if one.words in NOT_HERE:
            say(f"        -  {one.words}: {NOT_HERE[one.words]}")
            continue
        if LOG_NAME in one.words and not (home / LOG_NAME).exists():
            (home / LOG_NAME).write_text(carried_out(LOG, home, variables).printed)
        words = own(one.words, home)
        ended = carried_out(words, home / one.folder, variables)
        say(f"{ended.seconds:>7.1f} s  {words}")
        if ended.status not in one.statuses:
            say(_failed(one, ended))
            return ended.status or 1
    return 0


def _failed(one: Shown, ended: Ended) -> str:
    lines = ended.printed.splitlines()
    told = [line for line in lines[:-LAST] if REASONS.search(line)][-LAST:] + lines[-LAST:]
    shown = "\n".join(f"  {line}" for line in told)
    return f"FAILED: {one.words}: status {ended.status}, not {one.statuses}; its reasons and last lines:\n{shown}"


def main() -> int:
    """Run the README of a fresh copy."""
    with tempfile.TemporaryDirectory(prefix="hour-") as folder:
        home = copied(Path(folder) / "collbench")
        return hour(home / "README.md", of_a_new_user(home), lambda line: sys.stdout.write(f"{line}\n"))


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.exit(main())
