"""Several rows of one case in a run: rounds of one curve where they were made alike, else curves of their own."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.results import Failed, Measurement, Mismatch, Observed, Reported, Result
from collbench.results.disturbed import Scheduling
from collbench.runfile.schema import ForeignTest, Header, ImportedPart
from collbench.runfile.store import Run, scatter_in_words
from tests.conftest import case, measurement

TEST = ForeignTest(format="nccl-tests", file="a.log", sweep={"iters": 20})
WRONG = Mismatch(rank=0, index=1, chunk=0, got="1", expected="2", wrong=1)


def reported(
    seconds: float, nbytes: int = 1024, test: int = 0, samples: Sequence[float] = (), **printed: str
) -> Reported:
    row = Reported(case(nbytes=nbytes), "nccl", "gpu", seconds, "mean", samples=tuple(samples))
    return replace(row, printed={"test": test, **printed})


def run(*results: Result, tests: Sequence[ForeignTest] = (TEST,)) -> Run:
    return Run(Path("run.jsonl"), Header(imported=ImportedPart(tests=tuple(tests))), results, True)


def curves(whole: Run) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in whole.cases:
        assert isinstance(row, Observed)
        found.setdefault(row.implementation, []).append(row.typical)
    return found


def test_rows_that_were_made_alike_are_rounds_of_which_none_is_chosen() -> None:
    for times in ((1e-3, 4e-3), (4e-3, 1e-3)):
        (row,) = run(*map(reported, times)).cases
        assert isinstance(row, Reported)
        assert (row.typical, row.rounds, row.worst.typical) == (pytest.approx(2.5e-3), times, 4e-3)
    (row,) = run(reported(1.0, samples=(1.0, 1.0)), reported(3.0, samples=(3.0, 3.0))).cases
    assert isinstance(row, Reported)
    assert row.samples == (1.0, 1.0, 3.0, 3.0)
    (joined,) = run(measurement(seconds=(1e-6,) * 7), measurement(seconds=(2e-6,) * 7)).cases
    assert isinstance(joined, Measurement)
    assert joined.round_times == (1e-6, 2e-6)


def test_the_worst_rounds_are_named_whichever_kind_has_the_same_size_after_them() -> None:
    rows = [
        Reported(case(collective=name, nbytes=nbytes), "nccl", "gpu", 1.0, "mean", rounds=(1.0, times))
        for name, nbytes, times in (("allreduce", 1024, 33.0), ("allgather", 1024, 1.01), ("allreduce", 2048, 1.2))
    ]
    for order in (rows, rows[::-1]):
        assert scatter_in_words(order) == "2 rounds, up to 33.00x apart (1 KiB)"


@pytest.mark.parametrize(
    ("other", "names"),
    [
        (replace(TEST, sweep={"iters": 100}), ["nccl@iters 20", "nccl@iters 100"]),
        (replace(TEST, sweep={"iters": 20, "graph": 1}), ["nccl@as usual", "nccl@graph 1"]),
        (replace(TEST, file="b.log"), ["nccl@a.log", "nccl@b.log"]),
        (replace(TEST, layout={"prefix": "pod-b"}), ["nccl@as usual", "nccl@pod-b"]),
        (replace(TEST, file="b.log", sweep={"iters": 5}), ["nccl@a.log + iters 20", "nccl@b.log + iters 5"]),
    ],
)
def test_rows_of_tests_that_were_made_otherwise_are_curves_of_their_own(other: ForeignTest, names: list[str]) -> None:
    whole = run(reported(1.0), reported(2.0, test=1), tests=(TEST, other))
    assert curves(whole) == {names[0]: [1.0], names[1]: [2.0]}
    further = run(reported(1.0), reported(2.0, nbytes=4096, test=1), tests=(TEST, other))
    assert curves(further) == {"nccl": [1.0, 2.0]}, "no case is there twice"


def test_protocols_that_a_library_prints_tell_tests_apart() -> None:
    rows = (reported(1.0, proto="LL"), reported(42.0, test=1, proto="SIMPLE"), reported(41.0, test=2, proto="SIMPLE"))
    whole = run(*rows, tests=(TEST, TEST, TEST))
    assert curves(whole) == {"nccl@LL": [1.0], "nccl@SIMPLE": [41.5]}


def test_a_row_that_is_wrong_or_failed_stands_for_its_case() -> None:
    good, wrong = measurement(), replace(measurement(), mismatch=WRONG)
    failed = Failed(good.case, good.implementation, "cpu", "a rank died")
    for bad in (wrong, failed):
        assert run(good, bad, good).cases == run(bad, good).cases == (bad,)
    calm, disturbed = measurement(), replace(measurement(), scheduling=Scheduling(off_core=0.9))
    assert run(disturbed, calm, disturbed).cases == (calm,)


def test_a_run_whose_rows_are_of_different_cases_is_as_it_was() -> None:
    rows = (reported(1.0), reported(2.0, nbytes=4096), measurement())
    assert run(*rows).cases == rows
    assert run(reported(1.0), reported(2.0, test=7)).cases[0].implementation == "nccl@a.log + iters 20"
