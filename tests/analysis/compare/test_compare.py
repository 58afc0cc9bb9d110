"""Comparing runs: what is called slower, faster and the same, on data whose truth is known."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collbench.analysis.compare.compare import Comparison, compare
from collbench.analysis.compare.estimate import separate
from collbench.analysis.compare.headers import differences
from collbench.analysis.compare.unmatched import unmatched
from collbench.analysis.compare.verdicts import Row, Together, Verdict, by_curve, judged, together, verdict
from collbench.flaws import Mismatch
from collbench.measurement import Explanation, Failed, Measurement, Prediction, Reported, Result, Skipped
from collbench.runs.file import Run
from collbench.runs.header import Header, Interleaved
from collbench.runs.records import to_line, to_result
from tests.conftest import case, measurement

SIZES = tuple(8 * 4**step for step in range(13))
NAMES = ("mpi", "ring-flags")
CASES = [case(nbytes=nbytes) for nbytes in SIZES]
CHANGED = (Verdict.SLOWER, Verdict.FASTER)


def noise(generator: np.random.Generator, shape: tuple[int, ...], memory: float = 0.3) -> Any:
    """Factors as machines show them: 3 % lognormal, each sample like the one before, one in twenty disturbed."""
    found = generator.normal(size=shape)
    for place in range(1, shape[-1]):
        found[..., place] = memory * found[..., place - 1] + math.sqrt(1 - memory**2) * found[..., place]
    disturbed = generator.random(shape) < 0.05
    return np.exp(0.03 * found) * np.where(disturbed, 1 + generator.exponential(0.5, shape), 1)


def run(samples: Any, header: dict[str, Any] | None = None, rounds: tuple[int, ...] = ()) -> Run:
    """A run of (implementations, sizes, samples) factors on a plausible curve."""
    results = [
        Measurement(
            CASES[place], NAMES[which], "cpu", 1, tuple(samples[which, place] * (1e-6 + size / 1e9)), rounds=rounds
        )
        for place, size in enumerate(SIZES[: samples.shape[1]])
        for which in range(samples.shape[0])
    ]
    return Run(Path("run.jsonl"), Header.from_json(header), tuple(results), True)


def runs(count: int, samples: int, seed: int, **how: Any) -> list[tuple[Any, Any]]:
    """Factors of so many pairs of runs that differ by chance only."""
    both = noise(np.random.default_rng(seed), (count, 2, len(NAMES), len(SIZES), samples), **how)
    return [(base, new) for base, new in both]


def of(*results: Result, complete: bool = True, **header: Any) -> Run:
    return Run(Path("run.jsonl"), Header.from_json(header), results, complete)


def called(found: Comparison) -> bool:
    return any(row.verdict in CHANGED for row in (*found.rows, *found.together))


@pytest.mark.parametrize(("samples", "memory"), [(7, 0.0), (24, 0.5), (48, 0.3)])
def test_runs_that_differ_by_chance_are_called_different_one_time_in_twenty(samples: int, memory: float) -> None:
    """Also if samples resemble those before them. At a rate of 5 %, 13 or more of 150 come one time in twenty-five."""
    wrong = sum(called(compare(run(base), run(new))) for base, new in runs(150, samples, seed=1, memory=memory))
    assert wrong <= 12


@pytest.mark.parametrize("change", [1.10, 1 / 1.10])
def test_a_tenth_is_found(change: float) -> None:
    """In at least 95 % of rows with 3 % noise and 48 samples, and with the right sign."""
    expected = Verdict.SLOWER if change > 1 else Verdict.FASTER
    found = [
        row.verdict is expected
        for base, new in runs(25, 48, seed=2, memory=0.0)
        for row in compare(run(base), run(new * change)).rows
    ]
    assert np.mean(found) >= 0.95


def test_a_tenth_of_one_implementation_is_found_and_the_other_is_not_blamed() -> None:
    """Also where it sets in at some size, which is a step between neighbours."""
    factors = np.ones((2, len(SIZES), 1))
    factors[1, 5:] = 1.10
    blamed, found = [], []
    for base, new in runs(25, 48, seed=3, memory=0.0):
        for row in compare(run(base), run(new * factors)).rows:
            slowed = row.base.implementation == NAMES[1] and row.base.case.nbytes >= SIZES[5]
            (found if slowed else blamed).append(row.verdict in CHANGED)
    assert np.mean(found) >= 0.95
    assert np.mean(blamed) < 0.01


def test_equal_is_said_to_be_equal_with_enough_samples() -> None:
    """Not merely that no difference was found."""
    verdicts = [
        row.verdict for base, new in runs(10, 96, seed=4, memory=0.0) for row in compare(run(base), run(new)).rows
    ]
    assert np.mean([said is Verdict.SAME for said in verdicts]) >= 0.95


def test_a_machine_that_differs_between_runs_is_seen_in_neighbouring_sizes() -> None:
    """Each size of each run was measured on a machine 5 % off: no sample shows that, yet few runs are called."""
    generator, wrong = np.random.default_rng(5), 0
    for base, new in runs(100, 48, seed=5):
        shifts = np.exp(0.05 * generator.normal(size=(2, 1, len(SIZES), 1)))
        found = compare(run(base * shifts[0]), run(new * shifts[1]))
        wrong += called(found)
    assert wrong <= 10
    assert any("scatter" in remark for remark in found.remarks)


def shifted(generator: np.random.Generator, change: float, memory: float = 0.0) -> Comparison:
    """Two runs in which the machine was 4 % off at each size, and `change` of the second implementation."""
    ((base, new),) = runs(1, 24, seed=int(generator.integers(2**31)))
    shifts = generator.normal(size=(2, len(NAMES), len(SIZES), 1))
    for place in range(1, len(SIZES)):
        shifts[:, :, place] = memory * shifts[:, :, place - 1] + math.sqrt(1 - memory**2) * shifts[:, :, place]
    factors = np.exp(0.04 * shifts)
    factors[1, 1] *= change
    return compare(run(base * factors[0]), run(new * factors[1]))


def test_all_sizes_together_tell_what_no_size_alone_does() -> None:
    """15 % more everywhere: few rows are sure of it, most curves are, and only those of what was slowed."""
    found = [shifted(np.random.default_rng((13, seed)), 1.15) for seed in range(30)]
    rows = [
        row.verdict is Verdict.SLOWER
        for comparison in found
        for row in comparison.rows
        if row.base.implementation == NAMES[1]
    ]
    assert np.mean(rows) < 0.3
    wholes = [{curve.implementation: curve for curve in comparison.together} for comparison in found]
    assert np.mean([whole[NAMES[1]].verdict is Verdict.SLOWER for whole in wholes]) >= 0.8
    assert not any(whole[NAMES[0]].verdict in CHANGED for whole in wholes)
    assert np.mean([any(isinstance(e, Together) for e in comparison.regressions) for comparison in found]) >= 0.8


@pytest.mark.parametrize("memory", [0.0, 0.5])
def test_all_sizes_together_are_called_different_by_chance_one_time_in_twenty(memory: float) -> None:
    """Also where a machine is off for some sizes in a row."""
    found = [shifted(np.random.default_rng((14, seed)), 1.0, memory) for seed in range(100)]
    assert sum(any(whole.verdict in CHANGED for whole in comparison.together) for comparison in found) <= 8


def test_a_curve_takes_four_sizes_and_is_worth_fewer_if_neighbours_are_alike() -> None:
    """Thirteen sizes of which the upper half is 10 % off are few looks, and say nothing of the mean."""
    one = [measurement(nbytes=size) for size in SIZES]
    assert [len(curve) for curve in by_curve([*one, *(measurement("ring", nbytes=size) for size in SIZES[:3])])] == [13]
    assert by_curve(reversed(one[:4])) == [one[:4]]
    steps, swings = ([0.1 * (place >= 7) for place in range(13)], [0.1 * (place % 2) for place in range(13)])
    stepped, swinging = (together(list(zip(one, logs, strict=True)), 0.95, 0.05) for logs in (steps, swings))
    assert (stepped.verdict, swinging.verdict) == (Verdict.INCONCLUSIVE, Verdict.SLOWER)
    wide, narrow = (math.log(whole.interval[1] / whole.interval[0]) for whole in (stepped, swinging))
    assert wide > 2 * narrow


def test_the_interval_of_a_mean_over_sizes_is_that_of_so_many_looks() -> None:
    """Thirteen swings are 13 looks (t = 2.179); two low and two high are 2, and 2 degrees of freedom (t = 4.303)."""
    for logs, looks, quantile in (([0.1, -0.1] * 6 + [0.1], 13, 2.1788), ([0.0, 0.0, 0.1, 0.1], 2, 4.3027)):
        curve = [(measurement(nbytes=size), log) for size, log in zip(SIZES, logs, strict=False)]
        whole = together(curve, 0.95, 0.05)
        low, high = (math.log(end / whole.ratio) for end in whole.interval)
        assert high == pytest.approx(quantile * np.std(logs, ddof=1) / math.sqrt(looks), rel=2e-3)
        assert low == pytest.approx(-high)
    still = together([(measurement(nbytes=size), 0.0) for size in SIZES], 0.95, 0.05)
    assert (still.interval, still.verdict) == ((1.0, 1.0), Verdict.SAME)


def test_a_margin_is_that_of_the_comparison() -> None:
    """Of a row's verdict, and of what counts as a regression of all sizes."""
    one = measurement()
    assert [judged(one, one, 0.0, (0.93, 1.08), margin).verdict for margin in (0.05, 0.1)] == [
        Verdict.INCONCLUSIVE,
        Verdict.SAME,
    ]
    slower = Together(case(), "mpi", 4, 1.04, (1.01, 1.07), Verdict.SLOWER)
    assert (slower.regression(0.05), slower.regression(0.03)) == (False, True)


