"""Settings and libraries in turn: who is measured when, what becomes of the rounds; by made-up ranks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collbench import algorithms
from collbench.cases import ROUNDS, Case, Sampling, Sweep
from collbench.commands.step.work import COMPUTE, SEQUENTIAL, Step
from collbench.errors import PlatformError, UsageError
from collbench.measure import interleave
from collbench.measure.interleave import LEAST, Arm, Interleaving, MultiLibrary, library_suffixes, order, shares
from collbench.measure.protocol import WorkerHello
from collbench.platforms.cpu.mpi_libraries import KINDS, Library
from collbench.platforms.gpu.nccl import NcclLibrary
from collbench.results import Result
from collbench.results.collectives import Failed, Measurement, Skipped
from collbench.results.facts import Mismatch, family, labelled
from collbench.stats import median_interval
from tests.conftest import case
from tests.test_cases import sweep

NAMES = ("one", "two")
MISMATCH = Mismatch(1, 0, 0, "1", "2", 3)
Answer = Callable[[Case, str, int], Result]


def measured(asked: Case, name: str, *seconds: float, launches: int = 4) -> Measurement:
    return Measurement(asked, name, "cpu", launches, seconds)


@dataclass
class Acted:
    """Ranks that answer as told, and note that they were asked; `log` is shared by both settings."""

    setting: str
    log: list[str]
    answer: Answer = lambda asked, name, round_: measured(asked, name, 1e-3, 1e-3)
    greeting: WorkerHello = field(default_factory=WorkerHello)
    orders: list[tuple[tuple[str, ...], Sampling, dict[str, int]]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # of the cases of these orders
    tell: Callable[[str], None] = lambda words: None
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
        self.tell("at it")
        self.orders.append((tuple(names), sampling, dict(launches or {})))
        self.sizes.append(asked.nbytes)
        for name in names:
            yield self.answer(asked, name, len(self.orders))


def asked_for() -> Sweep:
    return replace(sweep(1024, 64), implementations=NAMES)


def arms(*ranks: Acted) -> list[Arm]:
    return [Arm((one,), asked_for()) for one in ranks]


def steps(*ranks: Acted) -> list[Arm]:
    ways = zip(ranks, (COMPUTE, SEQUENTIAL), strict=True)
    return [Arm((one,), replace(asked_for(), works=(Step(1, 8, schedule=way),))) for one, way in ways]


def carried_out(**answers: Answer) -> tuple[list[list[Result]], list[Acted]]:
    """The results of both settings, `a` and `b`, and what their ranks were asked."""
    log: list[str] = []
    ranks = [Acted(name, log, **({"answer": answers[name]} if name in answers else {})) for name in "ab"]
    with Interleaving("cpu", arms(*ranks)) as pair:
        return pair.measure(pair.cases[0]), ranks


def test_every_order_is_balanced_so_that_drift_shifts_all_alike() -> None:
    _, ranks = carried_out()
    assert "".join(step for step in ranks[0].log if step in "ab") == "abbabaabbaababba"
    for sets in (3, 4):
        rounds = list(order(2 * sets, sets))
        assert all(sorted(turns) == list(range(sets)) for turns in rounds)
        for forwards, backwards in zip(rounds[::2], rounds[1::2], strict=True):
            assert backwards == forwards[::-1]
        assert {turns[0] for turns in rounds[::2]} == set(range(sets))


def test_each_arm_has_its_own_budget_and_its_own_implementations() -> None:
    log: list[str] = []
    ranks = [Acted("a", log), Acted("b", log)]
    whole = asked_for()
    few = replace(whole, implementations=NAMES[:1], sampling=replace(whole.sampling, budget=whole.sampling.budget / 2))
    with Interleaving("cpu", [Arm((ranks[0],), whole), Arm((ranks[1],), few)]) as both:
        found = [[result.implementation for result in results] for results in both.measure(both.cases[0])]
    assert found == [list(NAMES), list(NAMES[:1])]
    budgets = [sum(sampling.budget for _, sampling, _ in one.orders) for one in ranks]
    assert budgets == pytest.approx([whole.sampling.budget, whole.sampling.budget / 2])


def test_a_sample_s_length_is_found_out_once() -> None:
    log: list[str] = []
    ranks = Acted("a", log), Acted("b", log)
    with Interleaving("cpu", arms(*ranks)) as pair:
        first, second = pair.measure(pair.cases[0])
        orders = list(ranks[0].orders)
    assert [result.implementation for result in first] == [result.implementation for result in second] == list(NAMES)
    assert orders[0][2] == {}
    assert all(launches == {"one": 4, "two": 4} for _, _, launches in orders[1:])


def test_rounds_together_cost_one_case_and_have_the_wanted_samples() -> None:
    for iters in (1, 2, 5, 6, 7, 100):
        counts = [share.iters or 0 for share in shares(Sampling(iters=iters))]
        assert all(counts), iters
        assert sum(counts) == iters
        assert len(counts) == min(ROUNDS, iters)
        assert max(counts) - min(counts) <= 1, iters
    parts = shares(Sampling(budget=0.6))
    assert sum(part.budget for part in parts) == pytest.approx(0.6)
    assert sum(part.minimum for part in parts) >= Sampling().minimum
    assert median_interval([1.0] * len(parts)) == (1.0, 1.0)


def test_a_case_ends_once_its_budget_is_spent() -> None:
    budget = asked_for().sampling.budget
    for share, rounds in ((1 / 8, ROUNDS), (1 / 7, ROUNDS), (1 / 6, LEAST), (10.0, LEAST)):

        def answer(asked: Case, name: str, round_: int, share: float = share) -> Result:
            return measured(asked, name, 1.001 * share * budget / len(NAMES), launches=1)

        results, _ = carried_out(a=answer, b=answer)
        found = [len(result.rounds) for arm in results for result in arm if isinstance(result, Measurement)]
        assert found == [rounds] * 4, share


def test_no_round_begins_that_ends_after_twice_the_budgets_but_for_the_first_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = asked_for().sampling.budget
    for seconds, rounds in ((0.1, ROUNDS), (0.19, ROUNDS), (0.21, 6), (0.27, 4), (0.36, 2), (5.0, 2)):
        now = [0.0]
        monkeypatch.setattr(interleave, "time", SimpleNamespace(monotonic=lambda now=now: now[0]))

        def answer(asked: Case, name: str, round_: int, seconds: float = seconds, now: list[float] = now) -> Result:
            now[0] += budget * seconds / len(NAMES) * (3 if round_ == 1 else 1)
            return measured(asked, name, 1e-3, launches=1)

        ranks = [Acted(name, [], answer) for name in "ab"]
        with Interleaving("cpu", steps(*ranks)) as pair:
            (result, *_), _ = pair.measure(pair.cases[0])
        assert isinstance(result, Measurement)
        assert len(result.rounds) == rounds, seconds
        assert seconds == 5.0 or now[0] <= 2 * (2 * budget), seconds


def test_what_is_at_work_is_told_with_the_times_so_far_of_everything_that_takes_turns() -> None:
    told: list[str] = []
    pair = Interleaving("cpu", steps(Acted("a", []), Acted("b", [])))
    pair.tell = told.append
    with pair:
        pair.measure(pair.cases[0])
    assert len(told) == 2 * ROUNDS
    now, first, second = told[1].splitlines()
    assert now == f"round 1 of {ROUNDS}, 2 ranks, sequential: at it"
    assert (first, second) == ("2 ranks, compute: one 1 ms, two 1 ms", "2 ranks, sequential: ")


def spoilt(name: str, round_: int, answer: Answer) -> Answer:
    return lambda asked, who, number: (
        answer(asked, who, number) if (who, number) == (name, round_) else measured(asked, who, 1e-3)
    )


def raises(asked: Case, name: str, round_: int) -> Result:
    raise PlatformError("the ranks did not start")


def test_what_goes_wrong_in_one_setting_costs_its_implementation_and_the_other_nothing() -> None:
    skipped, failed = Skipped(case(), "two", "cpu", "no way"), Failed(case(), "two", "cpu", "died")
    wrong = Measurement(case(), "two", "cpu", 1, (), mismatch=MISMATCH)
    for answer, at, wanted in (
        (lambda asked, name, _: replace(skipped, case=asked), 1, skipped),
        (lambda asked, name, _: replace(failed, case=asked), 3, replace(failed, reason="died (in round 3)")),
        (raises, 2, replace(failed, reason="the ranks did not start (in round 2)")),
        (lambda asked, name, _: replace(wrong, case=asked), 5, wrong),
    ):
        (ours, theirs), ranks = carried_out(b=spoilt("two", at, answer))
        assert theirs[1] == wanted
        assert isinstance(theirs[0], Measurement), wanted
        assert len(theirs[0].rounds) == ROUNDS, wanted
        assert [names for names, _, _ in ranks[1].orders] == [NAMES] * at + [("one",)] * (ROUNDS - at), wanted
        assert all(isinstance(outcome, Measurement) and len(outcome.rounds) == ROUNDS for outcome in ours), wanted


def test_ranks_that_cannot_start_end_those_that_did_and_the_error_names_the_setting() -> None:
    log: list[str] = []
    first, second = arms(Acted("a", log), Acted("b", log, refusal="no such algorithm"))
    pair = Interleaving("cpu", (first, second._replace(name="X=1")))
    with pytest.raises(PlatformError, match="with X=1: no such algorithm"), pair:
        pass
    assert log == ["start a", "end a"]


CALLS = ("mpi", "two-shot")
SAID = {"mpich": "MPICH Version: 5.0.2", "openmpi": "Open MPI v5.0.11, package: x", "intel": "Intel(R) MPI Library 1"}


def library(key: str, folder: Path | None) -> Library:
    """One in a folder, or the one that mpi4py loads by itself."""
    return Library(KINDS[key], (folder or Path("/own")) / "bin" / "mpiexec", folder / "libmpi.so" if folder else None)


MPICH, OPEN, INTEL = library("mpich", None), library("openmpi", Path("/ompi")), library("intel", Path("/impi"))


def against_each_other() -> Sweep:
    return replace(sweep(64, 1024), implementations=CALLS)


def against(*libraries: Library, log: list[str], **ranks: Acted) -> MultiLibrary:
    def start(platform: str, asked: Sweep, changes: Any, library: Library, folder: Path | None) -> Acted:
        key = library.kind.key
        return ranks.get(key) or Acted(key, log, greeting=WorkerHello(versions={"mpi": SAID[key]}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interleave, "Supervisor", start)
        return MultiLibrary(against_each_other(), libraries)


def test_rows_are_called_after_their_library_unless_it_is_the_usual_one(tmp_path: Path) -> None:
    assert library_suffixes([MPICH, OPEN, INTEL]) == ["", "@openmpi", "@intel"]
    assert library_suffixes([OPEN, MPICH]) == ["@openmpi", ""]
    second = library("openmpi", Path("/other"))
    assert library_suffixes([OPEN, second]) == ["@openmpi", "@openmpi-2"]
    with pytest.raises(UsageError, match=r"--mpi names /ompi/libmpi.so twice; leave one out"):
        library_suffixes([OPEN, MPICH, OPEN])
    link = tmp_path / "libmpi.so"
    link.symlink_to("/ompi/libmpi.so")
    with pytest.raises(UsageError, match="twice"):
        library_suffixes([OPEN, library("intel", tmp_path)])


def test_rows_of_nccl_are_called_after_its_release() -> None:
    releases = [NcclLibrary("2.30.7", Path("/a")), NcclLibrary("2.32.3", Path("/b")), NcclLibrary("2.30.7", Path("/c"))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NcclLibrary, "own", False)
        assert library_suffixes(releases) == ["@2.30.7", "@2.32.3", "@2.30.7-2"]
        calling = MultiLibrary(replace(sweep(64), implementations=("nccl", "ring-flags")), releases)
    assert calling.sweep.implementations == ("nccl@2.30.7", "nccl@2.32.3", "nccl@2.30.7-2", "ring-flags")
    assert [arm.sweep.implementations for arm in calling.arms] == [("nccl", "ring-flags"), ("nccl",), ("nccl",)]


def test_a_name_with_an_at_of_its_own_is_told_from_that_of_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    known = algorithms.implementations()
    fast = replace(known["nccl"], name="nccl@symmetric")
    monkeypatch.setattr(algorithms, "implementations", lambda: known | {fast.name: fast})
    for row, parts, label in (
        ("nccl", ("nccl", ""), "nccl: 2.30.7"),
        ("nccl@2.30.7", ("nccl", "2.30.7"), "nccl: 2.30.7"),
        ("nccl@2.30.7-2", ("nccl", "2.30.7-2"), "nccl@2.30.7-2: 2.30.7"),
        ("nccl@symmetric", ("nccl@symmetric", ""), "nccl@symmetric: 2.30.7"),
        ("nccl@symmetric@2.30.7", ("nccl@symmetric", "2.30.7"), "nccl@symmetric: 2.30.7"),
    ):
        assert (algorithms.apart(row), labelled(row, "NCCL 2.30.7")) == (parts, label)
        found = algorithms.find(row)
        assert found
        assert found.name == parts[0]
        assert family(row) == "nccl"
    assert algorithms.apart("mpi@openmpi") == ("mpi", "openmpi")
    assert labelled("mpi@openmpi", "Open MPI 5.0.2") == "mpi: Open MPI 5.0.2"


def test_every_library_measures_a_case_before_the_next_and_the_first_alone_the_rungs() -> None:
    log: list[str] = []
    with against(MPICH, OPEN, INTEL, log=log) as libraries:
        results = list(libraries.run())
    rows = [(result.case.nbytes, result.implementation) for result in results]
    names = ["mpi", "mpi@openmpi", "mpi@intel", "two-shot"]
    assert rows == [(size, name) for size in (64, 1024) for name in names]
    assert list(libraries.sweep.implementations) == names
    half = (len(log) - 6) // 2  # without the starts and the ends
    asked = log[3 : 3 + half]
    assert {asked.count(key) for key in SAID} == {half // 3}
    assert asked[:6] == ["mpich", "openmpi", "intel", "intel", "openmpi", "mpich"]


def test_one_library_alone_takes_no_turns_and_keeps_the_names_of_the_rungs() -> None:
    log: list[str] = []
    with against(OPEN, log=log) as libraries:
        assert libraries.greeting.versions == {"mpi@openmpi": SAID["openmpi"]}
        names = [result.implementation for result in libraries.run()]
    assert names == ["mpi@openmpi", "two-shot"] * 2
    assert log == ["start openmpi", "openmpi", "openmpi", "end openmpi"]


def test_libraries_that_nothing_calls_are_refused() -> None:
    ladder = replace(against_each_other(), implementations=("two-shot",))
    with pytest.raises(UsageError, match=r"--impl two-shot calls no MPI library.*; add mpi"):
        MultiLibrary(ladder, [MPICH, OPEN])
    assert MultiLibrary(ladder, [OPEN]).sweep.implementations == ("two-shot",)


def test_an_implementation_has_as_much_time_with_one_library_as_with_another() -> None:
    sweeps = [arm.sweep for arm in MultiLibrary(against_each_other(), (MPICH, OPEN, INTEL)).arms]
    budgets = [part.sampling.budget / len(part.implementations) for part in sweeps]
    assert budgets == pytest.approx([budgets[0]] * 3)
