"""Bugs that the harness of kernels/host/streams.cpp must catch; docs/kernels.md has the table.

A bug is a change in a copy of the kernels (bugs.toml); races.py of `exercise` builds and runs them.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from collbench.measure import races
from collbench.measure.races import GAVE_UP, NARROW, RACE, WRONG, Change, Outcome, Run, build, outcome
from collbench.platforms import compiler
from tools import table

ALLREDUCES = (
    "ring-flags",
    "ring-pipelined",
    "ring-ll",
    "one-shot",
    "two-shot",
    "parameter-server",
    "one-shot-ll",
    "nvls",
)
OTHERS = tuple(
    f"{ring}-{collective}"
    for ring in ("ring-flags", "ring-pipelined")
    for collective in ("broadcast", "allgather", "reducescatter")
)
"""The other collectives of rings."""


@dataclass(frozen=True)
class Bug:
    """A change of the kernels with which a run must go wrong, in at least this way."""

    name: str
    run: Run
    catcher: str
    changes: tuple[Change, ...] = ()
    options: tuple[str, ...] = ()

    def caught(self, tries: int = 4) -> set[str]:
        """Return the catchers of the bug; with other stalls if the first do not show it."""
        binary = build(self.run.parts(), self.changes, self.options)
        noticed: set[str] = set()
        for seed in range(1, tries + 1):
            noticed |= outcome(binary, replace(self.run, seed=seed, timeout=1000)).catchers
            if self.catcher in noticed:
                break
        return noticed


@cache
def clean(run: Run) -> Outcome:
    every = Run((*ALLREDUCES, *OTHERS), 2) if NARROW not in run.kernels else run
    return outcome(build(every.parts()), run)


def _changes(record: Mapping[str, Any]) -> Iterator[Change]:
    """Yield the changes of a bug; a change within a kernel has the whole text of the kernel."""
    for change in record.get("changes", [record] if "file" in record else []):
        if "kernel" in change:
            text = _body(change["file"], change["kernel"])
            yield change["file"], text, text.replace(change["cut"], "")
        else:
            yield change["file"], change["from"], change["to"]


def _run(record: Mapping[str, Any]) -> Run:
    """Return a run: lists are tuples, and a stall has its name."""
    facts = {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}
    if "stall" in facts:
        facts["stall"] = getattr(races, facts["stall"])
    return Run(**facts)


def _body(file: str, kernel: str) -> str:
    found = re.search(
        rf"^(?:extern .*)?\s+{kernel}\(PARAMETER.*?^}}\n|^extern .* {kernel}\(.*?^}}\n",
        (compiler.folder() / file).read_text(),
        re.M | re.S,
    )
    assert found, kernel
    return found[0]


_RECORDS = tomllib.loads(Path(__file__).with_name("bugs.toml").read_text(encoding="utf-8"))["bug"]
BUGS = [
    Bug(
        record["name"],
        _run(record["run"]),
        record["catcher"],
        tuple(_changes(record)),
        tuple(record.get("options", ())),
    )
    for record in _RECORDS
]


def bugs_table() -> list[str]:
    """Return a table of the bugs by the kernels that run them and by their catchers."""
    caught: dict[str, dict[str, list[str]]] = {}
    for bug in BUGS:
        kernels = ", ".join(f"`{kernel}`" for kernel in bug.run.kernels)
        caught.setdefault(kernels, {RACE: [], WRONG: [], GAVE_UP: []})[bug.catcher].append(bug.name)
    rows = [[kernels, *map("; ".join, names.values())] for kernels, names in caught.items()]
    return table(("run", "race", "wrong result", "stuck"), rows)
