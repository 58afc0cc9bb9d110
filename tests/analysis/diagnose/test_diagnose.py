"""Diagnosis: machines that are degraded on purpose are named, published sweeps sorted, and what is unknown stays so."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest

from collbench.analysis.curve_fit import curve_remarks
from collbench.analysis.diagnose import Diagnosis, diagnose, judge
from collbench.analysis.judgement import Word
from collbench.analysis.machine import RunFacts, unsaid
from collbench.analysis.reasons import FEWEST, FREEDOM, HYPOTHESES, Reason, likely_reasons, log_likelihood
from collbench.analysis.roofline import traffic, traffic_in_words
from collbench.model.predict import ErrorModel, curve, error_levels, error_model, regime
from collbench.results import Measurement
from collbench.runfile.schema import Environment, ForeignTest, Header, ImportedPart
from collbench.runfile.store import Run
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
    assert system.nics
    return replace(system, nics=replace(system.nics, **changes))  # type: ignore[arg-type]


def test_a_machine_that_is_as_modelled_is_as_expected() -> None:
    for name in ("dgx-h100", "dgx-2", "pcie4-l40s", "h100-nvl"):
        system = files.load(name)
        for part in (system, system.of(4)) if system.nics else (system,):
            found = diagnose(measured_on(part), part, QUIET)
            assert (found.word, found.reasons) == (Word.OK, ()), part.title
    rows = measured_on(H100)
    assert diagnose(rows, H100, RunFacts({"NCCL_P2P_DISABLE": "1"})).word is Word.OK
    for place in (0, 14, 15):  # two that are 1.2 times as long are chance
        rows[place] = replace(rows[place], seconds=(rows[place].typical * 1.2,))
    assert diagnose(rows, H100, QUIET).word is Word.OK


def shared_memory(system: System) -> System:
    return replace(system, fabric="pcie", nvlinks=0, p2p=False, multicast=False, gpu_rate=system.pcie_rate)


BRIDGED = replace(files.load("h100-nvl"), per_socket=8)  # or the way between sockets is narrower than half a slot
DEGRADED: list[tuple[str, System, System]] = [
    ("P2P is off", H100, shared_memory(H100)),
    ("P2P is off", PCIE, replace(PCIE, p2p=False)),
    ("traffic goes over TCP", H100.of(4), replace(H100.of(4), nics=Nics(1, 3.125e9, "tcp"))),
    ("only some network cards", H100.of(4), network(H100.of(4), per_node=1)),
    ("data goes through the host's memory", H100.of(4), network(H100.of(4), gdr=False)),
    ("traffic goes over TCP", files.load("alps-gh200").of(8), network(files.load("alps-gh200").of(8), transport="tcp")),
    ("a ring or tree instead of NVLS", H100, replace(H100, nvls=False)),
    ("PCIe of an older generation", PCIE.part(2), replace(PCIE.part(2), gpu_rate=PCIE.part(2).gpu_rate / 2)),
    ("PCIe of an older generation", BRIDGED, replace(BRIDGED, pcie_lanes=8)),
]


def test_a_degraded_machine_is_slow_for_the_right_reason() -> None:
    for reason, system, degraded in DEGRADED:
        found = diagnose(measured_on(degraded), system, QUIET)
        place = reason, system.title
        assert found.word is Word.SLOW, place
        assert found.reasons[0].hypothesis.name.startswith(reason), place
        assert found.reasons[0].off < 1.1, place
        assert all(reason.off < found.off for reason in found.reasons), place


def test_what_comes_no_nearer_or_is_hardly_possible_is_no_reason() -> None:
    made = [(1.1, 20.0), (1.95, 19.0), (1.2, 15.0), (1.1, 5.0), (1.1, -1.0)]
    reasons = [Reason(HYPOTHESES[0], off, weight, ()) for off, weight in made]
    found = [(reason.off, reason.weight) for reason in likely_reasons(reversed(reasons), math.log(2))]
    assert found == [(1.1, 20.0), (1.2, 15.0)]


def test_a_likelihood_is_students_which_is_a_normal_one_of_an_uncertain_scale() -> None:
    inverse = np.linspace(1e-4, 40, 400_001)
    scales = inverse ** (FREEDOM / 2 - 1) * np.exp(-FREEDOM / 2 * inverse)
    found, expected = [], []
    for off, mean, spread in ((0.3, 0.1, 0.2), (0.3, -0.2, 0.2), (1.5, 0.1, 0.2), (0.3, 0.1, 0.5)):
        covariance = spread**2 * np.array([[1, 0.6, 0.3], [0.6, 1, 0.6], [0.3, 0.6, 1]])
        found.append(log_likelihood(np.full(3, off), ErrorModel(np.full(3, mean), covariance)))
        far = np.full(3, off - mean) @ np.linalg.inv(covariance) @ np.full(3, off - mean)
        normal = inverse**1.5 / np.sqrt(np.linalg.det(covariance)) * np.exp(-inverse * far / 2)
        expected.append(math.log(np.sum(scales * normal)))
    assert np.diff(found) == pytest.approx(np.diff(expected), abs=1e-3)


def test_a_rare_reason_weighs_less_and_one_with_several_variants_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    degraded = measured_on(replace(H100, nvls=False))
    usual = diagnose(degraded, H100, QUIET).reasons[0].hypothesis
    rare = replace(usual, name="rare", prior=usual.prior / 10)
    twice = replace(usual, name="twice", changed=lambda system: [*usual.changed(system), *usual.changed(system)])
    monkeypatch.setattr("collbench.analysis.reasons.HYPOTHESES", (usual, rare, twice))
    weights = {reason.hypothesis.name: reason.weight for reason in diagnose(degraded, H100, QUIET).reasons}
    assert weights["rare"] == pytest.approx(weights[usual.name] - math.log(10))
    assert weights["twice"] == pytest.approx(weights[usual.name])


def test_a_constant_more_is_bound_by_launches_and_scatter_is_a_busy_gpu() -> None:
    rows = [replace(row, seconds=(row.typical + 100e-6,)) for row in measured_on(H100)]
    found = diagnose(rows, H100, QUIET)
    assert found.word is Word.SLOW
    assert "constant time more" in found.reasons[0].hypothesis.name
    expected = curve(H100, [case(nbytes=nbytes, ranks=8) for nbytes in SIZES])
    start = expected[0].seconds

    def slowed(factors: Sequence[float]) -> Diagnosis:
        times = [start + factor * (one.seconds - start) for factor, one in zip(cycle(factors), expected, strict=False)]
        return diagnose(rows_of(list(zip(SIZES, times, strict=True)), "allreduce", 8), H100, QUIET)

    assert "busy with something else" in slowed([3, 4.5, 2, 3.2, 2.5, 5]).reasons[0].hypothesis.name
    steady = slowed([3])
    assert steady.word is Word.SLOW
    assert not any("busy" in reason.hypothesis.name for reason in steady.reasons)


def test_what_was_set_decides_between_reasons() -> None:
    """Cards at half their rate and half as many cards have nearly the same times.

    The one that fits better comes first, unless the header's variable speaks for the other.
    """
    half = measured_on(network(H100.of(4), rate=25e9))
    plain = diagnose(half, H100.of(4), QUIET)
    set_so = diagnose(half, H100.of(4), RunFacts({"NCCL_IB_HCA": "mlx5_0"}))
    assert plain.reasons[0].hypothesis.name.startswith("PCIe of an older generation")
    names = [reason.hypothesis.name for reason in set_so.reasons[:2]]
    assert {reason.hypothesis.name for reason in plain.reasons} >= set(names)
    assert names[0].startswith("only some network cards")
    assert set_so.reasons[0].facts == ("NCCL_IB_HCA=mlx5_0",)
    assert not list(HYPOTHESES[0].evidence([("NCCL_P2P_DISABLE", "0")]))
    assert dict(HYPOTHESES[0].evidence([("NCCL_P2P_DISABLE", "1")])) == {"NCCL_P2P_DISABLE=1": 1000}


@pytest.mark.parametrize("sizes", [1, 2])
def test_one_or_two_sizes_are_judged_by_their_bands(sizes: int) -> None:
    # At 8 KiB and 16 KiB no link is full.
    expected = curve(H100, [case(nbytes=nbytes, ranks=8) for nbytes in SIZES[10 : 10 + sizes]])
    for word, odd in (
        (Word.OK, expected[-1].seconds),
        (Word.OK, 1.1 * expected[-1].high),
        (Word.OK, expected[-1].low / 1.1),
        (Word.SLOW, 1.3 * expected[-1].high),
        (Word.SLOW, 26 * expected[-1].seconds),
        (Word.FAST, expected[-1].low / 1.3),
    ):
        seconds = [*(other.seconds for other in expected[:-1]), odd]
        rows = rows_of(list(zip(SIZES[10:], seconds, strict=False)), "allreduce", 8)
        assert diagnose(rows, H100, QUIET).word is word


def test_ranks_on_an_unknown_number_of_nodes_are_never_slow() -> None:
    unplaced = replace(QUIET, unplaced="the list of ranks is trimmed")
    for times, sizes in ((30.0, SIZES), (30.0, SIZES[-1:])):
        assert diagnose(measured_on(H100, sizes, times), H100, QUIET).word is Word.SLOW
        found = diagnose(measured_on(H100, sizes, times), H100, unplaced)
        assert (found.word, found.reasons, "trimmed" in found.remark) == (Word.UNKNOWN, (), True)
    assert diagnose(measured_on(H100), H100, unplaced).word is Word.OK


def test_a_link_that_would_carry_more_than_it_can_refutes_the_system() -> None:
    slow_cards = network(H100.of(4), rate=5e9)
    found = diagnose(measured_on(H100.of(4)), slow_cards, QUIET)
    assert (found.word, found.reasons) == (Word.UNKNOWN, ())
    assert "network cards" in found.remark
    assert "network cards" not in diagnose(measured_on(slow_cards), slow_cards, QUIET).remark
    assert diagnose(measured_on(H100), H100, QUIET).word is Word.OK


def test_unknown_faster_and_slow_without_a_reason_are_answers() -> None:
    rows = measured_on(H100)
    assert diagnose(rows, None, RunFacts({}, (), "no header")).remark == "no header"
    foreign = diagnose([replace(row, implementation="mpi") for row in rows], H100, QUIET)
    assert foreign.word is Word.UNKNOWN
    assert "mpi has no model" in foreign.remark
    assert diagnose(measured_on(H100, SIZES[:16], times=0.3), H100, QUIET).word is Word.FAST
    found = diagnose(measured_on(H100, times=30), H100, QUIET)
    assert (found.word, found.reasons) == (Word.SLOW, ())


def test_a_curve_without_a_model_has_remarks_on_what_is_beyond_noise_only() -> None:
    times = [10e-6 + size / 50e9 for size in SIZES]
    for factor, remarked in ((1.05, False), (1.6, True)):
        changed = [seconds * (factor if place == 3 else 1.0) for place, seconds in enumerate(times)]
        remarks = " ".join(curve_remarks(rows_of(list(zip(SIZES, changed, strict=True)), "allreduce", 8)))
        assert "latency 10 us" in remarks
        assert ("64 B +" in remarks) == ("takes less time than 64 B" in remarks) == remarked, remarks
    jumping = [seconds * (10 if size >= 2**14 else 1) for seconds, size in zip(times, SIZES, strict=True)]
    remarks = " ".join(curve_remarks(rows_of(list(zip(SIZES, jumping, strict=True)), "allreduce", 8)))
    assert "fitted by itself (pieces: 2): latency 10" in remarks
    assert "far from that fit" not in remarks
    many = [(1000 * size, (10e-6 + size * 1e-6) * (3 if size == 77 else 1)) for size in range(1, 131)]
    assert "far from that fit: 75.2 KiB +" in " ".join(curve_remarks(rows_of(many, "allreduce", 8)))


def test_busbw_above_the_line_is_explained_and_between_nodes_the_line_is_the_cards() -> None:
    (expected,) = curve(H100, [case(nbytes=2**34, ranks=8)])
    (row,) = rows_of([(2**34, 2**34 / 275e9)], "allreduce", 8)
    assert traffic(H100, expected.case, expected.algorithm).per_byte == pytest.approx(1 + 1 / 8)
    share, why = traffic_in_words(H100, row, expected)
    assert "309.4 GB/s go through a GPU's NVLinks in each direction: 69% of their 450.0" in share
    assert "busbw may be above that: it counts 1.75" in why
    ring = replace(expected, algorithm="ring")
    assert traffic(H100, ring.case, ring.algorithm).per_byte == pytest.approx(1.75)
    assert len(traffic_in_words(H100, rows_of([(2**34, 2**34 / 200e9)], "allreduce", 8)[0], ring)) == 1
    (expected,) = curve(H100.of(2), [case(nbytes=2**34, ranks=16)])
    ring, tree = (traffic(H100.of(2), expected.case, algorithm) for algorithm in ("ring", "tree"))
    assert (ring.line, ring.where) == (400e9, "a node's network cards")
    assert ring.per_byte == pytest.approx(1.875)
    assert tree.per_byte == pytest.approx(1.0)


def limit(sizes: Sequence[int], system: System) -> float:
    return judge(sizes, np.zeros(len(sizes)), error_model(sizes, error_levels(system, "allreduce"))).limit


def test_large_messages_are_slow_from_their_limit_on_and_less_is_known_of_rarer_machines() -> None:
    rows = measured_on(H100)
    diagnosis = diagnose(rows, H100, QUIET)
    assert 1.0 < diagnosis.limit < diagnosis.sight.large < 1.6
    sizes = [row.case.nbytes for row in rows]
    errors = error_model(sizes, error_levels(H100, "allreduce"))
    large = np.array([regime(size) == 2 for size in sizes])
    for by, word in ((0.99, Word.OK), (1.01, Word.SLOW)):
        assert judge(sizes, errors.mean * ~large + np.log(by * diagnosis.limit) * large, errors).word is word, by
    few, many = ([2**power for power in range(27, 34, step)] for step in (3, 1))
    assert limit(many, H100) == pytest.approx(limit(few, H100), rel=0.05)
    assert limit(many, files.load("ethernet-100g-tcp").of(2)) > limit(many, H100) + 0.1
    a100 = files.load("dgx-a100")  # of all-reduces by NVLS large sizes are known as well without
    assert limit(many, replace(a100, calibration="mine.toml")) < limit(many, a100)


def test_a_curve_that_would_hide_much_is_unknown_and_says_what_to_give() -> None:
    alps = files.load("alps-gh200").of(2)
    for most, words in ((17, {1.0: Word.UNKNOWN, 10.0: Word.SLOW}), (31, {1.0: Word.OK, 10.0: Word.SLOW})):
        for times, word in words.items():
            found = diagnose(measured_on(alps, SIZES[: most - 2], times), alps, QUIET)
            assert (found.word, found.judged, found.sight.enough) == (word, True, most == 31), (most, times)
            assert (f"{found.sight}; give --reference" in found.remark) is (word is Word.UNKNOWN)


def as_it_should_be(sweep: Published) -> System:
    """The machine of a sweep without what was done to it: with RDMA, or GPUs that may use each other's memory."""
    if "polaris_s1_tcp" in sweep.name:
        assert POLARIS.gpus == sweep.system.gpus
        return network(sweep.system, transport="slingshot")
    return replace(sweep.system, p2p=True) if sweep.name.startswith("a40_") else sweep.system


