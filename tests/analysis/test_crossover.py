"""Who wins from which size on."""

import pytest

from collbench.analysis.crossover import contests, in_words, library_of, rivals, winners
from collbench.measurement import Measurement, Prediction
from tests.conftest import case, measurement


def curve(name: str, times: dict[int, float]) -> list[Measurement]:
    """Measurements of one implementation over sizes."""
    return [measurement(name, (seconds,) * 7, nbytes=nbytes) for nbytes, seconds in times.items()]


MPI = curve("mpi", {8: 4e-6, 1024: 4e-6, 65536: 40e-6})


def test_one_crossing_is_found_between_the_sizes() -> None:
    """Twice as fast at 1 KiB and half as fast at 64 KiB: even half way between, on logarithmic axes."""
    ring = curve("ring", {8: 1e-6, 1024: 2e-6, 65536: 80e-6})
    (contest,) = contests([*MPI, *ring], ["mpi"])
    assert contest.crossovers == [pytest.approx(8192)]
    assert in_words(contest) == "ring beats mpi up to about 8 KiB and loses above: 4x at 8 B, 0.5x at 64 KiB"


def test_a_crossing_lies_nearer_to_the_size_with_the_closer_race() -> None:
    """Sixteen times as fast at 8 B and half as fast at 256 B: four of the five doublings of size give it away."""
    ring = curve("ring", {8: 1e-6, 256: 32e-6})
    (contest,) = contests([*curve("mpi", {8: 16e-6, 256: 16e-6}), *ring], ["mpi"])
    assert contest.crossovers == [pytest.approx(128)]


def test_a_winner_everywhere_is_called_so() -> None:
    """And a loser."""
    (fast,) = contests([*MPI, *curve("ring", {8: 1e-6, 65536: 20e-6})], ["mpi"])
    assert in_words(fast) == "ring beats mpi at every size: 4x at 8 B, 2x at 64 KiB"
    (slow,) = contests([*MPI, *curve("ring", {8: 8e-6, 65536: 80e-6})], ["mpi"])
    assert in_words(slow).startswith("ring loses to mpi at every size")


def test_several_crossings_are_all_named() -> None:
    """Where the curves cross twice, no simple sentence would be true."""
    (contest,) = contests([*MPI, *curve("ring", {8: 1e-6, 1024: 16e-6, 65536: 10e-6})], ["mpi"])
    assert len(contest.crossovers) == 2
    assert "the faster one changes at about" in in_words(contest)


@pytest.mark.parametrize(
    ("times", "places", "words"),
    [
        ((4e-6, 4e-6, 40e-6), [], "ring is level with mpi at every size: 1x at 8 B, 1x at 64 KiB"),
        ((1e-6, 4e-6, 80e-6), [1024], "ring beats mpi up to about 1 KiB and loses above"),
        ((8e-6, 4e-6, 20e-6), [1024], "ring loses to mpi up to about 1 KiB and wins above"),
        (
            (1e-6, 4e-6, 20e-6),
            [],
            "ring beats mpi at every size but 1 KiB, where they are level: 4x at 8 B, 2x at 64 KiB",
        ),
        ((4e-6, 8e-6, 80e-6), [], "ring loses to mpi at every size but 8 B, where they are level"),
        ((4e-6, 2e-6, 40e-6), [], "ring beats mpi at every size but 8 B and 64 KiB, where they are level"),
    ],
)
def test_a_tie_changes_the_faster_one_only_between_a_win_and_a_loss(
    times: tuple[float, ...], places: list[float], words: str
) -> None:
    """And then at the very size of the tie."""
    (contest,) = contests([*MPI, *curve("ring", dict(zip((8, 1024, 65536), times, strict=True)))], ["mpi"])
    assert contest.crossovers == places
    assert in_words(contest).startswith(words)


def test_between_several_ties_the_faster_one_changes_half_way() -> None:
    """On a logarithmic axis: the times say no more."""
    same = {64: 1e-6, 256: 1e-6}
    mpi, ring = curve("mpi", {8: 2e-6, **same, 512: 2e-6}), curve("ring", {8: 1e-6, **same, 512: 3e-6})
    (contest,) = contests([*mpi, *ring], ["mpi"])
    assert contest.crossovers == [pytest.approx(128)]


