"""Whether ranks had their cores: what a row keeps of it, and what a disturbed row is left out of."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import click
import pytest

from collbench.analysis.compare import compare
from collbench.analysis.crossover import contests, library_of, rivals, unsure_rivals, winners
from collbench.analysis.roofline import measured_roofline
from collbench.cases import Sweep
from collbench.cli.progress import LiveTable
from collbench.cli.results_table import Compared, row
from collbench.cli.running import run_session
from collbench.measure.predicted import Predicted
from collbench.measure.session import Session
from collbench.platforms.processes import SchedulingWatch
from collbench.results import Explanation, Measurement, Outcome, Skipped, timed
from collbench.results.disturbed import DISTURBED_SHARE, Scheduling, all_disturbed, disturbed_in_words
from collbench.runfile.schema import Header, TopologyPart, to_line, to_result
from collbench.runfile.store import Run
from tests.conftest import case, measurement

DISTURBED = Scheduling(off_core=0.5, repeated=3, switches=17, cores=((0,), (0, 1)))


def slow(implementation: str = "mpi", nbytes: int = 1024) -> Measurement:
    return replace(measurement(implementation, (8e-3,) * 7, nbytes=nbytes), scheduling=DISTURBED)


def run_of(result: Measurement) -> Run:
    return Run(Path("run.jsonl"), Header(), (result,), True)


def test_a_row_is_disturbed_where_spoiled_samples_are_the_rule() -> None:
    for off_core, outcome in (
        (0.0, Outcome.OK),
        (DISTURBED_SHARE, Outcome.OK),
        (DISTURBED_SHARE + 0.01, Outcome.DISTURBED),
    ):
        result = replace(measurement(), scheduling=Scheduling(off_core=off_core))
        assert result.outcome is outcome, off_core
        assert not result.outcome.bad
    assert measurement().outcome is Outcome.OK


def test_a_sample_is_spoiled_where_one_rank_was_off_its_core_for_two_per_cent_of_it() -> None:
    watch = SchedulingWatch()
    for share, spoiled in ((0.0, False), (0.02, False), (0.021, True), (1.0, True)):
        watch.off_core = share
        assert watch.spoiled is spoiled, share


def test_switches_and_cores_are_handed_over_once() -> None:
    watch = SchedulingWatch()
    watch.switches, watch.cores = 3, {1, 0}
    assert watch.take() == (3, (0, 1))
    assert watch.take() == (0, ())


def test_samples_of_steps_are_spoiled_by_any_rank() -> None:
    assert Scheduling.of_ranks([[True, False, False, False], [False, True, False, False]]).off_core == 0.5


def test_rounds_are_joined_by_their_samples() -> None:
    parts = [Scheduling(1.0, 2, 5, ((0,), (1,))), Scheduling(0.0, 1, 1, ((0,), (1, 3)))]
    assert Scheduling.joined(zip(parts, [10, 30], strict=True)) == Scheduling(0.25, 3, 6, ((0,), (1, 3)))
    first, second = (replace(measurement(), scheduling=part) for part in parts)
    joined = second.joined([first, second])
    assert joined.scheduling == Scheduling(0.5, 3, 6, ((0,), (1, 3)))
    assert measurement().joined([measurement()]).scheduling is None


def test_a_row_keeps_what_was_seen() -> None:
    explanation = Explanation(case(), "mpi", "cpu", 1e-6, 1e-6, (), scheduling=DISTURBED)
    for result in (slow(), measurement(), explanation):
        assert to_result(json.loads(json.dumps(to_line(result)))) == result


def test_a_row_says_that_it_is_disturbed_and_the_last_line_what_to_do() -> None:
    assert "disturbed: ranks had to wait for a core in 50% of the samples" in row(slow(), None)
    bound = replace(slow(), scheduling=replace(DISTURBED, cores=((0,), (1,))))
    assert disturbed_in_words([bound, measurement()]).startswith("1 of 2 measurements was disturbed by other programs ")
    told = disturbed_in_words([slow(), slow(), measurement()])
    assert told.startswith("2 of 3 measurements were disturbed by other programs or other ranks and are left out of")
    assert "leave out --bind none" in told
    assert disturbed_in_words([measurement()]) == ""
    skipped = Skipped(case(), "nccl", "gpu", "no GPU")
    assert all_disturbed([slow(), skipped])
    assert not all_disturbed([slow(), measurement()])
    assert not all_disturbed([skipped])
    assert disturbed_in_words([slow(), skipped, measurement()]).startswith("1 of 2 measurements was disturbed")


def test_a_busy_machine_is_named_early(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveTable, "add", lambda table, result: click.echo("row", err=True))
    kinds = measurement(), slow(), wide(), measurement(seconds=()), Skipped(case(), "nccl", "gpu", "no GPU")
    early = {"~..?..~..~": [9], "-~..~..~...": [10], 60 * "." + 15 * "~": [70], "~~~.....": [], "~..~!....": []}
    for (rows, after), quiet in product(early.items(), (False, True)):
        ranks = Predicted(TopologyPart(), [kinds[".~?!-".index(row)] for row in rows])
        run_session(Session(ranks, Sweep(), None, None), LiveTable(), quiet=quiet)
        said = [line for line in capsys.readouterr().err.splitlines() if line == "row" or "Ctrl-C" in line]
        assert [place for place, line in enumerate(said) if line != "row"] == ([] if quiet else after)


def wide(implementation: str = "mpi", nbytes: int = 1024, half: float = 1.02) -> Measurement:
    """A right row of 1 us; *half* is half of its 95 % interval over the median."""
    return measurement(implementation, (1e-7, 1e-6, 1e-7 + 2e-6 * half) * 9, nbytes=nbytes)


@pytest.mark.parametrize("unsure", [slow, wide])
def test_an_unsure_row_is_in_no_contest(unsure: Callable[..., Measurement]) -> None:
    sizes = (8, 1024)
    good = [measurement("two-shot", (1e-7,) * 7, nbytes=nbytes) for nbytes in sizes]
    results = [*good, *(unsure(nbytes=nbytes) for nbytes in sizes)]
    assert list(timed(results)) == good
    assert rivals(results) == good
    assert contests(rivals(results), ["mpi"]) == []
    assert [names for _, ranges in winners(results) for _, _, names in ranges] == [("two-shot",)]
    assert library_of(results, ["mpi"], good[0]) is None


def test_where_an_unsure_row_was_faster_nobody_is_surely_the_fastest() -> None:
    good = [measurement("two-shot", (1.1e-6,) * 7, nbytes=nbytes) for nbytes in (8, 1024)]
    fast = replace(measurement("ring-flags", (0.5e-6,) * 7, nbytes=1024), scheduling=DISTURBED)
    both = ("two-shot", "ring-flags")
    for row_of_another, names in ((fast, both), (wide("ring-flags"), both), (slow(), ("two-shot",))):
        results = [*good, row_of_another]
        ((_, ranges),) = winners(rivals(results), unsure_rivals(results))
        assert ranges[-1].names == names
        assert ranges[0].names == ("two-shot",)


def test_an_unsure_row_is_not_compared_in_the_table() -> None:
    unsure = replace(measurement("two-shot"), scheduling=DISTURBED), wide("two-shot")
    assert not any(Compared(mine, measurement("mpi")).ratio for mine in unsure)
    for mine in (measurement("two-shot"), wide("two-shot", half=0.98), measurement("two-shot", (1e-6, 9e-6))):
        assert Compared(mine, measurement("mpi")).ratio, "an interval up to 100 %, or none"


def test_a_disturbed_row_sets_no_bound() -> None:
    floor = replace(slow(), floor=1e-3)
    assert measured_roofline([floor], floor.case.kind) is None
    assert measured_roofline([replace(floor, scheduling=None)], floor.case.kind)


@pytest.mark.parametrize("disturbed", ["base", "new"])
def test_a_disturbed_row_is_compared_with_nothing(disturbed: str) -> None:
    good, bad = run_of(measurement()), run_of(slow())
    found = compare(bad, good) if disturbed == "base" else compare(good, bad)
    assert not found.rows
    assert [getattr(one, disturbed) for one in found.unmatched] == ["disturbed"]
    assert not found.regressions
