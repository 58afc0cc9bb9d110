"""Who wins from which size on."""

from dataclasses import replace

import pytest

from collbench.analysis.crossover import (
    Advantage,
    Contest,
    best_of,
    contests,
    fastest_in_words,
    in_words,
    library_of,
    rivals,
    winners,
)
from collbench.results import Measurement, Note, Prediction, Reported
from tests.conftest import case, measurement

Times = dict[int, float]


def curve(name: str, times: Times, halfwidth: float = 0.0) -> list[Measurement]:
    """Measurements of one implementation over sizes, with samples between so much below and above."""
    shares = [1 - halfwidth + place * halfwidth / 3 for place in range(7)]
    return [
        measurement(name, tuple(seconds * share for share in shares), nbytes=nbytes)
        for nbytes, seconds in times.items()
    ]


MPI = curve("mpi", {8: 4e-6, 1024: 4e-6, 65536: 40e-6})


def against_mpi(times: Times, *more: Measurement) -> Contest:
    (contest,) = contests([*MPI, *curve("ring", times), *more], ["mpi"])
    return contest


def speedups(contest: Contest) -> list[tuple[int, float]]:
    return [(point.nbytes, point.ratio.value) for point in contest.points]


def test_a_crossing_is_told_as_the_sizes_between_which_it_lies() -> None:
    contest = against_mpi({8: 1e-6, 1024: 2e-6, 65536: 80e-6})
    assert contest.crossovers == [(1024, 65536)]
    assert in_words(contest) == "ring beats mpi up to 1 KiB and loses from 64 KiB on: 4x at 8 B, 0.5x at 64 KiB"
    blurred = against_mpi({8: 1e-6, 65536: 80e-6}, *curve("ring", {1024: 3.5e-6}, 0.3))
    assert blurred.crossovers == [(8, 65536)]
    assert in_words(blurred) == "ring beats mpi up to 8 B and loses from 64 KiB on: 4x at 8 B, 0.5x at 64 KiB"
    twice = against_mpi({8: 1e-6, 1024: 16e-6, 65536: 10e-6})
    assert twice.crossovers == [(8, 1024), (1024, 65536)]
    assert in_words(twice).startswith("ring beats mpi at 8 B, 64 KiB and loses at 1 KiB: 4x at 8 B")


def test_wins_losses_and_ties_are_said_by_ranges_of_size() -> None:
    level = "ring and mpi are not distinguishable at any size"
    for microseconds, words in (
        ((1, None, 20), "beats mpi at all 2 sizes that can be compared: 4x at 8 B, 2x at 64 KiB"),
        ((8, None, 80), "loses to mpi at all 2 sizes that can be compared: 0.5x at 8 B, 0.5x at 64 KiB"),
        ((4.3, None, 43), "loses to mpi at all 2 sizes that can be compared: 0.93x at 8 B, 0.93x at 64 KiB"),
        ((4.15, None, 41.5), level),
        ((4.05, 3.95, 40.5), level),
        ((1, 4, 80), "beats mpi up to 8 B and loses from 64 KiB on: 4x at 8 B, 0.5x at 64 KiB"),
        ((8, 4, 20), "loses to mpi up to 8 B and wins from 64 KiB on: 0.5x at 8 B, 2x at 64 KiB"),
        ((8, 8, 20), "loses to mpi up to 1 KiB and wins from 64 KiB on: 0.5x at 8 B, 2x at 64 KiB"),
        ((8, 2, 80), "loses to mpi at 8 B, 64 KiB and wins at 1 KiB: 0.5x at 8 B, 2x at 1 KiB, 0.5x at 64 KiB"),
        ((1, 4, 20), "beats mpi at 8 B, 64 KiB: 4x at 8 B, 2x at 64 KiB; not distinguishable at 1 KiB"),
        ((4, 8, 80), "loses to mpi at 1 KiB to 64 KiB: 0.5x at 1 KiB, 0.5x at 64 KiB; not distinguishable at 8 B"),
        ((4, 2, 40), "beats mpi at 1 KiB: 2x at 1 KiB; not distinguishable at 8 B, 64 KiB"),
        ((2, 1, 20), "beats mpi at every size: 2x at 8 B, 4x at 1 KiB, 2x at 64 KiB"),
        ((2, 3, 30), "beats mpi at every size: 2x at 8 B, 1.3x at 64 KiB"),
    ):
        times = {size: each * 1e-6 for size, each in zip((8, 1024, 65536), microseconds, strict=True) if each}
        assert in_words(against_mpi(times)) == (words if words == level else f"ring {words}"), microseconds


