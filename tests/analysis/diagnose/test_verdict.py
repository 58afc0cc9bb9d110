"""What verdicts rest on: rows that are wrong are named first, and sizes far above their band are exceptions."""

from dataclasses import replace

from collbench.analysis.judgement import Correctness, Word, but_for, exceptions, status
from collbench.results import Failed, Measurement, Mismatch, Prediction, Reported, Skipped
from tests.conftest import case

RIGHT = Measurement(case(nbytes=8), "ring-flags", "cpu", 1, (1e-6,))
WRONG = replace(RIGHT, case=case(nbytes=1 << 20), mismatch=Mismatch(1, 5, 0, "3", "4", 7))
FAILED = Failed(case(nbytes=2 << 20), "ring-flags", "cpu", "rank 1 crashed")


def test_wrong_and_failed_rows_are_counted_and_named() -> None:
    untried = Skipped(case(nbytes=4 << 20), "ring-flags", "cpu", "tried no more")
    unable = Skipped(case(nbytes=4 << 20), "nvls", "cpu", "no switch")
    predicted = Prediction(case(), "nccl", 1e-6, 0.9e-6, 1.1e-6)
    found = Correctness.of([RIGHT, WRONG, FAILED, untried, unable, predicted])
    assert (found.right, found.total, found.faults) == (1, 4, (WRONG, FAILED))
    words = found.in_words()
    assert words.startswith("1 of 4 rows right; 1 MiB allreduce ring-flags: WRONG: rank 1")
    assert "2 MiB allreduce ring-flags: FAILED: rank 1 crashed; 1 not tried after that" in words
    assert Correctness.of([RIGHT, unable]).in_words() == "1 of 1 rows right"
    assert "and 2 more" in Correctness.of([WRONG] * 5).in_words()


def test_rows_that_nobody_checked_are_not_called_right() -> None:
    reported = Reported(case(), "nccl", "gpu", 1e-6, "mean")
    assert Correctness.of([reported, reported]).in_words() == "2 rows, none of them checked"
    assert Correctness.of([reported, RIGHT]).in_words() == "1 of 2 rows right; 1 not checked"
    assert Correctness.of([replace(reported, wrong_elements=2)]).faults


def test_a_size_just_above_its_band_is_chance_and_one_far_above_is_named() -> None:
    expected = [Prediction(case(nbytes=2**power), "nccl", 1e-6, 0.8e-6, 1.2e-6) for power in range(20, 24)]
    times = (1.3e-6, 13.4e-6, 1e-6, 2.1e-6)
    rows = [replace(RIGHT, case=band.case, seconds=(time,)) for band, time in zip(expected, times, strict=True)]
    found = exceptions(rows, expected)
    assert but_for(found, len(rows)) == " but for 2 of 4 sizes: 2 MiB 13.4x slow, 8 MiB 2.1x slow"
    assert but_for(exceptions(rows[:1], expected[:1]), 1) == ""
    assert but_for(found * 3, 30).endswith("8 MiB 2.1x slow, 2 MiB 13.4x slow, 3 more")


def test_only_verdicts_without_exceptions_pass() -> None:
    good, slow, unknown = (Word.OK, False), (Word.SLOW, False), (Word.UNKNOWN, False)
    assert status([good, (Word.FAST, False)]) == 0
    assert status([unknown, good, slow]) == status([(Word.WRONG, False)]) == 3
    for verdicts in ([good, unknown], [(Word.OK, True)], []):
        assert status(verdicts) == 4, verdicts
