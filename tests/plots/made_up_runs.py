"""Made-up results by the kind of figure that is drawn of them, most by two implementations; and runs of them."""

from importlib import import_module
from pathlib import Path

from collbench.results import Explanation, Result
from collbench.results.collectives import MOVED, PHASES, WAITED, Span, Track
from collbench.runfile.schema import Header
from collbench.runfile.store import Run
from tests.conftest import ROOT, case, measurement


def explained() -> list[Result]:
    spans = (Span(WAITED, 0.0, 1e-6), Span(MOVED, 1e-6, 1e-7))
    tracks = tuple(Track(rank, 0, 0.0, 1.9e-6, dict.fromkeys(PHASES, 1e-7), spans) for rank in (0, 1))
    return [Explanation(case(), name, "cpu", 2e-6, 2.1e-6, tracks) for name in ("ring-flags", "two-shot")]


def swept() -> list[Result]:
    return [measurement(name, (1e-6,) * 7, nbytes=size) for size in (64, 256, 1024) for name in ("mpi", "ring-flags")]


def of_commands() -> dict[str, list[Result]]:
    """What tests of commands have made up, found by being there as the commands' figures are."""
    found: dict[str, list[Result]] = {}
    for path in sorted((ROOT / "tests" / "commands").glob("*/made_up_*.py")):
        module = import_module(f"tests.commands.{path.parent.name}.{path.stem}")
        found |= getattr(module, "MADE_UP", {})
    return found


MADE_UP = {"curves": swept(), "timeline": explained(), **of_commands()}
"""By the name of the kind; a kind without any is missed by tests/plots/test_kinds.py."""


def run(*results: Result, name: str = "run.jsonl") -> Run:
    header = Header.from_json({"topology": {"name": "2 sockets"}})
    return Run(Path(name), header, results, True)