def diagnosed(quality: str) -> dict[str, Diagnosis]:
    found = {}
    for sweep in published():
        bad = sweep.quality == "degraded" or "polaris_s1_tcp" in sweep.name  # by TCP, where there is RDMA
        if sweep.quality != quality and not (bad and quality == "degraded"):
            continue
        system, times = as_it_should_be(sweep) if quality == "degraded" else sweep.system, sweep.in_place or sweep.rows
        rows = rows_of([duration for duration in times if duration[0] > 0], sweep.collective, system.ranks)
        found[sweep.name] = diagnose(rows, system, QUIET)
    return found


def slow(found: dict[str, Diagnosis]) -> list[str]:
    return [name for name, finding in found.items() if finding.word is Word.SLOW]


def test_published_sweeps_that_are_degraded_are_slow_for_the_reason_that_their_sources_tell() -> None:
    degraded = diagnosed("degraded")
    assert len(degraded) >= 7
    assert len(slow(degraded)) >= 0.8 * len(degraded), sorted(degraded.keys() - set(slow(degraded)))
    for name, reason in (
        ("a100sxm40_32gpu_8n_allgather_polaris_s1_tcp", "traffic goes over TCP"),
        ("a100sxm40_32gpu_8n_allreduce_polaris_s1_tcp", "traffic goes over TCP"),
        ("a40_2gpu_1n_allreduce_node_p2pdisabled", "P2P is off"),
        ("gb10_2gpu_2n_allgather_spark_direct_bad", "traffic goes over TCP"),
        ("rtx4090_2gpu_1n_allreduce_busy", "the GPUs or links are busy"),
    ):
        assert degraded[name].reasons[0].hypothesis.name.startswith(reason), name


