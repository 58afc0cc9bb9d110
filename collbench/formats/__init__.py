"""Formats of other tools: every module below this folder that defines FORMAT, found by the file's presence.

Another format is one file dropped in, here or in a folder of its own.  Which format a file has is told from its
content, by the first in `order` that recognises it.
"""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from collbench.errors import RunFileError, unknown
from collbench.formats.exported import ExportSelection
from collbench.formats.imported import Hints, Test
from collbench.formats.source import Source


@dataclass(frozen=True)
class Format:
    """How another tool writes its results.

    `read(source, hints)` yields the tests of a file that has this format, at least one; RunFileError names file and
    line of what cannot be read, UsageError what the file does not tell.  `write(selection)` is the text of a file,
    without what the selection was told to leave out.
    """

    name: str
    summary: str  # one line for lists of formats
    recognises: Callable[[Source], bool]
    read: Callable[[Source, Hints], Sequence[Test]]
    write: Callable[[ExportSelection], str] | None = None
    mixed: bool = False  # whether one file holds several implementations
    among: bool = False  # whether its tables may stand in one log with those of other tools
    order: int = 0  # those that look for more specific signs come first


@cache
def formats() -> dict[str, Format]:
    """Every format by name, in the order in which they are tried."""
    modules = [importlib.import_module(module.name) for module in pkgutil.walk_packages(__path__, f"{__name__}.")]
    known: list[Format] = [module.FORMAT for module in modules if hasattr(module, "FORMAT")]
    return {format_.name: format_ for format_ in sorted(known, key=lambda format_: (format_.order, format_.name))}


def written() -> dict[str, Format]:
    """Those that can be written too."""
    return {name: format_ for name, format_ in formats().items() if format_.write}


def find_format(name: str, known: dict[str, Format]) -> Format:
    """The format of that name among those."""
    if name not in known:
        raise unknown("format", name, known)
    return known[name]


def detect(source: Source) -> Format:
    """The format that a file's content shows; RunFileError with all of them if it shows none."""
    for format_ in formats().values():
        if format_.recognises(source):
            return format_
    known = "; ".join(f"{name} ({format_.summary})" for name, format_ in formats().items())
    raise RunFileError(f"{source.name}: nothing in it looks like results of a known tool; known are: {known}")


def read_tests(source: Source, hints: Hints, name: str | None = None) -> Sequence[Test]:
    """The tests of a file, in the format of that name or as its content shows; RunFileError for our own run files."""
    if source.first.startswith('{"kind": "header"'):
        raise RunFileError(f"{source.name} is a run file of collbench already; give it to the commands as it is")
    if name:
        return find_format(name, formats()).read(source, hints)
    first = detect(source)
    others = [format_ for format_ in formats().values() if format_.among and format_ is not first]
    if not first.among or not any(format_.recognises(source) for format_ in others):
        return first.read(source, hints)
    return _mixed(source, hints)


def _mixed(source: Source, hints: Hints) -> Sequence[Test]:
    """The tests of a log in which several tools speak; of those that have no row in it, nothing."""
    tests: list[Test] = []
    refused: list[RunFileError] = []
    for format_ in formats().values():
        if format_.among and format_.recognises(source):
            try:
                tests += format_.read(source, hints)
            except RunFileError as error:
                refused.append(error)
    if not tests:
        raise refused[0]
    return tests
