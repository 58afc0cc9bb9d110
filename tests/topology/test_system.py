"""Parts of systems: some GPUs of a node, or whole nodes."""

from dataclasses import replace
from itertools import combinations, combinations_with_replacement, permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collbench.errors import UsageError
from collbench.topology import files
from collbench.topology.system import CUBE, CUBE_RINGS, System

SYSTEMS = {name: files.load(name) for name in files.names()}
ANY = st.sampled_from(sorted(SYSTEMS)).map(SYSTEMS.__getitem__)


def links(system: System, gpu: int) -> int:
    return sum(system.nvlinks_between(gpu, other) for other in range(system.gpus))


@given(ANY, st.integers(1, 5), st.data())
def test_a_part_has_so_many_ranks_and_nothing_gained(system, nodes, data):
    """It is never faster, and keeps what does not depend on size."""
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


@given(ANY, st.integers(1, 4), st.integers(-2, 400))
def test_a_part_that_cannot_be_is_an_error(system, nodes, ranks):
    """More than there is, none, or nodes that are cut."""
    whole = system.of(nodes)
    if ranks < 1 or ranks > whole.ranks or (ranks > whole.gpus and ranks % whole.gpus):
        with pytest.raises(UsageError, match=f"has no part of {ranks} ranks"):
            whole.part(ranks)
    else:
        assert whole.part(ranks).ranks == ranks


def test_eight_of_a_rack_are_as_fast_as_each_of_it():
    """Switches do not mind."""
    rack = SYSTEMS["gb200-nvl72"]
    assert rack.of(3).part(8) == replace(rack, gpus=8, nics=replace(rack.nics, per_node=8))
    assert rack.of(3).part(144) == rack.of(2)


def test_two_of_the_bridged_are_a_pair():
    """At the bridge's rate, with no socket between."""
    pair = SYSTEMS["h100-nvl"].part(2)
    assert pair.nvlinks_between(0, 1) == 12
    assert pair.gpu_rate == SYSTEMS["h100-nvl"].gpu_rate
    assert pair.sockets == 1


def test_four_of_the_cube_are_its_quad():
    """All joined to all, with the links that stay inside."""
    quad = SYSTEMS["dgx-1v"].part(4)
    assert all(quad.nvlinks_between(a, b) for a, b in combinations(range(4), 2))
    assert quad.nvlinks == 4 == min(links(quad, gpu) for gpu in range(4))
    assert quad.gpu_rate == pytest.approx(80e9)
    assert quad.switches == ((0, 1), (2, 3))


def test_two_of_a_mesh_have_a_third_of_their_links():
    """Those to each other."""
    pair = SYSTEMS["gh200-quad"].part(2)
    assert pair.nvlinks == pair.nvlinks_between(0, 1) == 6
    assert pair.gpu_rate == pytest.approx(6 * 20.6e9)
    assert pair.spec_rate == pytest.approx(150e9)


@given(ANY, st.data())
def test_a_part_can_be_written_as_a_file(system, data):
    """What it is made of is what a file may say."""
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


@pytest.mark.parametrize("name", ["gh200-quad", "dgx-1v", "h100-nvl"])
def test_one_gpu_has_no_nvlink_to_anybody(name):
    """Its slot is what is left."""
    alone = SYSTEMS[name].part(1)
    assert (alone.fabric, alone.nvlinks, alone.gpu_rate) == ("pcie", 0, SYSTEMS[name].pcie_rate)


def test_five_of_the_cube_take_pcie():
    """GPU 4 hangs on GPU 0 alone, so no ring goes through it."""
    five = SYSTEMS["dgx-1v"].part(5)
    assert (five.fabric, five.nvlinks, five.gpu_rate) == ("pcie", 0, 12e9)


@given(ANY)
def test_links_lead_both_ways_and_add_up(system):
    """Each GPU of a whole node spends the links that it has."""
    for a, b in combinations(range(min(system.gpus, 16)), 2):
        assert system.nvlinks_between(a, b) == system.nvlinks_between(b, a)
    if system.fabric in ("mesh", "hybrid-cube", "nvlink-pairs"):
        assert {links(system, gpu) for gpu in range(system.gpus)} == {system.nvlinks}


@pytest.mark.parametrize("size", CUBE_RINGS)
def test_the_rings_of_the_cube_are_as_many_as_fit(size):
    """Counted: cycles through all its first GPUs that share no link, each run both ways round."""
    spare = {(a, b): CUBE[a].get(b, 0) for a, b in combinations(range(size), 2)}
    if size <= 2:
        assert CUBE_RINGS[size] == sum(spare.values())
        return
    orders = [(0, *rest) for rest in permutations(range(1, size)) if rest[0] < rest[-1]]
    cycles = [[tuple(sorted((order[i - 1], order[i]))) for i in range(size)] for order in orders]
    cycles = [cycle for cycle in cycles if all(spare[pair] for pair in cycle)]

    def fits(chosen):
        used = [pair for cycle in chosen for pair in cycle]
        return all(used.count(pair) <= spare[pair] for pair in set(used))

    most = max((n for n in range(4) if any(map(fits, combinations_with_replacement(cycles, n)))), default=0)
    assert CUBE_RINGS[size] == 2 * most


def test_nodes_need_something_that_joins_them():
    """No network cards, no second node."""
    alone = replace(SYSTEMS["dgx-h100"], nics=None)
    assert alone.of(1) == alone
    with pytest.raises(UsageError, match="no network cards to join 2 nodes"):
        alone.of(2)
    with pytest.raises(UsageError, match="cannot have 0 nodes"):
        alone.of(0)
