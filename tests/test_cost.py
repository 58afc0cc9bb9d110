"""The model of costs: where its constants come from, and how good the choices are that `auto` makes by it."""

import math
import re
from dataclasses import replace
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any

import pytest

from collbench.algorithms import auto, implementations, needs
from collbench.collectives import COLLECTIVES
from collbench.datatypes import NONE
from collbench.errors import Unsupported
from collbench.platforms.cost import Cost, Hardware, Wait, cpus, gpus
from collbench.platforms.interface import Prepared
from collbench.platforms.processes import Alone
from collbench.results import Note
from tests.conftest import ROOT, case
from tools.remeasure import fitted, rungs_of

FITTED_TO, ELSEWHERE = "cpu-2-ranks-epyc", "cpu-2-ranks"  # where waits and bytes take twice as long
MEASURED = rungs_of(FITTED_TO)
CPU = cpus(crowded=False)
SIZES = sorted({row.case.nbytes for row in MEASURED})
RUNGS = [way for way in implementations().values() if way.cost and not way.wire]  # that `auto` may take
PLACES = [
    CPU,
    cpus(crowded=True),
    *(gpus(ranks, devices) for ranks, devices in [(2, 1), (4, 1), (2, 2), (4, 2), (4, 4), (8, 8)]),
    *(gpus(8, 8, arch, pcie) for arch, pcie in [("sm80", False), ("sm100", False), ("sm89", True), ("sm120", True)]),
]


def place(hardware: Hardware, name: str = "gpu") -> Any:
    return SimpleNamespace(hardware=hardware, name=name, team=Alone())


def picked(where: Any, nbytes: int, **changes: Any) -> str:
    return next(iter(auto.expected(case(nbytes=nbytes, **changes), where)))


def cost_of(name: str, some: Any) -> Cost:
    return implementations()[name].cost(some)  # type: ignore[misc]


def test_the_constants_of_a_cpu_are_those_of_the_committed_runs() -> None:
    found = fitted(MEASURED)
    assert found.waits == pytest.approx(CPU.waits, rel=0.01)
    assert (found.memory, found.packets) == pytest.approx((CPU.memory, CPU.packets), rel=0.01)
    for row in (row for row in rungs_of("cpu-4-ranks-yield") if row.implementation == "ring-flags"):
        seconds = cpus(crowded=True).seconds(cost_of("ring-flags", row.case), row.case.nbytes)
        assert seconds == pytest.approx(row.typical, rel=0.05), row.case.nbytes


def test_the_choice_is_near_the_fastest_rung_of_the_committed_runs() -> None:
    for (folder, most, rows), nbytes in product(
        ((FITTED_TO, 1.03, MEASURED), (ELSEWHERE, 1.05, rungs_of(ELSEWHERE))), SIZES
    ):
        times = {row.implementation: row.typical for row in rows if row.case.nbytes == nbytes}
        assert times[picked(place(CPU, "cpu"), nbytes)] <= most * min(times.values()), (folder, nbytes)


def test_small_messages_get_few_waits_and_large_ones_few_bytes() -> None:
    for number, ranks in product(range(len(PLACES)), (2, 3, 4, 8)):
        small, large = (
            cost_of(picked(place(PLACES[number]), nbytes, ranks=ranks), case(nbytes=nbytes, ranks=ranks))
            for nbytes in (64, 64 * 2**20)
        )
        assert small.steps <= 2, (number, ranks)
        assert large.link <= 2 * (ranks - 1) / ranks, (number, ranks)


def test_a_choice_once_given_up_never_comes_back() -> None:
    for number, ranks in product(range(len(PLACES)), (2, 4, 8)):
        choices = [picked(place(PLACES[number]), 2**exponent, ranks=ranks) for exponent in range(3, 31)]
        changes = [choices[0], *(new for old, new in pairwise(choices) if new != old)]
        assert len(changes) == len(set(changes)), (number, ranks)
        assert 2 <= len(changes) <= 4, (number, ranks)


