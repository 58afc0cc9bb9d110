"""What each release computes with, worked out by hand from its src/graph/tuning.cc and search.cc (NVIDIA/nccl)."""

from dataclasses import replace

import pytest

from collbench.errors import Unsupported
from collbench.model.nccl_channels import search
from collbench.model.nccl_releases import RELEASES
from collbench.model.nccl_tuner import Option, options, table
from collbench.topology.system import Nics, System
from tests.model.nccl.test_table import ALONE, DGX_A100, DGX_B200, DGX_H100, GB, NVL72, PAIRS

KEPT = [".".join(map(str, numbers)) for numbers in RELEASES]


def cell(system: System, version: str, algorithm: str, protocol: str, collective: str = "allreduce") -> Option | None:
    every = table(replace(system, nccl=version), collective)
    return next((option for option in every if (option.algorithm, option.protocol) == (algorithm, protocol)), None)


def cells(system: System, algorithm: str, protocol: str, collective: str) -> dict[str, Option]:
    found = {version: cell(system, version, algorithm, protocol, collective) for version in KEPT}
    return {version: option for version, option in found.items() if option}


def rates(system: System, algorithm: str, protocol: str = "simple", collective: str = "allreduce") -> dict[str, float]:
    return {version: option.rate / GB for version, option in cells(system, algorithm, protocol, collective).items()}


def waits(system: System, algorithm: str, protocol: str = "simple", collective: str = "allreduce") -> dict[str, float]:
    found = cells(system, algorithm, protocol, collective)
    return {version: option.seconds(0) * 1e6 for version, option in found.items()}


def before_2_28(values: dict[str, float]) -> list[float]:
    return [values[version] for version in ("2.25", "2.26", "2.27")]


def since(**values: float) -> dict[str, float]:
    """One value for every release kept, from those at which it changes (`v2_21=25`); 0: there is no such cell."""
    firsts = {(2, int(name.removeprefix("v2_"))): value for name, value in values.items()}
    held = {kept: firsts[max(first for first in firsts if first <= kept)] for kept in RELEASES}
    return {".".join(map(str, kept)): pytest.approx(value) for kept, value in held.items() if value}


def test_trees_and_sums_in_the_switch_wait_as_each_release_says() -> None:
    assert waits(DGX_A100, "tree") == since(v2_18=14 * 4.0, v2_19=14 * 28.0, v2_23=8.4 + 14 * 4.0)
    four = DGX_A100.of(4)
    assert waits(four, "tree") == since(v2_18=14 * 4 + 4 * 14, v2_19=14 * 28 + 4 * 28, v2_23=8.4 + 14 * 4 + 4 * 14)
    pcie = System("box", "sm86", 4, "pcie", 24e9)
    assert waits(pcie, "tree") == since(v2_18=6 * 6.0, v2_19=6 * 28.0, v2_23=8.4 + 6 * 4.0)
    assert waits(DGX_H100, "nvls") == since(v2_18=23, v2_21=25)  # NVLS in hwLat, in 2.18.3 as baseLat


def test_all_reduces_in_the_switch_are_five_sixths_of_their_channels_until_2_28() -> None:
    assert rates(DGX_H100, "nvls") == since(v2_18=8 * 40 * 5 / 6, v2_28=8 * 40 * 0.85 * 2 * 7 / 8 * 8 / 14)
    blackwell, rack = rates(DGX_B200, "nvls"), rates(NVL72, "nvls")
    assert before_2_28(blackwell) == [pytest.approx(8 * 80 * 5 / 6)] * 3
    assert blackwell["2.28"] == pytest.approx(8 * 90 * 8 / 14)
    assert (rack["2.26"], rack["2.28"]) == pytest.approx((32 * 20 * 5 / 6, 32 * 20 * 0.74 * 2 * 31 / 32 * 72 / 142))


def test_gathering_in_the_switch_is_rated_in_five_ways() -> None:
    expected = since(v2_18=0, v2_19=320 * 5 / 6, v2_23=320, v2_27=320 * 7 / 8, v2_28=320 * 0.85 * (7 / 8) ** 2)
    found = rates(DGX_H100, "nvls", collective="allgather")
    assert found | {"2.31": expected["2.31"]} == expected
    assert found["2.31"] != expected["2.31"]


