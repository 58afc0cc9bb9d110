"""Narrow formats against their definition, and the compiled bound on what they lose against collbench/datatypes.py."""

from dataclasses import replace

import numpy as np

from collbench.algorithms import narrow
from collbench.datatypes import (
    DATATYPES,
    GRADES,
    GROUP,
    REDUCTIONS,
    WIRES,
    Numbers,
    Recipe,
    Wire,
    bound,
    inputs,
    recipe,
)
from collbench.platforms import checking, compiler
from tests.conftest import case
from tools.kernels.grid import Ranks

FLOAT, SUM = DATATYPES["float"], REDUCTIONS["sum"]
COUNT = 1000  # elements: no whole number of groups


def passages(wire: Wire, values: np.ndarray, calls: int, *more: str) -> list[np.ndarray]:
    """What one rank alone makes of its input in every call: that passes through the wire once, as a sum does."""
    size = narrow.room(1, "cpu")
    alone = Ranks(case(nbytes=4 * len(values), ranks=1), narrow.KINDS * size + 8 * len(values) + 256)
    alone.part(0, 0)[:] = values
    numbers, results = (0, size, size // wire.group, alone.case.block, narrow.KINDS * size), []
    for _ in range(calls):
        options = (f"-DWIRE={wire.code}", *more)
        alone.launch("narrow.cu", "narrow_allreduce", numbers, options, spins=1000, streamed=2**31)
        results.append(alone.part(1, 0).copy())
    return results


def passed(wire: Wire, values: np.ndarray) -> np.ndarray:
    return passages(wire, values, 1)[0]


def gradients(scale: float = 1.0) -> np.ndarray:
    values = np.random.default_rng(1).standard_normal(COUNT) * scale
    return values.astype(np.float32)


def grouped(values: np.ndarray) -> list[np.ndarray]:
    return [values[first : first + GROUP] for first in range(0, len(values), GROUP)]


def test_what_passes_a_wire_is_within_the_bound_of_one_passage_and_nearly_reaches_it() -> None:
    for name, wire in WIRES.items():
        for scale in (1.0, 2.0**-90, 2.0**90, 3e38 / 8):
            values, largest = gradients(scale), 0.0
            for got, own in zip(grouped(passed(wire, values)), grouped(values), strict=True):
                exact = own.astype(np.float64)
                most = wire.lost(np.abs(exact), np.abs(exact).max(), wire.behind(np.abs(exact)))
                assert np.all(np.abs(got - exact) <= most), (name, scale)
                largest = max(largest, (np.abs(got - exact) / np.maximum(most, 1e-300)).max())
            assert scale != 1 or largest > 0.9, name


def test_formats_round_as_those_of_everybody_else() -> None:
    values = gradients()
    values.view(np.uint32)[:100] = values.view(np.uint32)[:100] & 0xFFFF0000 | 0x8000  # in the middle of two
    bits = values.view(np.uint32).astype(np.uint64)
    even = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32)
    assert passed(WIRES["bfloat16"], values).tobytes() == even.tobytes()
    normal = [(1 + digits / 8) * 2.0 ** (exponent - 7) for exponent in range(1, 15) for digits in range(8)]
    codes = np.array([*(digits / 8 * 2.0**-6 for digits in range(8)), *normal], np.float32)
    for code in codes:  # the largest of the group is 2^7 or more, below 2^8
        group = np.array([128.0, code, -code] * 8, np.float32)
        assert np.array_equal(passed(WIRES["e4m3"], group), group), code
    for got, own in zip(grouped(passed(WIRES["topk"], values)), grouped(values), strict=True):
        top_k = np.argsort(np.abs(own))[-4:]
        assert np.array_equal(got, np.where(np.isin(np.arange(len(own)), top_k), own, 0))


