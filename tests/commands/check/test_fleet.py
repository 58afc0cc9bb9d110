"""Which nodes of a made-up fleet stand out, and which do not."""

from dataclasses import replace

import numpy as np

from collbench.analysis.judgement import Word
from collbench.commands.check.fleet import (
    FEWEST,
    AlikeNodes,
    changes,
    findings,
    groups,
    judged,
    judgement_of,
    outdated,
    outliers_of,
)
from collbench.commands.check.inputs import FleetNode
from tools.fleet import CURVE, Fleet, errors, name, nodes

SIZES = [2**20 << place for place in range(8)]


def fleet(*factors: float, seed: int = 0, noise: float = 0.01) -> list[FleetNode]:
    """Nodes that take so many times as long at every size, and noise."""
    random = np.random.default_rng(seed)
    times = 1e-3 * np.array(factors)[:, None] * np.exp(random.normal(0, noise, (len(factors), len(SIZES))))
    rows = [dict(zip(SIZES, row, strict=True)) for row in times.tolist()]
    return [FleetNode(name(number), Word.OK, curves={CURVE: row}) for number, row in enumerate(rows)]


def only(found: list[AlikeNodes]) -> AlikeNodes:
    (group,) = found
    return group


def test_of_2000_noisy_nodes_the_three_slow_ones_are_named_and_no_other() -> None:
    got = errors(Fleet(), seeds=5)
    assert got["right"] == 1
    assert got["holds"] >= 0.8


def test_no_node_is_named_where_none_is_slow_whatever_the_size_of_the_fleet() -> None:
    for count in (5, 10, 20, 200):
        got = errors(Fleet(nodes=count, slow=0), seeds=20)
        assert got["wrong"] == 0, count


def test_without_a_margin_a_healthy_node_is_named_in_few_fleets() -> None:
    for count in (20, 200):
        assert errors(Fleet(nodes=count, slow=0), seeds=60, slower=1e-6)["wrong"] < 0.12, count


def test_several_slow_nodes_do_not_hide_each_other() -> None:
    got = errors(Fleet(nodes=40, slow=6, by=0.2), seeds=10)
    assert (got["right"], got["wrong"]) == (1, 0)


def test_disturbed_sizes_of_many_nodes_are_not_taken_for_slow_nodes() -> None:
    got = errors(Fleet(nodes=500, slow=0, disturbed=0.11), seeds=10)
    assert got["wrong"] == 0


def test_an_outlier_has_its_sizes_and_an_interval_around_what_is_true() -> None:
    times, slow = Fleet(nodes=200, slow=1, spread=0.003).draw(3)
    (outlier,) = only(groups(nodes(times, Fleet().bytes))).outliers
    ((node, true),) = slow.items()
    assert outlier.judgement.what == name(node)
    assert outlier.sizes == tuple(size for size in Fleet().bytes if size >= 2**20)
    low, high = outlier.judgement.ratio.interval
    assert low < true < high < low + 0.06
    assert outlier.judgement.word is Word.SLOW


def test_a_small_difference_at_all_sizes_is_found_by_all_together_and_counts_from_the_margin_on() -> None:
    made = fleet(*[1.0] * 99, 1.06, noise=0.02)
    (outlier,) = only(groups(made, 0.03)).outliers
    assert (outlier.judgement.what, outlier.sizes) == (name(99), ())
    assert not only(groups(made, 0.1)).outliers


def test_a_node_whose_sizes_disagree_is_not_named_by_an_interval_that_holds_no_difference() -> None:
    random = np.random.default_rng(5)
    for _ in range(50):
        noisy = {size: 1e-3 * float(random.lognormal(0.1, 0.15)) for size in SIZES}
        made = [*fleet(*[1.0] * 60), FleetNode("noisy", Word.OK, curves={CURVE: noisy})]
        assert not any(outlier.judgement.ratio.holds(1) for outlier in only(groups(made)).outliers)


def test_a_faster_node_stands_out_too_and_is_not_slower() -> None:
    (outlier,) = only(groups(fleet(*[1.0] * 30, 0.8))).outliers
    assert outlier.judgement.word is Word.FAST
    assert outlier.judgement.ratio.high < 1


def test_nothing_is_concluded_of_fewer_alike_nodes_or_of_sizes_that_few_have() -> None:
    assert not groups(fleet(*[1.0] * (FEWEST - 2), 3.0))
    assert only(groups(fleet(*[1.0] * (FEWEST - 1), 3.0))).outliers
    made = fleet(*[1.0] * 20)
    apart = {3: 1.0, **made[0].curves[CURVE]}
    group = only(groups([replace(made[0], curves={CURVE: apart}), *made[1:]]))
    assert group.sizes == tuple(SIZES)
    alone = replace(made[0], curves={CURVE: {3: 1.0}})
    assert only(groups([alone, *made[1:]])).nodes == tuple(node.name for node in made[1:])


