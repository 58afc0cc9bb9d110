"""What a text says of runs."""

import dataclasses
import math
import re

import pytest

from collbench.collectives import COLLECTIVES
from collbench.commands.lesson import numbers, table
from collbench.commands.lesson.numbers import Numbers, filled, fitted, hand_written, judged, titles
from collbench.results import Explanation, Measurement
from collbench.results.disturbed import Scheduling
from collbench.runfile.store import read
from collbench.units import format_seconds
from tests.conftest import ROOT

RUNS = [read(ROOT / "results" / name) for name in ("cpu-2-ranks", "cpu-2-ranks-explained")]
MEASURED = [row for row in RUNS[0].results if isinstance(row, Measurement)]
HERE = Numbers.of(row for run in RUNS for row in run.results)


def row(name: str, nbytes: int) -> Measurement:
    return next(each for each in MEASURED if (each.implementation, each.case.nbytes) == (name, nbytes))


def test_a_title_says_what_the_rows_say() -> None:
    ring, mpi = row("ring-flags", 8), row("mpi", 8)
    assert HERE.value("ring-flags at 8 B") == format_seconds(ring.typical)
    assert HERE.value("library at 8 B") == format_seconds(mpi.typical)
    assert HERE.figure("mpi / ring-flags at 8 B") == pytest.approx(mpi.typical / ring.typical)
    assert HERE.value("mpi / ring-flags at 8 B") == HERE.value("library / ring-flags at 8 B")
    explained = next(
        each
        for each in RUNS[1].results
        if isinstance(each, Explanation) and (each.implementation, each.case.nbytes) == ("ring-flags", 2048)
    )
    assert HERE.value("waited of ring-flags at 2 KiB") == f"{explained.share('waited'):.0%}"
    assert HERE.seconds("ring-flags", 2048) == row("ring-flags", 2048).typical  # measured, not explained


def test_the_best_is_the_fastest_rung_and_neither_a_library_nor_the_choice_among_rungs() -> None:
    for nbytes in (8, 2**21):
        rungs = [each for each in MEASURED if each.case.nbytes == nbytes and hand_written(each.implementation)]
        best = min(rungs, key=lambda each: each.typical)
        assert HERE.value(f"best at {nbytes} B") == best.implementation
        assert HERE.value(f"best time at {nbytes} B") == format_seconds(best.typical)
    assert not any(map(hand_written, ("mpi", "nccl", "auto", "another")))


def test_what_runs_lack_is_said_to_be_missing() -> None:
    assert filled("It takes {ring-flags at 8 B}.", HERE.value) == f"It takes {HERE.value('ring-flags at 8 B')}."
    text = "{ring-flags at 8 B} and {nvls at 8 B} and {waited of ring-flags at 32 B} and {best at 9 B}"
    assert titles(text) == ["ring-flags at 8 B", "nvls at 8 B", "waited of ring-flags at 32 B", "best at 9 B"]
    for title in (*titles(text)[1:], "ring-flags / nvls at 8 B", "ring-flags / mpi at 8 B over 9 B"):
        with pytest.raises(KeyError):
            HERE.value(title)
    assert Numbers.of(()).library == ""


def test_neither_wrong_rows_nor_other_collectives_nor_steps_are_numbers_of_a_lesson() -> None:
    ring = row("ring-flags", 8)
    reduced = dataclasses.replace(ring.case, collective=COLLECTIVES["reduce"])
    untimed = dataclasses.replace(ring, seconds=())
    assert Numbers.of([ring]).timed
    assert not Numbers.of([dataclasses.replace(ring, case=reduced), untimed]).timed


def test_a_disturbed_row_is_no_number_unless_it_was_measured_again() -> None:
    ring, best = row("ring-flags", 8), row("one-shot-ll", 8)
    spoiled = dataclasses.replace(ring, scheduling=Scheduling(off_core=0.9), seconds=(1.0,))
    for rows in ([spoiled, ring, best], [ring, spoiled, best]):
        assert Numbers.of(rows).seconds("ring-flags", 8) == ring.typical
        assert Numbers.of(rows).best(8) == "one-shot-ll"
    with pytest.raises(KeyError):
        Numbers.of([spoiled, best]).seconds("ring-flags", 8)
    with pytest.raises(KeyError):
        Numbers.of([spoiled, best]).best(8)  # for all that is known, it may be the fastest


