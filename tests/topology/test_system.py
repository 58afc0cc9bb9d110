"""Parts of systems: some GPUs of a node, or whole nodes."""

import math
from dataclasses import replace
from itertools import chain, combinations, combinations_with_replacement, permutations

import pytest

from collbench.errors import UsageError
from collbench.topology import files
from collbench.topology.architectures import pcie_rate, pcie_spec, socket_rate
from collbench.topology.system import CUBE, CUBE_RINGS, System

SYSTEMS = {name: files.load(name) for name in files.names()}


def links(system: System, gpu: int) -> int:
    return sum(system.nvlinks_between(gpu, other) for other in range(system.gpus))


def test_a_part_has_so_many_ranks_and_nothing_gained():
    """And a part of a part is that part; but a cube that fell back to PCIe does not come back from there."""
    for whole in (system.of(3) for system in SYSTEMS.values()):
        for ranks in (*range(1, whole.gpus + 1), 2 * whole.gpus, 3 * whole.gpus):
            part = whole.part(ranks)
            assert (part.ranks, part.nodes) == (ranks, max(1, ranks // whole.gpus)), part.title
            assert 0 < part.gpu_rate <= whole.gpu_rate, part.title
            assert part.spec_rate <= whole.spec_rate, part.title
            assert (part.name, part.arch, part.tiers) == (whole.name, whole.arch, whole.tiers)
            share = part.gpus * whole.nics.per_node / whole.gpus
            assert part.nics == replace(whole.nics, per_node=math.ceil(share)), part.title
            every = sorted(gpu for group in part.switches for gpu in group)
            assert every == (list(range(part.gpus)) if part.switches else []), part.title
            assert [part.socket(gpu) for gpu in range(part.gpus)] == [whole.socket(gpu) for gpu in range(part.gpus)]
            assert part.sockets == part.socket(part.gpus - 1) + 1, part.title
            again, once = part.part(min(2, ranks)), whole.part(min(2, ranks))
            assert part.fabric != whole.fabric or again.gpu_rate == pytest.approx(once.gpu_rate), part.title
            assert part.fabric != whole.fabric or again.spec_rate == pytest.approx(once.spec_rate), part.title
        for ranks in (-1, 0, whole.gpus + 1, 3 * whole.gpus - 1, 4 * whole.gpus):
            with pytest.raises(UsageError, match=f"has no part of {ranks} ranks"):
                whole.part(ranks)
    alone = replace(SYSTEMS["dgx-h100"], nics=None)
    assert alone.of(1) == alone
    for nodes, message in ((2, "no network cards to join 2 nodes"), (0, "cannot have 0 nodes")):
        with pytest.raises(UsageError, match=message):
            alone.of(nodes)


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


def test_links_lead_both_ways_and_add_up():
    for name, system in SYSTEMS.items():
        for a, b in combinations(range(min(system.gpus, 16)), 2):
            assert system.nvlinks_between(a, b) == system.nvlinks_between(b, a), name
        if system.fabric in ("mesh", "hybrid-cube", "nvlink-pairs"):
            assert {links(system, gpu) for gpu in range(system.gpus)} == {system.nvlinks}, name


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
