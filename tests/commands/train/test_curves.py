"""Curves: straight between points, the model's own where groups are whole nodes, and nobody's bandwidth twice."""

from dataclasses import replace

import numpy as np
import pytest

from collbench.collectives import find_collective
from collbench.commands.train.curves import HIGH, LOW, SIZES, TYPICAL, Curve, GpuGroup, ModelCurves, group_of, part_of
from collbench.datatypes import NONE, find_datatype, find_reduction
from collbench.errors import UsageError
from collbench.model.predict import network_curve
from collbench.topology.files import load
from collbench.topology.system import System, Tier
from tests.commands.train.layouts_on_lines import SYSTEM
from tests.conftest import case

TABLE = Curve(
    np.array([1e3, 1e6, 1e9]),
    {TYPICAL: np.array([1e-5, 4e-5, 1e-2]), LOW: np.array([1e-5] * 3), HIGH: np.array([2e-5, 8e-5, 2e-2])},
)
USED = ("allreduce", "allgather", "reducescatter", "alltoall", "sendrecv")  # by terms of traffic.py


def test_points_are_met_and_between_them_lines_are_straight_in_logarithms() -> None:
    assert TABLE.time(TABLE.sizes) == pytest.approx(TABLE.points[TYPICAL])
    assert TABLE.time(TABLE.sizes, HIGH) == pytest.approx(TABLE.points[HIGH])
    between = TABLE.time(np.sqrt(TABLE.sizes[1:] * TABLE.sizes[:-1]))
    assert between == pytest.approx([2e-5, np.sqrt(4e-5 * 1e-2)])
    assert TABLE.time(np.array([1e3 * 10**0.75]))[0] == pytest.approx(1e-5 * 4**0.25)
    assert list(TABLE.time(np.array([0.0, 1.0, 999.0]))) == pytest.approx([0.0, 1e-5, 1e-5])
    assert list(TABLE.time(np.array([2e9, 1e12]))) == pytest.approx([2e-2, 10.0])
    many = TABLE.time(np.geomspace(1, 1e12, 500))
    assert (np.diff(many) >= 0).all()


def test_groups_are_found_by_their_stride() -> None:
    for ranks, stride, inside in ((12, 1, 4), (5, 1, 1), (4, 3, 1)):  # what does not divide nodes
        assert group_of(ranks, stride, 8) == GpuGroup(ranks, inside), (ranks, stride)
    for ranks, stride, gpus in ((2**a, 2**b, 2**c) for a in range(8) for b in range(8) for c in range(5)):
        members = [place * stride // gpus for place in range(ranks)]
        others = sorted(set(members))
        counted = GpuGroup(ranks, members.count(0), others[1] - others[0] if others[1:] else 1)
        group = group_of(ranks, stride, gpus)
        assert group == counted, (ranks, stride, gpus)
        assert group.nodes * group.inside == ranks


def test_all_groups_of_a_node_together_have_its_network_cards() -> None:
    for name in ("dgx-h100", "dgx-a100", "aws-p5", "gcp-a3-mega", "hgx-a100-4", "dgx-1v"):
        system = load(name)
        assert system.nics
        for inside in (size for size in (1, 2, 4, 8) if size <= system.gpus):
            part = part_of(system, GpuGroup(inside * 4, inside))
            assert part.nics
            groups, whole = system.gpus / inside, system.nics
            assert groups * part.nics.per_node * part.nics.rate == pytest.approx(whole.per_node * whole.rate), name
            assert (part.gpus, part.nodes, part.nics.transport) == (inside, 4, whole.transport), name


def test_parts_are_the_first_gpus_of_a_node_or_nodes_under_fewer_switches() -> None:
    assert part_of(SYSTEM, GpuGroup(4, 4)) == SYSTEM.part(4)
    assert part_of(SYSTEM.of(4), GpuGroup(8, 8)) == SYSTEM
    with pytest.raises(UsageError, match="no network cards"):
        part_of(replace(SYSTEM, nics=None), GpuGroup(16, 8))
    system = replace(SYSTEM, tiers=(Tier("leaf", 32), Tier("pod", 4), Tier("spine", 0)))
    assert [tier.radix for tier in part_of(system, GpuGroup(16, 1, 8)).tiers] == [4, 1, 0]
    assert part_of(system, GpuGroup(16, 1)).tiers == system.tiers


def predicted(system: System, collective: str, edge: str) -> list[float]:
    meaning = find_collective(collective)
    redop = find_reduction("sum") if meaning.reduces else NONE
    some = case(collective, 0, dtype=find_datatype("half"), redop=redop, ranks=system.ranks)
    rows = network_curve(system, [replace(some, nbytes=int(size)) for size in SIZES[::6]])
    return [float(getattr(row, edge)) for row in rows]


def test_whole_nodes_take_what_the_model_predicts_and_bands_contain_it() -> None:
    assert SYSTEM.nics
    curves = ModelCurves(SYSTEM)
    poor = ModelCurves(replace(SYSTEM, nics=replace(SYSTEM.nics, rate=SYSTEM.nics.rate / 2)))
    for collective in USED:
        for nodes in (1, 4):
            curve = curves.curve(collective, group_of(8 * nodes, 1, 8))
            for edge in (TYPICAL, LOW, HIGH):
                model = predicted(SYSTEM.of(nodes), collective, edge)
                assert curve.time(SIZES[::6], edge) == pytest.approx(model, rel=1e-9), collective
        assert curves.origin == "model of DGX H100"
        for group in (GpuGroup(4, 4), GpuGroup(16, 8), GpuGroup(16, 1, 2)):
            low, typical, high = (curves.curve(collective, group).time(SIZES, edge) for edge in (LOW, TYPICAL, HIGH))
            assert (low <= typical).all(), collective
            assert (typical <= high).all(), collective
            assert (np.diff(typical) >= 0).all(), collective
        slow, fast = (some.curve(collective, GpuGroup(16, 1)).time(SIZES[-8:]) for some in (poor, curves))
        assert (fast < slow).all(), collective
