"""No sentence of a lesson says what its rows do not, whatever these are: disturbed, even, the other way round, huge."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from collbench.commands.lesson import numbers, screens, table
from collbench.commands.lesson.content import HERE, Content
from collbench.commands.lesson.screens import build
from collbench.results import Explanation, Measurement, Result
from collbench.results.collectives import PHASES
from collbench.results.disturbed import Scheduling
from collbench.runfile.store import Run, read
from tests.commands.lesson.claims import CLAIMS, COMMITTED, parts, wrong, wrong_of_one_h100
from tests.conftest import ROOT
from tools import ONE_H100, gallery
from tools.model import shared_gpu

Factor = Callable[[str, int], float]
RUNS = [read(ROOT / "results" / name) for name in ("cpu-2-ranks", "cpu-2-ranks-explained")]
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


def shares(runs: Sequence[Run], chance: random.Random) -> list[Run]:
    def changed(row: Result) -> Result:
        if not isinstance(row, Explanation) or not row.tracks:
            return row
        weights = [chance.random() ** 3 for _ in PHASES]
        whole = sum(weights) / row.traced
        spent = {phase: weight / whole for phase, weight in zip(PHASES, weights, strict=True)}
        return replace(row, tracks=tuple(replace(track, spent=spent) for track in row.tracks))

    return [replace(run, results=tuple(map(changed, run.results))) for run in runs]


def page(runs: Sequence[Run]) -> tuple[Content, str]:
    content = screens.content(runs)
    return content, build(content)


def only(wanted: str, factor: float, sizes: Sequence[int] = ()) -> Factor:
    return lambda name, nbytes: factor if name == wanted and (not sizes or nbytes in sizes) else 1.0


SCENES: dict[str, list[Run]] = {
    "as committed": RUNS,
    "the host is six times faster at 2 MiB": times(only("ring-host", 0.15, (2**21,))),
    "the host is faster everywhere": times(only("ring-host", 0.01)),
    "the host is as slow as a disk": times(only("ring-host", 500)),
    "the pipe is four times as fast": times(only("ring-pipelined", 0.25)),
    "the pipe is four times as slow": times(only("ring-pipelined", 4)),
    "packets are the fastest": times(only("ring-ll", 0.05)),
    "packets are the slowest": times(only("one-shot-ll", 300)),
    "packets keep up": times(only("one-shot-ll", 1 / 100, (2**15,))),
    "the library is the fastest": times(only("mpi", 0.001)),
    "the library is the slowest": times(only("mpi", 1000)),
    "one-shot is the fastest": times(only("one-shot", 0.02)),
    "one-shot is the slowest": times(only("one-shot", 20)),
    "one-shot and the ring are even": times(only("one-shot", 528 / 270, (8,))),
    "two-shot is the slowest": times(only("two-shot", 50)),
    "rings are the fastest": times(lambda name, _: 0.01 if name.startswith("ring-flags") else 1),
    "the server is the fastest": times(only("parameter-server", 0.1)),
    "all is disturbed": times(lambda name, _: 1e3 if name == "mpi" else 1e-3, lambda name, _: True),
}


def chances() -> Iterator[list[Run]]:
    for seed in range(16):
        chance, wild = random.Random(seed), 2 if seed % 2 else 0.3
        keys = {(row.implementation, row.case.nbytes) for run in RUNS for row in run.results}
        factors = {key: 10 ** chance.uniform(-wild, wild) for key in sorted(keys)}
        spoiled = {key: chance.random() < 0.3 for key in sorted(keys)}
        yield shares(times(lambda *key, at=factors: at[key], lambda *key, at=spoiled: at[key]), chance)


@cache
def pages() -> Mapping[str, tuple[list[Run], str]]:
    scenes = SCENES | {f"chance {number}": runs for number, runs in enumerate(chances())}
    return {scene: (runs, page(runs)[1]) for scene, runs in scenes.items()}


def rows(runs: Sequence[Run]) -> list[Result]:
    return [row for run in runs for row in run.results]


def test_no_sentence_is_against_the_rows_beside_it() -> None:
    for scene, (runs, text) in pages().items():
        assert not wrong(text, rows(runs)), scene


def test_every_sentence_that_depends_on_rows_is_held_against_them_and_was_said() -> None:
    said = {words for words in conditional(table("lesson")) if words}
    for words in said - FREE:
        plain = words.replace("**", "")
        assert any(claim in plain for _, claim in CLAIMS), words
    everything = [part for _, text in pages().values() for part in parts(text)]
    for where, claim in CLAIMS:
        assert any(name == where and claim in words for name, _, words in everything), claim


FREE = {
    "The two are about equal.",
    "Faster still, but not among the choices, is `{best at 8 B}` with {best time at 8 B}.",
    "Faster still, but not among the choices, is `{best at 2 MiB}` with {best time at 2 MiB}.",
}
"""Sentences that are checked by a test of their own."""


def conditional(text: Any) -> Iterator[str]:
    if isinstance(text, Mapping):
        if "number" in text and "up_to" in text:
            assert len(text["says"]) == len(text["up_to"]) + 1, text
            yield from text["says"]
        else:
            for value in text.values():
                yield from conditional(value)
    elif isinstance(text, list):
        for value in text:
            yield from conditional(value)


def test_a_checker_of_claims_finds_what_is_wrong() -> None:
    committed = pages()["as committed"][1]
    for scene in ("the host is six times faster at 2 MiB", "the pipe is four times as fast", "all is disturbed"):
        assert wrong(committed, rows(SCENES[scene])), scene


def test_of_the_fastest_the_next_is_told_if_it_is_even_and_the_best_if_it_was_no_choice() -> None:
    even, server = (screens.content(SCENES[scene]) for scene in ("as committed", "the server is the fastest"))
    alike = times(lambda name, _: 1 if name != "one-shot" else 199.6 / 305)
    for content, words, there in (
        (even, "about equal", False),
        (screens.content(alike), "about equal", True),
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
    assert f"{COMMITTED} (committed run of {RUNS[0].header.started[:10]})" in host["ask"]
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


def test_a_number_and_its_words_are_of_one_run() -> None:
    content = screens.content(times(only("one-shot-ll", 9), lambda *key: key == ("one-shot-ll", 8)))
    card = next(reason for reason in content.losing if reason["name"] == "one-algorithm")
    assert card["number"].startswith("35x the time of")
    assert card["source"] == numbers.places()[numbers.COMMITTED].source
    assert f"at 32 KiB on {COMMITTED}" in card["number"]


def test_with_every_row_disturbed_all_is_of_the_committed_run() -> None:
    content = screens.content(SCENES["all is disturbed"])
    place = numbers.places()[numbers.COMMITTED]
    assert content.constants_of == f"on {COMMITTED} (committed run of {place.date})"
    assert (content.measured.latency, content.measured.bandwidth) == (place.latency, place.bandwidth)
    assert not content.measured.curves
    assert not any(screen["formulas"] or screen["trace"] for screen in content.screens)
    asked = [*content.questions[:2], *content.screens]
    assert HERE not in {question["source"] for question in asked}
    assert HERE not in {reason["source"] for reason in (*content.losing, *content.winning)}
    for text in (place.name, "this machine, step and link as on"):
        assert text in build(content)


def test_what_pages_and_lesson_say_of_one_h100_is_what_its_newest_run_says() -> None:
    pages = ("README.md", "docs/kernels.md", "docs/lesson.md", "results/README.md")
    texts = {page: (ROOT / page).read_text(encoding="utf-8") for page in pages}
    assert not list(wrong_of_one_h100(texts))
    for page, said, other in (
        ("README.md", "5.83 us", "9.45 us"),
        ("README.md", "`two-shot` 7.81 us", "`one-shot` 7.81 us"),
        ("docs/kernels.md", "17 us, 0.50x", "17 us, 0.71x"),
        ("docs/kernels.md", "takes 1.1 us", "takes 3.4 us"),
        ("docs/lesson.md", "[0.55x]", "[0.98x]"),
        ("docs/lesson.md", "up to 8 MiB, since", "up to 512 KiB, since"),
        ("results/README.md", "6.5x", "7.0x"),
    ):
        assert said in texts[page]
        assert list(wrong_of_one_h100(texts | {page: texts[page].replace(said, other)})), said


def test_the_run_of_one_h100_is_the_newest_of_its_kind_and_lesson_gallery_and_fit_take_it() -> None:
    runs = [read(folder) for folder in sorted((ROOT / "results").glob("*h100-1-gpu*"))]
    newest = max((run for run in runs if not run.header.sweep.sampling.traced), key=lambda run: run.header.started)
    assert newest.path.parent.name == ONE_H100
    assert numbers.places()["one-h100"].run == f"results/{ONE_H100}"
    assert numbers.places()["one-h100"].date == newest.header.started[:10]
    assert [row for row in newest.results if row in shared_gpu.ROWS] == shared_gpu.ROWS
    assert any(f"results/{ONE_H100}" in shown.command for shown in gallery.PICTURES)
