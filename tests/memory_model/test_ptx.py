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


def test_published_verdicts_are_found() -> None:
    """The same as those of the PTX ISA, of NVIDIA's Alloy model or of Dartagnan."""
    for test in PUBLISHED:
        assert agrees(test), test.name


UNPUBLISHED = [  # an outcome, whether it is allowed, and the threads
    # Weak writes of two threads in causality order are in coherence order.
    ("a == 2", True, ["0.0: st [x], 1; st.release.sys [f], 1", "1.0: ld.acquire.sys [f] >= 1; st [x], 2; ld a, [x]"]),
    ("x == 1", False, ["0.0: st [x], 1; st.release.sys [f], 1", "1.0: ld.acquire.sys [f] >= 1; st [x], 2"]),
    # volatile is relaxed at system scope, so fences make patterns of it (8.4.2), a fence.sc no less than others.
    *(
        (
            "a == 0",
            False,
            [f"0.0: st [x], 1; {one}; st.volatile [f], 1", f"1.0: ld.volatile [f] >= 1; {other}; ld a, [x]"],
        )
        for one, other in [("fence.sys", "fence.sys"), ("fence.sc.sys", "fence.sys"), ("fence.sys", "fence.sc.sys")]
    ),
    # Accesses through two aliases are not morally strong (8.6, 8.7): such a flag synchronises nothing.
    ("a == 0", True, ["0.0: st [x], 1; st.release.sys [f@alias], 1", "1.0: ld.acquire.sys [f] >= 1; ld a, [x]"]),
]


def test_what_the_isa_says_where_no_published_test_asks() -> None:
    for outcome, allowed, threads in UNPUBLISHED:
        assert ptx.reachable(threads, outcome) == allowed, threads


def test_no_value_comes_out_of_thin_air() -> None:
    """Two threads that hand each other a value hand round only what memory held."""
    threads = ["0.0: ld a, [x]; st [y], a", "1.0: ld b, [y]; st [x], b"]
    assert ptx.reachable(threads, "a == b == 5", {"x": 5, "y": 5})
    assert not ptx.reachable(threads, "a != 5 or b != 5", {"x": 5, "y": 5})


@pytest.mark.full
def test_without_a_rule_verdicts_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ways to synchronise, and axioms of which the others forbid little: something rests on each."""
    rules = [(ptx.SYNCHRONISES, rule) for rule in ptx.SYNCHRONISES]
    for table, rule in [*rules, *((ptx.AXIOMS, axiom) for axiom in ("coherence", "atomicity", "causality"))]:
        with monkeypatch.context() as patch:
            patch.delitem(table, rule)
            assert not all_agree(), rule


def test_where_axioms_overlap_each_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Either forbids the outcome, and without both it is allowed."""
    for axiom, threads, outcome in (
        ("causality", ["0.0: st.relaxed.sys [x], 1", "1.0: ld.relaxed.sys a, [x]; ld.relaxed.sys b, [x]"], "a > b"),
        (
            "single-copy atomicity",
            ["0.0: st.relaxed.sys.b64 [x], {1, 1}", "1.0: ld.relaxed.sys.b64 {a, b}, [x]"],
            "a != b",
        ),
    ):
        for without, allowed in (((axiom,), False), (("sc-per-location",), False), ((axiom, "sc-per-location"), True)):
            with monkeypatch.context() as patch:
                for name in without:
                    patch.delitem(ptx.AXIOMS, name)
                assert ptx.reachable(threads, outcome) == allowed, without


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


@pytest.mark.full
@pytest.mark.timeout(600)
def test_small_programs_are_sequential_with_fences_and_allow_all_that_is_sequential_without() -> None:
    """fence.sc between all accesses restores it, neither more nor less, in every program of two threads of two."""
    for program in every_small_program():
        fenced, weak = (
            allowed(
                [f"{gpu}.0: {between.join(text(access, order) for access in one)}" for gpu, one in enumerate(program)]
            )
            for between, order in (("; fence.sc.sys; ", ".relaxed.sys"), ("; ", ""))
        )
        assert fenced == sequential(program), program
        assert weak >= sequential(program), program


def test_what_the_model_does_not_cover_is_refused() -> None:
    """No verdict rather than a wrong one."""
    for threads, match in [
        (["0.0: ld.strong a, [x]"], "not understood: ld.strong"),
        (["0.0: jump"], "not understood: jump"),
        (["0.0: ld_reduce a, [x]"], "not understood: ld_reduce"),
        (["0.0: ld {a, b}, [x|y]"], "a multicast address is for multimem only"),
        (["0.0: multimem.st [x], 1"], "multimem for such an address"),
        (["0.0: multimem.ld_reduce a, [x|y]"], "a register for each of x, y wanted"),
        (["0.0: multimem.st [x|y], 1", "0.0: ld.v2 {a, b}, [x]"], "size of earlier accesses"),
        (["0.0: ld.v2 a, [x]"], "2 operands wanted"),
        (["0.0: ld a, [x]", "0.0: ld a, [y]"], "loaded twice"),
        (["0.0: ld a, [x]", "0.0: st [y], a"], "a is not loaded before"),
    ]:
        with pytest.raises(ValueError, match=match):
            ptx.reachable(threads, "True")