def test_nvlstree_is_a_chain_then_the_slower_side_then_capped() -> None:
    two, four = rates(DGX_H100.of(2), "nvlstree"), rates(DGX_H100.of(4), "nvlstree")
    assert two == since(v2_18=320 * 0.7, v2_19=320 * 5 / 6, v2_28=8 * 57.7 * 16 / 30)
    assert four == since(v2_18=320 * 0.7 * 4 / 6, v2_19=8 * 24 * 5 / 6, v2_28=8 * 45.5 * 32 / 62)
    expected = since(v2_18=23 + 6 * 19, v2_19=23 + 4 * 14, v2_21=25 + 4 * 14, v2_29=25 + 4 * 20.9)
    assert waits(DGX_H100.of(4), "nvlstree") == expected
    blackwell = rates(DGX_B200.of(4), "nvlstree")
    assert before_2_28(blackwell) == [pytest.approx(8 * 24 * 5 / 6)] * 3
    assert blackwell["2.28"] == pytest.approx(8 * 43.1 * 32 / 62)


def test_blackwells_trees_were_twice_hoppers_until_2_28() -> None:
    four = rates(DGX_B200.of(4), "tree")
    assert before_2_28(four) == [pytest.approx(8 * 48 * 0.92 / 2)] * 3
    assert four["2.28"] == pytest.approx(8 * 24.0 / 2)


def test_short_messages_rates_grew_with_2_21() -> None:
    assert rates(DGX_H100, "ring", "ll") == since(v2_18=87.7 * 8 / 14, v2_21=141 * 8 / 14)
    assert rates(DGX_A100, "ring", "ll") == since(v2_18=240 / 4 * 8 / 14, v2_21=87.7 * 8 / 14)
    slow = System("box", "sm86", 4, "pcie", 24e9, cpu="amd")
    assert rates(slow, "ring", "ll", "reduce") == since(v2_18=24 / 4, v2_21=24 / 2)
    assert rates(slow, "ring", "ll", "broadcast") == since(v2_18=24 / 3, v2_21=24 / 2)
    assert rates(slow, "ring", "ll", "reducescatter") == since(v2_18=24 / 3 * 4 / 3, v2_21=24 / 2 * 4 / 3)
    assert rates(slow, "ring", "ll") == since(v2_18=24 / 4 * 4 / 6, v2_21=24 / 2 * 4 / 6)


def test_rings_over_nodes_had_two_more_hops_until_2_23() -> None:
    two = DGX_A100.of(2)
    assert waits(two, "ring", "ll") == since(v2_18=6.6 + 26 * 1.0 + 4 * 2.7, v2_23=6.6 + 28 * 1.0 + 2 * 2.7)
    assert waits(two, "ring", "ll", "allgather") == since(v2_18=6.6 + 14 * 1.0 + 1 * 2.7)
    assert {cell(two, version, "ring", "ll").hops for version in KEPT} == {2}  # type: ignore[union-attr]


def test_single_gpus_of_many_nodes_changed_with_2_23() -> None:
    assert rates(ALONE, "ring", "ll128") == since(v2_18=0.7 * 48 * 8 / 14, v2_23=0.92 * 48 * 8 / 14)
    assert waits(ALONE, "ring", "ll", "allgather") == since(v2_18=6.6 + 7 * 2.7, v2_23=6.6 + 7 * 5.0)
    assert rates(ALONE, "pat", collective="allgather") == since(v2_18=0, v2_23=0.85 * 48, v2_24=0.75 * 48)


def test_ll128_is_for_gpus_that_a_release_was_tested_on() -> None:
    for arch, first in (("sm70", 18), ("sm80", 18), ("sm90", 18), ("sm100", 25), ("sm86", 27), ("sm103", 27)):
        box = System("box", arch, 4, "nvswitch", 240e9)
        found = [version for version in KEPT if cell(box, version, "ring", "ll128")]
        assert found == [version for version in KEPT if int(version.split(".")[1]) >= first], arch
        asked = replace(box, nccl="2.18", protocol="ll128")
        assert {option.protocol for option in options(asked, "allreduce")} == {"ll128"}, arch


def test_the_search_ends_with_what_each_release_asks_of_it() -> None:
    rings = [search(PAIRS, RELEASES[2, minor]).ring for minor in (18, 25, 26)]
    assert [(ring.channels, ring.intra) for ring in rings] == [(1, 20), (1, 20), (2, 10)]
    heads = [search(DGX_H100.of(2), RELEASES[2, minor]).nvls for minor in (18, 19)]
    assert [(graph.channels, graph.intra, graph.inter) for graph in heads] == [(8, 40, 40), (8, 40, 48)]
    ports = replace(DGX_H100, nics=Nics(16, 25e9, "roce")).of(2)
    assert [search(ports, RELEASES[2, minor]).ring.channels for minor in (18, 19, 20)] == [16, 16, 8]
    with pytest.raises(Unsupported, match="allgather has no nvls"):
        options(replace(DGX_H100, nccl="2.18", algorithm="nvls"), "allgather")
