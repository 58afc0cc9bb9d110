"""Hand-written rungs on described systems: links, choices, and what is published of kernels like them."""

import re
import statistics
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product

import pytest

from collbench.algorithms import implementations
from collbench.errors import Unsupported
from collbench.model.handwritten import hardware, host, is_published, modelled
from collbench.model.predict import HANDWRITTEN, curve
from collbench.topology.files import load, names
from tests.conftest import ROOT
from tests.model.published_kernels import SWEEPS, Sweep
from tests.model.single import predict
from tests.model.test_predict import case
from tools.model import engines

SIZES = [1 << power for power in range(4, 33, 2)]
H100, A100 = load("dgx-h100"), load("dgx-a100")


def test_every_rung_is_predicted_and_no_faster_than_its_link() -> None:
    for rung, way in modelled().items():
        sizes = [nbytes for nbytes in SIZES if rung != "one-shot-ll" or nbytes <= 1 << 18]
        rows = curve(H100, [case(8, nbytes) for nbytes in sizes], rung)
        assert rows == sorted(rows, key=lambda row: row.seconds), rung
        for row in rows:
            sent = row.case.nbytes * (way.wire.nbytes / 4 if way.wire else 1)
            assert row.seconds > sent * (1 + 1 / 8) / 370.8e9, row
            assert row.low < row.seconds < row.high, row


def test_auto_is_the_best_rung_and_says_which() -> None:
    picked = set()
    for best in curve(H100, [case(8, nbytes) for nbytes in SIZES], "auto"):
        times = {}
        for rung in (name for name, way in modelled().items() if not way.wire):
            with suppress(Unsupported):
                times[rung] = predict(H100, best.case, rung).seconds
        fastest = min(times, key=lambda rung: times[rung])
        assert (best.seconds, best.note.picked) == (times[fastest], fastest)
        picked.add(fastest)
    assert {"one-shot-ll", "nvls"} <= picked


def test_a_rung_uses_the_links_it_can_reach_and_refuses_what_it_cannot_do_there() -> None:
    with pytest.raises(Unsupported, match=r"reaches the GPUs of one node"):
        predict(H100.of(2), case(16, 64), "two-shot")
    with pytest.raises(Unsupported, match="do not allow"):
        predict(load("pcie4-4090"), case(load("pcie4-4090").ranks, 64), "one-shot")
    with pytest.raises(Unsupported, match="switches that add"):
        predict(A100, case(8, 64), "nvls")
    assert predict(A100, case(8, 64), "auto").note.picked != "nvls"
    large, switch, mesh = case(4, 1 << 30), A100.part(4), replace(A100.part(4), fabric="mesh")
    both = predict(switch, large, "two-shot").seconds
    assert predict(mesh, large, "ring-pipelined").seconds > 2 * predict(switch, large, "ring-pipelined").seconds
    assert predict(mesh, large, "two-shot").seconds == both
    assert predict(load("pcie4-4090-p2p").part(4), large, "two-shot").seconds > 5 * both


def ratios(rung: str, published: Sweep) -> Iterator[float]:
    links = hardware(H100.part(published.ranks))
    for nbytes, seconds in published.seconds.items():
        cost = implementations()[rung].cost(case(published.ranks, nbytes))  # type: ignore[misc]
        copies = published.copies * (links.launch + 2 * nbytes / links.memory)
        yield seconds / (links.seconds(cost, nbytes) + copies)


def test_what_is_published_lies_in_the_band_of_its_prediction_and_mostly_near_it() -> None:
    page = (ROOT / "docs" / "model.md").read_text()
    for rung, sweeps in SWEEPS.items():
        every = []
        for published in sweeps:
            found = list(ratios(rung, published))
            every += found
            assert all(HANDWRITTEN[0] < ratio < HANDWRITTEN[1] for ratio in found), (published.source, found)
            assert 0.8 < statistics.median(found) < 1.25, (published.source, found)
        (told,) = re.findall(rf"^\| `{rung}` \|.*\| ([^|]+) \|$", page, re.MULTILINE)
        assert told == " to ".join(dict.fromkeys(f"{end(every):.2f}" for end in (min, max))), rung


def test_a_rung_is_a_bound_exactly_where_nothing_is_published_of_such_gpus_joined_alike() -> None:
    known = {("sm90", "nvswitch", rung): 8 for rung in SWEEPS}
    for row in engines.published():
        label = row.system.arch, row.system.fabric, row.kernel.implementation
        known[label] = max(row.ranks, known.get(label, 0))
    seen = set()
    for name in names():
        whole = load(name).of(1)
        for ranks, rung in product(sorted({min(count, whole.ranks) for count in (2, 4, 8, whole.ranks)}), modelled()):
            system = whole.part(ranks)
            with suppress(Unsupported):  # it cannot run there
                found = predict(system, case(ranks, 1024), rung).note.bound
                assert found is not is_published(system, rung), (name, rung)
                assert found is (ranks > known.get((system.arch, system.fabric, rung), 0)), (name, ranks, rung)
                seen.add((system.fabric, found))
    assert {("nvswitch", False), ("nvswitch", True), ("pcie", False), ("pcie", True), ("mesh", True)} <= seen
    assert not predict(H100, case(8, 1024), "auto").note.bound
    assert not predict(A100, case(8, 1024), "auto").note.bound
    assert predict(load("pcie4-4090-p2p"), case(8, 1024), "auto").note.bound


def test_a_host_hides_short_operations_but_for_those_in_a_graph() -> None:
    sizes = [1 << power for power in range(4, 29)]
    times, picked = {}, {}
    for launch in ("graph", "process-per-gpu", "single-process", "torch"):
        found = curve(replace(A100, launch=launch), [case(8, nbytes) for nbytes in sizes], "auto")
        times[launch], picked[launch] = [row.seconds for row in found], [row.note.picked for row in found]
        floor = host(replace(A100, launch=launch))
        for seconds, kernel, row in zip(times[launch], times["graph"], found, strict=True):
            assert max(floor, kernel) <= seconds <= floor + kernel, (launch, row)
            assert row.low < kernel, (launch, row)
        assert picked[launch] == picked["graph"], launch
    assert times["graph"][0] < times["process-per-gpu"][0] == times["torch"][0]
    assert times["torch"][-1] == pytest.approx(times["graph"][-1], rel=0.01)
    hosts = [host(replace(load(name), launch="torch")) for name in ("dgx-h100", "dgx-a100", "gb200-nvl72")]
    assert hosts == sorted(set(hosts))
