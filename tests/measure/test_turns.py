"""Two settings in turn: who is measured when, what becomes of the rounds, and that drift cancels; by made-up ranks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import pytest

from collbench.cases import Case, Sampling, Sweep
from collbench.errors import PlatformError
from collbench.flaws import Mismatch
from collbench.measure.ab import ratios
from collbench.measure.greeting import Greeting
from collbench.measure.turns import LEAST, ROUNDS, Side, Turns, order, shares
from collbench.measurement import Failed, Measurement, Result, Skipped
from collbench.stats import median_interval
from tests.conftest import case
from tests.test_cases import sweep

NAMES = ("one", "two")
MISMATCH = Mismatch(1, 0, 0, "1", "2", 3)
Answer = Callable[[Case, str, int], Result]


def measured(asked: Case, name: str, *seconds: float, launches: int = 4) -> Measurement:
    """What ranks say when all went well."""
    return Measurement(asked, name, "cpu", launches, seconds)


@dataclass
class Acted:
    """Ranks that answer as told, and note that they were asked; `log` is shared by both settings."""

    setting: str
    log: list[str]
    answer: Answer = lambda asked, name, round_: measured(asked, name, 1e-3, 1e-3)
    greeting: Greeting = field(default_factory=Greeting)
    orders: list[tuple[tuple[str, ...], Sampling, dict[str, int]]] = field(default_factory=list)
    refusal: str = ""

    def __enter__(self) -> "Acted":
        if self.refusal:
            raise PlatformError(self.refusal)
        self.log.append(f"start {self.setting}")
        return self

    def __exit__(self, *exception: Any) -> None:
        self.log.append(f"end {self.setting}")

    def measure(
        self, asked: Case, names: Sequence[str], sampling: Sampling, launches: Mapping[str, int] | None = None
    ) -> Iterator[Result]:
        self.log.append(self.setting)
        self.orders.append((tuple(names), sampling, dict(launches or {})))
        for name in names:
            yield self.answer(asked, name, len(self.orders))


def asked_for() -> Sweep:
    """Two cases by two implementations."""
    return replace(sweep(1024, 64), implementations=NAMES)


def sides(*ranks: Acted) -> list[Side]:
    """Each with the same to measure."""
    return [Side(one, asked_for()) for one in ranks]


def carried_out(**answers: Answer) -> tuple[list[list[Result]], list[Acted]]:
    """The results of both settings, `a` and `b`, and what their ranks were asked."""
    log: list[str] = []
    ranks = [Acted(name, log, **({"answer": answers[name]} if name in answers else {})) for name in "ab"]
    with Turns("cpu", sides(*ranks)) as pair:
        return [pair.results(0, place) for place in (0, 1)], ranks


def test_the_settings_take_turns_and_each_is_first_as_often() -> None:
    """A B, B A, B A, A B and so on: once in each round, and ever another pattern."""
    _, ranks = carried_out()
    assert "".join(step for step in ranks[0].log if step in "ab") == "abbabaabbaababba"
    firsts = [first for first, _ in order(64)]
    assert all(firsts[place] != firsts[place + 1] for place in range(0, 64, 2))


@pytest.mark.parametrize("sets", [3, 4])
def test_of_several_sets_all_come_once_a_round_and_every_order_comes_backwards_next(sets: int) -> None:
    """So that what drifts steadily shifts the sum over any two rounds alike for all."""
    rounds = list(order(2 * sets, sets))
    assert all(sorted(turns) == list(range(sets)) for turns in rounds)
    for forwards, backwards in zip(rounds[::2], rounds[1::2], strict=True):
        assert backwards == forwards[::-1]
    assert {turns[0] for turns in rounds[::2]} == set(range(sets))


def test_each_side_has_its_own_budget_and_its_own_implementations() -> None:
    """A side with few of them must not measure longer than the other, nor be asked for what it does not have."""
    log: list[str] = []
    ranks = [Acted("a", log), Acted("b", log)]
    whole = asked_for()
    few = replace(whole, implementations=NAMES[:1], sampling=replace(whole.sampling, budget=whole.sampling.budget / 2))
    with Turns("cpu", [Side(ranks[0], whole), Side(ranks[1], few)]) as both:
        found = [[result.implementation for result in both.results(0, place)] for place in (0, 1)]
    assert found == [list(NAMES), list(NAMES[:1])]
    budgets = [sum(sampling.budget for _, sampling, _ in one.orders) for one in ranks]
    assert budgets == pytest.approx([whole.sampling.budget, whole.sampling.budget / 2])


def test_a_case_is_measured_once_for_both() -> None:
    """The second setting's file gets what was measured when the first asked."""
    log: list[str] = []
    with Turns("cpu", sides(Acted("a", log), Acted("b", log))) as pair:
        first = pair.results(0, 0)
        count = len(log)
        second = pair.results(0, 1)
        assert len(log) == count
        pair.results(1, 0)
    assert [result.implementation for result in first] == [result.implementation for result in second] == list(NAMES)
    assert len(log) == 2 * count


