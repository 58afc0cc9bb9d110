"""Who wins from which size on."""

from dataclasses import replace

import pytest

from collbench.analysis.advantage import Advantage
from collbench.analysis.crossover import Contest, contests, fastest_in_words, in_words, library_of, rivals, winners
from collbench.measurement import Measurement, Prediction, Reported
from collbench.note import Note
from tests.conftest import case, measurement


def curve(name: str, times: dict[int, float]) -> list[Measurement]:
    """Measurements of one implementation over sizes."""
    return [measurement(name, (seconds,) * 7, nbytes=nbytes) for nbytes, seconds in times.items()]


MPI = curve("mpi", {8: 4e-6, 1024: 4e-6, 65536: 40e-6})


def noisy(name: str, times: dict[int, float], halfwidth: float = 0.3) -> list[Measurement]:
    """The same with samples between so much below and above."""
    shares = [1 - halfwidth + place * halfwidth / 3 for place in range(7)]
    return [
        measurement(name, tuple(seconds * share for share in shares), nbytes=nbytes)
        for nbytes, seconds in times.items()
    ]


def test_a_crossing_is_told_as_the_sizes_between_which_it_lies() -> None:
    """Twice as fast at 1 KiB and half as fast at 64 KiB: what is between nobody measured."""
    ring = curve("ring", {8: 1e-6, 1024: 2e-6, 65536: 80e-6})
    (contest,) = contests([*MPI, *ring], ["mpi"])
    assert contest.crossovers == [(1024, 65536)]
    assert in_words(contest) == "ring beats mpi up to 1 KiB and loses from 64 KiB on: 4x at 8 B, 0.5x at 64 KiB"


def test_sizes_that_are_not_told_apart_widen_a_crossing() -> None:
    """At 1 KiB the intervals overlap, so the faster one changes somewhere between 8 B and 64 KiB."""
    ring = [*curve("ring", {8: 1e-6, 65536: 80e-6}), *noisy("ring", {1024: 3.5e-6})]
    (contest,) = contests([*MPI, *ring], ["mpi"])
    assert contest.crossovers == [(8, 65536)]
    assert in_words(contest) == "ring beats mpi up to 8 B and loses from 64 KiB on: 4x at 8 B, 0.5x at 64 KiB"


def test_a_winner_everywhere_is_called_so() -> None:
    """And a loser."""
    (fast,) = contests([*MPI, *curve("ring", {8: 1e-6, 65536: 20e-6})], ["mpi"])
    assert in_words(fast) == "ring beats mpi at every size: 4x at 8 B, 2x at 64 KiB"
    (slow,) = contests([*MPI, *curve("ring", {8: 8e-6, 65536: 80e-6})], ["mpi"])
    assert in_words(slow).startswith("ring loses to mpi at every size")


def test_of_several_crossings_all_ranges_are_named() -> None:
    """Where the curves cross twice, no simple sentence would be true."""
    (contest,) = contests([*MPI, *curve("ring", {8: 1e-6, 1024: 16e-6, 65536: 10e-6})], ["mpi"])
    assert contest.crossovers == [(8, 1024), (1024, 65536)]
    assert in_words(contest).startswith("ring beats mpi at 8 B, 64 KiB and loses at 1 KiB: 4x at 8 B")


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ((4e-6, 4e-6, 40e-6), "ring and mpi are not told apart at any size"),
        ((4.05e-6, 3.95e-6, 40.5e-6), "ring and mpi are not told apart at any size"),
        ((1e-6, 4e-6, 80e-6), "ring beats mpi up to 8 B and loses from 64 KiB on: 4x at 8 B, 0.5x at 64 KiB"),
        ((8e-6, 4e-6, 20e-6), "ring loses to mpi up to 8 B and wins from 64 KiB on"),
        ((1e-6, 4e-6, 20e-6), "ring beats mpi at 8 B, 64 KiB: 4x at 8 B, 2x at 64 KiB; not told apart at 1 KiB"),
        ((4e-6, 8e-6, 80e-6), "ring loses to mpi at 1 KiB to 64 KiB: 0.5x at 1 KiB"),
        ((4e-6, 2e-6, 40e-6), "ring beats mpi at 1 KiB: 2x at 1 KiB; not told apart at 8 B, 64 KiB"),
    ],
)
def test_a_tie_is_neither_a_win_nor_a_loss(times: tuple[float, ...], words: str) -> None:
    """And neither is a difference of one per cent, however sure it is."""
    (contest,) = contests([*MPI, *curve("ring", dict(zip((8, 1024, 65536), times, strict=True)))], ["mpi"])
    assert in_words(contest).startswith(words)


