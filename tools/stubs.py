"""The types of the library, collbench/__init__.pyi, from the records of the commands."""

from collections.abc import Iterator
from pathlib import Path

from collbench.requests import functions
from tools import ROOT

HEAD = """# Written by `python -m tools.pages stubs` from the records of the commands.
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # every module imports the package, so type checkers are to come to these last
"""


def written() -> Iterator[tuple[Path, str]]:
    """Yield the file and its text: the module of each function, earlier names included, and the version."""
    names = functions() | functions(earlier=True)
    lines = [f"    from {module} import {name} as {name}\n" for name, module in names.items()]
    public = "".join(f'    "{name}",\n' for name in sorted(functions()))
    text = "".join([HEAD, *sorted(lines), f"\n__all__ = [\n{public}]\n__version__: str\n"])
    yield ROOT / "collbench" / "__init__.pyi", text