def interleaved(generator: np.random.Generator, change: float, rounds: int, drift: float) -> Comparison:
    """Halves of one run whose rounds are up to `drift` slower, alike in both halves."""
    shape = (len(NAMES), len(SIZES), rounds)
    common = np.exp(drift * np.cumsum(generator.normal(size=shape), axis=-1) / math.sqrt(rounds))
    halves = noise(generator, (2, *shape, 7), memory=0.0) * common[..., None]
    halves[1] *= change
    header = {"interleaved": {"id": "one", "setting": ""}}
    base, new = (run(half.reshape(*shape[:2], -1), header, (7,) * rounds) for half in halves)
    return compare(base, replace(new, header=Header(interleaved=Interleaved(id="one", setting="A=B"))))


@pytest.mark.parametrize("rounds", [3, 6])
def test_drift_does_not_fool_paired_rounds(rounds: int) -> None:
    """With 20 % of it, runs that differ by chance are called in at most 5 % ..."""
    generator = np.random.default_rng(6)
    assert sum(called(interleaved(generator, 1.0, rounds, 0.2)) for _ in range(60)) <= 6


def test_drift_does_not_hide_a_tenth_from_paired_rounds() -> None:
    """... and a tenth is found, which the same samples without rounds do not show."""
    generator = np.random.default_rng(7)
    found = [interleaved(generator, 1.10, 6, 0.2) for _ in range(8)]
    assert np.mean([row.verdict is Verdict.SLOWER for comparison in found for row in comparison.rows]) >= 0.95
    base, new = found[0].base, found[0].new
    unpaired = compare(replace(base, header=Header()), replace(new, header=Header()))
    assert np.mean([row.verdict is Verdict.SLOWER for row in unpaired.rows]) < 0.5