@pytest.mark.parametrize("halfwidth", [0.0, 0.05, 0.3])
def test_a_ratio_whose_intervals_overlap_is_no_fact(halfwidth: float) -> None:
    """10 % faster: told where the noise is small, and nowhere in the words where it is not."""
    times = {8: 1e-6, 1024: 2e-6, 65536: 80e-6}
    slower = {nbytes: seconds * 1.1 for nbytes, seconds in times.items()}
    rows = [*noisy("mpi", slower, halfwidth), *noisy("ring", times, halfwidth)]
    (contest,) = contests(rows, ["mpi"])
    ((_, ranges),) = winners(rows)
    if halfwidth:
        assert in_words(contest) == "ring and mpi are not told apart at any size"
        assert ranges == [(8, 65536, ("ring", "mpi"))]
    else:
        assert in_words(contest).startswith("ring beats mpi at every size: 1.1x")
        assert ranges == [(8, 65536, ("ring",))]


def test_a_ratio_has_as_many_digits_as_its_interval_leaves() -> None:
    """3.4 times with intervals of a third is about 3 times."""
    (sharp,) = contests([*curve("mpi", {8: 3.4, 9: 3.4}), *curve("ring", {8: 1.0, 9: 1.0})], ["mpi"])
    (blurred,) = contests([*noisy("mpi", {8: 3.4, 9: 3.4}), *noisy("ring", {8: 1.0, 9: 1.0})], ["mpi"])
    assert "3.4x at 8 B" in in_words(sharp)
    assert "3x at 8 B" in in_words(blurred)


def sampled(milliseconds: float, launches: int, collective: str = "allreduce") -> Measurement:
    """Fifteen samples that lasted so long, of so many operations each."""
    of = case(collective, nbytes=32768)
    each = launches * of.collective.parts
    samples = tuple(milliseconds * 1e-3 * (1 + 0.01 * place) / each for place in range(15))
    return Measurement(of, "mpi", "cpu", launches, samples)


@pytest.mark.parametrize(
    ("own", "other", "sign"),
    [
        (sampled(8, 1), sampled(12, 256), 0),  # measured so: one and the same code under two names, on a busy machine
        (sampled(12, 256), sampled(8, 1), 0),
        (sampled(8, 1), sampled(12, 1), 1),  # who takes one operation at a time for that long may well need it
        (sampled(40, 1), sampled(12, 256), -1),  # longer than what held the other up
        (sampled(0.3, 16), sampled(0.3, 256), -1),  # nothing was held up
        (sampled(8, 2, "bandwidth"), sampled(12, 8, "bandwidth"), 0),  # a message's share of it is a hundredth
        (sampled(0.00108, 1), sampled(0.005, 8), 0),  # measured so, too: meeting and clock are in each sample
    ],
)
def test_what_held_samples_up_is_no_difference(own: Measurement, other: Measurement, sign: int) -> None:
    """A wait of 8 ms is 8 ms of one operation, and 31 us of each of 256."""
    assert Advantage.of(own, other).sign == sign


def test_rows_of_too_few_samples_are_not_told_apart() -> None:
    """Five samples have no 95 % interval, however alike they are."""
    few = [
        measurement(name, (seconds,) * 5, nbytes=size)
        for name, seconds in (("mpi", 2.0), ("ring", 1.0))
        for size in (8, 9)
    ]
    (contest,) = contests(few, ["mpi"])
    assert in_words(contest) == "ring and mpi are not told apart at any size"


@pytest.mark.parametrize(("seconds", "sign"), [(1.15, 0), (1.3, 1)])
def test_a_single_figure_of_another_tool_is_known_to_a_tenth(seconds: float, sign: int) -> None:
    """It has no interval; twice a tenth must lie between two such figures."""
    rows = [Reported(case(), name, "cpu", figure, "mean") for name, figure in (("ring", 1.0), ("mpi", seconds))]
    assert Advantage.of(rows[0], rows[1]).sign == sign


def test_the_fastest_of_all_is_told_by_ranges_of_size() -> None:
    """Neighbouring sizes with the same winner are one range."""
    ring = curve("ring", {8: 1e-6, 1024: 2e-6, 65536: 80e-6})
    ((largest, ranges),) = winners([*MPI, *ring])
    assert ranges == [(8, 1024, ("ring",)), (65536, 65536, ("mpi",))]
    assert fastest_in_words(largest, ranges, expected=False).endswith(": ring 8 B to 1 KiB; mpi 64 KiB")
    ((_, ranges),) = winners(MPI)
    assert ranges == [(8, 65536, ("mpi",))]


def test_all_that_may_be_the_fastest_are_named_and_many_are_counted() -> None:
    """In whatever order they are at a size, the same names are one range."""
    two = [*curve("a", {8: 1.0, 16: 1.01}), *curve("b", {8: 1.01, 16: 1.0})]
    ((_, ranges),) = winners(two)
    assert [str(those) for those in ranges] == ["a or b 8 B to 16 B"]
    ((_, ranges),) = winners([*two, *curve("c", {8: 1.0, 16: 1.0}), *curve("d", {8: 1.0, 16: 2.0})])
    assert [str(those) for those in ranges] == ["one of 4 (a, c, ...) 8 B", "b or c or a 16 B"]


