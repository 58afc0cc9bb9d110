"""Curves: straight between points, the model's own where groups are whole nodes, and nobody's bandwidth twice."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collbench.collectives import find_collective
from collbench.commands.train.curves import HIGH, LOW, SIZES, TYPICAL, Curve, GpuGroup, ModelCurves, group_of, part_of
from collbench.commands.train.library import RunCurves
from collbench.datatypes import NONE, find_datatype, find_reduction
from collbench.errors import UsageError
from collbench.model.predict import network_curve
from collbench.results import Measurement
from collbench.runfile.schema import Header
from collbench.runfile.store import Writer, read
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
    """On nodes of eight: inside one, across, or apart; members counted one by one for powers of two."""
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
    """What `collbench predict` says of all ranks of a system."""
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


def test_a_run_has_its_points_and_others_follow_from_them_with_a_wider_band(tmp_path: Path) -> None:
    """Of an all-reduce of 8 ranks: a reduce-scatter takes half of it, and 16 ranks wait twice as often."""
    sizes = np.array([2.0**power for power in range(10, 31, 2)])
    seconds = 1e-5 + sizes / 1e11
    with Writer(tmp_path / "run") as writer:
        writer.header(Header())
        for size, took in zip(sizes, seconds.tolist(), strict=True):
            writer.append(
                Measurement(case(nbytes=int(size), ranks=8), "nccl", "gpu", 1, (took * 0.99, took, took * 1.01))
            )
    curves = RunCurves(read(tmp_path / "run"), load("dgx-h100"))
    whole = curves.curve("allreduce", GpuGroup(8, 8))
    assert whole.time(sizes) == pytest.approx(seconds)
    assert (whole.time(sizes, LOW) < seconds).all()
    assert (whole.time(sizes, HIGH) > seconds).all()
    half = curves.curve("reducescatter", GpuGroup(8, 8))
    assert half.time(sizes) == pytest.approx(seconds / 2)
    assert half.time(sizes, HIGH) == pytest.approx(1.25 * whole.time(sizes, HIGH) / 2)
    more = curves.curve("allreduce", GpuGroup(16, 8))
    assert more.time(sizes[:1]) > whole.time(sizes[:1])
    assert (np.diff(more.time(np.geomspace(1, 1e12, 500))) >= 0).all()
    with pytest.raises(UsageError, match="from which no broadcast follows"):
        curves.curve("broadcast", GpuGroup(8, 8))