def test_few_healthy_machines_are_accused_and_of_no_kind_more_than_one_of_seven() -> None:
    accused = set(slow(diagnosed("healthy")))
    assert len(accused) <= 9 / 320 * len(healthy())
    for name, among in CLASSES.items():
        found = [sweep.name for sweep in healthy() if among(sweep)]
        assert len(accused & set(found)) <= max(1, len(found) / 7), (name, accused & set(found))


@pytest.fixture(scope="module")
def unseen() -> list[confusion.Trial]:
    """Healthy sweeps, each with a model that has seen none of its operator's machines."""
    return confusion.trials()


def test_of_machines_that_no_spread_has_seen_few_are_accused_and_most_are_when_slower(
    unseen: list[confusion.Trial],
) -> None:
    verdicts = [trial.word() for trial in unseen]
    assert verdicts.count(Word.SLOW) <= 0.08 * len(unseen)
    # Nearly all Blackwell is one operator's: without it, its newest NCCL is faster than modelled.
    blackwell = [CLASSES["one node, Blackwell"](trial.found.sweep) for trial in unseen]
    for within, most in ((True, 0.21), (False, 0.02)):
        some = [verdict for verdict, new in zip(verdicts, blackwell, strict=True) if new is within]
        assert some.count(Word.FAST) <= most * len(some), within
    for by, least in ((1.5, 0.8), (2.0, 0.92), (3.0, 0.98)):
        assert sum(trial.word(by) is Word.SLOW for trial in unseen) >= least * len(unseen), by