def test_the_choice_is_the_least_of_all_expected_times() -> None:
    for nbytes in SIZES:
        times = auto.expected(case(nbytes=nbytes), place(CPU, "cpu"))
        assert list(times.values()) == sorted(times.values()), nbytes
        assert set(times) <= {rung.name for rung in RUNGS if "cpu" in rung.platforms}


def test_what_refuses_the_case_is_not_chosen() -> None:
    where = place(replace(CPU, packets=math.inf, memory=math.inf, waits=dict(CPU.waits) | {Wait.PACKET: 1e-9}))
    assert picked(where, 2**18) == "one-shot-ll"
    assert picked(where, 2**20) != "one-shot-ll"
    assert "one-shot" not in auto.expected(case(nbytes=64, in_place=True), where)


def test_hardware_sets_limits_of_waits_links_and_blocks() -> None:
    assert math.isinf(CPU.seconds(Cost(Wait.EVENT, 1, 1, 1), 8))
    one_block = Cost(Wait.FLAG, steps=1, link=1, memory=0, blocks=1)
    assert Hardware(0, {Wait.FLAG: 1}, link=10, block=2).seconds(one_block, 20) == pytest.approx(1 + 10)
    assert Hardware(0, {Wait.FLAG: 1}, link=1, block=2).seconds(one_block, 20) == pytest.approx(1 + 20)
    assert math.isinf(gpus(4, 1).link)
    assert gpus(4, 1).memory == gpus(1, 1).memory / 4
    assert gpus(4, 2).link == gpus(4, 4).link / 2


def test_what_a_gpus_cache_holds_is_no_load_on_its_memory_but_all_goes_through_the_cache() -> None:
    some, shared = Cost(Wait.FLAG, 0, 0, 5, cached=3), Hardware(0, {Wait.FLAG: 0}, memory=10, cache=20, here=4)
    assert shared.floor(some, 100) == pytest.approx(100 * 5 / 20)
    assert replace(shared, cache=50).floor(some, 100) == pytest.approx(100 * 2 / 10)
    assert replace(shared, cache=math.inf).floor(some, 100) == pytest.approx(100 * 5 / 10), "its cache is not known"
    assert shared.floor(replace(some, alone=True), 100) == pytest.approx(100 * 5 / 20 / 4)
    assert replace(shared, mixed=0.5).seconds(some, 100) - shared.floor(some, 100) == pytest.approx(100 * 5 / 20)
    assert CPU.floor(some, 100) == pytest.approx(100 * 5 / CPU.memory)


def test_every_rung_reads_all_inputs_and_writes_all_results_beside_what_a_cache_holds() -> None:
    for rung, ranks in product((rung for rung in RUNGS if "allreduce" in rung.collectives), (2, 3, 4, 8)):
        cost = cost_of(rung.name, case(ranks=ranks, nbytes=2**20))
        total = (cost.memory - cost.cached) * (1 if cost.alone else ranks)
        copied = 0 if rung.name not in ("ring-host", "ring-events") else cost.memory * ranks - 2 * ranks
        assert total == pytest.approx(2 * ranks + copied), (rung.name, ranks)
    flags, pipelined = (cost_of(name, case(ranks=4)) for name in ("ring-flags", "ring-pipelined"))
    assert (flags.memory, pipelined.memory, flags.cached - pipelined.cached) == (5, 4, 1)
    assert cost_of("ring-flags", case(ranks=2)).memory - cost_of("ring-pipelined", case(ranks=2)).memory == 1


def test_data_that_a_gpus_cache_does_not_hold_pass_it_twice() -> None:
    some, hardware = Cost(Wait.FLAG, 0, 0, 5, cached=3), Hardware(0, {Wait.FLAG: 0}, cache=20, here=4, holds=800)
    assert hardware.seconds(some, 100) == pytest.approx(100 * 5 / 20)
    assert hardware.seconds(some, 101) == pytest.approx(101 * (5 + 2) / 20), "2 bytes of 4 ranks for each of 101"


