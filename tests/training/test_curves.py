"""Curves: straight between points, the model's own where groups are whole nodes, and nobody's bandwidth twice."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.collectives import find_collective
from collbench.datatypes import NONE, find_datatype, find_reduction
from collbench.errors import UsageError
from collbench.model.network.on_network import network_curve
from collbench.topology.files import load
from collbench.topology.system import System, Tier
from collbench.training.curves import HIGH, LOW, SIZES, TYPICAL, Group, Modelled, Tabled, group_of, part_of
from tests.conftest import case
from tests.training.books import SYSTEM

TABLE = Tabled(
    "made up",
    np.array([1e3, 1e6, 1e9]),
    {TYPICAL: np.array([1e-5, 4e-5, 1e-2]), LOW: np.array([1e-5] * 3), HIGH: np.array([2e-5, 8e-5, 2e-2])},
)
USED = ("allreduce", "allgather", "reducescatter", "alltoall", "sendrecv")  # by terms of traffic.py


def test_points_are_met_and_between_them_lines_are_straight_in_logarithms() -> None:
    """Midway between two sizes, by their ratio, lies midway between two times, by theirs."""
    assert TABLE.time(TABLE.sizes) == pytest.approx(TABLE.points[TYPICAL])
    assert TABLE.time(TABLE.sizes, HIGH) == pytest.approx(TABLE.points[HIGH])
    between = TABLE.time(np.sqrt(TABLE.sizes[1:] * TABLE.sizes[:-1]))
    assert between == pytest.approx([2e-5, np.sqrt(4e-5 * 1e-2)])
    assert TABLE.time(np.array([1e3 * 10**0.75]))[0] == pytest.approx(1e-5 * 4**0.25)


def test_beyond_the_points_latency_and_bandwidth_stay() -> None:
    """And nothing takes no time."""
    assert list(TABLE.time(np.array([0.0, 1.0, 999.0]))) == pytest.approx([0.0, 1e-5, 1e-5])
    assert list(TABLE.time(np.array([2e9, 1e12]))) == pytest.approx([2e-2, 10.0])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.floats(0, 1e12), st.floats(1, 1e3))
def test_more_bytes_never_take_less(nbytes: float, factor: float) -> None:
    once, more = TABLE.time(np.array([nbytes, nbytes * factor]))
    assert 0 <= once <= more * (1 + 1e-12)


@pytest.mark.parametrize(
    ("ranks", "stride", "expected"),
    [
        (8, 1, Group(8, 8)),  # a node
        (4, 1, Group(4, 4)),
        (4, 2, Group(4, 4)),
        (16, 1, Group(16, 8)),  # whole nodes
        (12, 1, Group(12, 4)),
        (16, 2, Group(16, 4)),  # four of each node
        (16, 8, Group(16, 1)),  # one of each
        (16, 16, Group(16, 1, 2)),  # of every second one
        (2, 64, Group(2, 1, 8)),
        (2, 4, Group(2, 2)),
        (1, 8, Group(1)),
        (5, 1, Group(5, 1)),  # nothing that fills nodes evenly
        (4, 3, Group(4, 1)),  # strides that do not divide nodes
    ],
)
def test_groups_are_found_by_their_stride(ranks: int, stride: int, expected: Group) -> None:
    """On nodes of eight: inside one, across, or apart."""
    group = group_of(ranks, stride, 8)
    assert group == expected
    assert group.nodes * group.inside == ranks


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 8), st.integers(0, 8), st.sampled_from((1, 2, 4, 8, 16)))
def test_groups_are_those_that_counting_finds(ranks: int, stride: int, gpus: int) -> None:
    """Members by their node, one by one."""
    members = [place * 2**stride // gpus for place in range(2**ranks)]
    inside = members.count(0)
    others = sorted(set(members))
    assert group_of(2**ranks, 2**stride, gpus) == Group(2**ranks, inside, others[1] - others[0] if others[1:] else 1)


PARTS = [
    (name, inside)
    for name in ("dgx-h100", "dgx-a100", "aws-p5", "gcp-a3-mega", "hgx-a100-4", "dgx-1v")
    for inside in (1, 2, 4, 8)
    if inside <= load(name).gpus
]


@pytest.mark.parametrize(("name", "inside"), PARTS)
def test_all_groups_of_a_node_together_have_its_network_cards(name: str, inside: int) -> None:
    """No more and no less bandwidth, whether cards are whole or shared."""
    system = load(name)
    part = part_of(system, Group(inside * 4, inside))
    assert part.nics
    assert system.nics
    groups = system.gpus / inside
    assert groups * part.nics.per_node * part.nics.rate == pytest.approx(system.nics.per_node * system.nics.rate)
    assert (part.gpus, part.nodes) == (inside, 4)
    assert part.nics.transport == system.nics.transport


def test_a_group_inside_a_node_has_no_part_in_the_network() -> None:
    """It is the first GPUs of the node, or all of them."""
    assert part_of(SYSTEM, Group(4, 4)) == SYSTEM.part(4)
    assert part_of(SYSTEM.of(4), Group(8, 8)) == SYSTEM
    with pytest.raises(UsageError, match="no network cards"):
        part_of(replace(SYSTEM, nics=None), Group(16, 8))


def test_members_that_are_apart_meet_at_fewer_of_their_kind_under_a_switch() -> None:
    """Of 32 nodes under a leaf every eighth is a member; switches without a bound stay so."""
    system = replace(SYSTEM, tiers=(Tier("leaf", 32), Tier("pod", 4), Tier("spine", 0)))
    assert [tier.radix for tier in part_of(system, Group(16, 1, 8)).tiers] == [4, 1, 0]
    assert part_of(system, Group(16, 1)).tiers == system.tiers


def predicted(system: System, collective: str, edge: str) -> list[float]:
    """What `collbench predict` says of all ranks of a system."""
    meaning = find_collective(collective)
    redop = find_reduction("sum") if meaning.reduces else NONE
    some = case(collective, 0, dtype=find_datatype("half"), redop=redop, ranks=system.ranks)
    rows = network_curve(system, [replace(some, nbytes=int(size)) for size in SIZES[::6]])
    return [float(getattr(row, edge)) for row in rows]


@pytest.mark.parametrize("collective", USED)
@pytest.mark.parametrize("nodes", [1, 4])
def test_whole_nodes_take_what_the_model_predicts(collective: str, nodes: int) -> None:
    """Typically, and at the edges of its band."""
    curve = Modelled(SYSTEM).curve(collective, group_of(8 * nodes, 1, 8))
    for edge in (TYPICAL, LOW, HIGH):
        assert curve.time(SIZES[::6], edge) == pytest.approx(predicted(SYSTEM.of(nodes), collective, edge), rel=1e-9)
    assert curve.origin == "model of DGX H100"


@pytest.mark.parametrize("collective", USED)
def test_bands_contain_what_is_typical(collective: str) -> None:
    """And groups that share network cards are no faster than those that have them alone."""
    curves = Modelled(SYSTEM)
    for group in (Group(4, 4), Group(16, 8), Group(16, 1, 2)):
        low, typical, high = (curves.curve(collective, group).time(SIZES, edge) for edge in (LOW, TYPICAL, HIGH))
        assert (low <= typical).all()
        assert (typical <= high).all()
        assert (np.diff(typical) >= 0).all()
    assert SYSTEM.nics
    poor = Modelled(replace(SYSTEM, nics=replace(SYSTEM.nics, rate=SYSTEM.nics.rate / 2)))
    slow, fast = (some.curve(collective, Group(16, 1)).time(SIZES[-8:]) for some in (poor, curves))
    assert (fast < slow).all()