@pytest.mark.full
def test_the_cause_is_among_the_first_two_and_the_page_says_what_is_found(unseen: list[confusion.Trial]) -> None:
    rows = [line.split("|")[2:6] for line in list(confusion.causes(unseen[::4]))[2:]]
    curves, slow, _, among = (sum(int(row[column]) for row in rows) for column in range(4))
    assert len(rows) >= 9
    assert slow >= 0.85 * curves
    assert among >= 0.7 * slow
    page = (ROOT / "docs" / "analysis.md").read_text()
    assert "\n".join(confusion.verdicts(unseen)) in page, "run `make model-report`"


OPEN = RunFacts({}, unsaid=("launch", "nccl"))


def test_a_log_that_does_not_say_launch_or_release_is_slow_only_by_all_of_them() -> None:
    a100 = files.load("dgx-a100")
    by_one = measured_on(replace(a100, launch="single-process"))
    assert diagnose(by_one, a100, QUIET).word is Word.SLOW
    found = diagnose(by_one, a100, OPEN)
    assert found.word is Word.OK
    assert "one process for all GPUs of a node" in found.assumed
    slow = diagnose(measured_on(replace(a100, launch="single-process"), times=3), a100, OPEN)
    assert (slow.word, bool(slow.reasons)) == (Word.SLOW, True)
    usual = diagnose(measured_on(a100), a100, OPEN)
    assert usual.assumed == f"assumed: a process for each GPU, NCCL {System.nccl}"
    assert usual.sight.single > diagnose(measured_on(a100), a100, QUIET).sight.single
    assert not diagnose(measured_on(a100), a100, QUIET).assumed


