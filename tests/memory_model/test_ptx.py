"""The checker says what the literature says, and each of its rules is needed for that."""

from collections.abc import Iterator
from itertools import combinations_with_replacement, product

import pytest

from tools.memory_model import ptx
from tools.memory_model.fragments import FRAGMENTS
from tools.memory_model.litmus import Litmus, published
from tools.memory_model.program import Program

PUBLISHED = list(published())


def agrees(test: Litmus) -> bool:
    return ptx.reachable(test.threads, test.outcome, test.initially) == test.allowed


def all_agree() -> bool:
    """Published tests have their verdicts, and no fragment goes wrong."""
    wrong = (ptx.reachable(fragment.threads, fragment.outcome, fragment.initially) for fragment in FRAGMENTS)
    return all(map(agrees, PUBLISHED)) and not any(wrong)


@pytest.mark.parametrize("test", PUBLISHED, ids=lambda test: test.name)
def test_a_published_verdict_is_found(test: Litmus) -> None:
    """The same as that of the PTX ISA, of NVIDIA's Alloy model or of Dartagnan."""
    assert agrees(test)


@pytest.mark.parametrize(
    ("outcome", "verdict", "threads"),
    [
        # Weak writes of two threads in causality order are in coherence order.
        (
            "a == 2",
            True,
            ["0.0: st [x], 1; st.release.sys [f], 1", "1.0: ld.acquire.sys [f] >= 1; st [x], 2; ld a, [x]"],
        ),
        ("x == 1", False, ["0.0: st [x], 1; st.release.sys [f], 1", "1.0: ld.acquire.sys [f] >= 1; st [x], 2"]),
        # volatile is relaxed at system scope, so fences make patterns of it (8.4.2) ...
        (
            "a == 0",
            False,
            ["0.0: st [x], 1; fence.sys; st.volatile [f], 1", "1.0: ld.volatile [f] >= 1; fence.sys; ld a, [x]"],
        ),
        # ... and a fence.sc is no less than an acq_rel one.
        (
            "a == 0",
            False,
            ["0.0: st [x], 1; fence.sc.sys; st.volatile [f], 1", "1.0: ld.volatile [f] >= 1; fence.sys; ld a, [x]"],
        ),
        (
            "a == 0",
            False,
            ["0.0: st [x], 1; fence.sys; st.volatile [f], 1", "1.0: ld.volatile [f] >= 1; fence.sc.sys; ld a, [x]"],
        ),
        # Accesses through two aliases are not morally strong (8.6, 8.7): such a flag synchronises nothing.
        (
            "a == 0",
            True,
            ["0.0: st [x], 1; st.release.sys [f@alias], 1", "1.0: ld.acquire.sys [f] >= 1; ld a, [x]"],
        ),
    ],
)
def test_what_the_isa_says_where_no_published_test_asks(outcome: str, verdict: bool, threads: list[str]) -> None:
    """Cases that the fragments use, or that keep a rule from going unnoticed."""
    assert ptx.reachable(threads, outcome) == verdict


def test_no_value_comes_out_of_thin_air() -> None:
    """Two threads that hand each other a value hand round only what memory held."""
    threads = ["0.0: ld a, [x]; st [y], a", "1.0: ld b, [y]; st [x], b"]
    assert ptx.reachable(threads, "a == b == 5", {"x": 5, "y": 5})
    assert not ptx.reachable(threads, "a != 5 or b != 5", {"x": 5, "y": 5})


