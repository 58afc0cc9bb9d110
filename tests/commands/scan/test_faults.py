"""Who is slow, told from rounds of made-up clusters: each kind of fault, several, none; and which groups are chosen."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from collbench.analysis.judgement import Word
from collbench.commands.scan.choice import RoundPlan, choose
from collbench.commands.scan.posterior import ACROSS, EVERY, RECEIVES, SENDS, WITHIN, Hypotheses, Posterior
from collbench.commands.scan.rows import MemberLevel, Members, Round, Scan
from collbench.commands.scan.scanner import Scanner
from collbench.commands.scan.simulated import Cluster, faults_of
from collbench.commands.scan.verdict import MOST_ROUNDS, ScanFinding, ScanVerdict
from collbench.errors import UsageError
from collbench.requests.sweeps import find_system
from tests.conftest import case

CASE = case("sendrecv", 2**20, ranks=8, work=Scan())
NODES = ("a", "a", "b", "b", "c", "c", "d", "d")
GPUS = Members(
    CASE,
    "nccl",
    platform="gpu",
    names=tuple(f"{node}:{place % 2}" for place, node in enumerate(NODES)),
    levels=(
        MemberLevel("node", NODES),
        MemberLevel("rail", ("rail 0", "rail 1") * 4),
        MemberLevel("leaf", ("leaf 0",) * 4 + ("leaf 1",) * 4),
    ),
)


def scanned(inject: str, nodes: int = 128, seed: int = 0, group: int = 2) -> ScanVerdict:
    """What a scan of a described system finds."""
    work = Scan(group)
    cluster = Cluster(find_system("dgx-h100").of(nodes), work, "1M", inject, seed)
    scanner = Scanner(cluster.members, work)
    for _ in cluster.rounds(scanner):
        pass
    return scanner.verdict


def found(verdict: ScanVerdict) -> dict[str, ScanFinding]:
    """Who is slow."""
    return {finding.name: finding for finding in verdict.faulty}


def rounds_of(members: Members, slow: dict[tuple[int, ...], float], count: int = 40) -> Iterator[Round]:
    """Rounds of random pairs, of whom those with these members are so many times slower."""
    random = np.random.default_rng(1)
    for number in range(count):
        groups = random.permutation(len(members.names)).reshape(-1, 2).tolist()
        times = []
        for group in groups:
            factors = [factor for ends, factor in slow.items() if set(ends) <= set(group)]
            times.append(1e-4 * max(factors, default=1.0) * np.exp(random.normal(0, 0.003)))
        yield Round(CASE, "nccl", "gpu", number, tuple(map(tuple, groups)), tuple(times), 1e-3)


def test_each_kind_of_fault_is_told_from_the_others() -> None:
    for inject, kind, name, way, slower in (
        ("node=37:0.9", "member", "node 37", EVERY, 1.11),
        ("leaf=1:0.7", "leaf", "leaf 1", ACROSS, 1.43),
        ("send=7:0.8", "member", "node 7", SENDS, 1.25),
        ("receive=9:0.7", "member", "node 9", RECEIVES, 1.43),
        ("flaky=99:0.6@0.3", "member", "node 99", EVERY, 1.67),
    ):
        verdict = scanned(inject)
        assert list(found(verdict)) == [name], verdict.words
        (finding,) = verdict.faulty
        assert finding.suspicion.likeliest == (kind, name, way)
        assert finding.least < slower < finding.most
        assert finding.slower == pytest.approx(slower, rel=0.03)
        assert (finding.suspicion.often < 1) == inject.startswith("flaky")
        assert verdict.word is Word.SLOW


def test_a_slow_link_is_told_from_its_ends() -> None:
    """Among few: of many members a pair is hardly ever chosen twice."""
    verdict = scanned("link=3-5:0.6", nodes=8)
    (finding,) = verdict.faulty
    assert finding.suspicion.likeliest == ("link", "node 3 - node 5", EVERY)


def test_any_number_of_faults_is_found_and_one_behind_another_too() -> None:
    faults = {"node 3": "node=3:0.9", "node 40": "node=40:0.8", "node 77": "node=77:0.7", "leaf 3": "leaf=3:0.75"}
    assert set(found(scanned(",".join(faults.values())))) == set(faults)
    assert set(found(scanned("leaf=0:0.7,node=5:0.5"))) == {"leaf 0", "node 5"}


def test_noise_is_no_fault() -> None:
    for seed in range(10):
        verdict = scanned("", nodes=64, seed=seed)
        assert not verdict.faulty, verdict.words
        assert not verdict.suspects
        assert verdict.word in (Word.OK, Word.UNKNOWN)
        assert verdict.one_more < 0.05


def test_the_same_rounds_give_the_same_verdict_however_a_cluster_is_scanned() -> None:
    """Larger groups tell less, and come to the same end."""
    assert scanned("node=37:0.9").words == scanned("node=37:0.9").words
    assert list(found(scanned("node=37:0.85", group=4))) == ["node 37"]


def test_gpus_of_a_node_and_rails_are_told_from_single_gpus() -> None:
    node = {(2,): 1.3, (3,): 1.3}
    rail = {(first, second): 1.4 for first in range(0, 8, 2) for second in range(0, 8, 2) if first != second}
    for slow, likeliest in (
        (node, ("node", "b", EVERY)),
        ({(2,): 1.3}, ("member", "b:0", EVERY)),
        (rail, ("rail", "rail 0", WITHIN)),
    ):
        posterior = Posterior(GPUS, 0.01, 0.1)
        for each in rounds_of(GPUS, slow):
            posterior.add(each)
        assert [suspicion.likeliest for suspicion in posterior.believe().suspicions] == [likeliest]


def test_what_is_slower_by_less_than_asked_is_no_fault() -> None:
    posterior = Posterior(GPUS, 0.003, 0.1)
    for each in rounds_of(GPUS, {(2,): 1.03}):
        posterior.add(each)
    assert not posterior.believe().suspicions


def test_a_fault_slows_the_groups_that_its_kind_says() -> None:
    hypotheses = Hypotheses(GPUS)
    hypotheses.set_links(np.zeros(0, np.int64))  # of so few members every link is looked at
    by_name = {hypotheses[number]: number for number in range(len(hypotheses))}
    assert len(by_name) == len(hypotheses) == len(hypotheses.prior)
    groups = np.array([[0, 1], [2, 5], [4, 3], [6, 7]])
    for one_way, expected in (
        (False, {("member", "b:0", SENDS): {1}, ("link", "c:1 > b:0", EVERY): {1}, ("link", "b:0 - c:1", EVERY): {1}}),
        (
            True,
            {("member", "b:0", SENDS): {1}, ("member", "b:0", RECEIVES): set(), ("link", "c:1 > b:0", EVERY): set()},
        ),
        (False, {("node", "b", EVERY): {1, 2}, ("node", "a", ACROSS): set(), ("node", "b", ACROSS): {1, 2}}),
        (False, {("leaf", "leaf 0", ACROSS): {1, 2}, ("leaf", "leaf 1", EVERY): {1, 2, 3}}),
        (False, {("rail", "rail 0", WITHIN): set(), ("rail", "rail 1", WITHIN): set()}),
    ):
        of, by = hypotheses.slowed(groups, one_way)
        for name, slowed in expected.items():
            assert set(of[by == by_name[name]].tolist()) == slowed, (name, one_way)  # type: ignore[index]
    of, by = hypotheses.slowed(np.array([[0, 2], [4, 6]]), False)
    assert set(of[by == by_name["rail", "rail 0", WITHIN]].tolist()) == {0, 1}  # type: ignore[index]


def test_rounds_are_of_disjoint_groups_with_suspects_apart() -> None:
    posterior = Posterior(GPUS, 0.01, 0.1)
    first = next(rounds_of(GPUS, {(2,): 1.5}))
    posterior.add(first)
    slow = max(zip(first.seconds, first.groups, strict=True))[1]
    belief = posterior.believe()
    for seed in range(20):
        plan = choose(posterior.hypotheses, belief, 2, np.random.default_rng(seed), out=[7])
        members = plan.groups.ravel().tolist()
        assert max(Counter(members).values()) == 1
        assert 7 not in members
        assert sorted(slow) not in [sorted(group) for group in plan.groups.tolist()]


def test_a_slow_member_is_left_out_of_further_rounds() -> None:
    cluster = Cluster(find_system("dgx-h100").of(16), Scan(), "1M", "node=5:0.6", 0)
    scanner = Scanner(cluster.members, Scan())
    last = [each.groups for each in cluster.rounds(scanner)][-1]
    assert 5 not in {member for group in last for member in group}
    assert len(scanner.rounds) <= MOST_ROUNDS


def test_findings_are_decided_by_the_same_test_as_those_of_check() -> None:
    few = Scanner(GPUS, Scan(), list(rounds_of(GPUS, {(2,): 1.5}, 2))).verdict
    assert [finding.word for finding in few.findings] == [Word.UNKNOWN]
    assert few.suspects
    assert few.word is Word.UNKNOWN
    many = Scanner(GPUS, Scan(), list(rounds_of(GPUS, {(2,): 1.5}, 30))).verdict
    assert [finding.word for finding in many.findings] == [Word.SLOW]


def test_faults_to_inject_are_read_or_refused_with_the_form() -> None:
    node, link, flaky = faults_of("node=37:0.9, link=1-2:0.5,flaky=9:0.6@0.1", 64, 2)
    assert (node.slower, link.of, link.to, flaky.often) == (pytest.approx(1 / 0.9), 1, 2, 0.1)
    for text in ("node=64:0.9", "leaf=2:0.5", "node=1", "node=1:1.5", "link=1:0.5", "rail=1:0.5", "node=1:0"):
        with pytest.raises(UsageError, match=r"--inject"):
            faults_of(text, 64, 2)


def test_groups_without_times_or_with_a_member_twice_are_no_round() -> None:
    good = Round(CASE, "nccl", "gpu", 0, ((0, 1), (2, 3)), (1e-3, 1e-3), 1e-2)
    assert not good.contradiction
    for groups, seconds in ((((0, 1),), ()), (((0, 1), (1, 2)), (1e-3, 1e-3)), (((0, 1), (2, 3, 4)), (1e-3, 1e-3))):
        assert Round(CASE, "nccl", "gpu", 0, groups, seconds, 1e-2).contradiction


def test_plans_of_one_way_have_senders_first() -> None:
    hypotheses = Hypotheses(GPUS)
    of, by = hypotheses.slowed(RoundPlan(np.array([[4, 0]]), one_way=True).groups, True)
    names = {hypotheses[number] for number in by.tolist()}
    assert ("member", "c:0", SENDS) in names
    assert ("member", "a:0", SENDS) not in names
    assert set(of.tolist()) == {0}