def test_samples_of_all_rounds_are_one_measurement() -> None:
    """In order, and told apart by `rounds`."""
    results, _ = carried_out(a=lambda asked, name, round_: measured(asked, name, *[round_ * 1e-3] * (round_ + 1)))
    (one, _), _ = results
    assert isinstance(one, Measurement)
    assert one.rounds == (2, 3, 4, 5, 6, 7, 8, 9)
    assert one.seconds[:5] == (1e-3, 1e-3, 2e-3, 2e-3, 2e-3)
    assert sum(one.rounds) == len(one.seconds)


@pytest.mark.parametrize("drift", [0.2, -0.2, 1.0])
def test_drift_of_the_machine_cancels_in_the_ratio(drift: float) -> None:
    """B takes 1.1 times as long on a machine that slows down by a fifth, speeds up, or doubles its times in a run."""
    passed = [0]

    def ranks(factor: float) -> Answer:
        def answer(asked: Case, name: str, round_: int) -> Result:
            seconds = []
            for _ in range(8):
                passed[0] += 1
                seconds.append(1e-6 * factor * (1 + drift * passed[0] / (8 * 2 * 2 * ROUNDS)))
            return measured(asked, name, *seconds)

        return answer

    (base, _), (other, _) = carried_out(a=ranks(1.0), b=ranks(1.1))[0]
    assert isinstance(base, Measurement)
    assert isinstance(other, Measurement)
    found = ratios(base, other)
    assert len(found) == ROUNDS
    low, high = median_interval(found)
    assert low < 1.1 < high
    assert median(found) == pytest.approx(1.1, rel=0.01)
    assert other.typical / base.typical == pytest.approx(1.1, rel=0.02)


@pytest.mark.parametrize("iters", [1, 2, 5, 6, 7, 100])
def test_a_wanted_number_of_samples_is_spread_over_the_rounds(iters: int) -> None:
    """-n N gives each setting N, in rounds that differ by one at most."""
    counts = [share.iters for share in shares(Sampling(iters=iters))]
    assert all(counts)
    assert sum(filter(None, counts)) == iters
    assert len(counts) == min(ROUNDS, iters)
    assert max(filter(None, counts)) - min(filter(None, counts)) <= 1


def test_all_rounds_together_cost_one_case_and_give_an_interval() -> None:
    """Of the time; and at least as many samples as a plain run takes."""
    parts = shares(Sampling(budget=0.6))
    assert sum(part.budget for part in parts) == pytest.approx(0.6)
    assert sum(part.minimum for part in parts) >= Sampling().minimum
    assert median_interval([1.0] * len(parts)) == (1.0, 1.0)


