"""The function that takes other tools' results: `collbench.import_`, whose parts the command `import` calls too."""

import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from collbench.api import reworded
from collbench.api.requests import new_folder
from collbench.collectives import find_collective
from collbench.errors import Notice, RunFileError
from collbench.formats import read_files
from collbench.formats.imported import Hints, Imported, grouped, remarks
from collbench.formats.source import files_in, load
from collbench.runfile.baselines import store
from collbench.runfile.store import NAME, Run

_SHOWN = 3  # reasons for leaving rows out, where there is no other row


def import_(
    files: Path | str | Sequence[Path | str],
    *,
    name: str | None = None,
    ranks: int | None = None,
    op: str = "",
    out: Path | str | None = None,
) -> list[Run]:
    """Read what other tools printed, as `collbench import` does: nccl-tests, OSU, NCCL Inspector, and so on.

    Args:
        files: A log or several, or a folder of them; "-" is standard input.
        name: The format, by its name in `collbench import --help`; by default as the content shows.
        ranks: Number of ranks, where a file does not tell it.
        op: Collective, where a file does not tell it.
        out: New folder in which the runs are stored; without it nothing is stored.

    Returns:
        A run for each machine, with its ranks and variables; its rows are of the kind Reported.  What is left out, or
        odd, is warned of with file and line.

    Raises:
        RunFileError: A file cannot be read, or holds no results.
        UsageError: It does not tell its collective or its ranks, or there is a run in the folder already.

    >>> import collbench
    >>> (run,) = collbench.import_("tests/formats/data/nccl_tests_2_19.txt")
    >>> run.header.topology.name, len(run.results)
    ('4 x NVIDIA H100 80GB HBM3', 14)

    """
    groups, said = read_foreign([files] if isinstance(files, Path | str) else files, name, ranks, op)
    for remark in said:
        words = reworded(remark, {"name": name, "ranks": ranks, "op": op})
        warnings.warn(words, Notice, stacklevel=3)  # at the call of `collbench.import_`
    folders = folders_in(Path(out), groups) if out else [None] * len(groups)
    return [stored(imported, folder) for imported, folder in zip(groups, folders, strict=True)]


def read_foreign(
    files: Sequence[Path | str], name: str | None, ranks: int | None, op: str
) -> tuple[list[Imported], list[str]]:
    """Return what goes into a run file each, at least one, and what the user must know of it, a line each."""
    hints = Hints(ranks, find_collective(op).name if op else "")
    tests = read_files((load(path) for file in files for path in files_in(Path(file))), hints, name)
    groups = grouped(tests)
    if not groups:
        reasons = [reason for test in tests for reason in test.left_out]
        shown = "; ".join([*reasons[:_SHOWN], *(["..."] if len(reasons) > _SHOWN else [])])
        raise RunFileError(f"{tests[0].file}: nothing to import: {shown or 'no rows'}")
    return groups, list(remarks(tests))


def folders_in(out: Path, groups: Sequence[Imported]) -> list[Path]:
    """Return the folder of each run: `out` of a single one, else folders in it."""
    if len(groups) == 1:
        return [out]
    return [out / f"{number}-{imported.collectives[0].name}" for number, imported in enumerate(groups, 1)]


def default_folder(imported: Imported) -> Path:
    """Return a new folder like that of a sweep, named after the collectives and the host or the tool."""
    first = imported.tests[0]
    host = re.sub(r"[^A-Za-z0-9.-]+", "_", first.machine.host).strip("._")[:60]
    return new_folder(
        [collective.name for collective in imported.collectives], f"{host or first.tool.split()[0]}-imported"
    )


def stored(imported: Imported, folder: Path | None) -> Run:
    """Return the run, and store it in that folder if there is one."""
    header, results = imported.header(["collbench", *sys.argv[1:]]), tuple(imported.results)
    path = store(folder, header, results) if folder else Path(NAME)
    return Run(path, header, results, True, 0)
