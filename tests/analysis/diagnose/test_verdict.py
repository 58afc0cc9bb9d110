"""What a judgement rests on: rows that are wrong are named first, sizes beyond their limits next; and its words."""

import math
from dataclasses import replace

from collbench.analysis.diagnose import slow_in_words, slow_sizes
from collbench.analysis.judgement import MOST_SIGHT, UNSEEN, Correctness, Sight, Word, not_judged, overall, worst
from collbench.results import Failed, Measurement, Mismatch, Prediction, Reported, Skipped
from tests.conftest import case

MIB = 1 << 20
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
    assert words.startswith("1 of 4 results correct; 1 MiB allreduce ring-flags: WRONG: rank 1")
    assert "2 MiB allreduce ring-flags: FAILED: rank 1 crashed; 1 not tried after that" in words
    assert Correctness.of([RIGHT, unable]).in_words() == "1 of 1 results correct"
    assert "and 2 more" in Correctness.of([WRONG] * 5).in_words()


def test_rows_that_nobody_checked_are_not_called_right() -> None:
    reported = Reported(case(), "nccl", "gpu", 1e-6, "mean")
    assert Correctness.of([reported, reported]).in_words() == "2 results, none of them checked"
    assert Correctness.of([reported, RIGHT]).in_words() == "1 of 2 results correct; 1 not checked"
    assert Correctness.of([replace(reported, wrong_elements=2)]).faults


def test_a_size_just_above_its_band_is_chance_and_one_far_above_is_named() -> None:
    expected = [Prediction(case(nbytes=2**power), "nccl", 1e-6, 0.8e-6, 1.2e-6) for power in range(20, 24)]
    times = (1.3e-6, 13.4e-6, 1e-6, 2.1e-6)
    rows = [replace(RIGHT, case=band.case, seconds=(time,)) for band, time in zip(expected, times, strict=True)]
    found = slow_sizes(rows, expected)
    assert slow_in_words(found, len(rows)) == "2 of 4 sizes: 2 MiB 13.4x slow, 8 MiB 2.1x slow"
    assert slow_sizes(rows[:1], expected[:1]) == []
    assert slow_in_words(found * 3, 30).endswith("8 MiB 2.1x slow, 2 MiB 13.4x slow, 3 more")


def test_the_word_for_several_is_the_worst_of_those_that_could_be_judged() -> None:
    order = [Word.WRONG, Word.SLOW, Word.FAST, Word.OK]
    for place, word in enumerate(order):
        for others in (order[place:], order[place:][::-1]):
            assert overall([Word.UNKNOWN, *others, Word.UNKNOWN]) is word
    assert overall([]) is overall([Word.UNKNOWN]) is worst([]) is Word.UNKNOWN
    curves = [("alltoall", Word.UNKNOWN), ("allgather", Word.OK), ("reduce", Word.UNKNOWN)]
    assert not_judged(curves) == ["alltoall and reduce not judged"]
    assert not_judged(curves * 3)[0].endswith("3 more not judged")


def test_a_sight_is_of_what_all_would_notice_and_enough_up_to_its_bound() -> None:
    few, many = Sight.of(1.4, [(8, 2.0), (64, 1.9)]), Sight.of(1.6, [(8, 1.8), (MIB, 3.0), (MIB << 10, 1.7)])
    assert (few.single, many.single) == (2.0, 3.0)
    assert Sight.of_all([few, many]) == Sight(1.6, (2.0, 3.0, 1.7))
    assert [math.isnan(sight.single) for sight in (few, many, UNSEEN)] == [False, False, True]
    assert [Sight(large).enough for large in (MOST_SIGHT, 1.01 * MOST_SIGHT, math.nan)] == [True, False, False]
    assert [str(sight) for sight in (few, UNSEEN)] == ["would notice 2.0x below 64 KiB", ""]
