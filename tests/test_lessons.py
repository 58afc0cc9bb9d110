"""The lessons say what the committed runs say, in numbers and in words."""

from collbench.analysis.crossover import tradeoffs
from collbench.commands.step.overlap import overlaps
from collbench.commands.step.scaling import curves
from collbench.commands.step.stragglers import Finding, straggler_rows, straggler_test
from collbench.commands.step.trained import Effort, StrategyRanking, ranking
from collbench.runfile.store import read
from collbench.stats import Estimate
from tests.commands.step.made_up_steps import ranks_that_are
from tests.conftest import ROOT

RESULTS = ROOT / "results"


def test_four_ranks_on_two_cores_compute_no_more_than_two() -> None:
    for curve in curves(read(RESULTS / "cpu-4-ranks-scale").results):
        two, four = curve.points[1:]
        assert (two.ranks, four.ranks) == (2, 4)
        assert curve.speedup(four).high <= 2
        assert curve.speedup(four).low > 0.5  # ranks that wait give the core away: else a hundredth
        assert curve.speedup(four).low <= curve.speedup(two).high


def test_overlap_is_sure_of_nothing_and_no_narrow_wire_pays_on_two_cores() -> None:
    found = overlaps(read(RESULTS / "cpu-2-ranks-overlap").results)
    assert found
    assert all(one.gain.low <= 1 <= one.gain.high for one in found)
    narrow = tradeoffs(read(RESULTS / "cpu-2-ranks-narrow").results)
    assert len(narrow) == 5
    assert all(one.pays_from(one.exact) is None for one in narrow)


def test_only_the_slow_rank_is_accused() -> None:
    said = {}
    for run in ("cpu-2-ranks-jitter", "cpu-2-ranks-jitter-slow"):
        said[run] = straggler_test([steps for _, steps in straggler_rows(read(RESULTS / run).results)])
    assert ranks_that_are(Finding.LATE, said["cpu-2-ranks-jitter-slow"]) == [1]
    even = {rank.finding for rank in said["cpu-2-ranks-jitter"]}
    assert Finding.UNCLEAR in even
    assert not {Finding.LATE, Finding.OFTEN} & even


def test_the_asynchronous_strategy_is_ahead_in_time_and_behind_in_steps_only_if_a_rank_is_slow() -> None:
    slow, even = (ranking(read(RESULTS / run).results) for run in ("cpu-2-ranks-styles", "cpu-2-ranks-styles-even"))
    assert slow
    assert even
    assert slow.target == even.target == 0.28

    def ratio(found: StrategyRanking, above: str, effort: Effort = Effort.SECONDS) -> Estimate:
        entries = {entry.name: entry for entry in found.ranked(effort)}
        ratio = entries[above].ratio(entries["ring"], effort)
        assert ratio
        return ratio

    assert ratio(slow, "asynchronous").high < 1 <= ratio(even, "asynchronous").high
    assert ratio(slow, "asynchronous", Effort.STEPS).low > 1