def test_shares_of_an_operation_that_its_log_changed_much_are_no_numbers() -> None:
    host = next(each for each in RUNS[1].results if isinstance(each, Explanation) and each.altered)
    assert host.tracks
    numbers = Numbers.of([host])
    assert numbers.seconds(host.implementation, host.case.nbytes) == host.seconds
    assert not numbers.shares


def test_a_ratio_at_two_sizes_and_one_of_the_best() -> None:
    first, second = (HERE.figure(f"ring-host / ring-flags at {size}") for size in ("8 B", "2 MiB"))
    assert HERE.figure("ring-host / ring-flags at 8 B over 2 MiB") == pytest.approx(first / second)
    assert HERE.figure("library / best at 8 B") == row("mpi", 8).typical / row("one-shot-ll", 8).typical


def test_where_no_choice_is_near_the_number_stands_in_the_place_of_the_nearest() -> None:
    factors, shares = ["1.5x", "5x", "25x"], ["10%", "50%", "90%"]
    assert fitted(4.0, factors) == fitted(9.9, factors) == (("1.5x", "5x", "25x"), 1)
    assert fitted(0.17, factors) == (("0.2x", "5x", "25x"), 0)
    assert fitted(1234, factors) == (("1.5x", "5x", "1000x"), 2)
    assert fitted(11, factors) == (("1.5x", "10x", "25x"), 1)
    assert fitted(0.47, shares) == (("10%", "50%", "90%"), 1)
    assert fitted(0.31, shares) == (("10%", "30%", "90%"), 1)


def test_the_model_knows_a_library_in_every_place_and_rungs_where_memory_can_be_reached() -> None:
    for name, place in numbers.places().items():
        assert place.library == ("mpi" if name == numbers.COMMITTED else "nccl")
        assert place.latency > 0
        assert all(math.isfinite(seconds) for curve in place.curves.values() for seconds in curve.values())
    rungs = {name: set(numbers.numbers_at(name).curves()) for name in numbers.places()}
    assert rungs["pcie4-l40s-no-p2p"] == rungs["dgx-h100-2-nodes"] == {"nccl"}
    assert {"nvls", "ring-events"} <= rungs["dgx-h100"]
    assert "nvls" not in rungs["pcie4-l40s"]


def test_the_table_of_engines_is_that_of_the_page_on_the_model() -> None:
    page = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    (text,) = (text for text in table("lesson")["here"] if isinstance(text, str))
    lines = [line for line in text.splitlines() if line.startswith(("| 8 ", "| 2 "))]
    rows = [line.strip("| ").split(" | ") for line in lines]
    assert len(rows) == 6
    for words, *factors in rows:
        count, gpu, launch = re.findall(r"(\d) (\w+), .*, (\w+)", words)[0]
        cells = re.findall(rf"^\| {gpu}, .* \| {count} \| {launch} \| (.*) \|$", page, re.MULTILINE)[0].split(" | ")
        published = [float(cell.split(", ")[1].rstrip("x")) for cell in cells[:4]]
        # The page rounds its factors from more digits than the times have that these are of.
        assert [float(factor.rstrip("x")) for factor in factors] == pytest.approx(published, rel=0.03), words


def test_a_row_is_disturbed_whose_barrier_took_twice_the_shortest_of_its_run_or_whose_interval_is_as_wide() -> None:
    near, far = (
        dataclasses.replace(row(name, 8), barrier=barrier) for name, barrier in (("mpi", 1e-7), ("ring-ll", 3e-7))
    )
    assert [each.disturbed for each in judged([near, far, row("two-shot", 8)])] == [False, True, False]
    assert [each.disturbed for each in judged([far])] == [False]
    even, wide = (dataclasses.replace(far, seconds=(1e-6,) * 8 + (high,) * 8) for high in (1.9e-6, 2.1e-6))
    few = dataclasses.replace(wide, seconds=wide.seconds[6:10])
    assert [each.disturbed for each in judged([even, wide, few])] == [False, True, False]
    assert ("ring-ll", 8) not in Numbers.of(judged([near, far])).timed
