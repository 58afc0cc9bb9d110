"""Reasons: what speaks for one or against it, and the causes that times alone tell."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import collbench
from collbench.analysis.curve_fit import Unfit, curve_remarks, fit
from collbench.analysis.diagnose import Diagnosis, diagnose
from collbench.analysis.judgement import Word
from collbench.analysis.machine import RunFacts
from collbench.analysis.reasons import HYPOTHESES, settings
from collbench.model.predict import curve
from collbench.runfile.schema import Header
from collbench.runfile.store import Run
from collbench.topology import files
from tests.analysis.diagnose.test_diagnose import measured_on, network
from tests.conftest import case
from tools import confusion

DATA = Path(__file__).parent / "data"
H100, B300 = files.load("dgx-h100"), files.load("dgx-b300")
TWO = H100.of(2)
EIGHT_CARDS = ",".join(f"mlx5_{card}:1" for card in (0, 1, 2, 4, 5, 6, 7, 11))
P2P, TCP, CARDS = "P2P is off", "traffic goes over TCP", "only some network cards"
GDR, NVLS, CHANNELS = "data goes through the host's memory to", "a ring or tree instead of NVLS", "too few channels"
LL, TREE, RING, STARVED = "protocol LL", "a tree for", "a ring for", "the host's CPU is pinned"

# The variables of published logs of machines that run as they should, or are slow for another reason.
HEALTHY = (
    {"NCCL_NET": "AWS Libfabric", "NCCL_NET_GDR_LEVEL": "PHB", "NCCL_CROSS_NIC": "0"},
    {"NCCL_SOCKET_IFNAME": "net1", "NCCL_IB_HCA": "mlx5_1,mlx5_3", "NCCL_NET_GDR_READ": "1"},
    {"NCCL_PROTO": "simple", "NCCL_SHM_DISABLE": "0", "NCCL_WORK_FIFO_DEPTH": "4194304"},
    {"NCCL_IB_HCA": r"mlx5_2\,mlx5_3\,mlx5_0\,mlx5_1", "NCCL_P2P_LEVEL": "PHB", "NCCL_NET_PLUGIN": "spcx"},
    {"NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": EIGHT_CARDS},
    {"NCCL_SOCKET_IFNAME": "bond0", "NCCL_NET_GDR_LEVEL": "1", "NCCL_P2P_LEVEL": "NVL"},
)


def ratios(facts: Mapping[str, str], collective: str = "allreduce") -> dict[str, float]:
    """The strongest likelihood ratio that facts have for each hypothesis that they say something of."""
    found: dict[str, float] = {}
    for hypothesis in HYPOTHESES:
        for _, ratio in hypothesis.evidence(facts.items(), collective):
            found[hypothesis.name] = max(ratio, found.get(hypothesis.name, 0.0))
    return found


def about(found: Mapping[str, float], start: str) -> float:
    (ratio,) = [ratio for name, ratio in found.items() if name.startswith(start)] or [1.0]
    return ratio


def first(diagnosis: Diagnosis) -> str:
    return diagnosis.reasons[0].hypothesis.name if diagnosis.reasons else ""


def test_what_healthy_logs_set_too_proves_nothing_and_is_not_told_of() -> None:
    for variables in HEALTHY:
        assert all(ratio < 3 for ratio in ratios(variables).values()), variables
        assert settings(RunFacts(variables)) == [], variables


def test_values_speak_as_nccl_documents_them() -> None:
    speaks: tuple[tuple[str, str, Sequence[str], Sequence[str]], ...] = (
        (P2P, "NCCL_P2P_DISABLE", ("1", "2"), ("0", "")),
        (P2P, "NCCL_P2P_LEVEL", ("LOC", "0", "loc"), ("SYS", "5", "PHB", "NVL")),
        (TCP, "NCCL_NET", ("Socket", "socket"), ("IB", "AWS Libfabric", "FasTrak")),
        (TCP, "NCCL_IB_HCA", ("^mlx5", "^mlx5_"), ("^mlx5_2", "mlx5", "=mlx5_0")),
        (TCP, "FI_PROVIDER", ("tcp", "sockets", "tcp;ofi_rxm"), ("efa", "cxi", "verbs;ofi_rxm")),
        (TCP, "NCCL_SOCKET_IFNAME", (), ("bond0", "eth0", "^docker0,lo", "=ens1f0")),
        (
            CARDS,
            "NCCL_IB_HCA",
            ("mlx5_0", "=mlx5_0", "mlx5_0:1", "bnxt_re0"),
            ("mlx5", "mlx5_", "^mlx5_2", EIGHT_CARDS),
        ),
        (GDR, "NCCL_NET_GDR_LEVEL", ("LOC", "0"), ("PHB", "SYS", "3", "PIX")),
        (NVLS, "NCCL_NVLS_ENABLE", ("0",), ("1", "2")),
        (NVLS, "NCCL_ALGO", ("^NVLS", "^NVLS,NVLSTree", "Ring", "Tree", "Ring,Tree"), ("NVLS", "^Ring", "Ring,NVLS")),
        (NVLS, "NCCL_ALGO", ("allreduce:ring", "NVLS;allreduce:ring,tree"), ("broadcast:ring", "ring;allreduce:nvls")),
        (RING, "NCCL_ALGO", ("Ring", "RING", "allreduce:ring", "ring;broadcast:tree"), ("^Ring", "Tree,Ring", "NVLS")),
        (TREE, "NCCL_ALGO", ("Tree", "ring;allreduce:tree", "Tree,CollnetDirect"), ("^Tree", "NVLSTree")),
        (LL, "NCCL_PROTO", ("LL", "^LL128,Simple", "allreduce:LL"), ("Simple", "LL128", "^LL", "LL,LL128")),
        (CHANNELS, "NCCL_MAX_NCHANNELS", ("1", "4"), ("16", "32", "0")),
        (CHANNELS, "NCCL_MAX_CTAS", ("2",), ("24",)),
    )
    for reason, name, likely, unlikely in speaks:
        for value in likely:
            assert about(ratios({name: value}), reason) > 100, (reason, name, value)
        for value in unlikely:
            assert about(ratios({name: value}), reason) < 3, (reason, name, value)
    assert about(ratios({"NCCL_ALGO": "allreduce:ring"}, "broadcast"), RING) == 1


LOGGED: tuple[tuple[str, str, Sequence[str], Sequence[str]], ...] = (  # proved by it, refuted by it
    ("transport", "NET/IB/GDRDMA, P2P/CUMEM", (), (TCP, GDR, P2P)),
    ("transport", "P2P/CUMEM/read, NET/NCCL RDMA Plugin v8/GDRDMA", (), (TCP, GDR, P2P)),
    ("transport", "NET/AWS Libfabric/GDRDMA(PCI)/Shared", (), (TCP, GDR)),
    ("transport", "NET/IB", (GDR,), (TCP,)),
    ("transport", "NET/IB/GDRDMA, NET/IB", (GDR,), (TCP,)),
    ("transport", "NET/Socket, P2P/IPC", (TCP,), (P2P,)),
    ("transport", "SHM/direct/direct", (P2P,), ()),
    ("transport", "P2P/IPC, SHM/direct/direct", (P2P,), ()),
    ("nvls", "0", (NVLS,), ()),
    ("nvls", "16", (), (NVLS,)),
    ("channels", "1", (CHANNELS,), ()),
    ("channels", "4", (), ()),
    ("channels", "24", (), (CHANNELS,)),
)


def test_what_nccl_logged_of_itself_proves_and_refutes() -> None:
    for name, value, proved, refuted in LOGGED:
        found = ratios({name: value})
        for reason in (P2P, TCP, GDR, NVLS, CHANNELS):
            expected = 1000 if reason in proved else 0 if reason in refuted else 1
            assert about(found, reason) == expected, (name, value, reason)


def test_a_refuted_reason_is_not_listed_however_well_it_fits() -> None:
    over_tcp = measured_on(network(TWO, transport="tcp", per_node=1, rate=3.125e9))
    variables = {"NCCL_SOCKET_IFNAME": "bond0"}
    assert first(diagnose(over_tcp, TWO, RunFacts(variables))).startswith(TCP)
    refuted = diagnose(over_tcp, TWO, RunFacts(variables, log={"transport": "NET/IB/GDRDMA, P2P/CUMEM"}))
    assert refuted.word is Word.SLOW
    assert not any(reason.hypothesis.name.startswith((TCP, GDR)) for reason in refuted.reasons)


def test_a_log_of_all_cards_refutes_that_some_are_not_used_and_fewer_do_not() -> None:
    half = measured_on(network(TWO, per_node=4))
    for numbers, refuted in (("0, 1, 2, 3, 4, 5, 6, 7", True), ("7, 0, 3, 5, 1, 2, 6, 4", True), ("0, 1, 2", False)):
        found = diagnose(half, TWO, RunFacts({}, log={"transport": "NET/IB/GDRDMA", "cards": numbers}))
        assert found.word is Word.SLOW
        named = [reason.hypothesis.name for reason in found.reasons if reason.hypothesis.name.startswith(CARDS)]
        assert len(named) == (not refuted), numbers


def test_what_all_logs_of_a_run_say_is_a_fact() -> None:
    socket, nvls = {"transport": "NET/Socket"}, {"transport": "NET/Socket", "nvls": "16"}
    for logs, agreed in (
        ([socket], socket),
        ([nvls, nvls], nvls),
        ([socket, nvls], socket),
        ([socket, None], socket),
        ([socket, {"transport": "NET/Socket, NET/Socket/Shared"}], socket),
        ([socket, {"transport": "NET/IB/GDRDMA"}], {}),
        ([nvls, nvls | {"nvls": "24"}], socket),
        (["NET"], {}),
        ([None], {}),
        ([], {}),
    ):
        tests = [{"layout": {} if log is None else {"log": log}} for log in logs]
        run = Run(Path("run.jsonl"), Header.from_json({"imported": {"tests": tests}}), (), complete=True)
        assert RunFacts.of(run, "").log == agreed, logs


def test_flat_bandwidth_of_one_channel_is_told_by_times_and_better_by_a_log() -> None:
    sizes = [2**power for power in range(3, 34)]
    healthy = curve(B300, [case(nbytes=size, ranks=8) for size in sizes])
    times = [max(one.seconds, 15e-6 + 1.75 * one.case.nbytes / 38e9) for one in healthy]
    rows = confusion.measured(list(zip(sizes, times, strict=True)), "allreduce", 8)
    plain, logged, many = (
        diagnose(rows, B300, RunFacts({}, log=log)) for log in ({}, {"channels": "1"}, {"channels": "32"})
    )
    assert first(plain).startswith(CHANNELS)
    assert logged.reasons[0].weight > plain.reasons[0].weight + 5
    assert not first(many).startswith(CHANNELS)
    for system in (H100, files.load("gcp-a4").of(2), files.load("dgx-a100")):
        capped = replace(system, channels=2, nvls=False)
        found = diagnose(measured_on(capped), system, RunFacts({"NCCL_MAX_NCHANNELS": "2"}))
        assert first(found).startswith(CHANNELS), system.title
        assert found.reasons[0].facts == ("NCCL_MAX_NCHANNELS=2",)


def test_a_ring_that_is_slow_only_in_the_middle_is_told() -> None:
    for system in (files.load("perlmutter").of(16), files.load("dgx-a100").of(8)):
        rows = measured_on(replace(system, algorithm="ring"))
        plain, stated = (diagnose(rows, system, RunFacts(set_)) for set_ in ({}, {"NCCL_ALGO": "Ring"}))
        assert plain.word is Word.SLOW, system.title
        assert first(plain).startswith(RING), system.title
        assert first(stated).startswith(RING), system.title
        assert plain.measured[-1].typical < 1.2 * plain.expected[-1].seconds, "the largest alike"


def test_ranks_without_cores_are_told_by_a_wait_and_large_messages_that_scatter() -> None:
    for system, wait in ((TWO, 3e-4), (files.load("dgx-a100").of(4), 2e-3)):
        expected = curve(system, [case(nbytes=2**power, ranks=system.ranks) for power in range(3, 34)])
        waves = np.resize(confusion.WAVES, len(expected)).tolist()
        times = [wait + 3 * wave * one.seconds for wave, one in zip(waves, expected, strict=True)]
        sizes = [one.case.nbytes for one in expected]
        found = diagnose(
            confusion.measured(list(zip(sizes, times, strict=True)), "allreduce", system.ranks), system, RunFacts({})
        )
        assert first(found).startswith(STARVED), system.title
        assert "taskset" in found.reasons[0].hypothesis.fix


def test_a_setting_is_hardly_the_reason_where_a_command_shows_others() -> None:
    rows = measured_on(replace(TWO, protocol="ll"))
    alone, shown, stated = (
        next(reason for reason in diagnose(rows, TWO, RunFacts(set_)).reasons if reason.hypothesis.name.startswith(LL))
        for set_ in ({}, {"NCCL_DEBUG": "INFO"}, {"NCCL_PROTO": "LL"})
    )
    assert shown.weight < alone.weight - 2 < stated.weight - 4


SOUND = [(2**power, 20e-6 + 2**power / 300e9) for power in range(10, 31, 2)]
SLOWER = [(size, 4 * seconds) for size, seconds in SOUND]
HOSTILE = {
    "twice": SOUND * 2,
    "slow and then right": SLOWER + SOUND,
    "slow and right, twice": (SLOWER + SOUND) * 2,
    "three sizes, four times": [(1 << 20, 1e-4), (1 << 21, 2e-4), (1 << 22, 1e-3)] * 4,
    "one size, five times": [(1 << 20, 1e-4 * times) for times in range(1, 6)],
    "jumps, twice": [(size, seconds * (1, 100)[place % 2]) for place, (size, seconds) in enumerate(SOUND)] * 2,
    "an empty message twice": [(0, 1e-6), (0, 2e-6), *SOUND],
    "all alike": [(size, 1e-4) for size, _ in SOUND],
    "a huge time": [*SOUND, (1 << 31, 1e300)],
    "the least time": [*SOUND, (1 << 31, 5e-324)],
    "huge times": [(size, 1e300 * seconds) for size, seconds in SOUND],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_curve_makes_numpy_warn(name: str) -> None:
    rows = sorted(HOSTILE[name])
    measured = confusion.measured(rows, "allreduce", 8)
    assert list(curve_remarks(measured))
    assert diagnose(measured, H100, RunFacts({"NCCL_P2P_DISABLE": "1"})).remark
    run = Run(Path("run.jsonl"), Header(), tuple(measured), complete=True)
    assert collbench.compare(run, replace(run, header=Header(started="2026"))).rows
    assert collbench.check(run=run, on="dgx-h100")
    try:
        fitted = fit([size for size, _ in rows], [[seconds] for _, seconds in rows])
    except Unfit:
        return
    numbers = (*fitted.estimates["latency"].interval, *fitted.errors, fitted.spread, *fitted.estimate(1 << 20).interval)
    assert all(math.isfinite(number) for number in numbers), numbers


def test_samples_of_a_size_that_comes_again_are_samples_of_one_size() -> None:
    sizes, seconds = zip(*SOUND, strict=True)
    once = fit(sizes, [[one, 1.1 * one, 1.2 * one] for one in seconds])
    again = fit([*sizes, *sizes, *sizes], [[factor * one] for factor in (1.2, 1, 1.1) for one in seconds])
    assert again.sizes.tolist() == list(sizes)
    assert again.seconds == pytest.approx(once.seconds)
    assert again.rate == pytest.approx(once.rate)


@pytest.mark.parametrize("name", ["22a-h100-doca", "22b-h100-doca-ring-info"])
def test_a_cluster_whose_channels_use_rdma_is_not_said_to_use_tcp(name: str, tmp_path: Path) -> None:
    (run,) = collbench.import_(DATA / f"{name}.log", out=tmp_path)
    diagnosed = collbench.check(run=run, on="azure-nd-h100-v5", nodes=2)
    for diagnosis in diagnosed.curves:
        assert diagnosis.word is Word.SLOW
        assert diagnosis.likely[0].startswith((CARDS, CHANNELS, LL))
    assert "SOCKET" not in " ".join((*diagnosed.notes, *(why for each in diagnosed.curves for why, _ in each.reasons)))