def test_slower_within_the_margin_is_no_regression_and_may_hide_one() -> None:
    """The gate asks for a ratio beyond the margin, and for certainty that nothing is before it passes."""
    one = measurement()
    small = Row(one, one, 1.0, 1.04, 1.04, (1.01, 1.07), Verdict.SLOWER)
    assert (small.regression(0.05), small.hides(0.05)) == (False, True)
    assert (small.regression(0.03), small.hides(0.03)) == (True, False)
    unsure = Row(one, one, 1.0, 0.97, 0.97, (0.9, 1.04), Verdict.INCONCLUSIVE)
    assert not unsure.hides(0.05)
    assert unsure.hides(0.03)


def test_the_same_runs_give_the_same_numbers() -> None:
    """Draws are seeded, and filters change no row's draws."""
    ((base, new),) = runs(1, 24, seed=8)
    one, other = (compare(run(base), run(new)) for _ in range(2))
    assert one == other
    alone = separate(tuple(base[0, 0]), tuple(new[0, 0]))
    assert alone == separate(tuple(base[0, 0]), tuple(new[0, 0]))
    assert math.exp(alone.log) == pytest.approx(float(np.median(new[0, 0]) / np.median(base[0, 0])))


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ((1.001, 1.04), Verdict.SAME),
        ((0.96, 1.04), Verdict.SAME),
        ((1.01, 1.08), Verdict.SLOWER),
        ((0.9, 0.99), Verdict.FASTER),
        ((0.94, 1.02), Verdict.INCONCLUSIVE),
        ((0.951, 1.02), Verdict.INCONCLUSIVE),  # 1 / 1.05 is 0.9524: as far as 1.05 on the other side
        ((0.0, math.inf), Verdict.INCONCLUSIVE),
    ],
)
def test_rule(interval: tuple[float, float], expected: Verdict) -> None:
    """Within the margin is the same; else beyond 1 is a difference; else nothing is known."""
    assert verdict(interval, 0.05) is expected