def test_what_a_foreign_log_leaves_open_is_what_it_does_not_say() -> None:
    def of(version: str = "", tool: str = "nccl-tests", **sweep: int) -> tuple[str, ...]:
        environment = Environment(versions={"nccl": version} if version else {})
        header = Header(environment=environment, imported=ImportedPart(tests=(ForeignTest(tool=tool, sweep=sweep),)))
        return unsaid(Run(ROOT, header, (), True))

    assert of() == ("launch", "nccl")
    assert of("2.27.3", gpus=1) == ()
    assert of("2.27.3") == ("launch",)
    assert of(gpus=8) == ("nccl",)
    assert of(tool="osu") == ()
    assert unsaid(Run(ROOT, Header(), (), True)) == ()


def test_what_would_be_noticed_is_noticed_in_all_but_one_of_fifty_unseen_machines(
    unseen: list[confusion.Trial],
) -> None:
    missed: dict[str, list[bool]] = {}
    for trial in unseen:
        kinds, none = trial.found.regimes, np.ones(len(trial.found.regimes))
        sight = trial.judged(none).sight
        hit = {"large": (kinds == 2, sight.large)} if np.sum(kinds == 2) >= FEWEST else {}
        for place, least in enumerate(sight.singles):
            if np.any(kinds == place):
                (there,) = np.nonzero(kinds == place)
                hit[f"one size, {place}"] = np.arange(len(kinds)) == there[len(there) // 2], least
        for name, (where, times) in hit.items():
            missed.setdefault(name, []).append(trial.judged(np.where(where, times, none)).word is not Word.SLOW)
    assert len(missed) == 4
    every = [miss for found in missed.values() for miss in found]
    assert sum(every) <= len(every) / 50, {name: (sum(found), len(found)) for name, found in missed.items()}


def test_shares_that_are_no_whole_loads_are_not_judged() -> None:
    system = H100.part(6)
    for more, expected in ((0, Word.SLOW), (6 * 4, Word.UNKNOWN)):
        rows = [((96 << 20) * times + more, 1.0) for times in (1, 2, 3, 4)]
        assert diagnose(rows_of(rows, "allgather", 6), system, QUIET).word is expected, more


def test_rccl_is_what_the_model_knows_of_amd_s_gpus() -> None:
    system = files.load("mi300x")
    for times, expected in ((1.0, Word.OK), (2.5, Word.SLOW)):
        rows = [replace(row, implementation="rccl") for row in measured_on(system, times=times)]
        assert diagnose(rows, system, QUIET).word is expected, times
