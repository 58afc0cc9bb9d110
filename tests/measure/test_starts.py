"""Several starts of the ranks: who measures what, what is left when one is lost, and what their intervals cover."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from collbench.analysis.bootstrap import between_repeats, start_spreads
from collbench.analysis.compare import compare
from collbench.analysis.judgement import Word
from collbench.cases import ROUNDS, Case, Sweep
from collbench.errors import PlatformError, RanksLost
from collbench.measure import interleave
from collbench.measure.resumed import tasks
from collbench.results import Result
from collbench.results.collectives import Failed, Measurement
from collbench.results.disturbed import Scheduling
from collbench.runfile.schema import Header, Interleaved
from collbench.runfile.store import Run
from collbench.stats import PRIOR, Pool, Spread, student, student_95
from tests.conftest import measurement
from tests.measure.test_interleave import Acted, Answer, measured
from tests.test_cases import sweep

SIZES = tuple(2**power for power in range(3, 27, 2))


def takes(factor: float = 1.0, lost: Sequence[int] = (), off_core: float = 0.0) -> Answer:
    """Three equal samples, which differ from start to start; ranks are lost at some sizes."""

    def answer(asked: Case, name: str, round_: int) -> Result:
        if asked.nbytes in lost:
            raise RanksLost("the ranks are gone", name)
        return replace(measured(asked, name, *[factor * 1e-6] * 3), scheduling=Scheduling(off_core))

    return answer


def started(
    monkeypatch: pytest.MonkeyPatch, count: int, *answers: Answer | None, existing: Sequence[Result] = ()
) -> tuple[interleave.Starts, list[Acted]]:
    made: list[Acted] = []

    def make(platform: str, wanted: Sweep, folder: Path | None = None) -> Acted:
        answer = answers[len(made)] if len(made) < len(answers) else takes()
        made.append(Acted("", [], answer or takes(), refusal="" if answer else "no memory"))
        return made[-1]

    monkeypatch.setattr(interleave, "Supervisor", make)
    return interleave.Starts("cpu", replace(sweep(8, 1024), starts=count), existing), made


APART = takes(1.0), takes(1.1), takes(1.3)


def test_all_starts_measure_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, made = started(monkeypatch, 3, *APART)
    with ranks:
        results = list(ranks.run())
    assert ranks.greeting.starts == 3
    assert [start.sizes for start in made] == [[8, 1024]] * 3
    for result in results:
        assert isinstance(result, Measurement)
        assert result.rounds == (3, 3, 3)
        assert [median(samples) for samples in result.by_round()] == pytest.approx([1e-6, 1.1e-6, 1.3e-6])
        assert result.spread
        low, high = result.interval
        assert low < 1.1e-6 < high


def test_rows_that_are_there_are_not_measured_and_tell_of_the_starts_of_those_that_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranks, _ = started(monkeypatch, 3, *APART)
    with ranks:
        small, large = ranks.run()
    ranks, made = started(monkeypatch, 3, *APART, existing=[small])
    with ranks:
        assert list(ranks.run()) == [large]
    assert [start.sizes for start in made] == [[1024]] * 3


def test_what_is_missing_of_a_case_has_its_share_of_the_budget() -> None:
    asked = replace(sweep(8, 1024), implementations=("mpi", "two-shot", "ring-host"))
    small, large = asked.cases()
    found = [
        (case, names, sampling.budget) for case, names, sampling in tasks(asked, [measurement("two-shot", nbytes=8)])
    ]
    assert found == [
        (small, ("mpi", "ring-host"), pytest.approx(asked.sampling.budget * 2 / 3)),
        (large, asked.implementations, asked.sampling.budget),
    ]


def test_one_start_is_measured_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, made = started(monkeypatch, 1)
    with ranks:
        results = list(ranks.run())
    assert len(made) == 1
    assert all(isinstance(result, Measurement) and not result.spread and not result.rounds for result in results)


def test_as_many_starts_as_are_usual_are_quick_and_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, made = started(monkeypatch, 0)
    with ranks:
        assert ranks.greeting.starts == len(made) == 3
    ranks, _ = started(monkeypatch, 0, takes(), None)
    with ranks:
        assert ranks.greeting.starts == 1
    ranks, _ = started(monkeypatch, 2, takes(), None)
    with pytest.raises(PlatformError, match="no memory"), ranks:
        pass


def test_a_start_that_is_lost_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, made = started(monkeypatch, 3, takes(), takes(lost=(8,)))
    with ranks:
        results = list(ranks.run())
    assert [len(result.rounds) for result in results if isinstance(result, Measurement)] == [2, 2]
    assert made[1].sizes == [8]


def test_other_starts_do_without_a_case_whose_rows_are_all_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, made = started(monkeypatch, 3, takes(off_core=0.9))
    with ranks:
        results = list(ranks.run())
    assert [len(start.sizes) for start in made] == [2, 0, 0]
    assert all(result.disturbed for result in results)


def test_a_run_ends_with_its_last_start(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, _ = started(monkeypatch, 2, takes(lost=(1024,)), takes(lost=(8,)))
    with ranks:
        *measured, last = ranks.run()
    assert {result.case.nbytes for result in measured} == {8}
    assert isinstance(last, Failed)
    assert "the run ends here" in last.reason


def test_rounds_of_an_interleaved_run_are_measured_by_its_starts_in_turn() -> None:
    made, other, asked = [Acted("a", []), Acted("b", [])], Acted("c", []), sweep(8, 1024)
    with interleave.Interleaving("cpu", [interleave.Arm(made, asked), interleave.Arm([other], asked)]) as pair:
        list(pair.run())
    half = ROUNDS // 2
    assert [start.sizes for start in made] == [[8] * half + [1024] * half] * 2
    assert len(other.sizes) == 2 * ROUNDS


def test_students_quantile_is_scipys_within_one_per_cent() -> None:
    for freedom in (3, 4, 6, 7.5, 20, 1000):
        assert student_95(freedom) == pytest.approx(student(0.975, freedom), rel=0.01), freedom


def test_a_pool_starts_with_what_is_usual_and_fades() -> None:
    pool = Pool()
    spread = pool.add([1.0, 1.0, 1.0])
    assert spread.freedom == PRIOR.freedom + 2
    assert spread.deviation == pytest.approx(PRIOR.deviation * math.sqrt(PRIOR.freedom / spread.freedom))
    again = pool.add([1.0, math.e, 1 / math.e])  # sum of squares 2
    assert again.freedom == pytest.approx(PRIOR.freedom + 0.8 * 2 + 2)
    assert again.deviation == pytest.approx(math.sqrt((PRIOR.freedom * PRIOR.deviation**2 + 2) / again.freedom))
    faded = pool.add([1.0, 1.0, 1.0])
    assert faded.deviation == pytest.approx(math.sqrt((PRIOR.freedom * PRIOR.deviation**2 + 1.6) / faded.freedom))


def curve(generator: np.random.Generator, deviation: float, implementation: str = "two-shot") -> list[Measurement]:
    """A run of three starts: each is off by a little of its own, and by as much again at every size."""
    common = generator.normal(0, deviation / 2, 3)
    pool, rows = Pool(), []
    for nbytes in SIZES:
        factors = np.exp(common + generator.normal(0, deviation, 3))
        seconds = [1e-6 * factor * math.exp(generator.normal(0, 0.01)) for factor in factors for _ in range(9)]
        row = replace(measurement(implementation, tuple(seconds), nbytes=nbytes), rounds=(9, 9, 9))
        rows.append(replace(row, spread=pool.add([median(samples) for samples in row.by_round()])))
    return rows


def test_intervals_cover_what_other_starts_would_give() -> None:
    for deviation, most in ((0.015, 1.0), (0.04, 0.99), (0.08, 0.98)):
        generator = np.random.default_rng(7)
        rows = [row for _ in range(60) for row in curve(generator, deviation)]
        covered = [row.interval[0] < 1e-6 < row.interval[1] for row in rows]
        assert 0.93 < sum(covered) / len(covered) <= most, deviation


def test_two_runs_of_one_thing_are_never_faster_or_slower() -> None:
    generator = np.random.default_rng(8)
    for _ in range(20):
        base, new = (Run(Path(name), Header(), tuple(curve(generator, 0.05)), True) for name in ("base", "new"))
        found = compare(base, new)
        assert {row.word for row in (*found.rows, *found.together)} <= {Word.OK, Word.UNKNOWN}


def test_runs_whose_cores_are_at_other_distances_are_not_told_apart() -> None:
    generator = np.random.default_rng(9)
    base = [replace(row, barrier=1e-7) for row in curve(generator, 0.01)]
    slower = [replace(row, seconds=tuple(2 * sample for sample in row.seconds)) for row in curve(generator, 0.01)]
    for barrier, words in (
        (2e-7, {Word.UNKNOWN}),
        (1.45e-7, {Word.UNKNOWN}),
        (1.2e-7, {Word.SLOW}),
        (1.04e-7, {Word.SLOW}),
        (None, {Word.SLOW}),
    ):
        moved = [replace(row, barrier=barrier) for row in slower]
        runs = [Run(Path(name), Header(started=name), tuple(rows), True) for name, rows in (("a", base), ("b", moved))]
        found = compare(*runs)
        assert {row.word for row in (*found.rows, *found.together)} == words, barrier
        assert any(
            "hypervisor moved virtual" in remark or "the machine changed" in remark for remark in found.remarks
        ) is (barrier in (2e-7, 1.45e-7, 1.2e-7)), barrier
        assert all(row.moved for row in found.rows) is (barrier == 2e-7)
        assert found.judgement.word is (Word.UNKNOWN if barrier in (2e-7, 1.45e-7) else Word.SLOW), barrier


def test_a_single_start_varies_as_those_of_the_other_run() -> None:
    estimate = between_repeats(math.log(1.1), (3, 1), Spread(0.04, 8))
    assert estimate.log == pytest.approx(math.log(1.1))
    assert estimate.error == pytest.approx(1.253 * 0.04 * math.sqrt(1 + 1 / 3))


def test_starts_of_both_runs_and_of_sizes_nearby_say_the_same_but_for_rough_ones() -> None:
    calm, rough = [0.0, 0.02, -0.02], [0.0, 0.9, -0.9]
    squares, usual = 2 * 2 * 0.02**2, PRIOR.freedom * PRIOR.deviation**2
    three = start_spreads([("a", [calm, calm])] * 3 + [("b", [calm])])
    for place, weight in ((0, 1 + 0.8 + 0.64), (1, 1 + 2 * 0.8), (2, 1 + 0.8 + 0.64)):
        assert three[place].freedom == pytest.approx(2 + 4 * weight)
        assert three[place].deviation == pytest.approx(math.sqrt((usual + weight * squares) / (2 + 4 * weight)))
    assert three[3].freedom == 2 + 2, "a curve knows nothing of another"
    first, second, third = start_spreads([("a", [calm, calm]), ("a", [calm, rough]), ("a", [calm, calm])])
    assert first.deviation == pytest.approx(third.deviation)
    assert first.deviation < 0.03 < 0.4 < second.deviation
    assert second.freedom == 2 + 4


def test_most_rows_of_two_quiet_equal_runs_are_the_same_and_hardly_any_that_is_slower_by_the_margin() -> None:
    generator = np.random.default_rng(11)
    for deviation, slower, least, most in ((0.008, 1.0, 0.7, 1.0), (0.008, 1.05, 0.0, 0.05), (0.04, 1.05, 0.0, 0.05)):
        same = []
        for _ in range(12):
            base, new = curve(generator, deviation), curve(generator, deviation)
            new = [replace(row, seconds=tuple(slower * sample for sample in row.seconds)) for row in new]
            found = compare(
                *(Run(Path(n), Header(started=n), tuple(rows), True) for n, rows in (("a", base), ("b", new)))
            )
            same += [row.word is Word.OK for row in found.rows]
            assert all(row.interval[1] <= 1.05 for row in found.rows if row.word is Word.OK)
        assert least <= sum(same) / len(same) <= most, (deviation, slower)


def test_starts_of_the_arms_of_an_interleaved_run_do_not_cancel() -> None:
    def arm(name: str, factors: Sequence[float]) -> Run:
        seconds = [1e-6 * factors[number % 3] * (1 + 0.001 * (number % 2)) for number in range(9) for _ in range(6)]
        row = replace(measurement(seconds=tuple(seconds)), rounds=(6,) * 9)
        header = Header(interleaved=Interleaved(id="one", setting=name), sweep=Sweep(starts=3))
        return Run(Path(name), header, (row,), True)

    (row,) = compare(arm("a", (1.0, 1.0, 1.0)), arm("b", (1.15, 1.05, 1.01))).rows
    assert row.word is Word.UNKNOWN