def test_a_run_and_itself_are_the_same() -> None:
    """However few its samples."""
    one = of(measurement(seconds=(1e-6, 2e-6)), Reported(case(), "nccl", "gpu", 1e-5, "mean of 20"))
    found = compare(one, replace(one, path=Path("copy.jsonl")))
    assert [row.verdict for row in found.rows] == [Verdict.SAME] * 2
    assert not found.hidden
    assert "one and the same" in found.remarks[0]


def test_means_are_compared_with_means_and_conclude_nothing() -> None:
    """The samples' mean, not their median, stands against a log's mean."""
    samples = (1e-6,) * 9 + (11e-6,)
    found = compare(of(measurement(seconds=samples)), of(Reported(case(), "mpi", "cpu", 4e-6, "mean of 20")))
    (row,) = found.rows
    assert row.verdict is Verdict.UNKNOWN
    assert row.ratio == pytest.approx(2.0)
    assert "means has no samples" in row.remark
    assert found.hidden == [row]


def test_reported_samples_are_samples() -> None:
    """A log that prints each operation can be compared like any run."""
    one, other = (
        of(
            Reported(
                case(), "nccl", "gpu", seconds, "mean", samples=tuple(seconds * (1 + 0.001 * i) for i in range(40))
            )
        )
        for seconds in (1e-5, 1.2e-5)
    )
    (row,) = compare(one, other).rows
    assert row.verdict is Verdict.SLOWER


def test_too_few_samples_conclude_nothing() -> None:
    """And say how many are needed."""
    (row,) = compare(of(measurement(seconds=(1e-6,) * 3)), of(measurement(seconds=(2e-6,) * 30))).rows
    assert (row.verdict, row.ratio) == (Verdict.UNKNOWN, pytest.approx(2.0))
    assert "3 samples, 5 are needed" in row.remark


