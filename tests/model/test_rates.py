"""What links carry, and what a network's kind adds: of single causes, each changed by itself."""

from dataclasses import replace

import numpy as np
import pytest

from collbench.collectives import COLLECTIVES
from collbench.model import nccl_terms
from collbench.model.constants import CONSTANTS, EAGER
from collbench.model.nccl_terms import PACKED, rate
from collbench.model.nccl_tuner import options
from collbench.topology import files
from collbench.topology.system import System

ALPS, H100, PCIE = files.load("alps-gh200"), files.load("dgx-h100"), files.load("pcie4-4090")
A100 = files.load("dgx-a100")
LARGE, SMALL = 1 << 32, 64


def seconds(system: System, nbytes: int, collective: str = "allreduce") -> float:
    return float(nccl_terms.terms(system, collective).at(np.array([float(nbytes)]))[0])


def with_nics(system: System, **changes: object) -> System:
    assert system.nics
    return replace(system, nics=replace(system.nics, **changes))  # type: ignore[arg-type]


def test_ports_and_cards_together_carry_less_than_the_slower_of_both() -> None:
    (option,) = options(replace(H100.of(4), algorithm="ring", protocol="simple"), "allgather")
    reached = {}
    for share in (0.25, 1, 4):
        system = with_nics(H100.of(4), rate=share * H100.gpu_rate)
        sent = 31 / 32
        slower = min(CONSTANTS["eta_port"] * H100.gpu_rate, share * H100.gpu_rate * 8) / sent
        reached[share] = rate(system, "allgather", option) / slower / CONSTANTS["eta_net"]
    assert all(0.5 ** (1 / 6) - 0.01 <= part <= 1.0 for part in reached.values())
    assert reached[4] > 0.99


def test_what_nccl_adds_for_a_kind_of_cpu_decides_what_it_takes_and_not_how_long_packets_travel() -> None:
    for protocol, shows in (("ll", False), ("ll128", False), ("simple", True)):
        systems = (replace(A100.of(2), cpu=cpu, algorithm="ring", protocol=protocol) for cpu in ("amd", "intel"))
        (amd,), (intel,) = (options(system, "allgather") for system in systems)
        assert amd.intra > intel.intra, protocol
        assert (amd.inside == pytest.approx(intel.inside)) != shows, protocol
        assert amd.seconds(SMALL) > intel.seconds(SMALL), protocol


def test_every_hop_costs_as_much_and_over_efa_with_any_protocol() -> None:
    efa = replace(files.load("aws-p5").of(2), algorithm="tree")
    waits = {}
    for protocol in ("ll", "simple"):
        set_up = replace(efa, protocol=protocol)
        parts, (option,) = nccl_terms.terms(set_up, "allreduce"), options(set_up, "allreduce")
        waits[protocol] = parts.network[0] + option.inter
        assert option.hops == 2
    assert waits["ll"] == pytest.approx(waits["simple"]) == pytest.approx(2 * CONSTANTS["hop_efa"])
    at = [seconds(replace(H100.of(nodes), algorithm="tree", protocol="ll"), SMALL) for nodes in (2, 4, 8, 16)]
    steps = np.diff(at)
    assert steps == pytest.approx(steps[0], rel=0.05)
    assert at[0] > 2 * steps[0] > 0


def test_hops_and_filling_over_efa_take_less_on_hosts_with_blackwell() -> None:
    waits = {}
    for name in ("aws-p5", "aws-p6-b200", "aws-p6-b300"):
        nodes = replace(files.load(name).of(2), algorithm="tree", protocol="ll")
        (option,) = options(nodes, "allreduce")
        waits[name] = nccl_terms.terms(nodes, "allreduce").network[0] + option.inter
    assert waits["aws-p6-b200"] == pytest.approx(waits["aws-p6-b300"]) == pytest.approx(2 * CONSTANTS["hop_efa_new"])
    assert waits["aws-p5"] > 1.2 * waits["aws-p6-b300"]
    assert seconds(files.load("aws-p6-b300").of(2), 1 << 20) == pytest.approx(97e-6, rel=0.3)