def test_a_ratio_whose_intervals_overlap_is_no_fact_and_one_has_two_digits() -> None:
    times = {8: 1e-6, 1024: 2e-6, 65536: 80e-6}
    slower = {nbytes: seconds * 1.1 for nbytes, seconds in times.items()}
    for halfwidth, names in ((0.0, ("ring",)), (0.05, ("ring", "mpi")), (0.3, ("ring", "mpi"))):
        rows = [*curve("mpi", slower, halfwidth), *curve("ring", times, halfwidth)]
        (contest,) = contests(rows, ["mpi"])
        ((_, ranges),) = winners(rows)
        words = (
            "ring and mpi are not distinguishable at any size" if halfwidth else "ring beats mpi at every size: 1.1x"
        )
        assert in_words(contest).startswith(words), halfwidth
        assert ranges == [(8, 65536, names)], halfwidth
    for factor, halfwidth, told in (
        (3.4, 0.0, "3.4x at 8 B"),
        (3.4, 0.3, ": 3.4x at 8 B"),
        (123.4, 0.0, "120x at 8 B"),
    ):
        rows = [*curve("mpi", {8: factor, 9: factor}, halfwidth), *curve("ring", {8: 1.0, 9: 1.0}, halfwidth)]
        assert told in in_words(contests(rows, ["mpi"])[0]), (factor, halfwidth)


def test_few_samples_tell_little() -> None:
    few = [measurement(name, (times,) * 5, nbytes=size) for name, times in (("mpi", 2), ("ring", 1)) for size in (8, 9)]
    assert in_words(contests(few, ["mpi"])[0]) == "ring and mpi are not distinguishable at any size"
    for seconds, sign in ((1.15, 0), (1.3, 1)):
        rows = [Reported(case(), name, "cpu", figure, "mean") for name, figure in (("ring", 1.0), ("mpi", seconds))]
        assert Advantage.of(rows[0], rows[1]).sign == sign, seconds


def test_the_fastest_of_all_is_told_by_ranges_of_size() -> None:
    ((largest, ranges),) = winners([*MPI, *curve("ring", {8: 1e-6, 1024: 2e-6, 65536: 80e-6})])
    assert ranges == [(8, 1024, ("ring",)), (65536, 65536, ("mpi",))]
    assert largest.nbytes == 65536
    assert fastest_in_words(ranges, expected=False) == "fastest: ring 8 B to 1 KiB; mpi 64 KiB"
    ((_, ranges),) = winners(MPI)
    assert ranges == [(8, 65536, ("mpi",))]
    ((largest, ranges),) = winners([*reversed(MPI), *curve("ring", {8: 1e-6, 1024: 4e-6})])
    assert largest.nbytes == 65536
    assert ranges == [(8, 8, ("ring",)), (1024, 1024, ("mpi", "ring")), (65536, 65536, ("mpi",))]
    ((_, ranges),) = winners([*MPI, *(measurement("ring", (), nbytes=nbytes) for nbytes in (8, 1024))])
    assert {names for _, _, names in ranges} == {("mpi",)}, "what was wrong has no time"
    two = [*curve("a", {8: 1.0, 16: 1.01}), *curve("b", {8: 1.01, 16: 1.0})]
    ((_, ranges),) = winners(two)
    assert [str(those) for those in ranges] == ["a or b 8 B to 16 B"]
    ((_, ranges),) = winners([*two, *curve("c", {8: 1.0, 16: 1.0}), *curve("d", {8: 1.0, 16: 2.0})])
    assert [str(those) for those in ranges] == ["one of 4 (a, c, ...) 8 B", "b or c or a 16 B"]


