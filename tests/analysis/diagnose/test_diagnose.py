"""Diagnosis: machines that are degraded on purpose are named, published sweeps sorted, and what is unknown stays so."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collbench.analysis.diagnose.diagnose import Diagnosis, Evidence, diagnose
from collbench.analysis.diagnose.explain import Reason, told
from collbench.analysis.diagnose.hypotheses import HYPOTHESES
from collbench.analysis.diagnose.verdict import Health, judge
from collbench.analysis.traffic import in_words, traffic
from collbench.measurement import Measurement
from collbench.model.doubt import doubt, levels_of
from collbench.model.predict import curve
from collbench.topology import files
from collbench.topology.system import Nics, System
from tests.conftest import ROOT, case
from tools import confusion
from tools.model.accuracy import healthy
from tools.model.classes import CLASSES
from tools.model.systems import POLARIS, Published, published

rows_of = confusion.measured
SIZES = [2**power for power in range(3, 34)]
QUIET = confusion.QUIET
H100 = files.load("dgx-h100")
PCIE = files.load("pcie4-l40s")


def measured_on(system: System, sizes: Sequence[int] = SIZES, times: float = 1.0) -> list[Measurement]:
    """What such a machine measures, if the model is right up to a few per cent."""
    cases = [case(nbytes=nbytes, ranks=system.ranks) for nbytes in sizes]
    wobble = [1.0, 1.03, 0.98, 1.01, 0.97]
    found = curve(system, cases)
    return rows_of(
        [
            (expectation.case.nbytes, times * expectation.seconds * wobble[place % 5])
            for place, expectation in enumerate(found)
        ],
        "allreduce",
        system.ranks,
    )


def network(system: System, **changes: object) -> System:
    """With other network cards."""
    assert system.nics
    return replace(system, nics=replace(system.nics, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-a100", "dgx-2", "pcie4-l40s", "pcie5-5090", "h100-nvl"])
def test_a_machine_that_is_as_modelled_is_as_expected(name: str) -> None:
    """On one node and, where there is a network, on four."""
    system = files.load(name)
    for part in (system, system.of(4)) if system.nics else (system,):
        found = diagnose(measured_on(part), part, QUIET)
        assert (found.verdict, found.reasons) == (Health.AS_EXPECTED, ())


def shared_memory(system: System) -> System:
    """GPUs that exchange data through the host."""
    return replace(system, fabric="pcie", nvlinks=0, p2p=False, multicast=False, gpu_rate=system.pcie_rate)


BRIDGED = replace(files.load("h100-nvl"), per_socket=8)  # or the way between sockets is narrower than half a slot
DEGRADED: list[tuple[str, System, Callable[[System], System]]] = [
    ("P2P is off", H100, shared_memory),
    ("P2P is off", PCIE, lambda system: replace(system, p2p=False)),
    ("traffic goes over TCP", H100.of(4), lambda system: replace(system, nics=Nics(1, 3.125e9, "tcp"))),
    ("only some of the network cards", H100.of(4), lambda system: network(system, per_node=1)),
    ("data goes through the host's memory", H100.of(4), lambda system: network(system, gdr=False)),
    ("traffic goes over TCP", files.load("alps-gh200").of(8), lambda system: network(system, transport="tcp")),
    ("a ring or tree instead of NVLS", H100, lambda system: replace(system, nvls=False)),
    ("PCIe of an older generation", PCIE.part(2), lambda system: replace(system, gpu_rate=system.gpu_rate / 2)),
    ("PCIe of an older generation", BRIDGED, lambda system: replace(system, pcie_lanes=8)),
]


@pytest.mark.parametrize(
    ("reason", "system", "change"), DEGRADED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_degraded_machine_is_slow_for_the_right_reason(
    reason: str, system: System, change: Callable[[System], System]
) -> None:
    """First of all reasons, its times within a few per cent; and all that are told come nearer than none."""
    found = diagnose(measured_on(change(system)), system, QUIET)
    assert found.verdict is Health.SLOW
    assert found.reasons[0].hypothesis.name.startswith(reason)
    assert found.reasons[0].off < 1.1
    assert all(reason.off < found.off for reason in found.reasons)


def test_what_comes_no_nearer_or_is_hardly_possible_is_no_reason() -> None:
    """Off twice the time: of five only those that are likelier than something else, and leave less."""
    made = [(1.1, 20.0), (1.95, 19.0), (1.2, 15.0), (1.1, 5.0), (1.1, -1.0)]
    reasons = [Reason(HYPOTHESES[0], off, weight, ()) for off, weight in made]
    assert [(reason.off, reason.weight) for reason in told(reversed(reasons), math.log(2))] == [
        (1.1, 20.0),
        (1.2, 15.0),
    ]


def test_a_constant_more_is_bound_by_launches() -> None:
    """A hundred microseconds on every message: large ones are right."""
    rows = [replace(row, seconds=(row.typical + 100e-6,)) for row in measured_on(H100)]
    found = diagnose(rows, H100, QUIET)
    assert found.verdict is Health.SLOW
    assert "constant time more" in found.reasons[0].hypothesis.name


def test_times_that_scatter_are_a_busy_gpu() -> None:
    """A third of the rate on average, another fraction at every size; at a steady third nothing explains it."""
    healthy = curve(H100, [case(nbytes=nbytes, ranks=8) for nbytes in SIZES])
    start = healthy[0].seconds

    def slowed(factors: Sequence[float]) -> list[Measurement]:
        times = [
            start + factors[i % len(factors)] * (expectation.seconds - start) for i, expectation in enumerate(healthy)
        ]
        return rows_of(list(zip(SIZES, times, strict=True)), "allreduce", 8)

    busy = diagnose(slowed([3, 4.5, 2, 3.2, 2.5, 5]), H100, QUIET)
    assert "busy with something else" in busy.reasons[0].hypothesis.name
    steady = diagnose(slowed([3]), H100, QUIET)
    assert steady.verdict is Health.SLOW
    assert not any("busy" in reason.hypothesis.name for reason in steady.reasons)


def test_what_was_set_decides_between_reasons() -> None:
    """Cards at half their rate and half as many cards have nearly the same times.

    The one that fits better comes first, unless the header's variable speaks for the other.
    """
    half = measured_on(network(H100.of(4), rate=25e9))
    plain = diagnose(half, H100.of(4), QUIET)
    told = diagnose(half, H100.of(4), Evidence({"NCCL_IB_HCA": "mlx5_0"}))
    assert plain.reasons[0].hypothesis.name.startswith("PCIe of an older generation")
    assert {reason.hypothesis.name for reason in plain.reasons} >= {
        reason.hypothesis.name for reason in told.reasons[:2]
    }
    assert told.reasons[0].hypothesis.name.startswith("only some of the network cards")
    assert told.reasons[0].facts == ("NCCL_IB_HCA=mlx5_0",)


def test_a_variable_alone_makes_no_machine_slow() -> None:
    """NCCL_P2P_DISABLE=0 says nothing, and times that are right are right whatever was set."""
    assert diagnose(measured_on(H100), H100, Evidence({"NCCL_P2P_DISABLE": "1"})).verdict is Health.AS_EXPECTED
    assert not HYPOTHESES[0].facts({"NCCL_P2P_DISABLE": "0"}, ())
    assert HYPOTHESES[0].facts({"NCCL_P2P_DISABLE": "1"}, ()) == ["NCCL_P2P_DISABLE=1"]


def test_a_machine_twice_as_fast_is_faster_than_modelled() -> None:
    """Rather than praised as expected: the model, or the name after --as, is wrong."""
    assert diagnose(measured_on(H100, times=0.4), H100, QUIET).verdict is Health.FASTER


def test_a_few_sizes_out_of_line_are_none_of_the_machine() -> None:
    """A warm-up at the smallest and a change of the algorithm in the middle."""
    rows = measured_on(H100)
    for place in (0, 14, 15):
        rows[place] = replace(rows[place], seconds=(rows[place].typical * 8,))
    assert diagnose(rows, H100, QUIET).verdict is Health.AS_EXPECTED


def test_unknown_is_an_answer() -> None:
    """No system, too few sizes, an implementation without a model: each with its reason."""
    rows = measured_on(H100)
    assert diagnose(rows, None, Evidence({}, (), "no header")).remark == "no header"
    few = diagnose(rows[:2], H100, QUIET)
    assert (few.verdict, few.remark) == (Health.UNKNOWN, "2 sizes measured; 3 are needed")
    foreign = diagnose([replace(row, implementation="mpi") for row in rows], H100, QUIET)
    assert foreign.verdict is Health.UNKNOWN
    assert "mpi has no model" in foreign.remark


def test_slow_without_a_reason_stays_without_one() -> None:
    """Thirty times slower at all sizes alike is nothing that the model can change."""
    found = diagnose(measured_on(H100, times=30), H100, QUIET)
    assert (found.verdict, found.reasons) == (Health.SLOW, ())


def test_busbw_above_the_line_is_explained() -> None:
    """Eight H100 that add in the switch: 1.125 bytes on the wire for each byte, where busbw counts 1.75."""
    (expected,) = curve(H100, [case(nbytes=2**34, ranks=8)])
    (row,) = rows_of([(2**34, 2**34 / 275e9)], "allreduce", 8)
    assert traffic(H100, expected).per_byte == pytest.approx(1 + 1 / 8)
    share, why = in_words(H100, row, expected)
    assert "309.4 GB/s each way through a GPU's NVLinks, 69% of the line's 450.0" in share
    assert "busbw, 481.2, may be above the line: it counts 1.75" in why
    ring = replace(expected, algorithm="ring")
    assert traffic(H100, ring).per_byte == pytest.approx(1.75)
    assert len(in_words(H100, rows_of([(2**34, 2**34 / 200e9)], "allreduce", 8)[0], ring)) == 1


def test_between_nodes_the_line_is_the_cards() -> None:
    """A ring of two nodes sends the bus factor through a node's cards, a tree less."""
    (expected,) = curve(H100.of(2), [case(nbytes=2**34, ranks=16)])
    ring, tree = (traffic(H100.of(2), replace(expected, algorithm=algorithm)) for algorithm in ("ring", "tree"))
    assert (ring.line, ring.where) == (400e9, "a node's network cards")
    assert ring.per_byte == pytest.approx(1.875)
    assert tree.per_byte == pytest.approx(1.0)


