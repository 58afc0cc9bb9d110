"""The sentences of a lesson follow its rows, whatever these are: disturbed, even, huge."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from collbench.commands.lesson import numbers, screens, table
from collbench.commands.lesson.content import HERE
from collbench.commands.lesson.screens import Text, build
from collbench.results import Explanation, Measurement, Result
from collbench.results.facts import Scheduling
from collbench.runfile.store import Run, read
from tests.conftest import ROOT

Factor = Callable[[str, int], float]
RUNS = [read(ROOT / "results" / name) for name in ("cpu-2-ranks", "cpu-2-ranks-explained")]
COMMITTED = "two cores of an Intel Xeon"
SPOILED = Scheduling(off_core=0.9)


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screens, "_figures", lambda run: {})


def times(factor: Factor, disturbed: Callable[[str, int], bool] = lambda name, nbytes: False) -> list[Run]:
    """The committed runs with other times, and with rows that were disturbed."""

    def changed(row: Result) -> Result:
        name, nbytes = row.implementation, row.case.nbytes
        scheduling = SPOILED if disturbed(name, nbytes) else row.scheduling
        if isinstance(row, Measurement):
            seconds = tuple(sample * factor(name, nbytes) for sample in row.seconds)
            return replace(row, seconds=seconds, scheduling=scheduling)
        if isinstance(row, Explanation):
            seconds, traced = (one * factor(name, nbytes) for one in (row.seconds, row.traced))
            return replace(row, seconds=seconds, traced=traced, scheduling=scheduling)
        return row

    return [replace(run, results=tuple(map(changed, run.results))) for run in RUNS]


def only(wanted: str, factor: float, sizes: Sequence[int] = ()) -> Factor:
    return lambda name, nbytes: factor if name == wanted and (not sizes or nbytes in sizes) else 1.0


def test_of_the_fastest_the_next_is_told_if_it_is_even_and_the_best_if_it_was_no_choice() -> None:
    even, server = screens.content(RUNS), screens.content(times(only("parameter-server", 0.1)))
    alike = times(lambda name, _: 1 if name != "one-shot" else 199.6 / 305)
    for content, words, there in (
        (even, "as good as even", False),
        (screens.content(alike), "as good as even", True),
        (even, "not among the choices", False),
        (server, "not among the choices, is `parameter-server`", True),
    ):
        assert (words in content.questions[1]["because"]) is there, words


def test_a_disturbed_row_is_no_number_and_the_committed_run_stands_in_and_says_so() -> None:
    whole = screens.content(RUNS)
    for screen in whole.screens:
        assert screen["source"] != numbers.places()[numbers.COMMITTED].source
    absurd = times(
        lambda name, nbytes: 1e4 if (name, nbytes) == ("ring-flags", 8) else 1, lambda *key: key == ("ring-flags", 8)
    )
    content = screens.content(absurd)
    host = next(screen for screen in content.screens if screen["name"] == "ring-host")
    assert host["answer"] == 2
    assert host["source"] == numbers.places()[numbers.COMMITTED].source
    assert COMMITTED in host["ask"]
    assert host["number"] == "27x"
    assert COMMITTED in host["number_says"]
    flags = next(screen for screen in content.screens if screen["name"] == "ring-flags")
    assert flags["source"] == HERE
    assert [formula.nbytes for formula in flags["formulas"]] == [32, 2**21]
    assert "ring-flags" not in [name for name, times in content.measured.curves.items() if 8 in times]
    assert content.caution
    assert not whole.caution
    few = [replace(run, results=[row for row in run.results if row.implementation != "two-shot"]) for run in RUNS]
    assert "two-shot" in screens.content(few).caution


def test_with_every_row_disturbed_all_is_of_the_committed_run() -> None:
    content = screens.content(times(lambda name, _: 1e3 if name == "mpi" else 1e-3, lambda name, _: True))
    place = numbers.places()[numbers.COMMITTED]
    assert content.constants_of == f"on {COMMITTED}"
    assert (content.measured.latency, content.measured.bandwidth) == (place.latency, place.bandwidth)
    assert not content.measured.curves
    assert not any(screen["formulas"] or screen["trace"] for screen in content.screens)
    asked = [*content.questions[:2], *content.screens]
    assert HERE not in {question["source"] for question in asked}
    assert HERE not in {reason["source"] for reason in (*content.losing, *content.winning)}
    for text in (place.name, "this machine, step and link as on"):
        assert text in build(content)


def test_the_choice_that_is_right_is_near_the_number() -> None:
    for factor, choices in (
        (1, ("1.5x", "5x", "25x", "100x")),
        (100, ("1.5x", "5x", "25x", "3000x")),
        (0.006, ("0.2x", "5x", "25x", "100x")),
    ):
        content = screens.content(times(only("ring-host", factor)))
        host = next(screen for screen in content.screens if screen["name"] == "ring-host")
        assert host["choices"] == choices


def test_every_text_about_here_says_where_that_is() -> None:
    """So that it can be told of another machine; only what the page says to be measured here need not."""
    for text in (*table("lesson")["question"], *table("lesson")["screen"]):
        if isinstance(text["answer"], dict) and "place" not in text["answer"]:
            assert "{here}" in text["ask"].lower(), text["name"]
    for texts in (table("lesson")["screen"], table("lesson")["losing"], table("lesson")["winning"]):
        for text in texts:
            says = text.get("number_says") or text["says"]
            if not text["number"].startswith(("{p:", "{m:")):
                assert "{here}" in strings(says), text["name"]


def strings(text: Text) -> str:
    return text if isinstance(text, str) else " ".join(part for part in text if isinstance(part, str))


def test_what_is_said_of_one_h100_is_what_its_run_says() -> None:
    """These sentences are fixed, and so is their run."""
    h100 = numbers.numbers_at("one-h100")
    sizes = sorted({nbytes for _, nbytes in h100.timed})

    def faster(name: str, nbytes: int) -> float:
        return h100.seconds("library", nbytes) / h100.seconds(name, nbytes)

    assert [size for size in sizes if faster("ring-events", size) > 1] == [2**21, 2**23]
    assert not [size for size in sizes if faster("ring-host", size) > 1]
    assert all(0.9 < faster("ring-flags", size) < 1.15 for size in sizes if size <= 2**15)
    assert all(faster("ring-ll", size) > 2 for size in sizes if size <= 2**17)
    for name in ("one-shot", "two-shot", "parameter-server"):
        assert all(faster(name, size) > 1 for size in sizes), name
    assert h100.figure("ring-flags / ring-pipelined at 128 MiB") > 10
    assert h100.figure("ring-events / ring-host at 8 B") < 0.1  # ordering is cheaper than waiting
