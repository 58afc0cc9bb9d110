"""The library for type checkers, collbench/__init__.pyi: `python -m tools.stubs` writes it from the commands."""

from collbench.requests import functions
from tools import ROOT

STUB = ROOT / "collbench" / "__init__.pyi"
HEAD = """# Written by `python -m tools.stubs` from the records of the commands.
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # every module imports the package, so type checkers are to come to these last
"""


def text() -> str:
    """Return the file: where each function is, earlier names among them, and the version."""
    names = functions() | functions(earlier=True)
    lines = [f"    from {module} import {name} as {name}\n" for name, module in names.items()]
    public = "".join(f'    "{name}",\n' for name in sorted(functions()))
    return "".join([HEAD, *sorted(lines), f"\n__all__ = [\n{public}]\n__version__: str\n"])


if __name__ == "__main__":
    STUB.write_text(text(), encoding="utf-8")