def test_only_alike_nodes_are_held_against_each_other() -> None:
    other = CURVE._replace(topology="4 x NVIDIA A100")
    slower = [
        replace(node, name=f"a{node.name}", curves={other: node.curves[CURVE]}) for node in fleet(*[2.0] * 19, 2.4)
    ]
    found = groups(fleet(*[1.0] * 20, seed=1) + slower)
    assert [(each.judgement.what, each.curve) for each in outliers_of(found)] == [(f"a{name(19)}", other)]
    assert outliers_of(found)[0].judgement.reason.endswith(" % slower than the others on 4 x NVIDIA A100")


def test_a_node_that_is_far_off_on_both_sides_is_neither_slow_nor_fast() -> None:
    made, factors = fleet(*[1.0] * 60), [1.2, 1.2, 1.2, 0.8, 1.2, 0.8, 1.2, 0.8]
    both = dict(zip(SIZES, (1e-3 * factor for factor in factors), strict=True))
    assert not only(groups([*made, FleetNode("both", Word.OK, curves={CURVE: both})])).outliers
    once = both | dict.fromkeys((SIZES[3], SIZES[5]), 1.2e-3)
    (outlier,) = only(groups([*made, FleetNode("slow", Word.OK, curves={CURVE: once})])).outliers
    assert (outlier.judgement.word, outlier.sizes) == (Word.SLOW, tuple(SIZES[:-1]))


def test_a_size_that_a_node_has_not_measured_is_left_out_of_its_count() -> None:
    made = fleet(*[1.0] * 50, 1.3)
    partly = {size: figure for size, figure in made[-1].curves[CURVE].items() if size != SIZES[2]}
    (outlier,) = only(groups([*made[:-1], replace(made[-1], curves={CURVE: partly})])).outliers
    assert outlier.measured == len(SIZES) - 1
    assert SIZES[2] not in outlier.sizes


def test_between_two_nights_nodes_are_held_against_themselves() -> None:
    before = fleet(*[1.0] * 40, 1.3, 1.0, 1.3, seed=1)
    after = fleet(*[1.1] * 40, 1.43, 1.43, 1.1, seed=2)
    group = only(changes(before, after))
    assert np.allclose(group.medians, 1.1, atol=0.02)
    words = {outlier.judgement.what: outlier.judgement.word for outlier in group.outliers}
    assert words == {name(41): Word.SLOW, name(42): Word.FAST}
    assert not changes(before[:20], after[20:])


def test_verdicts_are_outdated_by_how_far_apart_the_others_are() -> None:
    hour, now = 3600.0, 1e9
    for ages, oldest in (
        ((), []),
        ((24,), []),
        ((0, 0, 24), [2]),
        ((0, 0.01, 0.2, 0.1, 24, 30, 0.9), [5, 4]),
        ((0, 3, 6, 9, 12, 15, 18, 21, 24), []),
        ((0, 3, 6, 9, 12, 15, 18, 21, 96), [8]),
        ((24, 24.1, 24.2, 0), []),
    ):
        fleet = [FleetNode(name(number), Word.OK, modified=now - age * hour) for number, age in enumerate(ages)]
        unread = FleetNode("unread")
        assert [node.name for node in outdated([*fleet, unread])] == [name(number) for number in oldest], ages


def test_a_node_is_judged_by_its_check_or_by_its_peers_whichever_is_worse_and_the_fleet_by_the_worst_node() -> None:
    made = fleet(1.2, 1.0, 1.0, 0.8, *[1.0] * 26, noise=0.003)
    unjudged = [replace(node, word=Word.UNKNOWN) for node in made]
    mixed = [made[0], replace(unjudged[1], reason="cut off"), unjudged[2], made[3], replace(made[4], word=Word.WRONG)]
    slow, peers = f"{name(0)} 20 % slower than the others", "none judged against a system"
    for chosen, words, whole, said in (
        (
            mixed + made[5:],
            "SLOW UNKNOWN UNKNOWN FAST WRONG OK",
            "WRONG",
            f"{name(4)} WRONG, {slow}; 1 UNKNOWN, 1 alike, ",
        ),
        (mixed[:4], "OK UNKNOWN UNKNOWN OK", "OK", "2 UNKNOWN, 2 OK; 2 not judged against a system"),
        (unjudged, "SLOW UNKNOWN UNKNOWN FAST UNKNOWN", "SLOW", f"{slow}; 28 alike, 1 FAST; {peers}"),
        (unjudged[:3] + unjudged[4:], "SLOW UNKNOWN UNKNOWN", "SLOW", f"{slow}; {peers}"),
        (unjudged[4:], "UNKNOWN UNKNOWN", "UNKNOWN", f"alike; {peers}"),
        (unjudged[:3], "UNKNOWN UNKNOWN UNKNOWN", "UNKNOWN", f"3 UNKNOWN; {peers}"),
    ):
        judgements = judged(chosen, alike := groups(chosen))
        assert " ".join(each.word.value for each in judgements).startswith(words)
        judgement = judgement_of(chosen, judgements, alike)
        assert (judgement.word.value, judgement.reason[: len(said)]) == (whole, said)


