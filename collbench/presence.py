"""Modules that are found by being there: commands, their figures and the library's functions stand in no list.

A file is looked at as text first, so that only what is needed gets imported: some modules take long.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).parent


def modules(pattern: str, sign: str) -> Iterator[tuple[Path, re.Match[str]]]:
    """Yield each Python file below collbench/ of a *pattern* in whose text a line matches the *sign*, and the match.

    A pattern is one of `glob`, as `commands/*/figure.py`; a sign is a regular expression with `^` for lines.
    """
    expression = re.compile(sign, re.MULTILINE)
    for path in sorted(PACKAGE.glob(pattern)):
        if match := expression.search(path.read_text(encoding="utf-8")):
            yield path, match


def imported(path: Path) -> ModuleType:
    """Import a file below collbench/ as the module that it is."""
    return import_module(".".join(["collbench", *path.relative_to(PACKAGE).with_suffix("").parts]))