def as_it_should_be(sweep: Published) -> System:
    """The machine of a sweep without what was done to it: with RDMA, or GPUs that may use each other's memory."""
    if "polaris_s1_tcp" in sweep.name:
        assert POLARIS.gpus == sweep.system.gpus
        return network(sweep.system, transport="slingshot")
    return replace(sweep.system, p2p=True) if sweep.name.startswith("a40_") else sweep.system


@pytest.fixture(scope="module")
def sorted_out() -> dict[str, dict[str, Diagnosis]]:
    """Every published sweep's diagnosis, by quality and name."""
    found: dict[str, dict[str, Diagnosis]] = {}
    for sweep in published():
        system, times = as_it_should_be(sweep), sweep.in_place or sweep.rows
        rows = rows_of([duration for duration in times if duration[0] > 0], sweep.collective, system.ranks)
        found.setdefault(sweep.quality, {})[sweep.name] = diagnose(rows, system, QUIET)
    return found


def slow(found: dict[str, Diagnosis]) -> list[str]:
    """Names of those that are called slow."""
    return [name for name, finding in found.items() if finding.verdict is Health.SLOW]


def test_published_sweeps_that_are_degraded_are_slow(sorted_out: dict[str, dict[str, Diagnosis]]) -> None:
    """At least 80 %."""
    degraded = sorted_out["degraded"]
    assert len(degraded) >= 7
    assert len(slow(degraded)) >= 0.8 * len(degraded), sorted(degraded.keys() - set(slow(degraded)))


