"""What a run says of how it ran goes into the machine that it is held against, where the description leaves it open."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from collbench.analysis.machine import as_it_ran, remarks
from collbench.runs.file import Run
from collbench.runs.header import Environment, ForeignTest, Header, ImportedPart, SweepPart, TopologyPart
from collbench.topology import files

H100 = files.load("dgx-h100")


def ran(version: Any = "", **settings: Any) -> Run:
    """A run with that release of NCCL and those settings of nccl-tests."""
    tests = (ForeignTest(tool="nccl-tests", sweep=settings),)
    environment = Environment(versions={"nccl": version} if version else {})
    return Run(
        Path("run.jsonl"), Header(environment=environment, imported=ImportedPart(tests=tests)), (), complete=True
    )


def test_a_process_that_drives_several_gpus_launches_for_all() -> None:
    """`-g 8` of nccl-tests; threads launch for themselves; what the description says is believed."""
    for settings, launch in (
        ({"gpus": 8}, "single-process"),
        ({"gpus": 1, "threads": 8}, "process-per-gpu"),
        ({}, "process-per-gpu"),
    ):
        assert as_it_ran(H100, ran(**settings)).launch == launch, settings
    described = replace(H100, launch="torch", nccl="2.23")
    assert as_it_ran(described, ran("2.21.5", gpus=8)) == described
    assert as_it_ran(H100, ran("2.21.5")).nccl == "2.21.5"
    assert as_it_ran(H100, ran()).nccl == H100.nccl
    for odd in ("latest", "2", 2.21, None, ["2.21"], "2.21; rm"):
        assert as_it_ran(H100, ran(odd, gpus=odd)) in (H100, replace(H100, nccl="2.21")), odd


def test_ranks_that_keep_their_cores_are_a_remark_where_they_have_some() -> None:
    for platform, spin, told in (("cpu", "busy", 1), ("cpu", "auto", 0), ("gpu", "busy", 0)):
        header = Header(topology=TopologyPart(platform=platform, ranks=2), sweep=SweepPart(spin=spin))
        said = remarks(Run(Path("run.jsonl"), header, (), complete=True))
        found = [line.startswith("--spin busy: waiting ranks keep their cores") for line in said]
        assert found == [True] * told, (platform, spin)