def test_messages_over_slingshot_wait_for_their_receivers_and_hinder_each_other_on_many_nodes() -> None:
    for transport, least, most in (("slingshot", 1.0, 1.6), ("roce", -0.1, 0.3)):
        system = replace(with_nics(ALPS.of(8), transport=transport), algorithm="tree", protocol="ll")
        waited = seconds(system, EAGER) - seconds(system, EAGER // 2)
        hops = next(iter(options(system, "allreduce"))).hops
        assert least <= waited / (hops * CONSTANTS["rendezvous"]) <= most, transport
    for transport, slower in (("slingshot", 1.3), ("ib", 1.0)):
        system = replace(with_nics(ALPS, transport=transport), algorithm="ring", protocol="simple")
        few, some, many = (seconds(system.of(nodes), LARGE * 64) for nodes in (8, 64, 512))
        assert some < 1.2 * few
        assert slower <= many / some < slower + 0.5, transport


def test_without_gpudirect_large_messages_take_longer() -> None:
    for preset in ("aws-p3dn", "aws-g4dn-metal", "dgx-h100"):
        direct = with_nics(files.load(preset).of(2), gdr=True)
        staged = with_nics(direct, gdr=False)
        assert seconds(staged, LARGE) > 1.05 * seconds(direct, LARGE), preset
        near = 1e-6 if any(option.protocol == "ll" for option in options(staged, "allreduce")) else 0.01
        assert seconds(staged, SMALL) == pytest.approx(seconds(direct, SMALL), rel=near), preset


def test_a_rack_reaches_less_of_its_ports_than_a_board_and_packets_are_a_part_of_what_is_sent() -> None:
    rack = replace(files.load("gb200-nvl72"), algorithm="ring", protocol="simple")
    reached = []
    for system in (rack, rack.part(8)):
        (option,) = options(system, "allgather")
        reached.append(rate(system, "allgather", option) / option.rate)
    assert reached[0] / reached[1] == pytest.approx(CONSTANTS["eta_rack"])
    system = replace(PCIE.part(2), p2p=True, algorithm="ring")
    by = {option.protocol: rate(system, "allreduce", option) for option in options(system, "allreduce")}
    assert {"ll", "simple"} <= by.keys()
    assert all(by[protocol] / by["simple"] == pytest.approx(PACKED[protocol]) for protocol in by)
    assert PACKED["ll"] == 0.5


def test_gpus_under_a_switch_share_its_way_to_the_host_and_not_the_one_between_sockets() -> None:
    for p2p, times in ((False, 2.0), (True, 1.0)):
        apart = replace(PCIE.part(4), p2p=p2p, switches=(), per_socket=0)
        below = replace(apart, switches=((0, 1), (2, 3)))
        assert seconds(below, LARGE) / seconds(apart, LARGE) == pytest.approx(times, rel=0.02), p2p
    four = replace(PCIE.part(4), p2p=False, switches=((0, 1, 2, 3),), per_socket=0)
    for collective in ("allreduce", "alltoall", "gather"):  # all that leaves a GPU goes that way, a quarter each
        bus = LARGE / seconds(four, LARGE, collective) * COLLECTIVES[collective].bus_factor(4)
        assert bus < PCIE.gpu_rate / 4, collective
    four = replace(PCIE, p2p=False, switches=((0, 1, 2, 3), (4, 5, 6, 7)), per_socket=4)
    wide, narrow = (seconds(replace(four, socket_rate=rate), LARGE) for rate in (64e9, PCIE.gpu_rate / 4))
    assert narrow == pytest.approx(wide)
    assert seconds(replace(four, socket_rate=PCIE.gpu_rate / 8), LARGE) == pytest.approx(2 * wide, rel=0.02)
    base = replace(PCIE, p2p=True, per_socket=4)
    fast, slow = (replace(base, socket_rate=rate) for rate in (64e9, 8e9))
    assert nccl_terms.choose(fast, "allreduce").protocols == nccl_terms.choose(slow, "allreduce").protocols
    assert seconds(slow, LARGE) > 2.5 * seconds(fast, LARGE)
    assert seconds(fast, SMALL) == pytest.approx(seconds(slow, SMALL), rel=0.02)
