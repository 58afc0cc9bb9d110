"""Who is slow, told from rounds of made-up clusters: each kind of fault, several, none; and which groups are chosen."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from collbench.analysis.judgement import Word
from collbench.commands.scan.choice import RoundPlan
from collbench.commands.scan.effects import ACROSS, EVERY, RECEIVES, SENDS, WITHIN
from collbench.commands.scan.rows import MemberLevel, Members, Round, Scan
from collbench.commands.scan.scanner import Scanner
from collbench.commands.scan.simulated import Cluster, faults_of
from collbench.commands.scan.verdict import LEAST_ROUNDS, MOST_ROUNDS, ScanVerdict, judge
from collbench.errors import UsageError
from collbench.requests.sweeps import find_system
from collbench.results import Failed
from tests.conftest import case

SMALL, LARGE = 8192, 2**20
WORK = Scan(2, 0.1, (SMALL, LARGE))
CASE = case("sendrecv", LARGE, ranks=8, work=WORK)
Slower = Callable[[RoundPlan, int, np.random.Generator], Any]
"""How many times slower the groups of a round are, of that number."""


def scanned(*inject: str, nodes: int = 128, seed: int = 0, work: Scan = WORK) -> ScanVerdict:
    """What a scan of a described system finds."""
    cluster = Cluster(find_system("dgx-h100").of(nodes), work, inject, seed)
    scanner = Scanner(cluster.members, work)
    for _ in cluster.rounds(scanner):
        pass
    return scanner.verdict


def nodes_at(speed: float, *nodes: int) -> str:
    """These nodes, slow."""
    return ",".join(f"node={node}:{speed}" for node in nodes)


def found(verdict: ScanVerdict) -> set[str]:
    """Who is slow."""
    return {finding.name for finding in verdict.faulty}


def plain(count: int) -> Members:
    """Members of whom nothing is known."""
    return Members(CASE, "nccl", platform="gpu", names=tuple(f"n{number}" for number in range(count)))


def gpus(hosts: str, per_leaf: int) -> Members:
    """GPUs, of a letter each, which is that of their host."""
    places = [hosts[:rank].count(host) for rank, host in enumerate(hosts)]
    leaves = [sorted(set(hosts)).index(host) // per_leaf for host in hosts]
    units = {"node": hosts, "rail": [f"rail {each}" for each in places], "leaf": [f"leaf {each}" for each in leaves]}
    levels = tuple(MemberLevel(kind, tuple(of)) for kind, of in units.items())
    return replace(plain(0), names=tuple(map("{}:{}".format, hosts, places)), levels=levels)


def made_up(
    members: Members, slower: Slower, work: Scan = WORK, noise: float = 0.003, seed: int = 0
) -> tuple[ScanVerdict, list[Round]]:
    """The verdict of a scan whose times are made up, and its rounds."""
    random, scanner, rounds = np.random.default_rng(seed), Scanner(members, work), []
    while plan := scanner.next():
        times = 1e-4 * slower(plan, len(rounds), random) * np.exp(random.normal(0, noise, len(plan.groups)))
        groups, of = tuple(map(tuple, plan.groups.tolist())), replace(CASE, nbytes=plan.nbytes)
        rounds.append(Round(of, "nccl", "gpu", len(rounds), groups, tuple(times.tolist()), 1e-3, plan.one_way))
        scanner.add(rounds[-1])
    return scanner.verdict, rounds


def slow(factor: float, *members: int, every: bool = False, least: int = 0) -> Slower:
    """Any of these members slows its groups, or those that have no others, of messages so long."""
    of = np.all if every else np.any
    return lambda plan, *_: np.where(of(np.isin(plan.groups, members), axis=1) & (plan.nbytes >= least), factor, 1)


def leaving(factor: float, *members: int) -> Slower:
    """Groups that have some of these members and others are slow."""
    return lambda plan, *_: np.where(np.isin(plan.groups, members).sum(axis=1) == 1, factor, 1)


def healthy(*_: object) -> float:
    return 1.0


def test_each_kind_of_fault_is_told_from_the_others() -> None:
    for inject, nodes, fault, slower in (
        ("node=37:0.9", 128, ("member", "node 37", EVERY), 1 / 0.9),
        ("leaf=1:0.7", 128, ("leaf", "leaf 1", ACROSS), 1 / 0.7),
        ("leaf=2:0.7", 96, ("leaf", "leaf 2", ACROSS), 1 / 0.7),
        ("send=7:0.8", 128, ("member", "node 7", SENDS), 1 / 0.8),
        ("receive=9:0.7", 128, ("member", "node 9", RECEIVES), 1 / 0.7),
        ("flaky=99:0.6@0.3", 128, ("member", "node 99", EVERY), 1 / 0.6),
        ("link=3-5:0.6", 8, ("link", "node 3 - node 5", EVERY), 1 / 0.6),
        (nodes_at(0.8, *range(32, 64)), 128, ("leaf", "leaf 1", EVERY), 1 / 0.8),
    ):
        verdict = scanned(inject, nodes=nodes)
        (finding,) = verdict.faulty
        assert (finding.effect.fault, verdict.word) == (fault, Word.SLOW), verdict.words
        assert finding.least < slower < finding.most
        assert finding.slower == pytest.approx(slower, rel=0.03)
        assert finding.most / finding.least < 1.05
        assert (finding.effect.often < 0.5) == inject.startswith("flaky")
        assert 0.99 < finding.probability <= 0.999


def test_any_number_of_faults_is_found_and_nobody_innocent_named() -> None:
    one_leaf, all_over = (33, 36, 41, 44, 50, 63), range(1, 120, 8)
    for inject, names in (
        (nodes_at(0.8, *one_leaf), {f"node {node}" for node in one_leaf}),
        (nodes_at(0.8, *all_over), {f"node {node}" for node in all_over}),
        ("leaf=0:0.7,node=5:0.5", {"leaf 0", "node 5"}),
        ("node=3:0.9,node=40:0.8,node=77:0.7,leaf=3:0.75", {"node 3", "node 40", "node 77", "leaf 3"}),
        ("node=3:0.8,flaky=50:0.5@0.4,flaky=99:0.6@0.3", {"node 3", "node 50", "node 99"}),
    ):
        assert found(scanned(inject)) == names
    assert found(scanned("node=37:0.85", work=Scan(4, 0.1, (LARGE,)))) == {"node 37"}


def test_where_many_of_few_are_slow_they_are_named_exactly_or_nobody_is() -> None:
    for nodes, speed, of in ((3, 0.6, [1]), (5, 0.5, [1, 2]), (32, 0.8, range(14)), (32, 0.8, range(20))):
        for seed in range(3):
            verdict = scanned(nodes_at(speed, *of), nodes=nodes, seed=seed)
            if verdict.word is Word.SLOW:
                assert found(verdict) == {f"node {node}" for node in of}
            else:
                assert (verdict.word, verdict.faulty) == (Word.UNKNOWN, []), (nodes, verdict.words)
                assert verdict.suspects
    assert len(found(scanned(nodes_at(0.5, 1, 2), nodes=5))) == 2


def test_of_two_leaves_none_can_be_named_and_an_ok_says_so() -> None:
    doubtful, good = scanned("leaf=1:0.7", nodes=64), scanned(nodes=64)
    assert (doubtful.word, doubtful.faulty) == (Word.UNKNOWN, [])
    assert "leaf 0 or leaf 1 may be slow" in doubtful.words
    assert good.word is Word.OK
    assert any("leaf 0 against leaf 1" in unseen for unseen in good.sight.unseen)
    assert found(scanned("leaf=1:0.7,node=5:0.5", nodes=64)) <= {"node 5"}


def test_what_is_slower_by_less_than_asked_is_a_finding_that_is_ok() -> None:
    for speed in (0.95, 0.94):
        for seed in range(3):
            verdict = scanned(f"node=9:{speed}", nodes=64, seed=seed)
            (finding,) = verdict.findings
            assert (verdict.word, verdict.faulty) == (Word.OK, []), verdict.words
            assert (finding.name, finding.word) == ("node 9", Word.OK)
    assert found(scanned("node=9:0.94", nodes=64, work=replace(WORK, slower=0.03))) == {"node 9"}


def test_gpus_their_nodes_rails_and_leaves_are_told_from_one_another() -> None:
    of_four, odd = gpus("aaaabbbbccccddddeeeeffffgggghhhh", 2), gpus("aaaabbbbccccddddeeeeffffggggz", 8)
    rail = range(1, 32, 4)
    for members, slower, fault in (
        (of_four, slow(1.3, 4, 5, 6, 7), ("node", "b", EVERY)),
        (of_four, slow(1.3, 5), ("member", "b:1", EVERY)),
        (of_four, slow(1.4, *rail, every=True), ("rail", "rail 1", WITHIN)),
        (of_four, leaving(1.4, *range(8, 16)), ("leaf", "leaf 1", ACROSS)),
        (of_four, leaving(1.4, 8, 9, 10, 11), ("node", "c", ACROSS)),
        (odd, slow(1.3, 28), ("member", "z:0", EVERY)),
        (odd, slow(1.3, 4, 5, 6, 7), ("node", "b", EVERY)),
    ):
        verdict, _ = made_up(members, slower)
        assert [finding.effect.fault for finding in verdict.findings] == [fault], verdict.words


def test_noise_is_no_fault_and_hides_none() -> None:
    members = gpus("aaaaaaaabbbbbbbbccccccccdddddddd", 1)

    def jitter(_: RoundPlan, number: int, random: np.random.Generator) -> Any:
        return 1 + 0.6 * (number % 5 == 2) * (random.random(16) < 0.5)

    for seed in range(2):
        assert not scanned(nodes=64, seed=seed).findings
        for slower, noise in ((healthy, 0.03), (healthy, 0.06), (jitter, 0.003)):
            verdict, _ = made_up(members, slower, noise=noise, seed=seed)
            assert (verdict.word, verdict.suspects) == (Word.OK, []), verdict.words
    for by in (1.01, 0.99):  # all drift
        verdict, _ = made_up(members, lambda plan, number, random: slow(1.15, 5)(plan, number, random) * by**number)
        (finding,) = verdict.faulty
        assert finding.name == "a:5"
        assert finding.least < 1.15 < finding.most


def test_an_ok_says_what_it_would_have_seen() -> None:
    for nodes, links, often in ((8, True, 0.5), (64, False, 0.6)):
        verdict = scanned(nodes=nodes)
        sight = verdict.sight
        assert (verdict.word, verdict.clear, sight.sizes, sight.links) == (Word.OK, True, WORK.sizes, links)
        assert 1.1 < sight.slower < 1.12
        assert sight.slower < sight.brief < 1.3
        assert 0.1 < sight.often < often
        assert any("single links" in unseen for unseen in sight.unseen) != links
        assert "would have seen 1.11x" in verdict.words
    noisy, _ = made_up(plain(32), healthy, noise=0.06)
    assert noisy.sight.slower > verdict.sight.slower
    assert noisy.sight.brief > 1.3


def test_a_fault_at_one_size_is_said_there() -> None:
    for least, said in ((LARGE, " at 1 MiB"), (0, "")):
        (finding,) = made_up(plain(32), slow(1.5, 5, least=least))[0].faulty
        assert str(finding).partition(" at ")[1:] == (said[:4], said[4:])


def test_rounds_are_of_disjoint_groups_and_of_few_have_every_pair_once_a_cycle() -> None:
    for members, slower, work in (
        (plain(8), healthy, WORK),
        (plain(7), slow(1.5, 3), WORK),
        (plain(40), healthy, Scan(3, 0.1, (LARGE,))),
        (gpus("aaaabbbbccccddddeeeeffffgggghhhh", 2), slow(1.4, 2), replace(WORK, lost=(9, 20))),
    ):
        _, rounds = made_up(members, slower, work)
        assert LEAST_ROUNDS <= len(rounds) <= MOST_ROUNDS
        for each in rounds:
            in_it = [member for group in each.groups for member in group]
            assert len({*in_it}) == len(in_it)
            assert not {*in_it} & {*work.lost}
        assert {each.case.nbytes for each in rounds} == {*work.sizes}
        if len(members.names) == 8:
            for size in WORK.sizes:
                pairs = [tuple(sorted(pair)) for each in rounds if each.case.nbytes == size for pair in each.groups]
                assert Counter(pairs[:28]) == Counter(combinations(range(8), 2))


def test_rounds_of_many_have_pairs_inside_leaves_and_across_without_who_is_slow_at_the_end() -> None:
    members, suspects = gpus("aaaabbbbccccddddeeeeffffgggghhhh" * 2, 2), {3, 12, 21, 30, 42, 55}
    verdict, rounds = made_up(members, slow(1.4, *suspects))
    leaves = members.levels[2].units
    mixed = [{leaves[one] == leaves[other] for one, other in each.groups} for each in rounds]
    assert mixed.count({True, False}) > len(rounds) / 3
    assert any(each.one_way for each in rounds)
    assert len(found(verdict)) == len(suspects)
    assert not suspects & {member for group in rounds[-1].groups for member in group}


def test_a_link_of_many_that_looks_slow_is_measured_again_until_it_is_named() -> None:
    first = made_up(plain(64), healthy)[1][0].groups[0]
    verdict, rounds = made_up(plain(64), slow(2, *first, every=True))
    again = [each.number for each in rounds if any({*group} == {*first} for group in each.groups)]
    assert len(again) >= 3
    assert found(verdict) == {" - ".join(f"n{end}" for end in sorted(first))}
    once, _ = made_up(plain(64), lambda plan, number, _: 1 + (number == 0) * slow(2, *first, every=True)(plan, 0, _))
    assert not once.faulty


def test_rounds_that_are_stored_give_the_same_verdict_and_a_lost_rank_another() -> None:
    members = plain(16)
    verdict, rounds = made_up(members, slow(1.5, 5))
    again = judge([members, *rounds], WORK.slower)
    assert again.words == verdict.words == Scanner(members, WORK, rounds).verdict.words
    few = Scanner(members, WORK, rounds[:6])
    assert (few.verdict.word, few.count) == (Word.UNKNOWN, 6)
    assert few.next() is not None
    lost = judge([members, *rounds[:6], Failed(CASE, "nccl", "gpu", "rank 2 died")], WORK.slower)
    assert (lost.word, "rank 2 died" in lost.words) == (Word.WRONG, True)


def test_faults_to_inject_are_read_or_refused_with_the_form() -> None:
    node, link, flaky = faults_of(["node=37:0.9, link=1-2:0.5", "flaky=9:0.6@0.1"], 64, 2)
    assert (node.slower, link.of, link.to, flaky.often) == (pytest.approx(1 / 0.9), 1, 2, 0.1)
    for text in ("node=64:0.9", "leaf=2:0.5", "node=1", "node=1:1.5", "link=1:0.5", "rail=1:0.5", "node=1:0"):
        with pytest.raises(UsageError, match=r"--inject"):
            faults_of([text], 64, 2)


def test_groups_without_times_or_with_a_member_twice_are_no_round() -> None:
    good = Round(CASE, "nccl", "gpu", 0, ((0, 1), (2, 3)), (1e-3, 1e-3), 1e-2)
    assert not good.contradiction
    for groups, seconds in ((((0, 1),), ()), (((0, 1), (1, 2)), (1e-3, 1e-3)), (((0, 1), (2, 3, 4)), (1e-3, 1e-3))):
        assert Round(CASE, "nccl", "gpu", 0, groups, seconds, 1e-2).contradiction