MISMATCH = Mismatch(0, 1, 0, "1", "2", 3)
BROKEN = {
    "wrong": Measurement(case(), "mpi", "cpu", 1, (), MISMATCH),
    "failed": Failed(case(), "mpi", "cpu", "hung"),
    "skipped": Skipped(case(), "mpi", "cpu", "no compiler"),
    "reported wrong": Reported(case(), "mpi", "cpu", 1e-6, "mean", wrong_elements=4),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_was_right_and_is_no_longer_is_a_regression(name: str) -> None:
    """What is skipped now could hide one; what was broken before and is right now is neither."""
    found = compare(of(measurement()), of(BROKEN[name]))
    assert not found.rows
    assert (len(found.regressions), len(found.hidden)) == ((0, 1) if name == "skipped" else (1, 0))
    back = compare(of(BROKEN[name]), of(measurement()))
    assert len(back.unmatched) == 1
    assert not back.regressions + back.hidden


def test_a_row_that_is_missing_hides_a_regression_only_where_the_run_was_cut_off() -> None:
    """A smaller sweep is no regression, and a larger one neither."""
    both, one = of(measurement(), measurement("nccl")), of(measurement(seconds=(1.01e-6,) * 7))
    assert not compare(both, one).hidden
    assert [row.new for row in compare(both, one).unmatched] == ["missing"]
    assert len(compare(both, replace(one, complete=False)).hidden) == 1
    assert not compare(one, both).hidden


UNTIMED = Measurement(case(), "mpi", "cpu", 1, ())
STATES = [  # the same row in BASE and in NEW; how it stands in either and why; whether it is worse, and may hide that
    ("right", "wrong", ("right", "wrong", str(MISMATCH), True, False)),
    ("right", "failed", ("right", "failed", "hung", True, False)),
    ("right", "skipped", ("right", "skipped", "no compiler", False, True)),
    ("right", None, ("right", "missing", "", False, False)),
    ("right", "untimed", ("right", "not timed", "", False, False)),
    (None, "right", ("missing", "right", "", False, False)),
    ("failed", "wrong", ("failed", "wrong", str(MISMATCH), False, False)),
    ("wrong", "skipped", ("wrong", "skipped", "no compiler", False, False)),
    ("failed", None, ("failed", "missing", "", False, False)),
    ("skipped", "skipped", None),
    ("skipped", None, None),
    (None, "skipped", None),
    ("right", "right", None),
    ("predicted", "explained", None),
]


@pytest.mark.parametrize(("before", "after", "expected"), STATES)
def test_a_row_without_a_ratio_says_how_it_stands_in_either_run(
    before: str | None, after: str | None, expected: tuple[str, str, str, bool, bool] | None
) -> None:
    """What neither run has a word on is not listed."""
    known: dict[str | None, tuple[Result, ...]] = {
        **{name: (row,) for name, row in BROKEN.items()},
        None: (),
        "right": (measurement(),),
        "untimed": (UNTIMED,),
        "predicted": (Prediction(case(), "mpi", 1e-6, 1e-6, 1e-6),),
        "explained": (Explanation(case(), "mpi", "cpu", 1e-6, 1e-6, ()),),
    }
    rows = unmatched(of(*known[before], samples=1), of(*known[after], samples=2))
    told = [(row.base, row.new, row.reason, row.regression, row.hides) for row in rows]
    assert told == ([expected] if expected else [])


def test_rows_without_a_ratio_stand_in_the_order_of_base_and_only_if_selected() -> None:
    """Then what is in NEW only; rows of no bytes, and of a clock that saw nothing, are not timed."""
    base = of(measurement("b"), measurement("a"), measurement("zero", nbytes=0), measurement("quick", (0.0, 0.0)))
    new = of(measurement("c"), measurement("zero", nbytes=0), measurement("quick", (0.0, 0.0)))
    assert [(row.implementation, row.base) for row in unmatched(base, new)] == [
        ("b", "right"),
        ("a", "right"),
        ("zero", "not timed"),
        ("quick", "not timed"),
        ("c", "missing"),
    ]
    assert [row.implementation for row in unmatched(base, new, lambda case, name: name == "a")] == ["a"]


def test_the_later_of_two_results_counts() -> None:
    """A case measured twice in a run stands once in the comparison."""
    twice = of(measurement(), measurement(seconds=(2e-6,) * 7))
    (row,) = compare(of(measurement()), twice).rows
    assert row.ratio == pytest.approx(2.0)


def test_predictions_are_not_compared_and_that_is_said() -> None:
    """With the command that does."""
    found = compare(of(measurement()), of(Prediction(case(), "mpi", 1e-6, 0.9e-6, 1.1e-6)))
    assert not found.rows
    assert "diagnose" in found.remarks[0]


def test_differences_of_headers_are_listed() -> None:
    """Nested facts by their place; what changes by itself is left out."""
    one = {"topology": {"name": "a", "host": {"shm_free": 1, "memory": 2}}, "sweep": {"spin": "auto"}, "started": "x"}
    other = {"topology": {"name": "b", "host": {"shm_free": 3, "memory": 2}}, "environment": {"variables": {"N": "1"}}}
    found = compare(of(measurement(), **one), of(measurement(), **other)).differences
    assert [tuple(row) for row in found] == [
        ("environment.variables.N", "-", "1"),
        ("topology.name", "a", "b"),
        ("sweep.spin", "auto", "-"),
    ]


def test_every_told_part_of_a_header_is_compared() -> None:
    """BASE first; long values are cut, and what is no text is JSON."""
    parts = {"sampling": 1, "spin": 2, "ranks": 3, "in_place": 4, "cases": 5}
    header = {
        "collbench": "1",
        "environment": 1,
        "topology": 2,
        "sweep": parts,
        "interleaved": {"setting": "", "id": 1},
    }
    assert [(difference.name, difference.base, difference.new) for difference in differences(header, {})] == [
        ("collbench", "1", "-"),
        ("environment", "1", "-"),
        ("topology", "2", "-"),
        ("sweep.sampling", "1", "-"),
        ("sweep.spin", "2", "-"),
        ("sweep.ranks", "3", "-"),
        ("sweep.in_place", "4", "-"),
        ("interleaved.setting", "", "-"),
    ]
    values = ("x" * 60, "x" * 61, ["a"], Path("p"))
    shown = [difference.new for value in values for difference in differences({}, {"collbench": value})]
    assert shown == ["x" * 60, "x" * 57 + "...", '["a"]', '"p"']
    assert [difference.name for difference in differences({}, {"topology": {"\x1b": 1}})] != ["topology.\x1b"]
    assert list(differences({"topology": {}}, {})) == list(differences({}, {})) == []


@pytest.mark.parametrize("odd", [None, 3, "text", [1], {"host": "\x1b[2J"}, {"variables": [1, {"a": None}]}])
@pytest.mark.parametrize("part", ["environment", "topology", "sweep", "interleaved", "collbench"])
def test_headers_may_hold_anything(part: str, odd: object) -> None:
    """They may come from another tool; nothing of them moves a terminal's cursor."""
    found = compare(of(measurement(), **{part: odd}), of(measurement(), topology={"name": "x"}))
    assert all(text.isprintable() for difference in found.differences for text in difference)


def test_rounds_survive_the_run_file() -> None:
    """And a run that was not interleaved has no such field."""
    rounded = replace(measurement(seconds=(1e-6,) * 6), rounds=(2, 4))
    assert to_result(to_line(rounded)) == rounded
    assert "rounds" not in to_line(measurement())


def test_halves_whose_rounds_do_not_match_are_compared_as_separate_runs() -> None:
    """A half that was cut off, or edited."""
    header = {"interleaved": {"id": "one"}}
    one = replace(measurement(seconds=(1e-6, 1.1e-6) * 4), rounds=(4, 4))
    for rounds in ((8,), (3, 4), (0, 8), ()):
        found = compare(of(one, **header), of(replace(one, seconds=(2e-6, 2.1e-6) * 4, rounds=rounds), **header))
        assert not any("interleaved" in remark for remark in found.remarks)
        assert found.rows[0].ratio == pytest.approx(2.05 / 1.05)


@pytest.mark.parametrize(
    ("base", "new", "remark"),
    [
        ("MPICH 5.0.2", "Open MPI 5.0.11", "mpi calls MPICH 5.0.2 in BASE and Open MPI 5.0.11 in NEW"),
        (
            "",
            "MPICH 5.0.2",
            "BASE does not say which library mpi calls: before runs said so",
        ),
        ("MPICH 5.0.2", "", "NEW does not say which library mpi calls"),
        ("MPICH 5.0.2", "MPICH 5.0.2", ""),
    ],
)
def test_rows_of_one_name_but_of_two_libraries_are_said_to_be(base: str, new: str, remark: str) -> None:
    """Somebody who compares two machines may not know that they have different ones."""
    one, other = ([replace(measurement(nbytes=nbytes), library=name) for nbytes in (8, 64)] for name in (base, new))
    said = [line for line in compare(of(*one), of(*other)).remarks if "librar" in line]
    assert (said == []) is (not remark)
    assert all(line.startswith(remark) for line in said)
    assert len(said) <= 1
