"""Who is slow, told from rounds of made-up clusters: each kind of fault, several, none; and which groups are chosen."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from collbench.analysis.judgement import Word
from collbench.commands.scan.effects import ACROSS, EVERY, RECEIVES, SENDS, WITHIN
from collbench.commands.scan.measured import RoundPlan, Scanner
from collbench.commands.scan.rows import MemberLevel, Members, Round, Scan
from collbench.commands.scan.simulated import Cluster, faults_of
from collbench.commands.scan.verdict import LEAST_ROUNDS, MOST_ROUNDS, ScanVerdict, judge
from collbench.errors import UsageError
from collbench.requests.sweeps import find_system
from collbench.results import Failed
from tests.conftest import case

LARGE = 2**20
WORK = Scan(2, 0.1, (8192, LARGE))
CASE = case("sendrecv", LARGE, ranks=8, work=WORK)
Slower = Callable[[RoundPlan, int, np.random.Generator], Any]  # how many times slower groups of a round are
Made = tuple[ScanVerdict, list[Round]]


def scanned(*inject: str, nodes: int = 128, seed: int = 0, work: Scan = WORK) -> ScanVerdict:
    cluster = Cluster(find_system("dgx-h100").of(nodes), work, inject, seed)
    scanner = Scanner(cluster.members, work)
    assert len(list(cluster.rounds(scanner))) == scanner.verdict.rounds
    return scanner.verdict


def found(verdict: ScanVerdict) -> set[str]:
    return {finding.name for finding in verdict.faulty}


def plain(count: int) -> Members:
    return Members(CASE, "nccl", platform="gpu", names=tuple(f"n{number}" for number in range(count)))


def gpus(hosts: str, per_leaf: int) -> Members:
    places = [hosts[:rank].count(host) for rank, host in enumerate(hosts)]
    leaves = [sorted(set(hosts)).index(host) // per_leaf for host in hosts]
    units = {"node": hosts, "rail": [f"rail {each}" for each in places], "leaf": [f"leaf {each}" for each in leaves]}
    levels = tuple(MemberLevel(kind, tuple(of)) for kind, of in units.items())
    return replace(plain(0), names=tuple(map("{}:{}".format, hosts, places)), levels=levels)


def made_up(members: Members, slower: Slower, work: Scan = WORK, noise: float = 0.003, seed: int = 0) -> Made:
    """The verdict of a scan whose times are made up, and its rounds."""
    random, scanner, rounds = np.random.default_rng(seed), Scanner(members, work), []
    while plan := scanner.next():
        times = 1e-4 * slower(plan, len(rounds), random) * np.exp(random.normal(0, noise, len(plan.groups)))
        groups, of = tuple(map(tuple, plan.groups.tolist())), replace(CASE, nbytes=plan.nbytes)
        rounds.append(Round(of, "nccl", "gpu", len(rounds), groups, tuple(times.tolist()), 1e-3, plan.one_way))
        scanner.add(rounds[-1])
    return scanner.verdict, rounds


def slow(factor: float, *members: int, hits: Sequence[int] = (1, 2, 3), least: int = 0) -> Slower:
    """Groups with so many of these members are slow, of messages so long."""

    def times(plan: RoundPlan, *_: object) -> Any:
        many = np.isin(plan.groups, members).sum(axis=1)
        return np.where(np.isin(many, hits) & (plan.nbytes >= least), factor, 1)

    return times


def test_each_kind_of_fault_is_told_from_the_others() -> None:
    for inject, nodes, fault in (
        ("node=37:0.9", 128, ("member", "node 37", EVERY)), ("send=7:0.8", 128, ("member", "node 7", SENDS)),
        ("leaf=1:0.7", 128, ("leaf", "leaf 1", ACROSS)), ("receive=9:0.7", 128, ("member", "node 9", RECEIVES)),
        ("leaf=2:0.7", 96, ("leaf", "leaf 2", ACROSS)), ("flaky=99:0.6@0.3", 128, ("member", "node 99", EVERY)),
        ("leaf=2:0.6@0.3", 256, ("leaf", "leaf 2", ACROSS)), ("link=3-5:0.6", 8, ("link", "node 3 - node 5", EVERY)),
        (",".join(f"node={node}:0.8" for node in range(32, 64)), 128, ("leaf", "leaf 1", EVERY)),
    ):  # fmt: skip
        verdict, slower = scanned(inject, nodes=nodes), 1 / float(inject.partition(":")[2][:3])
        (finding,) = verdict.faulty
        assert (finding.effect.fault, verdict.word) == (fault, Word.SLOW), verdict.words
        assert finding.least / 1.01 < slower < 1.01 * finding.most < 1.06 * finding.least
        assert (finding.effect.often < 0.5) == ("@" in inject)
        assert 0.99 < finding.probability <= 0.999


def test_any_number_of_faults_is_found_and_nobody_innocent_named() -> None:
    for inject, names in (
        ("leaf=0:0.7,node=5:0.5", {"leaf 0", "node 5"}),
        ("node=3:0.9,node=40:0.8,node=77:0.7,leaf=3:0.75", {"node 3", "node 40", "node 77", "leaf 3"}),
        ("node=3:0.8,flaky=50:0.5@0.4,flaky=99:0.6@0.3", {"node 3", "node 50", "node 99"}),
    ):
        assert found(scanned(inject)) == names
    assert found(scanned("node=37:0.85", work=Scan(4, 0.1, (LARGE,)))) == {"node 37"}


def test_where_many_are_slow_they_are_named_exactly_or_it_is_unknown() -> None:
    for nodes, speed, of, sure in (
        (3, 0.6, [1], True), (5, 0.5, [1, 2], False), (32, 0.8, range(14), False), (32, 0.8, range(20), False),
        (8, 0.8, range(4), False), (64, 0.8, range(28), False),
        (128, 0.8, [33, 36, 41, 44, 50, 63], True), (128, 0.8, range(1, 120, 8), True),  # of a leaf, of all
    ):  # fmt: skip
        for seed in range(3 if nodes < 128 else 1):
            verdict = scanned(*(f"node={node}:{speed}" for node in of), nodes=nodes, seed=seed)
            assert verdict.word is Word.SLOW or (not sure and verdict.word is Word.UNKNOWN and verdict.suspects)
            assert found(verdict) == ({f"node {node}" for node in of} if verdict.faulty else set())
            assert not verdict.faulty or len(of) <= nodes / 2  # most of all are what is usual


def test_what_cannot_be_told_or_is_less_than_asked_is_named_as_that() -> None:
    doubtful, good = scanned("leaf=1:0.7", nodes=64), scanned(nodes=64)
    assert (doubtful.word, doubtful.faulty, good.word) == (Word.UNKNOWN, [], Word.OK)
    assert "leaf 0 or leaf 1 may be slow" in doubtful.words
    assert any("leaf 0 against leaf 1" in unseen for unseen in good.sight.unseen)
    for speed, seed in ((0.95, 0), (0.94, 1), (0.94, 2)):
        verdict = scanned(f"node=9:{speed}", nodes=64, seed=seed)
        told = [(finding.name, finding.word) for finding in verdict.findings]
        assert (verdict.word, verdict.faulty, told) == (Word.OK, [], [("node 9", Word.OK)])
    assert found(scanned("node=9:0.94", nodes=64, work=replace(WORK, slower=0.03))) == {"node 9"}


def test_gpus_their_nodes_rails_and_leaves_are_told_from_one_another() -> None:
    of_four, odd = gpus("aaaabbbbccccddddeeeeffffgggghhhh", 2), gpus("aaaabbbbccccddddeeeeffffggggz", 8)
    for members, slower, fault in (
        (of_four, slow(1.3, 4, 5, 6, 7), ("node", "b", EVERY)), (of_four, slow(1.3, 5), ("member", "b:1", EVERY)),
        (of_four, slow(1.4, *range(1, 32, 4), hits=[2]), ("rail", "rail 1", WITHIN)),
        (of_four, slow(1.4, *range(8, 16), hits=[1]), ("leaf", "leaf 1", ACROSS)),
        (of_four, slow(1.4, 8, 9, 10, 11, hits=[1]), ("node", "c", ACROSS)),
        (odd, slow(1.3, 28), ("member", "z:0", EVERY)), (odd, slow(1.3, 4, 5, 6, 7), ("node", "b", EVERY)),
    ):  # fmt: skip
        assert [finding.effect.fault for finding in made_up(members, slower)[0].findings] == [fault]


def test_noise_is_no_fault_and_hides_none() -> None:
    members = gpus("aaaaaaaabbbbbbbbccccccccdddddddd", 1)

    noises: list[tuple[Slower, float]] = [
        (slow(1), 0.03), (slow(1), 0.06),
        (lambda _, number, random: 1 + 0.6 * (number % 5 == 2) * (random.random(16) < 0.5), 0.003),
        (lambda plan, number, _: slow(1.3, *[5][: 10 <= number < 18])(plan), 0.003),  # a spell of eight rounds
    ]  # fmt: skip
    for seed, (slower, noise) in product(range(2), noises):
        verdict, _ = made_up(members, slower, noise=noise, seed=seed)
        assert (verdict.word, verdict.suspects) == (Word.OK, []), verdict.words
        assert not scanned(nodes=64, seed=seed).findings
    drift, _ = made_up(members, lambda plan, number, random: slow(1.15, 5)(plan, number, random) * 1.01**number)
    assert [(each.name, each.least < 1.15 < each.most) for each in drift.faulty] == [("a:5", True)]


def test_an_ok_says_what_it_would_have_seen_and_a_fault_at_which_sizes_it_shows() -> None:
    for nodes, links, often in ((8, True, 0.5), (64, False, 0.6)):
        verdict, sight = (seen := scanned(nodes=nodes)), seen.sight
        assert (verdict.word, sight.sizes, sight.links) == (Word.OK, WORK.sizes, links)
        assert 1.1 < sight.slower < 1.12 < sight.brief < 1.3
        assert 0.1 < sight.often < often
        assert any("single links" in unseen for unseen in sight.unseen) != links
        assert "would have seen 1.11x" in verdict.words
    noisy = made_up(plain(32), slow(1), noise=0.06)[0].sight
    assert sight.slower < noisy.slower < 1.3 < noisy.brief
    for least, said in ((LARGE, "1 MiB"), (0, "")):
        (finding,) = made_up(plain(32), slow(1.5, 5, least=least))[0].faulty
        assert str(finding).partition(" at ")[2] == said


def test_rounds_are_of_disjoint_groups_and_of_few_have_every_pair_once_a_cycle() -> None:
    for members, slower, work in (
        (plain(8), slow(1), WORK),
        (plain(7), slow(1.5, 3), WORK),
        (plain(40), slow(1), Scan(3, 0.1, (LARGE,))),
        (gpus("aaaabbbbccccddddeeeeffffgggghhhh", 2), slow(1.4, 2), replace(WORK, lost=(9, 20))),
    ):
        _, rounds = made_up(members, slower, work)
        assert LEAST_ROUNDS <= len(rounds) <= MOST_ROUNDS
        assert not any(each.contradiction for each in rounds)  # as a member twice would be
        assert not {*work.lost} & {member for each in rounds for group in each.groups for member in group}
        pairs = [tuple(sorted(pair)) for each in rounds if each.case.nbytes == LARGE for pair in each.groups]
        cycle = Counter(combinations(range(len(members.names)), 2))
        assert len(members.names) > 16 or Counter(pairs[: len(cycle)]) == cycle


def test_rounds_of_many_have_pairs_inside_leaves_and_across_without_who_is_slow_at_the_end() -> None:
    members, faulty = gpus("aaaabbbbccccddddeeeeffffgggghhhh" * 2, 2), {3, 12, 21, 30, 42, 55}
    (verdict, rounds), leaves = made_up(members, slow(1.4, *faulty)), members.levels[2].units
    inside = [{leaves[one] == leaves[other] for one, other in each.groups} for each in rounds]
    assert inside.count({True, False}) > len(rounds) / 3
    assert found(verdict) == {members.names[each] for each in faulty}
    assert not faulty & {member for group in rounds[-1].groups for member in group}


def test_a_link_of_many_that_looks_slow_is_measured_again_until_it_is_named() -> None:
    first = made_up(plain(64), slow(1))[1][0].groups[0]
    verdict, rounds = made_up(plain(64), slow(2, *first, hits=[2]))
    assert len([each for each in rounds if any({*group} == {*first} for group in each.groups)]) >= 3
    assert found(verdict) == {" - ".join(f"n{end}" for end in sorted(first))}
    once, _ = made_up(plain(64), lambda plan, number, _: 1 + (number == 0) * slow(2, *first, hits=[2])(plan, 0, _))
    assert not once.faulty


def test_rounds_that_are_stored_give_the_same_verdict_and_a_lost_rank_another() -> None:
    members = plain(16)
    verdict, rounds = made_up(members, slow(1.5, 5))
    assert judge([members, *rounds], WORK.slower).words == verdict.words == Scanner(members, WORK, rounds).verdict.words
    few = Scanner(members, WORK, rounds[:6])
    assert (few.verdict.word, few.count, few.next() is None) == (Word.UNKNOWN, 6, False)
    lost = judge([members, *rounds[:6], Failed(CASE, "nccl", "gpu", "rank 2 died")], WORK.slower)
    assert (lost.word, "rank 2 died" in lost.words) == (Word.WRONG, True)


def test_faults_to_inject_and_rounds_are_read_or_refused() -> None:
    node, link, flaky = faults_of(["node=37:0.9, link=1-2:0.5", "flaky=9:0.6@0.1"], 64, 2)
    assert (node.slower, link.of, link.to, flaky.often) == (pytest.approx(1 / 0.9), 1, 2, 0.1)
    for text in ("node=64:0.9", "leaf=2:0.5", "node=1", "node=1:1.5", "link=1:0.5", "rail=1:0.5", "node=1:0"):
        with pytest.raises(UsageError, match=r"--inject"):
            faults_of([text], 64, 2)
    for groups, right in ((((0, 1), (2, 3)), True), (((0, 1),), False), (((0, 1), (1, 2)), False)):
        assert (not Round(CASE, "nccl", "gpu", 0, groups, (1e-3, 1e-3), 1e-2).contradiction) == right
