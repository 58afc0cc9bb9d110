"""What a run says of how it ran goes into the machine that it is held against, where the description leaves it open."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collbench.analysis.machine import as_it_ran
from collbench.runs.file import Run
from collbench.runs.header import Environment, ForeignTest, Header, ImportedPart
from collbench.topology import files

H100 = files.load("dgx-h100")


def ran(version: Any = "", **settings: Any) -> Run:
    """A run with that release of NCCL and those settings of nccl-tests."""
    tests = (ForeignTest(tool="nccl-tests", sweep=settings),)
    environment = Environment(versions={"nccl": version} if version else {})
    return Run(
        Path("run.jsonl"), Header(environment=environment, imported=ImportedPart(tests=tests)), (), complete=True
    )


@pytest.mark.parametrize(
    ("settings", "launch"),
    [({"gpus": 8}, "single-process"), ({"gpus": 1, "threads": 8}, "process-per-gpu"), ({}, "process-per-gpu")],
)
def test_a_process_that_drives_several_gpus_launches_for_all(settings: dict[str, int], launch: str) -> None:
    """`-g 8` of nccl-tests; threads launch for themselves."""
    assert as_it_ran(H100, ran(**settings)).launch == launch


def test_the_release_is_the_runs_own() -> None:
    assert as_it_ran(H100, ran("2.21.5")).nccl == "2.21.5"
    assert as_it_ran(H100, ran()).nccl == H100.nccl


def test_what_the_description_says_is_believed() -> None:
    described = replace(H100, launch="torch", nccl="2.23")
    assert as_it_ran(described, ran("2.21.5", gpus=8)) == described


@pytest.mark.parametrize("odd", ["latest", "2", 2.21, None, ["2.21"], "2.21; rm"])
def test_headers_that_say_odd_things_change_nothing(odd: Any) -> None:
    assert as_it_ran(H100, ran(odd, gpus=odd)) in (H100, replace(H100, nccl="2.21"))
