"""`collbench overlap --ctas` on made-up GPUs: how many CTAs NCCL may use is a setting that is swept."""

import json
from pathlib import Path

import pytest

from collbench.analysis.overlap import overlaps
from collbench.cli._step_options import parse_ctas
from collbench.errors import UsageError
from collbench.measure.overlapped import ways
from collbench.measurement import Result
from collbench.platforms.gpu.nccl import MOST_CTAS
from collbench.runs.file import read
from collbench.runs.step_records import step_record, to_step
from collbench.step_times import StepTimes
from collbench.steps import Step
from tests.platforms.gpu.whole_commands import on_gpus

STEP = ("--compute", "50KFLOP", "--gradients", "8K", "--matrix", "16", "--buckets", "8K", "--budget", "0.02")


def by_ctas(results: list[Result]) -> dict[tuple[str, str], str]:
    """Notes of the rows by implementation and way."""
    rows = (row for row in results if isinstance(row, StepTimes) and row.case.step)
    return {(row.implementation, row.case.step.way): str(row.note) for row in rows if row.case.step}


def test_every_number_has_rows_by_ranks_that_were_told_it(tmp_path: Path) -> None:
    """Of the library only: rungs do not read its environment.  All are held against the same steps without overlap."""
    words = ("overlap", "--on", "gpu", "--impl", "nccl,two-shot", "--ctas", "4,1", *STEP, "--out", "out")
    done = on_gpus(tmp_path, *words, devices=2)
    assert done.returncode == 0, done.stdout + done.stderr
    results = list(read(tmp_path / "out").results)
    notes = by_ctas(results)
    wanted = {("nccl", "stream, 1 CTA"): "NCCL_MAX_CTAS=1", ("nccl", "stream, 4 CTAs"): "NCCL_MAX_CTAS=4"}
    assert {way: note.split(";")[0] for way, note in notes.items() if "CTA" in way[1]} == wanted
    assert not any("NCCL_MAX_CTAS" in note for way, note in notes.items() if "CTA" not in way[1])
    assert {("two-shot", "stream"), ("nccl", "stream"), ("nccl", "sequential")} <= set(notes)
    found = [one for one in overlaps(results) if one.row.implementation == "nccl"]
    assert [one.step.ctas for one in found] == [0, 1, 4]
    assert len({id(one.sequential) for one in found}) == 1
    assert "stream, 4 CTAs" in done.stdout


def test_ways_without_overlap_are_not_repeated_for_every_number() -> None:
    """They are what overlap is held against, and NCCL does there as it likes."""
    every = ways(Step(8, 64), "gpu", (1024, 4096), (2, 8))
    assert [step.way for step in every if step.ctas == 0] == [
        "compute",
        "communicate",
        "sequential",
        "stream",
        "stream",
    ]
    assert [(step.way, step.bucket) for step in every if step.ctas] == [
        (f"stream, {most} CTAs", bucket) for most in (2, 8) for bucket in (1024, 4096)
    ]


@pytest.mark.parametrize("step", [Step(8, 64, "stream", 1024, ctas=4), Step(8, 64)])
def test_a_run_file_keeps_the_number(step: Step) -> None:
    assert to_step(json.loads(json.dumps(step_record(step)))) == step
    assert ("ctas" in step_record(step)) == bool(step.ctas)


@pytest.mark.parametrize("number", [-1, 1.5, "4", True, None])
def test_a_run_file_with_no_such_number_is_refused(number: object) -> None:
    with pytest.raises(ValueError, match="CTAs are a whole number"):
        to_step(step_record(Step(8, 64)) | {"ctas": number})


def test_numbers_are_taken_once_and_in_order() -> None:
    assert parse_ctas("16, 4,16", ["nccl"]) == (4, 16)
    assert parse_ctas(None, []) == ()


@pytest.mark.parametrize("text", ["", "0", "4,", "-1", "2.5", "many", str(MOST_CTAS + 1), "\u0664"])
def test_what_is_no_number_of_ctas_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no number of CTAs; give some from 1 to 64, such as 4,16"):
        parse_ctas(text, ["nccl"])