def test_the_fastest_of_all_is_told_by_ranges_of_size() -> None:
    """Neighbouring sizes with the same winner are one range."""
    ring = curve("ring", {8: 1e-6, 1024: 2e-6, 65536: 80e-6})
    ((_, ranges),) = winners([*MPI, *ring])
    assert ranges == [(8, 1024, "ring"), (65536, 65536, "mpi")]
    ((_, ranges),) = winners(MPI)
    assert ranges == [(8, 65536, "mpi")]


def test_one_common_size_makes_no_contest() -> None:
    """A curve needs two points."""
    assert contests([*MPI, *curve("ring", {8: 1e-6})], ["mpi"]) == []


def expected(name: str, times: dict[int, float]) -> list[Prediction]:
    """The same, predicted."""
    return [
        Prediction(case(nbytes=nbytes), name, seconds, seconds / 2, seconds * 2) for nbytes, seconds in times.items()
    ]


def test_predictions_are_compared_as_measurements_are() -> None:
    """By the time that is expected, whatever its band."""
    nccl = expected("nccl", {8: 4e-6, 1024: 4e-6, 65536: 40e-6})
    ring = expected("ring", {8: 1e-6, 1024: 2e-6, 65536: 80e-6})
    (contest,) = contests([*nccl, *ring], ["nccl"])
    assert in_words(contest) == "ring beats nccl up to about 8 KiB and loses above: 4x at 8 B, 0.5x at 64 KiB"
    ((_, ranges),) = winners([*nccl, *ring])
    assert ranges == [(8, 1024, "ring"), (65536, 65536, "nccl")]


def test_what_was_wrong_wins_nothing() -> None:
    """It has no time."""
    ((_, ranges),) = winners([*MPI, *(measurement("ring", (), nbytes=nbytes) for nbytes in (8, 1024))])
    assert {name for _, _, name in ranges} == {"mpi"}


def test_who_only_picks_another_is_no_rival_of_it() -> None:
    """`auto` is level with what it picks; alone it is all there is; rows of no bytes have no place on an axis."""
    picked, picking = measurement("two-shot"), measurement("auto")
    assert rivals([picked, picking, measurement("mpi", nbytes=0)]) == [picked]
    assert rivals([picking]) == [picking]


def words(times: dict[int, float]) -> str:
    """What is said of such a challenger of MPI."""
    (contest,) = contests([*MPI, *curve("ring", times)], ["mpi"])
    return in_words(contest)


def test_first_best_and_last_size_are_told() -> None:
    """The best one, wherever it is, and none of them twice."""
    assert words({8: 2e-6, 1024: 1e-6, 65536: 20e-6}).endswith(": 2x at 8 B, 4x at 1 KiB, 2x at 64 KiB")
    assert words({8: 2e-6, 1024: 3e-6, 65536: 30e-6}).endswith(": 2x at 8 B, 1.3x at 64 KiB")


def test_who_loses_first_is_said_to_lose_first() -> None:
    """With one crossing, with two, and by however little."""
    assert words({8: 8e-6, 1024: 8e-6, 65536: 20e-6}).startswith("ring loses to mpi up to about 8 KiB and wins above")
    assert words({8: 8e-6, 1024: 2e-6, 65536: 80e-6}).startswith("ring loses to mpi at the smallest size; the faster")
    assert words({8: 4.02e-6, 65536: 40.2e-6}).startswith("ring loses to mpi at every size")


def test_sizes_count_that_both_were_right_at() -> None:
    """Whatever else either has, in any order; the contest stands for the largest."""
    ring = [*curve("ring", {65536: 20e-6, 8: 1e-6, 16: 1e-6}), measurement("ring", (), nbytes=1024)]
    (contest,) = contests([*MPI, *curve("mpi", {32: 1e-6}), *ring], ["mpi"])
    assert contest.speedups == [(8, pytest.approx(4.0)), (65536, pytest.approx(2.0))]
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
    assert ranges == [(8, 8, "ring"), (1024, 65536, "mpi")]


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
    assert contest.speedups == [(8, pytest.approx(2)), (1024, pytest.approx(2)), (65536, pytest.approx(0.5))]
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