def test_an_overflow_is_still_one_behind_the_wire() -> None:
    for name, wire in WIRES.items():
        for odd in (np.inf, -np.inf, np.nan) if not wire.top_k else ():
            values = gradients()
            values[40] = odd
            got = passed(wire, values)
            assert not np.isfinite(got[40]), (name, odd)
            assert np.isfinite(got[:32]).all(), (name, odd)
            assert np.isfinite(got[64:]).all(), f"{name}, {odd}: no group but its own"


def test_with_feedback_nothing_is_lost_for_good() -> None:
    values = gradients()
    for name, wire in WIRES.items():
        results = np.array(passages(wire, values, 64, narrow.FEEDBACK))
        few, many = (results[:last].sum(axis=0) - last * values for last in (8, 64))
        assert np.abs(many).max() <= max(2 * np.abs(few).max(), 8 * np.abs(values).max()), name


def graded(wire: Wire, ranks: int) -> tuple[Recipe, Numbers, Numbers]:
    """A recipe, its sums, and how far a result may be from each."""
    how = replace(recipe(FLOAT, SUM, ranks, seed=3), grades=GRADES)
    terms = np.array([inputs(FLOAT, SUM, how, rank, 0, COUNT) for rank in range(ranks)]).astype(np.float64)
    parts = [terms[:, first : first + GROUP] for first in range(0, COUNT, GROUP)]
    return how, terms.sum(axis=0), np.concatenate([bound(wire, part) for part in parts])


def verdict(wire: Wire, how: Recipe, got: Numbers) -> tuple[int, int]:
    found, stored = checking.CLEAN.copy(), got.astype(np.float32)
    compare = compiler.host_kernel(compiler.JUDGE, "compare_bounded", compiler.defines(FLOAT, SUM))
    start = np.uint64(stored.ctypes.data), np.uint64(len(stored)), checking.packed(how)
    compare(*start, checking.packed_wire(wire), np.uint64(found.ctypes.data))
    assert int(found["seen"]) == len(stored)
    return int(found["wrong"]), int(found["first"])


def test_the_compiled_bound_is_the_defined_one() -> None:
    for name, wire in WIRES.items():
        for ranks in (1, 2, 3, 8, 128):
            how, exact, most = graded(wire, ranks)
            undecided = COUNT // 100 if wire.top_k else 0  # whether one may be dropped depends on the last bit of fp32
            apart = most > np.abs(exact) * 2.0**-16  # where fp32 can tell
            for sign in (1, -1):
                within = exact + sign * np.where(apart, most * 0.99, 0)
                assert verdict(wire, how, within)[0] <= undecided, (name, ranks)
                beyond = exact + sign * np.maximum(most * 1.01, np.abs(exact) * 2.0**-20 + 1)
                assert verdict(wire, how, beyond)[0] >= COUNT - undecided, (name, ranks)


def test_the_first_element_beyond_its_bound_is_named() -> None:
    for name, wire in WIRES.items():
        how, got, most = graded(wire, 2)
        got[[700, 999]] += 2 * most[[700, 999]] + 1
        assert verdict(wire, how, got) == (2, 700), name
        got[700] = np.nan
        assert verdict(wire, how, got) == (2, 700), name


def test_whatever_the_wire_does_within_its_losses_is_within_the_bound() -> None:
    for name, wire in WIRES.items():
        for ranks in (2, 3, 8):
            random = np.random.default_rng(ranks)
            for _ in range(20):
                numbers = random.standard_normal((ranks, GROUP)) * 2.0 ** random.integers(-8, 8, (ranks, GROUP))
                numbers = numbers.astype(np.float32)
                owner = int(random.integers(ranks))
                total = np.zeros(GROUP, np.float32)
                for rank, row in enumerate(numbers):
                    total += row if rank == owner else passed(wire, row)
                off = np.abs(passed(wire, total) - numbers.astype(np.float64).sum(axis=0))
                assert np.all(off <= bound(wire, numbers.astype(np.float64))), (name, ranks)