def test_one_common_size_makes_no_contest() -> None:
    """A curve needs two points."""
    assert contests([*MPI, *curve("ring", {8: 1e-6})], ["mpi"]) == []


def expected(name: str, times: dict[int, float]) -> list[Prediction]:
    """The same, predicted."""
    return [
        Prediction(case(nbytes=nbytes), name, seconds, seconds / 2, seconds * 2) for nbytes, seconds in times.items()
    ]


def test_of_predictions_the_likelier_is_named_and_where_the_bands_overlap() -> None:
    """As an expectation, and not as a fact."""
    nccl = expected("nccl", {8: 4e-6, 1024: 4e-6, 65536: 40e-6})
    ring = expected("ring", {8: 1e-6, 1024: 2e-6, 65536: 80e-6})
    (contest,) = contests([*nccl, *ring], ["nccl"])
    figures = "4x at 8 B, 0.5x at 64 KiB"
    place = "up to 1 KiB and lose from 64 KiB on"
    assert in_words(contest) == f"ring should beat nccl {place}: {figures}; the bands overlap at 8 B to 64 KiB"
    ((largest, ranges),) = winners([*nccl, *ring])
    assert ranges == [(8, 1024, ("ring",)), (65536, 65536, ("nccl",))]
    assert fastest_in_words(largest, ranges, expected=True).startswith("likely fastest, allreduce")


def test_what_was_wrong_wins_nothing() -> None:
    """It has no time."""
    ((_, ranges),) = winners([*MPI, *(measurement("ring", (), nbytes=nbytes) for nbytes in (8, 1024))])
    assert {names for _, _, names in ranges} == {("mpi",)}


def test_who_only_picks_another_is_no_rival_of_it() -> None:
    """`auto` is level with what it picks; alone it is all there is; rows of no bytes have no place on an axis."""
    picked, picking = measurement("two-shot"), measurement("auto")
    assert rivals([picked, picking, measurement("mpi", nbytes=0)]) == [picked]
    assert rivals([picking]) == [picking]


def speedups(contest: Contest) -> list[tuple[int, float]]:
    """By size."""
    return [(point.nbytes, point.ratio) for point in contest.points]


def words(times: dict[int, float]) -> str:
    """What is said of such a challenger of MPI."""
    (contest,) = contests([*MPI, *curve("ring", times)], ["mpi"])
    return in_words(contest)


def test_first_best_and_last_size_are_told() -> None:
    """The best one, wherever it is, and none of them twice."""
    assert words({8: 2e-6, 1024: 1e-6, 65536: 20e-6}).endswith(": 2x at 8 B, 4x at 1 KiB, 2x at 64 KiB")
    assert words({8: 2e-6, 1024: 3e-6, 65536: 30e-6}).endswith(": 2x at 8 B, 1.3x at 64 KiB")


def test_who_loses_first_is_said_to_lose_first() -> None:
    """With one crossing, with two, and by little; by less it is not told."""
    assert words({8: 8e-6, 1024: 8e-6, 65536: 20e-6}).startswith(
        "ring loses to mpi up to 1 KiB and wins from 64 KiB on"
    )
    assert words({8: 8e-6, 1024: 2e-6, 65536: 80e-6}).startswith("ring loses to mpi at 8 B, 64 KiB and wins at 1 KiB")
    assert words({8: 4.3e-6, 65536: 43e-6}).startswith("ring loses to mpi at every size")
    assert words({8: 4.15e-6, 65536: 41.5e-6}) == "ring and mpi are not told apart at any size"


def test_sizes_count_that_both_were_right_at() -> None:
    """Whatever else either has, in any order; the contest stands for the largest."""
    ring = [*curve("ring", {65536: 20e-6, 8: 1e-6, 16: 1e-6}), measurement("ring", (), nbytes=1024)]
    (contest,) = contests([*MPI, *curve("mpi", {32: 1e-6}), *ring], ["mpi"])
    assert speedups(contest) == [(8, pytest.approx(4.0)), (65536, pytest.approx(2.0))]
    assert contest.case.nbytes == 65536


def test_only_the_same_kind_of_case_is_a_contest() -> None:
    """And libraries are none for each other."""
    others = [
        measurement("ring", nbytes=nbytes, **changes)  # type: ignore[arg-type]
        for nbytes in (8, 1024)
        for changes in ({"ranks": 4}, {"in_place": True}, {"root": 1})
    ]
    assert contests([*MPI, *others], ["mpi"]) == []
    assert contests([*MPI, *curve("nccl", {8: 1e-6, 1024: 1e-6})], ["mpi", "nccl"]) == []


