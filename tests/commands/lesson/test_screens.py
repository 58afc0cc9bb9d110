"""A lesson from runs: every rung has its screen, with numbers, code and a trace."""

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from collbench.algorithms import implementations
from collbench.commands.lesson import numbers, screens, table
from collbench.commands.lesson.content import HERE, Content, Event
from collbench.commands.lesson.numbers import Numbers, titles
from collbench.commands.lesson.screens import Voice, question
from collbench.errors import UsageError
from collbench.results import Explanation
from collbench.results.collectives import MOVED, WAITED, Span
from collbench.runfile.store import read
from tests.conftest import ROOT

SWEEP, EXPLAINED = (read(ROOT / "results" / name) for name in ("cpu-2-ranks", "cpu-2-ranks-explained"))
ALONE = {"auto"}  # chooses among the rungs


@cache
def lesson(*runs: str) -> Content:
    return screens.content([read(ROOT / "results" / name) for name in runs or ("cpu-2-ranks", "cpu-2-ranks-explained")])


def strings(value: Any) -> Iterator[str]:
    """Every text in a TOML table but those of code, whose braces are its own."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from strings(part)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key not in ("code", "lit"):
                yield from strings(part)


def test_every_rung_has_a_screen_in_the_order_of_the_ladder() -> None:
    ladder = [name for name, found in implementations().items() if found.order and not found.wire]
    shown = [screen["name"] for screen in lesson().screens]
    assert shown == [name for name in ladder if name not in ALONE]
    traced = {screen["name"] for screen in lesson().screens if screen["trace"]}
    assert traced == {name for name in shown if "cpu" in implementations()[name].platforms}
    assert traced == set(screens.PROTOCOLS["rungs"])


def test_every_number_of_the_texts_is_known() -> None:
    for text in strings(table("lesson")):
        for title in titles(text):
            if title.startswith("p:"):
                assert title[2:] in numbers.published()
            elif title.startswith("m:"):
                place, _, rest = title[2:].partition(":")
                assert numbers.numbers_at(place).value(rest)
    for screen in lesson().screens:
        said = (screen["idea"], screen["number"], screen["number_says"], screen["ask"], screen["because"])
        assert all(said), screen["name"]
        assert not any("{" in text or "None" in text for text in (*said, screen["after"])), screen["name"]
    assert all(reason["number"] for reason in (*lesson().losing, *lesson().winning))
    quoted = {title for text in strings(table("lesson")) for title in titles(text) if title.startswith("p:")}
    assert len(lesson().sources) == len(quoted) + 1  # and the table


def test_what_a_run_lacks_is_of_the_committed_run() -> None:
    unexplained = lesson("cpu-2-ranks")
    flags = next(screen for screen in unexplained.screens if screen["name"] == "ring-flags")
    assert flags["trace"] is None
    assert flags["source"] == numbers.places()[numbers.COMMITTED].source
    assert numbers.places()[numbers.COMMITTED].name in flags["ask"]
    with pytest.raises(UsageError, match="collbench lesson"):
        screens.content([EXPLAINED])


def test_the_lines_of_code_are_few_and_stand_in_their_files() -> None:
    for screen, text in zip(lesson().screens, table("lesson")["screen"], strict=True):
        assert 8 <= sum(len(part.lines) for part in screen["code"]) <= 15, screen["name"]
        for part in screen["code"]:
            lines = (ROOT / part.file).read_text(encoding="utf-8").splitlines()
            assert tuple(lines[part.first - 1 :][: len(part.lines)]) == part.lines
        lit = screens.lit(screen["code"], text["lit"])
        assert all(lit.values()), screen["name"]
        phases = {event.phase for event in screen["trace"].events} if screen["trace"] else set()
        assert phases <= set(lit), screen["name"]


def test_the_cheat_sheet_counts_as_the_implementations_do_and_has_the_numbers_of_both_machines() -> None:
    for text in table("lesson")["screen"]:
        waits, moved, _ = text["sheet"]
        for ranks in (2, 3, 8):
            cost = implementations()[text["name"]].cost(numbers.allreduce(2**20, ranks))  # type: ignore[misc]
            steps, kind = waits.split(" \u00d7 ")
            assert (counted(steps, ranks), kind.upper()) == (cost.steps, cost.wait.name), text["name"]
            assert counted(moved, ranks) == pytest.approx(cost.link), text["name"]
    row = next(line for line in lesson().sheet.splitlines() if line.startswith("| `two-shot` |"))
    assert row.split(" | ")[3:8] == ["3.3x", "5.2x", "1.6x", "6.5x", "2.6x"]


def counted(formula: str, ranks: int) -> float:
    """The value of a formula such as `(n + 1) S / n`, for an array of one byte."""
    product = re.sub(r"(?<=[\dn)]) (?=[n(S])", " * ", formula.replace("\u2212", "-"))
    return float(eval(product, {"n": ranks, "S": 1}))


def test_the_terms_of_the_formula_add_up_to_the_time() -> None:
    some = [formula for screen in lesson().screens for formula in screen["formulas"]]
    assert len(some) == 2 * len([screen for screen in lesson().screens if screen["trace"]])
    assert len({(formula.latency, formula.bandwidth) for formula in some}) == 1
    for formula in some:
        terms = formula.steps * formula.latency + formula.moved / formula.bandwidth
        assert formula.rest == pytest.approx(max(0.0, formula.seconds - terms))
    assert any(formula.rest == 0 for formula in some)
    assert any(formula.rest > formula.seconds / 2 for formula in some)


def test_a_question_about_a_bound_is_answered_by_the_side_on_which_the_number_is() -> None:
    voice, title = Voice(Numbers.of(SWEEP.results), {}), "library / two-shot at 2 MiB"
    factor = voice.numbers.figure(title)
    for bound, right in ((factor - 0.1, 1), (factor + 0.1, 0)):
        answer = {"above": bound, "ratio": title}
        text = {"name": "more", "answer": answer, "choices": ["no", "yes"], "ask": "?", "because": ""}
        asked, _ = question([voice], text)
        assert (asked["answer"], asked["source"]) == (right, HERE)


# ---- traces ----


def test_events_are_all_spans_of_the_operation() -> None:
    rows = [row for row in EXPLAINED.results if isinstance(row, Explanation) and row.tracks]
    for row in rows:
        trace = screens.trace(row, {})
        assert trace
        for track in row.tracks:
            events = [event for event in trace.events if event.rank == track.rank]
            assert [event.phase for event in events] == [span.phase for span in track.spans]
            assert events[0].start == track.start
            covered = sum(event.seconds for event in events)
            assert covered == pytest.approx(sum(span.seconds for span in track.spans))


def test_no_wait_ends_before_what_it_waits_for_has_begun() -> None:
    checked = 0
    for screen in lesson().screens:
        events = screen["trace"].events if screen["trace"] else ()
        for wait in events:
            if wait.phase != WAITED or wait.chunk is None:
                continue
            (source,) = wait.sources[:1]
            sent = [each for each in events if each.rank == source and wait.rank in each.targets]
            starts = [each.start for each in sent if each.chunk == wait.chunk]
            assert starts, (screen["name"], wait.words)
            assert min(starts) < wait.start + wait.seconds, (screen["name"], wait.words)
            checked += 1
    assert checked >= 4


def pieces(name: str, rank: int, ranks: int) -> list[Event]:
    """What a rank moves and adds in an operation of that protocol."""
    stages = screens.PROTOCOLS[screens.PROTOCOLS["rungs"][name]]
    phases = [part["phase"] for stage in stages for part in parts(stage, ranks)]
    spans = [Span(phase, float(at), 1.0) for at, phase in enumerate(phases)]
    found = screens.meanings(spans, stages, rank, ranks)
    assert all("phase" in part for _, part, _ in found)
    events = []
    for span, part, before in found:
        if span.phase in (MOVED, "added"):
            chunk = screens.chunk_of(part, before, rank, ranks)
            events.append(Event(rank, span.phase, 0, 0, "", part.get("from", ()), part.get("to", ()), chunk))
    return events


def parts(stage: Mapping[str, Any], ranks: int) -> list[Mapping[str, Any]]:
    times = {"ranks - 1": ranks - 1, "ranks - 2": ranks - 2}.get(stage.get("times", ""), 1)
    return list(stage["parts"]) * times


def test_the_chunks_of_a_ring_are_an_allreduce() -> None:
    for name in ("ring-flags", "ring-pipelined", "ring-ll"):
        for ranks in (2, 3, 4):
            fifos: dict[int, deque[tuple[int, set[int]]]] = defaultdict(deque)
            sums: dict[int, dict[int, set[int]]] = defaultdict(dict)
            todo = {rank: deque(pieces(name, rank, ranks)) for rank in range(ranks)}
            for _ in range(2 * ranks - 1):
                for rank, events in todo.items():  # a rank is at most a piece ahead of the next one
                    step(rank, events.popleft(), ranks, fifos, sums)
            everyone = set(range(ranks))
            assert not any(todo.values())
            assert all(sums[rank] == dict.fromkeys(everyone, everyone) for rank in everyone), (name, ranks)


def step(rank: int, event: Event, ranks: int, fifos: Any, sums: Any) -> None:
    """Carry out what an event says, on sets of the ranks whose parts are in a sum."""
    value = {rank}
    if event.sources:
        chunk, value = fifos[rank].popleft()
        assert chunk == event.chunk
        value = value | ({rank} if event.phase == "added" else set())
    if len(value) == ranks:
        sums[rank][event.chunk] = value
    if event.targets:
        fifos[(rank + 1) % ranks].append((event.chunk, value))


def test_a_trace_that_fits_no_protocol_has_no_peers() -> None:
    row = next(
        row
        for row in EXPLAINED.results
        if isinstance(row, Explanation) and (row.implementation, row.case.nbytes) == ("ring-flags", 2**27)
    )
    trace = screens.trace(row, {})
    assert trace
    assert {event.words for event in trace.events} == set(screens.PROTOCOLS["unknown"].values())
    assert not any(event.sources or event.targets for event in trace.events)
