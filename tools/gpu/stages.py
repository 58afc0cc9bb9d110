"""The stages of a GPU campaign, from stages.toml."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOLS = ("memcheck", "racecheck", "synccheck")  # of compute-sanitizer


@dataclass(frozen=True)
class Stage:
    """A command of collbench, or a program of this folder; `{folder}` stands for a folder of the stage."""

    name: str
    shows: str
    command: tuple[str, ...]  # begins with `collbench`, or with the name of a program
    limit: int = 240  # seconds after which it is ended
    gpus: int = 1  # that it needs
    package: str = ""  # of Python, that it needs
    tests: bool = False  # whether it shows that something is right, rather than how fast it is


def _stages() -> Iterator[Stage]:
    for record in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["stage"]:
        for values in record.pop("each", [{}]):
            yield _stage(record, {"folder": "{folder}"} | values)


def _stage(record: dict[str, Any], values: dict[str, Any]) -> Stage:
    name, shows, command = (record[key].format_map(values) for key in ("name", "shows", "command"))
    return Stage(**record | {"name": name, "shows": shows, "command": tuple(command.split())})


STAGES = tuple(_stages())
