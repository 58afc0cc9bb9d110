"""Of rows and runs: what memory allows, one word for many cases, and the machine that a run says it ran on."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collbench.analysis.machine import as_it_ran, remarks
from collbench.analysis.roofline import measured_roofline, share, share_in_words
from collbench.cases import Sweep
from collbench.collectives import COLLECTIVES
from collbench.commands.verify.command import cell, matrix
from collbench.results import Failed, Measurement, Mismatch, Prediction, Skipped
from collbench.runfile.schema import (
    Environment,
    ForeignTest,
    Header,
    ImportedPart,
    TopologyPart,
    to_line,
    to_result,
)
from collbench.runfile.store import Run
from collbench.topology import files
from tests.conftest import case, measurement

H100 = files.load("dgx-h100")
MIB = 2**20


def row(nbytes: int = 128 * MIB, seconds: float = 40e-3, floor: float | None = 20e-3, **changes: object) -> Measurement:
    return replace(measurement("two-shot", (seconds,) * 7, nbytes=nbytes, **changes), floor=floor)


def test_the_bound_has_a_time_for_each_size_that_was_measured() -> None:
    rows = [row(floor=floor) for floor in (18e-3, 20e-3, 40e-3)]
    rows += [row(64 * MIB, floor=9e-3), row(MIB, floor=None), row(floor=1e-3, in_place=True)]
    limit = measured_roofline(rows, case().kind)
    assert limit
    assert limit.seconds(128 * MIB) == 20e-3
    assert limit.seconds(64 * MIB) == 9e-3
    assert math.isnan(limit.seconds(MIB))
    assert measured_roofline(rows, case("broadcast").kind) is None
    # At the largest size: an all-reduce of two ranks reads both inputs and writes both results.
    assert str(measured_roofline([row(), row(64 * MIB, floor=9e-3)], case().kind)) == (
        "roofline: 20 ms at 128 MiB to read 256 MiB and write 256 MiB of memory"
    )


def test_the_share_is_of_what_was_measured_beside_the_row_and_in_words() -> None:
    limit = measured_roofline([row(floor=30e-3)], case().kind)
    assert share(row(), limit, 40e-3) == 0.5
    assert share(row(floor=None), limit, 40e-3) == 0.75
    assert math.isnan(share(row(floor=None), None, 40e-3))
    assert math.isnan(share(Prediction(case(), "nccl", 1e-3, 1e-3, 1e-3), None, 1e-3))
    assert share_in_words(row()) == "50 % of the roofline"
    assert share_in_words(row(floor=None)) == ""
    assert share_in_words(replace(row(), mismatch=Mismatch(0, 0, 0, "1", "2", 1), seconds=())) == ""
    assert to_result(json.loads(json.dumps(to_line(row(floor=0.1 + 0.2))))) == row(floor=0.1 + 0.2)
    assert "floor" not in to_line(row(floor=None))
    for odd in (math.nan, math.inf, -1.0, 0, 1e400):
        with pytest.raises(ValueError, match="floor"):
            to_result(to_line(row()) | {"floor": odd})


def test_the_worst_outcome_is_what_a_cell_says_and_what_is_not_there_is_a_dash() -> None:
    right, wrong = measurement(), replace(measurement(), mismatch=Mismatch(0, 0, 0, "1", "2", 1))
    skipped = Skipped(case(), "mpi", "cpu", "no way")
    assert cell([right, wrong, right, skipped]) == "WRONG"
    assert cell([right, Failed(case(), "mpi", "cpu", "died")]) == "FAILED"
    assert cell([right, skipped]) == "ok"
    assert cell([skipped]) == cell([]) == "-"


def test_the_matrix_fits_the_width_in_blocks_without_rows_that_have_nothing() -> None:
    everything = {("mpi", name): [measurement("mpi", collective=name)] for name in COLLECTIVES}
    lines = list(matrix(everything | {("ring", "allreduce"): [measurement("ring")]}))
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith("ring") for line in lines) == 1
    assert "\n".join(lines).split().count("ok") == len(COLLECTIVES) + 1
    assert {word for line in lines if line.startswith(" ") for word in line.split()} == set(COLLECTIVES)


def ran(version: Any = "", **settings: Any) -> Run:
    """A run with that release of NCCL and those settings of nccl-tests."""
    tests = (ForeignTest(tool="nccl-tests", sweep=settings),)
    environment = Environment(versions={"nccl": version} if version else {})
    return Run(
        Path("run.jsonl"), Header(environment=environment, imported=ImportedPart(tests=tests)), (), complete=True
    )


def test_a_process_that_drives_several_gpus_launches_for_all() -> None:
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
        header = Header(topology=TopologyPart(platform=platform, ranks=2), sweep=Sweep(spin=spin))
        said = remarks(Run(Path("run.jsonl"), header, (), complete=True))
        found = [line.startswith("--spin busy: waiting ranks occupy cores") for line in said]
        assert found == [True] * told, (platform, spin)
