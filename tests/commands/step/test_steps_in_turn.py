"""The order in which series of steps are taken, how long they are and how many, on a platform of made-up times."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import cycle, groupby
from types import SimpleNamespace
from typing import Any, cast

import pytest

from collbench.algorithms import Implementation
from collbench.cases import Case, Sampling
from collbench.commands.step import measured as steps
from collbench.commands.step.measured import measure_steps
from collbench.commands.step.work import COMMUNICATE, SEQUENTIAL, Step
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.processes import Alone
from collbench.results.facts import Note
from tests.conftest import case


def measured(
    seconds: dict[str, Callable[[], float]],
    launches: dict[str, int] | None = None,
    schedule: str = COMMUNICATE,
    **sampling: Any,
) -> tuple[list[Any], list[str]]:
    """Results of steps that take so long each, and what ran: names, "meet", what was filled in, chains of products."""
    now, log = [0.0], []

    def prepare(name: str) -> Prepared:
        def launch(count: int) -> None:
            now[0] += seconds[name]()
            log.append(name)

        return Prepared(launch)

    nothing = SimpleNamespace(
        take_over=lambda rank: None,
        reset=lambda: log.append("chains anew") if schedule != COMMUNICATE else None,
        check=lambda: log.append("products checked"),
        enqueue=lambda rank, count: None,
    )
    platform: Any = SimpleNamespace(
        name="cpu",
        team=Alone(),
        local=[0],
        launcher=SimpleNamespace(synchronize=lambda: log.append("meet")),
        clock=SimpleNamespace(moment=lambda rank: now[0], set_clocks=lambda: 0.0),
        compute=SimpleNamespace(
            queued=False,
            stepping=nullcontext,
            refuse_given_up=lambda: None,
            join_streams=lambda: None,
            fork_streams=lambda: None,
            products=lambda size, begin: nothing,
        ),
        checker=SimpleNamespace(
            fill=lambda case, seed, wire: log.append(f"fill {seed}"),
            check=lambda case, seed, wire: None,
            overrun=lambda case: None,
        ),
        shifted=lambda offset: platform,
        note=Note(),
    )

    def way(name: str) -> Implementation:
        def prepared(case: Case, platform: Platform) -> Prepared:
            return prepare(name)

        return Implementation(name, "", prepared, ("cpu",))

    wanted = replace(case(), work=Step(1, 32, schedule=schedule))
    ways = [way(name) for name in seconds]
    return list(measure_steps(wanted, ways, cast(Any, platform), Sampling(**sampling), launches=launches)), log


def test_series_are_taken_in_turn_and_back_between_two_checks() -> None:
    known = {"a": 3, "b": 2}
    results, log = measured({"a": lambda: 1e-3, "b": lambda: 2e-3}, known, iters=5)
    runs = [(name, len(list(same))) for name, same in groupby(entry for entry in log if entry != "meet")]
    checks = [("fill 1", 1), ("a", 1), ("fill 1", 1), ("b", 1)]
    samples = [("a", 3), ("b", 4), ("a", 6), ("b", 4), ("a", 3)]
    assert runs == [*checks, *samples, ("fill 4", 1), ("a", 3), ("fill 4", 1), ("b", 2)]
    assert [[series.steps for series in result.series] for result in results] == [[3] * 5, [2] * 5]


def test_products_are_checked_twice_an_implementation_and_those_of_all_samples_are_among_them() -> None:
    _, log = measured({"a": lambda: 1e-3, "b": lambda: 2e-3}, {"a": 3, "b": 2}, schedule=SEQUENTIAL, iters=5)
    parts = ["chains anew", "products checked"]
    assert [entry for entry in log if entry in parts] == 2 * parts + 2 * ["products checked"]
    last_reset = len(log) - 1 - log[::-1].index("chains anew")
    assert [len(list(same)) for name, same in groupby(log[last_reset:]) if name == "a"][:2] == [3, 3]


def test_a_series_has_the_steps_that_make_it_long_enough() -> None:
    (result,), _ = measured({"a": lambda: 1e-3}, iters=2)
    assert [series.steps for series in result.series] == [32, 32]
    (result,), _ = measured({"a": lambda: 1e-3}, iters=2, region=0.1)
    assert all(0.1 <= series.seconds * series.steps <= 0.2 for series in result.series)
    (result,), _ = measured({"a": lambda: 1e-6}, iters=2)
    assert result.series[0].steps == steps.MOST_STEPS


def test_series_are_taken_until_the_budget_is_spent_and_none_of_given_steps_after_that() -> None:
    noisy = cycle(1e-3 * (1 + number * 7 % 997 / 997) for number in range(997))
    (result,), _ = measured({"a": lambda: next(noisy)}, budget=0.5, precision=0.0)
    *kept, _closing = result.series
    assert 0.5 <= sum(series.seconds * series.steps for series in kept) <= 0.56
    (result,), _ = measured({"a": lambda: 1e-3}, steps=10, iters=100, budget=0.045)
    assert [series.steps for series in result.series] == [10] * 6
    (result,), _ = measured({"a": lambda: 1e-3}, {"a": 10}, iters=20, budget=0.045)
    assert len(result.series) == 20, "as many as were asked for, where a series is short"


def test_times_are_the_hosts_where_it_was_late_in_most_series(monkeypatch: pytest.MonkeyPatch) -> None:
    for late, paced in (((True, True, False), True), ((True, False, False), False)):
        turns = cycle(late)
        monkeypatch.setattr(steps, "_host_was_late", lambda enqueued, own, turns=turns: next(turns))
        (result,), _ = measured({"a": lambda: 1e-3}, {"a": 2}, iters=4)
        assert result.note.paced is paced
