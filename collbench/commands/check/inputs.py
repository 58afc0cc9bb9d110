"""Inputs of a check that measures nothing: runs, logs of other tools, folders of both; a log table by table."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from collbench.commands.formats.imported import ImportedTest
from collbench.commands.formats.importing import ImportRequest, folders, grouped, read_each, stored, tables
from collbench.commands.formats.registry import NotResults
from collbench.commands.formats.source import STDIN, files_in
from collbench.errors import CollbenchError, RunFileError, UsageError
from collbench.runfile.store import NAME, Run, read
from collbench.topology import files
from collbench.units import counted

CHECK = "check.json"  # of a node
_BEGIN = b'{"kind"'  # of a run file


class Input(NamedTuple):
    """A run or a table of a log by the name of its file, or why it is refused."""

    name: str
    run: Run | CollbenchError


def read_inputs(names: Sequence[str], request: ImportRequest, said: list[str]) -> Iterator[Input]:
    """Yield runs and tables, in order; logs are stored as `import` stores them where the request has a folder.

    `said` gets what the user must know of files that hold no results.  UsageError for a name that is none.
    """
    runs: list[Path] = []
    logs: list[Path] = []
    below: set[str] = set()  # by their names in a folder, which others than the user wrote
    for name in names:
        path = _existing(name)
        if name == STDIN or not path.is_dir():
            (runs if _is_run(path) else logs).append(path)
        elif (path / NAME).exists():
            runs.append(path)
        else:
            inside = _inside(path, said)
            runs += [file for file in inside if _is_run(file)]
            logs += [file for file in inside if not _is_run(file)]
            below.update(str(file) for file in inside)
    for path in runs:
        name = str(path.parent if path.name == NAME else path)
        try:
            yield Input(name, read(path))
        except RunFileError as error:
            yield Input(name, error)
    yield from _logs(logs, below, request, said)


def _existing(name: str) -> Path:
    """Return the path of that name; UsageError with what to give instead."""
    if name == STDIN or (name and Path(name).exists()):
        return Path(name)
    if name in files.names():
        raise UsageError(f"{name} is a system, and no file; give --on {name}")
    what = f"there is no file or folder {name or repr(name)}"
    raise UsageError(f"{what}; give a run, a log or a folder of them, or nothing to measure this machine")


def _is_run(path: Path) -> bool:
    """Return whether a file is a run file, whatever it is called."""
    if not path.is_file() or not os.access(path, os.R_OK):
        return path.name == NAME
    with path.open("rb") as file:
        return file.read(len(_BEGIN)) == _BEGIN


def _inside(folder: Path, said: list[str]) -> list[Path]:
    """Return the logs and runs below a folder; CollbenchError where there is none, or checks of nodes."""
    if next(folder.glob(f"*/{CHECK}"), None):
        raise UsageError(f"{folder} holds checks of nodes; give --fleet {folder}")
    found, others = files_in(folder)
    if others:
        said.append(f"{folder}: {counted(len(others), 'file')} not read, by the names no logs")
    return [path for path in found if path.name != CHECK]


def _logs(logs: Sequence[Path], below: set[str], request: ImportRequest, said: list[str]) -> Iterator[Input]:
    """Yield the tables of logs, and why others are refused; those of a folder without results are counted."""
    read_tests: list[ImportedTest] = []
    without = 0
    for name, tests in read_each(logs, request.hints, said) if logs else ():
        if isinstance(tests, NotResults) and name in below:
            without += 1
        elif isinstance(tests, CollbenchError):
            yield Input(name, tests)
        else:
            read_tests += tests
            for table in tables(tests):
                yield Input(name, stored(table, None))
    if without:
        said.append(f"{counted(without, 'file')} without results")
    if not request.out:
        return
    groups = grouped(read_tests)
    try:
        for imported, folder in zip(groups, folders(request, groups), strict=True):
            said.append(f"run file: {stored(imported, folder).path}")
    except CollbenchError as error:  # the verdict is not lost with it
        said.append(f"not kept: {error}")
