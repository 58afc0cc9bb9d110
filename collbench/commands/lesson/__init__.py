"""Write a lesson with this machine's numbers: an offline page."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from collbench.presence import Command

ASSETS = Path(__file__).with_name("assets")


def asset(name: str) -> str:
    """Return the text of a file of `assets/`."""
    return (ASSETS / name).read_text(encoding="utf-8")


@cache
def table(name: str) -> Mapping[str, Any]:
    """Return a TOML file of `assets/` by its name without `.toml`."""
    return tomllib.loads(asset(f"{name}.toml"))


COMMANDS = (Command(__name__, "lesson", "Learn", 1),)
