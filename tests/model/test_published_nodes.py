"""Four nodes and more, racks, and kernels that a host launches: published figures lie in the bands of the presets."""

from dataclasses import replace

import numpy as np
import pytest

from collbench.cases import Case
from collbench.model.constants import CONSTANTS
from collbench.model.nccl_terms import choose
from collbench.model.predict import network_curve
from collbench.topology.files import load
from collbench.topology.system import System
from tests.conftest import case
from tests.model.single import predict
from tools.model.accuracy import logs_of
from tools.model.systems import published

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def on(name: str, nodes: int, gpus: int | None = None, **changes: object) -> System:
    """So many nodes of a preset, with so many GPUs each; `sharp`: of its cards."""
    whole = load(name)
    system = whole.part(gpus or whole.gpus).of(nodes) if nodes > 1 else whole.part(gpus or whole.gpus)
    if changes.pop("sharp", False):
        assert system.nics
        system = replace(system, nics=replace(system.nics, sharp=True))
    return replace(system, **changes)  # type: ignore[arg-type]


BUS = (  # busbw in GB/s that somebody published, and of what
    (366, on("dgx-h100", 4), "allreduce", 16 * GIB),
    (391, on("dgx-h100", 4), "allreduce", 16 * GIB),
    (385, on("oci-h100", 4), "allreduce", GIB),
    (391, on("oci-h100", 4), "allreduce", 16 * GIB),
    (367, on("oci-h100", 128, algorithm="ring"), "allreduce", 16 * GIB),
    (738, on("gb300-nvl72", 2, 64), "allreduce", 16 * GIB),
    (933, on("gb200-nvl72", 1, 64), "allreduce", 32 * GIB),
    (930, on("gb300-nvl72", 1, 64), "allreduce", 16 * GIB),
    (897, on("gb300-nvl72", 1, 64), "allreduce", 8 * GIB),
    (74, on("aws-p6-b300", 8), "alltoall", 64 * MIB),
    (74, on("aws-p6-b300", 16), "alltoall", 64 * MIB),
    (55, on("aws-p6-b300", 32), "alltoall", 64 * MIB),
    (760, on("dgx-b300", 4, algorithm="ring"), "allreduce", 16 * GIB),
    (200, on("dgx-b300", 4, algorithm="nvlstree", nccl="2.30.2"), "allreduce", 16 * GIB),
    (200, on("dgx-b300", 16, algorithm="nvlstree", nccl="2.29.7"), "allreduce", 16 * GIB),
    (606, on("dgx-b200", 4, sharp=True), "allreduce", 32 * GIB),
    (546, on("dgx-b200", 64, sharp=True), "allreduce", 32 * GIB),
)
TIMES = (  # seconds
    (506e-6, on("gb200-nvl72", 1, 16), "nccl", 112 * MIB),
    (33.8e-6, load("dgx-h100"), "two-shot", MIB),
)


def of(system: System, collective: str, nbytes: int) -> Case:
    return case(collective, nbytes, ranks=system.ranks)


def test_what_is_published_of_many_nodes_lies_in_the_band_of_its_prediction() -> None:
    for busbw, system, collective, nbytes in BUS:
        one = of(system, collective, nbytes)
        found, seconds = predict(system, one), nbytes * one.collective.bus_factor(system.ranks) / (busbw * 1e9)
        assert found.low <= seconds <= found.high, (system.title, busbw, found.busbw / 1e9)
    for seconds, system, implementation, nbytes in TIMES:
        found = predict(system, of(system, "allreduce", nbytes), implementation)
        assert found.low <= seconds <= found.high, (system.title, seconds, found)


def test_published_curves_of_four_nodes_and_more_are_within_a_tenth_above_64_mib() -> None:
    errors: dict[str, list[float]] = {}
    for sweep in published():
        large = np.array([nbytes > 64 * MIB for nbytes, _ in sweep.rows])
        known = sweep.system.nics and sweep.system.nics.transport in ("ib", "roce", "efa")
        if sweep.quality == "healthy" and known and sweep.system.nodes > 3 and large.any():
            errors.setdefault(sweep.machine, []).append(float(np.median(np.abs(logs_of(sweep, CONSTANTS)[large]))))
    assert len(errors) > 8
    assert np.median([np.median(each) for each in errors.values()]) < 0.1
    assert np.median(errors["together-b200"]) < 0.06


def test_switches_that_add_are_used_by_large_all_reduces_if_the_cards_say_so_and_by_nothing_else() -> None:
    plain, sharp = on("dgx-b200", 8), on("dgx-b200", 8, sharp=True)
    assert "collnet" not in choose(plain, "allreduce").algorithms
    assert "collnet" in choose(sharp, "allreduce").algorithms
    assert "collnet" not in choose(sharp, "allgather").algorithms
    assert "collnet" not in choose(on("dgx-b200", 1, sharp=True), "allreduce").algorithms
    large, small = of(plain, "allreduce", GIB), of(plain, "allreduce", 8)
    assert predict(sharp, large).seconds < 0.8 * predict(plain, large).seconds
    assert predict(sharp, small).seconds == predict(plain, small).seconds


def test_a_fault_of_a_release_is_that_of_fast_cards_on_more_than_two_nodes() -> None:
    def rate(nodes: int, release: str, name: str = "dgx-b300") -> float:
        system = on(name, nodes, algorithm="nvlstree", nccl=release)
        return predict(system, of(system, "allreduce", 16 * GIB)).busbw

    assert rate(4, "2.30.2") < 0.4 * rate(4, "2.30.3")
    assert rate(4, "2.30") == pytest.approx(rate(4, "2.30.4"))
    assert rate(2, "2.30.2") == pytest.approx(rate(2, "2.30.3"))
    assert rate(4, "2.30.2", "dgx-b200") == pytest.approx(rate(4, "2.30.3", "dgx-b200"))


def test_two_racks_are_joined_by_twice_as_many_gpus_cards_as_more_racks() -> None:
    two, twenty = (on("gb200-nvl72", racks, algorithm="ring") for racks in (2, 20))
    rates = [predict(system, of(system, "allreduce", 64 * GIB)).busbw for system in (two, twenty)]
    assert rates[0] > 1.5 * rates[1]


def test_a_rack_whose_nvlinks_end_at_the_host_is_as_many_nodes_of_four_gpus() -> None:
    for name, ranks, busbw in (("gb200-nvl72", 16, 191e9), ("gb300-nvl72", 32, 376e9)):
        rack = load(name).part(ranks)
        (found,) = network_curve(rack, [of(rack, "allreduce", 16 * GIB)], what_ifs=("mnnvl=0",))
        assert found.busbw == pytest.approx(busbw, rel=0.1), name
        assert predict(rack, of(rack, "allreduce", 16 * GIB)).busbw > 2 * found.busbw, name


def test_amd_s_gpus_are_predicted_by_tables_of_their_own_and_run_none_of_the_kernels() -> None:
    for name, busbw in (("mi300x", 316e9), ("mi355x", 397e9)):
        system = load(name)
        assert predict(system, of(system, "allreduce", 8 * GIB)).busbw == pytest.approx(busbw, rel=0.05), name
        two = system.of(2)
        assert predict(two, of(two, "allreduce", 16 * GIB)).busbw == pytest.approx(365e9, rel=0.1), name
    assert len({name for name in CONSTANTS if name.endswith("_xgmi")}) > 20