@pytest.mark.parametrize(("share", "rounds"), [(1 / 8, ROUNDS), (1 / 7, ROUNDS), (1 / 6, LEAST), (10.0, LEAST)])
def test_a_case_ends_once_its_budget_is_spent(share: float, rounds: int) -> None:
    """After an even number of rounds, and not before the ratios have an interval; `share` of it goes in a round."""
    budget = asked_for().sampling.budget

    def answer(asked: Case, name: str, round_: int) -> Result:
        return measured(asked, name, 1.001 * share * budget / len(NAMES), launches=1)

    results, _ = carried_out(a=answer, b=answer)
    assert [len(result.rounds) for side in results for result in side if isinstance(result, Measurement)] == [
        rounds
    ] * 4


def test_how_long_a_sample_is_is_found_out_once() -> None:
    """Later rounds start from there, so that their samples are alike."""
    _, ranks = carried_out()
    assert ranks[0].orders[0][2] == {}
    assert all(launches == {"one": 4, "two": 4} for _, _, launches in ranks[0].orders[1:])


def test_what_one_setting_cannot_do_is_asked_once_and_costs_the_other_nothing() -> None:
    """A row says why; the other setting has its time."""

    def answer(asked: Case, name: str, round_: int) -> Result:
        return Skipped(asked, name, "cpu", "no way") if name == "one" else measured(asked, name, 1e-3)

    (ours, theirs), ranks = carried_out(b=answer)
    assert theirs[0] == Skipped(case(), "one", "cpu", "no way")
    assert isinstance(theirs[1], Measurement)
    assert [names for names, _, _ in ranks[1].orders] == [NAMES] + [("two",)] * (ROUNDS - 1)
    assert all(isinstance(outcome, Measurement) and len(outcome.rounds) == ROUNDS for outcome in ours)


def test_what_fails_in_a_later_round_has_failed() -> None:
    """Its earlier samples are of ranks that then died; the row says when."""

    def answer(asked: Case, name: str, round_: int) -> Result:
        return Failed(asked, name, "cpu", "died") if (name, round_) == ("two", 3) else measured(asked, name, 1e-3)

    (_, theirs), ranks = carried_out(b=answer)
    assert theirs[1] == Failed(case(), "two", "cpu", "died (in round 3)")
    assert isinstance(theirs[0], Measurement)
    assert len(theirs[0].rounds) == ROUNDS
    assert all(names == ("one",) for names, _, _ in ranks[1].orders[3:])


def test_what_goes_wrong_in_a_later_round_has_no_time() -> None:
    """A number that failed a check is never shown."""

    def answer(asked: Case, name: str, round_: int) -> Result:
        wrong = (name, round_) == ("one", 5)
        return Measurement(asked, name, "cpu", 1, () if wrong else (1e-3,), MISMATCH if wrong else None)

    (_, theirs), _ = carried_out(b=answer)
    assert isinstance(theirs[0], Measurement)
    assert (theirs[0].mismatch, theirs[0].seconds, theirs[0].rounds) == (MISMATCH, (), ())


def test_ranks_that_cannot_be_replaced_fail_their_own_setting_only() -> None:
    """What they had answered before in that round stays."""

    def answer(asked: Case, name: str, round_: int) -> Result:
        if (name, round_) == ("two", 2):
            raise PlatformError("the ranks did not start")
        return measured(asked, name, 1e-3)

    (ours, theirs), ranks = carried_out(b=answer)
    assert isinstance(theirs[0], Measurement)
    assert theirs[1] == Failed(case(), "two", "cpu", "the ranks did not start (in round 2)")
    assert all(isinstance(outcome, Measurement) for outcome in ours)
    assert len(ranks[1].orders) == ROUNDS


def test_ranks_that_cannot_start_end_those_that_did() -> None:
    """And the error says under which setting."""
    log: list[str] = []
    first, second = sides(Acted("a", log), Acted("b", log, refusal="no such algorithm"))
    pair = Turns("cpu", (first, second._replace(name="X=1")))
    with pytest.raises(PlatformError, match="with X=1: no such algorithm"), pair:
        pass
    assert log == ["start a", "end a"]


def test_rounds_that_only_one_setting_took_part_in_have_no_ratio() -> None:
    """A file of a plain run has none at all."""
    plain = measured(case(), "one", 1e-3)
    assert ratios(plain, plain) == []