def test_no_row_is_called_the_fastest_that_another_row_surely_beats() -> None:
    unsure, faster, slower = curve("a", {8: 1.0}, 0.9), curve("b", {8: 1.1}), curve("c", {8: 1.6})
    ((_, ranges),) = winners([*slower, *faster, *unsure])
    assert ranges == [(8, 8, ("a", "b"))]


def test_ranges_in_words_are_as_wide_as_somebody_is_not_surely_beaten_and_say_where_others_are_level() -> None:
    a = curve("a", {8: 1.0, 16: 1.0, 32: 1.0, 64: 1.0, 128: 2.0})
    b = curve("b", {8: 1.0, 16: 1.0, 32: 2.0, 64: 1.0, 128: 1.0})
    for rows, words in (
        ([*a, *b], "a 8 B to 64 B; b 128 B; others may be as fast at 8 B to 16 B, 64 B"),
        ([*a, *curve("twin", {8: 1.0, 16: 1.01, 32: 1.0, 64: 1.0, 128: 2.0})], "a or twin 8 B to 128 B"),
        (b, "b 8 B to 128 B"),
    ):
        ((_, ranges),) = winners(rows)
        assert fastest_in_words(ranges, expected=False) == f"fastest: {words}"


def test_the_best_kernel_at_each_size_stands_for_all_against_a_library() -> None:
    ring = curve("ring", {8: 1e-6, 1024: 8e-6, 65536: 80e-6})
    noisy = curve("tree", {8: 9e-6, 65536: 20e-6}) + curve("tree", {1024: 3.5e-6}, 0.5)
    (best,) = best_of(contests([*MPI, *ring, *noisy], ["mpi"]))
    assert (
        in_words(best)
        == "the best kernel beats mpi at 8 B, 64 KiB: 4x at 8 B, 2x at 64 KiB; not distinguishable at 1 KiB"
    )
    sure = curve("flat", {8: 9e-6, 1024: 3.6e-6, 65536: 80e-6})
    (best,) = best_of(contests([*MPI, *ring, *noisy, *sure], ["mpi"]))
    assert best.points[1].ratio.value == pytest.approx(4 / 3.6), (
        "a sure advantage counts before a larger one that is not"
    )
    assert best_of([alone := against_mpi({8: 1e-6, 1024: 1e-6})]) == [alone]


def expected(name: str, times: Times) -> list[Prediction]:
    return [
        Prediction(case(nbytes=nbytes), name, seconds, seconds / 2, seconds * 2) for nbytes, seconds in times.items()
    ]


def test_of_predictions_the_likelier_is_named_and_where_the_bands_overlap() -> None:
    nccl = expected("nccl", {8: 4e-6, 1024: 4e-6, 65536: 40e-6})
    ring = expected("ring", {8: 1e-6, 1024: 2e-6, 65536: 80e-6})
    (contest,) = contests([*nccl, *ring], ["nccl"])
    figures = "4x at 8 B, 0.5x at 64 KiB"
    place = "up to 1 KiB and lose from 64 KiB on"
    assert in_words(contest) == f"ring will likely beat nccl {place}: {figures}; all bands overlap"
    ((_, ranges),) = winners([*nccl, *ring])
    assert ranges == [(8, 1024, ("ring",)), (65536, 65536, ("nccl",))]
    assert fastest_in_words(ranges, expected=True) == "likely fastest: ring 8 B to 1 KiB; nccl 64 KiB"