@pytest.mark.parametrize("rule", ptx.SYNCHRONISES)
def test_without_one_way_to_synchronise_verdicts_change(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A barrier, a fence.sc, a release with its acquire: something rests on each."""
    monkeypatch.delitem(ptx.SYNCHRONISES, rule)
    assert not all_agree()


@pytest.mark.parametrize("axiom", ["coherence", "atomicity", "causality"])
def test_without_an_axiom_verdicts_change(axiom: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something rests on each; the other axioms forbid little that these do not."""
    monkeypatch.delitem(ptx.AXIOMS, axiom)
    assert not all_agree()


@pytest.mark.parametrize(
    ("axioms", "threads", "outcome"),
    [
        (
            ("causality", "sc-per-location"),
            ["0.0: st.relaxed.sys [x], 1", "1.0: ld.relaxed.sys a, [x]; ld.relaxed.sys b, [x]"],
            "a > b",
        ),
        (
            ("single-copy atomicity", "sc-per-location"),
            ["0.0: st.relaxed.sys.b64 [x], {1, 1}", "1.0: ld.relaxed.sys.b64 {a, b}, [x]"],
            "a != b",
        ),
    ],
)
def test_where_axioms_overlap_each_is_enough(
    axioms: tuple[str, str], threads: list[str], outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either forbids the outcome, and without both it is allowed."""
    for axiom in axioms:
        with monkeypatch.context() as patch:
            patch.delitem(ptx.AXIOMS, axiom)
            assert not ptx.reachable(threads, outcome)
    for axiom in axioms:
        monkeypatch.delitem(ptx.AXIOMS, axiom)
    assert ptx.reachable(threads, outcome)


def test_fences_are_not_ordered_against_causality() -> None:
    """Two fence.sc of one thread are ordered as in the program."""
    program, axiom = Program(["0.0: fence.sc.sys; fence.sc.sys"]), ptx.AXIOMS["fence-sc"]
    assert axiom(ptx.Execution(program, {}, {(0, 1)}), set())
    assert not axiom(ptx.Execution(program, {}, {(1, 0)}), set())


Access = tuple[str, str, str]  # kind, what it writes or the register it reads into, location


def interleavings(threads: tuple[tuple[Access, ...], ...]) -> Iterator[list[Access]]:
    """All orders of all accesses that keep those of each thread."""
    if not any(threads):
        yield []
    for i, thread in enumerate(threads):
        if thread:
            rest = (*threads[:i], thread[1:], *threads[i + 1 :])
            yield from ([thread[0], *later] for later in interleavings(rest))


def sequential(threads: tuple[tuple[Access, ...], ...]) -> set[tuple[int, ...]]:
    """What the reads of a program return on a machine that does one access after another."""
    outcomes = set()
    for accesses in interleavings(threads):
        memory = {"x": 0, "y": 0}
        read = {}
        for kind, name, location in accesses:
            if kind == "st":
                memory[location] = int(name)
            else:
                read[name] = memory[location]
        outcomes.add(tuple(read[name] for name in sorted(read)))
    return outcomes


def every_small_program() -> Iterator[tuple[tuple[Access, ...], ...]]:
    """Two threads of two accesses to two locations; writes write 1, 2...; reads read into a, b..."""
    halves = list(product(product(("st", "ld"), "xy"), repeat=2))
    for first, second in combinations_with_replacement(halves, 2):
        names = {"st": iter("1234"), "ld": iter("abcd")}
        named = [(kind, next(names[kind]), location) for kind, location in (*first, *second)]
        yield tuple(named[:2]), tuple(named[2:])


def text(access: Access, order: str) -> str:
    kind, name, location = access
    return f"st{order} [{location}], {name}" if kind == "st" else f"ld{order} {name}, [{location}]"


def allowed(threads: list[str]) -> set[tuple[int, ...]]:
    """What the reads of a program may return."""
    program = Program(threads)
    names = sorted(program.registers)
    outcomes = set()
    for values in product(range(5), repeat=len(names)):
        claim = " and ".join(f"{name} == {value}" for name, value in zip(names, values, strict=True))
        if ptx.reachable(program, claim or "True"):
            outcomes.add(values)
    return outcomes


def test_with_a_fence_between_all_accesses_a_program_is_sequentially_consistent() -> None:
    """fence.sc restores it, neither more nor less, in every program of two threads of two accesses."""
    for program in every_small_program():
        threads = ["; fence.sc.sys; ".join(text(access, ".relaxed.sys") for access in thread) for thread in program]
        assert allowed([f"{gpu}.0: {thread}" for gpu, thread in enumerate(threads)]) == sequential(program), program


def test_whatever_a_sequential_machine_does_is_allowed() -> None:
    """The weakest accesses forbid nothing that a plain machine does."""
    for program in every_small_program():
        threads = ["; ".join(text(access, "") for access in thread) for thread in program]
        assert allowed([f"{gpu}.0: {thread}" for gpu, thread in enumerate(threads)]) >= sequential(program), program


@pytest.mark.parametrize(
    ("threads", "match"),
    [
        (["0.0: ld.strong a, [x]"], "not understood: ld.strong"),
        (["0.0: jump"], "not understood: jump"),
        (["0.0: ld_reduce a, [x]"], "not understood: ld_reduce"),
        (["0.0: ld {a, b}, [x|y]"], "a multicast address is for multimem only"),
        (["0.0: multimem.st [x], 1"], "multimem for such an address"),
        (["0.0: multimem.ld_reduce a, [x|y]"], "a register for each of x, y wanted"),
        (["0.0: multimem.st [x|y], 1", "0.0: ld.v2 {a, b}, [x]"], "size of earlier accesses"),
        (["0.0: ld.v2 a, [x]"], "2 operands wanted"),
        (["0.0: st [x], 1", "0.0: ld.b64 {a, b}, [x]"], "size of earlier accesses"),
        (["0.0: ld a, [x]", "0.0: ld a, [y]"], "loaded twice"),
        (["0.0: ld a, [x]", "0.0: st [y], a"], "a is not loaded before"),
        (["0.0: st [y], a; ld a, [x]"], "a is not loaded before"),
    ],
)
def test_what_the_model_does_not_cover_is_refused(threads: list[str], match: str) -> None:
    """No verdict rather than a wrong one."""
    with pytest.raises(ValueError, match=match):
        ptx.reachable(threads, "True")