@pytest.fixture(scope="module")
def unseen() -> list[confusion.Trial]:
    """Healthy sweeps, each with a model that has not seen its machine."""
    return confusion.trials()


def test_no_kind_of_healthy_machine_is_accused_in_more_than_one_of_twenty(
    sorted_out: dict[str, dict[str, Diagnosis]],
) -> None:
    """As shipped; nor any kind of fewer than twenty sweeps more than once."""
    for name, among in CLASSES.items():
        found = [sweep.name for sweep in healthy() if among(sweep)]
        accused = sorted(set(slow(sorted_out["healthy"])) & set(found))
        assert len(accused) <= max(1, 0.05 * len(found)), (name, accused)


def test_of_machines_that_no_spread_has_seen_few_are_accused(unseen: list[confusion.Trial]) -> None:
    """Those that are the only ones of their kind; and none is called faster than modelled."""
    verdicts = [trial.health() for trial in unseen]
    assert verdicts.count(Health.SLOW) <= 0.08 * len(unseen)
    assert verdicts.count(Health.FASTER) <= 0.02 * len(unseen)


@pytest.mark.parametrize(("by", "least"), [(1.5, 0.8), (2.0, 0.92), (3.0, 0.98)])
def test_a_machine_that_is_slower_is_called_slow(unseen: list[confusion.Trial], by: float, least: float) -> None:
    assert sum(trial.health(by) is Health.SLOW for trial in unseen) >= least * len(unseen)