def with_words(nodes: list[FleetNode], words: str) -> list[FleetNode]:
    """Nodes whose checks say so; of fewer words the last is that of all others."""
    every = [Word[word] for word in words.split()]
    every += every[-1:] * (len(nodes) - len(every))
    return [replace(node, word=word) for node, word in zip(nodes, every, strict=True)]


def test_slowness_of_most_nodes_is_one_finding_and_only_outliers_are_excluded() -> None:
    alike, one_slow, few = fleet(*[1.0] * 16), fleet(1.25, *[1.0] * 15, noise=0.003), fleet(*[1.0] * 3)
    other = [replace(node, curves={CURVE._replace(topology="A100"): node.curves[CURVE]}) for node in alike[:2]]
    setting, slower = "alike: a setting, or the wrong --on", "25 % slower than the others"
    first = list(map(name, range(8)))
    n0, n1, n2 = first[:3]
    for chosen, said, out in (
        (with_words(alike, "SLOW"), f"all 16 SLOW, {setting}", []),
        (with_words(alike, "OK SLOW"), f"15 of 16 SLOW, {setting}; {n0} OK", []),
        (with_words(one_slow, "SLOW"), f"15 of 16 SLOW, {setting}; {n0} {slower}", [n0]),
        (with_words(alike, "WRONG SLOW"), f"15 of 16 SLOW, {setting}; {n0} WRONG", [n0]),
        (with_words(alike, "UNKNOWN " * 12 + "SLOW"), f"4 of 16 SLOW, {setting}; {n0} not judged, alike, ", []),
        (with_words(alike, "SLOW SLOW OK"), f"{n0} SLOW, {n1} SLOW; 14 OK", [n0, n1]),
        (with_words(alike, "SLOW " * 8 + "OK"), f"{n0} SLOW, {n1} SLOW, {n2} SLOW; 5 more SLOW, 8 OK", first),
        (with_words(other + alike[2:], "SLOW OK"), f"{n0} SLOW; 15 OK", [n0]),
        (with_words(few, "SLOW"), "all 3 SLOW: a setting, or the wrong --on", []),
        (with_words(few, "SLOW OK"), f"{n0} SLOW; 2 OK", [n0]),
        (with_words(few[:1], "SLOW"), f"{n0} SLOW", [n0]),
        (with_words(fleet(0.75, *[1.0] * 15, noise=0.003), "SLOW"), f"15 of 16 SLOW, {setting}; {n0} SLOW", []),
    ):
        judgements = judged(chosen, found := groups(chosen))
        judgement = judgement_of(chosen, judgements, found)
        assert judgement.reason.startswith(said), said
        assert judgement.word is (Word.WRONG if "WRONG" in said else Word.SLOW)
        assert sorted(findings(chosen, found)[1]) == out, said


def test_equal_times_have_no_spread_and_no_outlier() -> None:
    assert not only(groups(fleet(*[1.0] * 30, noise=0.0))).outliers


def test_times_from_the_shortest_to_the_longest_that_can_be_are_no_error() -> None:
    random = np.random.default_rng(1)
    for count in (5, 40):
        wild = fleet(*np.exp(random.uniform(-20, 20, count)))
        for group in groups([*wild, *fleet(*[1.0] * count, seed=2)]):
            assert all(np.isfinite(outlier.high) for outlier in group.outliers)
    times = [{size: 1e-14 if size % 3 == row % 3 else 1e8 for size in range(9)} for row in range(7)]
    thirds = [FleetNode(name(row), Word.OK, curves={CURVE: curve}) for row, curve in enumerate(times)]
    assert all(np.isfinite(outlier.high) for group in groups(thirds) for outlier in group.outliers)
