"""Parts of systems: some GPUs of a node, or whole nodes."""

from dataclasses import replace
from itertools import chain, combinations, combinations_with_replacement, permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collbench.errors import UsageError
from collbench.topology import files
from collbench.topology.architectures import pcie_rate, pcie_spec, socket_rate
from collbench.topology.system import CUBE, CUBE_RINGS, System

SYSTEMS = {name: files.load(name) for name in files.names()}
ANY = st.sampled_from(sorted(SYSTEMS)).map(SYSTEMS.__getitem__)


def links(system: System, gpu: int) -> int:
    return sum(system.nvlinks_between(gpu, other) for other in range(system.gpus))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(ANY, st.integers(1, 5), st.data())
def test_a_part_has_so_many_ranks_and_nothing_gained(system, nodes, data):
    whole = system.of(nodes)
    ranks = data.draw(
        st.integers(1, whole.gpus) | st.sampled_from([whole.gpus * count for count in range(1, nodes + 1)])
    )
    part = whole.part(ranks)
    assert part.ranks == ranks
    assert part.nodes == max(1, ranks // whole.gpus)
    assert 0 < part.gpu_rate <= whole.gpu_rate
    assert part.spec_rate <= whole.spec_rate
    assert (part.name, part.arch, part.tiers) == (whole.name, whole.arch, whole.tiers)
    assert part.nics.per_node / part.gpus >= whole.nics.per_node / whole.gpus > (part.nics.per_node - 1) / part.gpus
    assert sorted(gpu for group in part.switches for gpu in group) == (list(range(part.gpus)) if part.switches else [])
    assert [part.socket(gpu) for gpu in range(part.gpus)] == [whole.socket(gpu) for gpu in range(part.gpus)]
    assert part.sockets == part.socket(part.gpus - 1) + 1


@settings(max_examples=40, deadline=None, derandomize=True)
@given(ANY, st.data())
def test_a_part_of_a_part_is_that_part(system, data):
    """However it was cut; but a cube that fell back to PCIe does not come back from there."""
    more = data.draw(st.integers(1, system.gpus))
    fewer = data.draw(st.integers(1, more))
    between = system.part(more)
    if between.fabric == system.fabric:
        again, once = between.part(fewer), system.part(fewer)
        assert again.nics.per_node - once.nics.per_node in (0, 1)  # shares of shares are rounded up twice
        assert replace(again, nics=once.nics) == replace(once, gpu_rate=again.gpu_rate, spec_rate=again.spec_rate)
        assert again.gpu_rate == pytest.approx(once.gpu_rate)
        assert again.spec_rate == pytest.approx(once.spec_rate)
    assert system.part(system.gpus) == system.of(1)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(ANY, st.integers(1, 4), st.integers(-2, 400))
def test_a_part_that_cannot_be_is_an_error(system, nodes, ranks):
    whole = system.of(nodes)
    if ranks < 1 or ranks > whole.ranks or (ranks > whole.gpus and ranks % whole.gpus):
        with pytest.raises(UsageError, match=f"has no part of {ranks} ranks"):
            whole.part(ranks)
    else:
        assert whole.part(ranks).ranks == ranks


def test_parts_of_each_fabric_keep_the_links_that_stay_inside():
    rack = SYSTEMS["gb200-nvl72"]
    assert rack.of(3).part(8) == replace(rack, gpus=8, nics=replace(rack.nics, per_node=8))
    assert rack.of(3).part(144) == rack.of(2)
    pair = SYSTEMS["h100-nvl"].part(2)
    assert (pair.nvlinks_between(0, 1), pair.gpu_rate, pair.sockets) == (12, SYSTEMS["h100-nvl"].gpu_rate, 1)
    quad = SYSTEMS["dgx-1v"].part(4)
    assert all(quad.nvlinks_between(a, b) for a, b in combinations(range(4), 2))
    assert quad.nvlinks == 4 == min(links(quad, gpu) for gpu in range(4))
    assert quad.gpu_rate == pytest.approx(80e9)
    assert quad.switches == ((0, 1), (2, 3))
    third = SYSTEMS["gh200-quad"].part(2)
    assert third.nvlinks == third.nvlinks_between(0, 1) == 6
    assert (third.gpu_rate, third.spec_rate) == pytest.approx((6 * 20.6e9, 150e9))


def test_where_no_ring_of_nvlinks_goes_through_all_pcie_is_left():
    for name in ("gh200-quad", "dgx-1v", "h100-nvl"):
        alone = SYSTEMS[name].part(1)
        assert (alone.fabric, alone.nvlinks, alone.gpu_rate) == ("pcie", 0, SYSTEMS[name].pcie_rate), name
    five = SYSTEMS["dgx-1v"].part(5)  # GPU 4 hangs on GPU 0 alone
    assert (five.fabric, five.nvlinks, five.gpu_rate) == ("pcie", 0, 12e9)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(ANY, st.data())
def test_a_part_can_be_written_as_a_file(system, data):
    part = system.part(data.draw(st.integers(1, system.gpus)))
    node = {"gpus": part.gpus, "fabric": part.fabric, "gpu_bw": part.gpu_rate / 1e9, "pcie_gen": part.pcie_generation}
    node |= {"nvlinks": part.nvlinks} if part.nvlinks else {}
    node |= {"sockets": part.sockets, "switches": [list(group) for group in part.switches]}
    nic = vars(part.nics) | {"rate": part.nics.rate / 1e9}
    fields = {"name": part.name, "gpu": {"arch": part.arch}, "node": node, "nic": nic}
    again = files.parse(fields, Path("part.toml"))
    for fact in ("gpus", "fabric", "nvlinks", "sockets", "switches", "multicast", "nics"):
        assert getattr(again, fact) == getattr(part, fact), fact
    assert again.gpu_rate == pytest.approx(part.gpu_rate)
    assert again.spec_rate == pytest.approx(part.spec_rate)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(ANY)
def test_links_lead_both_ways_and_add_up(system):
    for a, b in combinations(range(min(system.gpus, 16)), 2):
        assert system.nvlinks_between(a, b) == system.nvlinks_between(b, a)
    if system.fabric in ("mesh", "hybrid-cube", "nvlink-pairs"):
        assert {links(system, gpu) for gpu in range(system.gpus)} == {system.nvlinks}


def test_the_rings_of_the_cube_are_as_many_as_fit():
    """Counted: cycles through all its first GPUs that share no link, each run both ways round."""
    for size, rings in CUBE_RINGS.items():
        spare = {(a, b): CUBE[a].get(b, 0) for a, b in combinations(range(size), 2)}
        if size <= 2:
            assert rings == sum(spare.values())
            continue
        orders = [(0, *rest) for rest in permutations(range(1, size)) if rest[0] < rest[-1]]
        cycles = [[tuple(sorted((order[i - 1], order[i]))) for i in range(size)] for order in orders]
        cycles = [cycle for cycle in cycles if all(spare[pair] for pair in cycle)]
        sets = (list(chain(*chosen)) for n in range(1, 4) for chosen in combinations_with_replacement(cycles, n))
        fits = [len(used) // size for used in sets if all(used.count(pair) <= spare[pair] for pair in set(used))]
        assert rings == 2 * max(fits, default=0), size


def test_nodes_need_something_that_joins_them():
    alone = replace(SYSTEMS["dgx-h100"], nics=None)
    assert alone.of(1) == alone
    with pytest.raises(UsageError, match="no network cards to join 2 nodes"):
        alone.of(2)
    with pytest.raises(UsageError, match="cannot have 0 nodes"):
        alone.of(0)


def test_rates_of_a_whole_node_depend_on_what_its_gpus_meet_over():
    """GPUs' pace, that to the next GPU alone, what data sheets promise, and who shares a switch's way up."""
    nvl, cube, quad, box = (SYSTEMS[name] for name in ("h100-nvl", "dgx-1v", "gh200-quad", "pcie4-4090"))
    assert (nvl.pace, nvl.meets_over_pcie, nvl.part(2).meets_over_pcie) == (nvl.pcie_rate, True, False)
    assert nvl.part(2).pace == nvl.gpu_rate
    assert nvl.promised == pcie_spec(nvl.pcie_generation, nvl.pcie_lanes)
    assert (cube.to_next, quad.to_next) == pytest.approx((120e9 / 6, 370.8e9 / 3))
    assert (box.to_next, box.promised, box.meets_over_pcie) == (24e9, box.spec_rate, True)
    assert (cube.sharing, box.sharing, cube.part(1).sharing) == (2, 1, 1)
    assert (pcie_rate(3), pcie_rate(5, 8), SYSTEMS["gb200-nvl72"].is_rack, cube.is_rack) == (12e9, 24e9, True, False)
    assert (socket_rate("intel", 4), socket_rate("intel", 5), socket_rate("amd", 5)) == (10e9, 22e9, 16e9)