def test_the_cause_is_among_the_first_two(unseen: list[confusion.Trial]) -> None:
    """In 70 % of what is called slow, over all hypotheses; a quarter of the sweeps stands for all."""
    rows = [line.split("|")[2:6] for line in list(confusion.causes(unseen[::4]))[2:]]
    curves, slow, _, among = (sum(int(row[column]) for row in rows) for column in range(4))
    assert len(rows) >= 9
    assert slow >= 0.85 * curves
    assert among >= 0.7 * slow


def test_what_the_page_says_is_what_is_found(unseen: list[confusion.Trial]) -> None:
    assert "\n".join(confusion.verdicts(unseen)) in (ROOT / "docs" / "analysis.md").read_text(), (
        "run `make model-report`"
    )


def test_what_could_not_be_seen_is_said() -> None:
    """A curve a little below the limit is as expected, a little above it is slow; with the limit in words."""
    rows = measured_on(H100)
    diagnosis = diagnose(rows, H100, QUIET)
    assert 1.1 < diagnosis.limit < 1.6
    assert f"less than {diagnosis.limit:.1f}x slower" in diagnosis.resolution
    sizes, none = [row.case.nbytes for row in rows], np.zeros(len(rows))
    errors = doubt(sizes, levels_of(H100, "allreduce"))
    for by, health in ((0.97, Health.AS_EXPECTED), (1.03, Health.SLOW)):
        assert judge(sizes, none + errors.mean + np.log(by * diagnosis.limit), errors).health is health


def test_errors_of_neighbours_go_together() -> None:
    """Many sizes that are all a little slow prove no more than few; and of some kinds of machines more is known."""
    few, many = ([2**power for power in range(27, 34, step)] for step in (3, 1))
    limits = [
        judge(sizes, np.zeros(len(sizes)), doubt(sizes, levels_of(system, "allreduce"))).limit
        for system, sizes in ((H100, few), (H100, many), (files.load("aws-p5").of(2), many))
    ]
    assert limits[1] == pytest.approx(limits[0], rel=0.05)
    assert limits[2] > limits[1] + 0.1


def test_a_calibrated_machine_is_held_to_its_own_times(tmp_path: Path) -> None:
    """Less is enough to be called slow where five sizes of it were measured."""
    own = replace(H100, calibration=str(tmp_path / "mine.toml"))
    sizes = [2**power for power in range(27, 34)]
    limits = [judge(sizes, np.zeros(7), doubt(sizes, levels_of(system, "allreduce"))).limit for system in (own, H100)]
    assert limits[0] < limits[1]


def test_published_degradations_have_their_reasons(sorted_out: dict[str, dict[str, Diagnosis]]) -> None:
    """As the sources tell them, first of all reasons."""
    for start, reason in (
        ("a100sxm40_32gpu_8n_allgather_polaris_s1_tcp", "traffic goes over TCP"),
        ("a100sxm40_32gpu_8n_allreduce_polaris_s1_tcp", "traffic goes over TCP"),
        ("a40_2gpu_1n_allreduce_node_p2pdisabled", "P2P is off"),
        ("gb10_2gpu_2n_allgather_spark_direct_bad", "traffic goes over TCP"),
        ("rtx4090_2gpu_1n_allreduce_busy", "the GPUs or links are busy"),
    ):
        first = sorted_out["degraded"][start].reasons[0]
        assert first.hypothesis.name.startswith(reason), start
