"""The function that takes other tools' results: `collbench.import_`, whose parts the command `import` calls too."""

import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from collbench.api.requests import new_folder
from collbench.collectives import find_collective
from collbench.errors import Notice, RunFileError
from collbench.formats import find_format, formats, noting, read_files
from collbench.formats.imported import Hints, Imported, ImportedTest, grouped, remarks
from collbench.formats.source import Source, files_in, load, stem
from collbench.results import by_key
from collbench.runfile.baselines import store
from collbench.runfile.store import NAME, Run

_SHOWN = 3  # reasons or names in a line


def import_(
    files: Path | str | Sequence[Path | str],
    *,
    name: str | None = None,
    ranks: int | None = None,
    op: str = "",
    each: bool = False,
    out: Path | str | None = None,
) -> list[Run]:
    """Read what other tools printed, as `collbench import` does: nccl-tests, OSU, NCCL Inspector, and so on.

    Args:
        files: A log or several, or a folder of them; "-" is standard input.
        name: The format, by its name in `collbench import --help`; by default as the content shows.
        ranks: Number of ranks, where a file does not tell it.
        op: Collective, where a file does not tell it.
        each: Make a run of each file, rather than of all files of a machine.
        out: New folder in which the runs are stored; without it nothing is stored.

    Returns:
        A run for each machine, with its ranks and variables; its rows are of the kind Reported.  What is left out, or
        odd, is warned of with file and line, and so is a file of several that cannot be imported.

    Raises:
        RunFileError: No file can be read, or none holds results.
        UsageError: The only file does not tell its collective or its ranks, or there is a run in the folder already.

    >>> import collbench
    >>> (run,) = collbench.import_("tests/formats/data/nccl_tests_2_19.txt")
    >>> run.header.topology.name, len(run.results)
    ('4 x NVIDIA H100 80GB HBM3', 14)

    """
    reading = read_foreign([files] if isinstance(files, Path | str) else files, name, ranks, op, each)
    for remark in (*reading.remarks, *reading.refused):
        warnings.warn(remark, Notice, stacklevel=2)
    folders = folders_in(Path(out), reading.groups, each) if out else [None] * len(reading.groups)
    return [stored(imported, folder) for imported, folder in zip(reading.groups, folders, strict=True)]


class Reading(NamedTuple):
    """What goes into a run file each, at least one, and what the user must know of it, a line each."""

    groups: list[Imported]
    remarks: list[str]
    refused: list[str]  # files that cannot be imported, and why


def read_foreign(
    files: Sequence[Path | str], name: str | None, ranks: int | None, op: str, each: bool = False
) -> Reading:
    """Read files and folders; the error of a file that is alone, RunFileError if nothing can be imported of many."""
    hints = Hints(ranks, find_collective(op).name if op else "")
    if name:
        find_format(name, formats())
    said: list[str] = []
    refused: list[str] = []
    paths: list[Path] = []
    for file in map(Path, files):
        logs, others = files_in(file)
        paths += logs
        if others:
            said.append(f"{file}: by their names no logs, so not read: {', '.join(_first(others))}")
    noted = refused if len(paths) > 1 else None
    tests: list[ImportedTest] = []
    for path, of_file in by_key(read_files(_loaded(paths, noted), hints, name, noted), lambda test: test.path).items():
        if any(test.results for test in of_file):
            tests += of_file
        else:
            reasons = [reason for test in of_file for reason in test.left_out]
            refused.append(f"{path}: nothing to import: {'; '.join(_first(reasons)) or 'no rows'}")
    if not tests:
        none = f"none of {len(paths)} files can be imported: " if noted else ""
        raise RunFileError(none + "; ".join(_first(refused)))
    groups = grouped(tests, each)
    said += remarks(tests)
    for merged in filter(None, (imported.merged for imported in groups)):
        said.append(f"{merged} logs of the same test without host names went into one run; --each makes a run of each")
    return Reading(groups, said, refused)


def _loaded(paths: Iterable[Path], refused: list[str] | None) -> Iterator[Source]:
    for path in paths:
        with noting(refused):
            yield load(path)


def _first(words: list[str]) -> list[str]:
    """Return the first of many words, and dots."""
    return words if len(words) <= _SHOWN else [*words[:_SHOWN], "..."]


def folders_in(out: Path, groups: Sequence[Imported], each: bool = False) -> list[Path]:
    """Return the folder of each run: with `each` folders by name, else `out` of a single run, or numbered ones."""
    if each:
        return [out / name for name in names(groups)]
    if len(groups) == 1:
        return [out]
    return [out / f"{number}-{imported.collectives[0].name}" for number, imported in enumerate(groups, 1)]


def names(groups: Sequence[Imported]) -> list[str]:
    """Return a name for each run: of its host if that has no other run, else of its file, or of the folder of that."""
    paths = [Path(imported.tests[0].path).absolute() for imported in groups]
    if len({path.name for path in paths}) == 1 < len(set(paths)):
        paths = [path.parent for path in paths]
    common = os.path.commonpath([path.parent for path in paths])
    machines = [imported.tests[0].machine for imported in groups]
    hosts = [_as_folder(machine.host) if machine.nodes == 1 else "" for machine in machines]
    found: list[str] = []
    for host, path in zip(hosts, paths, strict=True):
        file = _as_folder("-".join(path.with_name(stem(path)).relative_to(common).parts))
        name = host if host and hosts.count(host) == 1 else "-".join(filter(None, (host, file)))
        earlier = sum(re.fullmatch(rf"{re.escape(name)}(-\d+)?", other) is not None for other in found)
        found.append(f"{name}-{earlier + 1}" if earlier else name or "log")
    return found


def default_folder(imported: Imported, name: str = "") -> Path:
    """Return a new folder like that of a sweep, named after the collectives, and the name, the host or the tool."""
    first = imported.tests[0]
    where = name or _as_folder(first.machine.host) or first.tool.split()[0]
    return new_folder([collective.name for collective in imported.collectives], f"{where}-imported")


def _as_folder(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "_", name).strip("._-")[:60]


def stored(imported: Imported, folder: Path | None) -> Run:
    """Return the run, and store it in that folder if there is one."""
    header, results = imported.header(["collbench", *sys.argv[1:]]), tuple(imported.results)
    path = store(folder, header, results) if folder else Path(NAME)
    return Run(path, header, results, True, 0)