def test_ranks_that_share_a_gpu_wait_again_in_every_lap_of_their_fifos() -> None:
    some = Cost(Wait.FLAG, steps=3, link=1, memory=0, rooms=2, lap=100)
    shared = Hardware(0, {Wait.FLAG: 10}, here=4, room=1)
    assert [shared.seconds(some, nbytes) for nbytes in (50, 100, 200)] == [32, 32, 64]
    assert replace(shared, link=1).seconds(some, 200) == 32 + 200


def test_the_page_has_the_bound_of_every_rung_on_the_gpu_that_was_measured() -> None:
    page, nbytes = (ROOT / "docs" / "kernels.md").read_text(), 2**27
    found = re.findall(r"^\| `([\w-]+)` \| ([\d.]+) S[^|]* \| ([\d.]+)[^|]* \| ([\d.]+) us \|", page, re.MULTILINE)
    rows = {name: tuple(map(float, figures)) for name, *figures in found}
    known = [way for way in RUNGS if not way.multicast and way.name != "one-shot-ll"]
    assert set(rows) == {way.name for way in known}
    for way in known:
        cost = cost_of(way.name, case(ranks=4, nbytes=nbytes))
        bound = gpus(4, 1).floor(cost, nbytes) * 1e6
        assert rows[way.name] == pytest.approx((cost.memory, cost.cached, bound), abs=0.6), way.name


def fakes(monkeypatch: pytest.MonkeyPatch, unable: tuple[str, ...]) -> None:
    """Rungs that say what was prepared, but for those that the hardware is unable to run."""

    def prepare(name: str) -> Any:
        def prepared(case: Any, platform: Any) -> Prepared:
            if name in unable:
                raise Unsupported(f"no {name} here")
            return Prepared(lambda launches: None, note=Note.of("own note" if name == "two-shot" else ""))

        return prepared

    made = {rung.name: replace(rung, prepare=prepare(rung.name)) for rung in RUNGS}
    monkeypatch.setattr(auto, "implementations", lambda: made)


def test_the_row_says_what_was_picked_and_the_next_best_steps_in(monkeypatch: pytest.MonkeyPatch) -> None:
    where = place(CPU, "cpu")
    large = case(nbytes=2**20)
    fakes(monkeypatch, ())
    assert auto.IMPLEMENTATION.prepare(large, where).note == Note(picked="two-shot", remarks=("own note",))
    fakes(monkeypatch, ("two-shot", "one-shot"))
    second = next(name for name in auto.expected(large, where) if name not in ("two-shot", "one-shot"))
    assert auto.IMPLEMENTATION.prepare(large, where).note == Note(picked=second)
    fakes(monkeypatch, tuple(rung.name for rung in RUNGS))
    with pytest.raises(Unsupported, match="two-shot: no two-shot here"):
        auto.IMPLEMENTATION.prepare(large, where)


def test_it_takes_every_collective_of_a_rung_and_windows_with_room_for_all() -> None:
    assert set(auto.IMPLEMENTATION.collectives) == {name for one in RUNGS for name in one.collectives}
    alone, rungs = needs(["auto"], 4, "gpu"), needs([rung.name for rung in RUNGS], 4, "gpu")
    assert {name: alone.fifos[name] for name in rungs.fifos} == rungs.fifos
    assert needs(["auto", "ring-ll"], 4, "gpu") == alone


def test_no_cost_is_below_what_the_collective_needs() -> None:
    for rung, ranks in product(RUNGS, (1, 2, 3, 8)):
        for name in rung.collectives:
            some = case(name, ranks=ranks, redop=case(name).redop if COLLECTIVES[name].reduces else NONE)
            cost, label = cost_of(rung.name, some), (rung.name, name, ranks)
            least = 1 if rung.multicast else some.collective.bus_factor(ranks)
            assert cost.link >= least - 1e-9 if ranks > 1 else cost.link == 0, label
            assert cost.memory >= 2, label
            assert cost.steps >= ranks - 1 if "ring" in rung.name else 1 <= cost.steps <= 2, label