def test_a_contest_is_of_two_sizes_or_more_of_one_kind_that_both_were_right_at() -> None:
    assert contests([*MPI, *curve("ring", {8: 1e-6})], ["mpi"]) == []
    wrong = measurement("ring", (), nbytes=1024)
    contest = against_mpi({65536: 20e-6, 8: 1e-6, 16: 1e-6}, *curve("mpi", {32: 1e-6}), wrong)
    assert speedups(contest) == [(8, pytest.approx(4.0)), (65536, pytest.approx(2.0))]
    assert contest.case.nbytes == 65536
    others = [
        measurement("ring", nbytes=nbytes, **changes)  # type: ignore[arg-type]
        for nbytes in (8, 1024)
        for changes in ({"ranks": 4}, {"in_place": True}, {"root": 1})
    ]
    assert contests([*MPI, *others], ["mpi"]) == []
    assert contests([*MPI, *curve("nccl", {8: 1e-6, 1024: 1e-6})], ["mpi", "nccl"]) == []


def test_a_result_is_compared_with_the_library_at_its_own_case() -> None:
    twice = measurement("mpi", (9e-6,) * 7, nbytes=8)
    (guess,) = expected("mpi", {8: 1e-6})
    rows = [*MPI, twice, guess, measurement("ring", nbytes=8), measurement("mpi", nbytes=8, ranks=4)]
    assert library_of(rows, ["mpi"], measurement("ring", nbytes=8)) is twice
    assert library_of(rows, ["mpi"], measurement("ring", nbytes=1024)) is MPI[1]
    assert library_of(rows, ["mpi"], expected("ring", {8: 2e-6})[0]) is guess
    assert library_of(rows, ["mpi"], expected("ring", {1024: 2e-6})[0]) is None
    assert library_of(rows, ["nccl"], measurement("ring", nbytes=8)) is None
    assert library_of(rows, ["mpi"], measurement("ring", nbytes=64)) is None
    mpi, nccl, wrong = measurement("mpi"), measurement("nccl"), measurement("nccl", ())
    assert library_of([mpi, nccl], ["nccl", "mpi"], mpi) is nccl
    assert library_of([nccl, mpi], ["mpi", "nccl"], nccl) is mpi
    assert library_of([mpi, wrong], ["nccl", "mpi"], mpi) is mpi


def test_of_several_mpi_libraries_the_fastest_at_each_size_is_the_opponent() -> None:
    other = curve("mpi@openmpi", {8: 2e-6, 1024: 6e-6, 65536: 30e-6})
    ring = curve("ring", {8: 1e-6, 1024: 2e-6, 65536: 60e-6})
    rows = [*MPI, *other, *ring]
    (contest,) = contests(rows, ["mpi"])
    assert contest.library == "the fastest mpi"
    assert speedups(contest) == [(8, pytest.approx(2)), (1024, pytest.approx(2)), (65536, pytest.approx(0.5))]
    assert in_words(contest).startswith("ring beats the fastest mpi up to")
    fastest = [library_of(rows, ["mpi"], row) for row in ring]
    assert [row.implementation for row in fastest if row] == ["mpi@openmpi", "mpi", "mpi@openmpi"]


def test_rivals_are_those_with_a_time_that_no_other_of_them_explains() -> None:
    picked, picking = measurement("two-shot"), measurement("auto")
    assert rivals([picked, picking, measurement("mpi", nbytes=0)]) == [picked]
    assert rivals([picking]) == [picking]
    assert rivals([measurement("ring"), picking]) == [measurement("ring")]
    bound = [replace(row, note=Note(bound=True)) for row in expected("ring-host", {8: 0.1, 16: 0.1})]
    told = [*expected("nccl", {8: 1.0, 16: 1.0}), *expected("two-shot", {8: 0.2, 16: 0.2})]
    assert rivals([*bound, *told]) == told
    assert rivals(bound) == []