def test_winners_are_of_the_kind_whose_largest_case_is_named() -> None:
    """In any order of rows; of equals the one that stands first."""
    rows = [*reversed(MPI), *curve("ring", {8: 1e-6, 1024: 4e-6})]
    ((largest, ranges),) = winners(rows)
    assert largest.nbytes == 65536
    assert ranges == [(8, 8, ("ring",)), (1024, 1024, ("mpi", "ring")), (65536, 65536, ("mpi",))]


def test_an_implementation_that_nobody_knows_is_a_rival() -> None:
    """As in a run of another version."""
    assert rivals([measurement("ring"), measurement("auto")]) == [measurement("ring")]


def test_a_result_is_compared_with_the_library_at_its_own_case() -> None:
    """Measured with measured and predicted with predicted; of a case measured twice the later counts."""
    twice = measurement("mpi", (9e-6,) * 7, nbytes=8)
    (guess,) = expected("mpi", {8: 1e-6})
    rows = [*MPI, twice, guess, measurement("ring", nbytes=8), measurement("mpi", nbytes=8, ranks=4)]
    assert library_of(rows, ["mpi"], measurement("ring", nbytes=8)) is twice
    assert library_of(rows, ["mpi"], measurement("ring", nbytes=1024)) is MPI[1]
    assert library_of(rows, ["mpi"], expected("ring", {8: 2e-6})[0]) is guess
    assert library_of(rows, ["mpi"], expected("ring", {1024: 2e-6})[0]) is None
    assert library_of(rows, ["nccl"], measurement("ring", nbytes=8)) is None
    assert library_of(rows, ["mpi"], measurement("ring", nbytes=64)) is None


def test_of_two_libraries_the_first_that_has_a_time_is_compared_with() -> None:
    """In the order of the libraries, not of the rows; one that was wrong has no time."""
    mpi, nccl, wrong = measurement("mpi"), measurement("nccl"), measurement("nccl", ())
    assert library_of([mpi, nccl], ["nccl", "mpi"], mpi) is nccl
    assert library_of([nccl, mpi], ["mpi", "nccl"], nccl) is mpi
    assert library_of([mpi, wrong], ["nccl", "mpi"], mpi) is mpi


def test_of_several_mpi_libraries_the_fastest_at_each_size_is_the_opponent() -> None:
    """One that is first at 8 B may be last at 64 KiB: a rung that beats one of them has not beaten MPI."""
    other = curve("mpi@openmpi", {8: 2e-6, 1024: 6e-6, 65536: 30e-6})
    ring = curve("ring", {8: 1e-6, 1024: 2e-6, 65536: 60e-6})
    (contest,) = contests([*MPI, *other, *ring], ["mpi"])
    assert contest.library == "the fastest mpi"
    assert speedups(contest) == [(8, pytest.approx(2)), (1024, pytest.approx(2)), (65536, pytest.approx(0.5))]
    assert in_words(contest).startswith("ring beats the fastest mpi up to")
    rows = [*MPI, *other, *ring]
    fastest = [library_of(rows, ["mpi"], row) for row in ring]
    assert [row.implementation for row in fastest if row] == ["mpi@openmpi", "mpi", "mpi@openmpi"]


def test_the_library_called_from_python_is_neither_an_opponent_nor_a_rival() -> None:
    """It is as fast as the library it calls, but for the interpreter, and would win by chance."""
    python = curve("mpi-python", {8: 3e-6, 1024: 5e-6, 65536: 39e-6})
    ring = curve("ring", {8: 1e-6, 1024: 2e-6, 65536: 80e-6})
    (contest,) = contests([*MPI, *python, *ring], ["mpi"])
    assert (contest.library, contest.challenger) == ("mpi", "ring")
    assert {row.implementation for row in rivals([*MPI, *python, *curve("mpi-python@intel", {8: 1e-9})])} == {"mpi"}
    assert library_of(python, ["mpi"], ring[0]) is None


def test_a_prediction_that_is_a_bound_has_no_rivals() -> None:
    """Nothing measured stands behind it, so it neither wins nor loses; one that has no mark does."""
    bound = [replace(row, note=Note(bound=True)) for row in expected("ring-host", {8: 0.1, 16: 0.1})]
    told = [*expected("nccl", {8: 1.0, 16: 1.0}), *expected("two-shot", {8: 0.2, 16: 0.2})]
    assert rivals([*bound, *told]) == told
    assert rivals(bound) == []


def test_a_large_ratio_has_no_exponent() -> None:
    """A hundred times is `120x`."""
    (contest,) = contests([*curve("mpi", {8: 123.4, 9: 123.4}), *curve("ring", {8: 1.0, 9: 1.0})], ["mpi"])
    assert "120x at 8 B" in in_words(contest)
