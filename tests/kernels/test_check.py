"""Compiled inputs, comparisons and roundings against their definition in collbench/datatypes.py."""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collbench.datatypes import DATATYPES, NONE, REDUCTIONS, Array, Datatype, Recipe, Reduction, inputs, recipe, reduced
from collbench.platforms import checking, compiler
from collbench.platforms.checking import CLEAN

COUNT, FIRST = 1300, 11  # more than two tiles, and no whole number of them
OPERATIONS = {"none": NONE, **REDUCTIONS}
PAIRS = [(dtype, redop) for dtype in DATATYPES for redop in OPERATIONS]
SOME = [
    *(("float", "sum"), ("double", "max"), ("half", "avg"), ("bfloat16", "prod")),
    *(("int8", "none"), ("int32", "min"), ("uint64", "avg")),
]


def kernel(entry: str, dtype: Datatype, redop: Reduction) -> compiler.HostKernel:
    return compiler.host_kernel("check.cu", entry, compiler.defines(dtype, redop))


def filled(dtype: Datatype, redop: Reduction, how: Recipe, rank: int) -> Array:
    target = np.zeros(COUNT, dtype.storage)
    where = np.uint64(target.ctypes.data), np.uint64(COUNT)
    kernel("fill", dtype, redop)(*where, checking.packed(how), np.uint32(rank), np.uint64(FIRST))
    return target


def compared(dtype: Datatype, redop: Reduction, how: Recipe, got: Array, source: int, ulps: int = 0) -> tuple[int, int]:
    """The verdict of the kernel: how many are wrong, and the first."""
    verdict = CLEAN.copy()
    where = np.uint64(got.ctypes.data), np.uint64(len(got)), checking.packed(how)
    limits = np.int32(source), np.uint64(FIRST), np.uint32(ulps)
    kernel("compare", dtype, redop)(*where, *limits, np.uint64(verdict.ctypes.data))
    assert int(verdict["seen"]) == len(got), "a verdict on what nobody looked at"
    return int(verdict["wrong"]), int(verdict["first"])


@pytest.mark.parametrize("pairs", [SOME, pytest.param(PAIRS, marks=pytest.mark.full)], ids=["some", "every"])
@pytest.mark.timeout(600)
def test_the_kernels_agree_with_the_definition(pairs: list[tuple[str, str]]) -> None:
    for pair in pairs:
        dtype, redop = DATATYPES[pair[0]], OPERATIONS[pair[1]]
        for ranks in (1, 3, 8, 300):
            how = recipe(dtype, redop, ranks, seed=ranks)
            for rank in {0, ranks // 2, ranks - 1}:
                wanted = inputs(dtype, redop, how, rank, FIRST, COUNT)
                assert filled(dtype, redop, how, rank).tobytes() == wanted.tobytes(), (pair, ranks, rank)
                assert compared(dtype, redop, how, wanted, rank)[0] == 0, (pair, ranks, rank)
            if redop is not NONE:
                assert compared(dtype, redop, how, reduced(dtype, redop, how, FIRST, COUNT), -1)[0] == 0, (pair, ranks)


def test_wrong_elements_are_counted_and_the_first_is_named() -> None:
    dtype, redop = DATATYPES["float"], REDUCTIONS["sum"]
    how = recipe(dtype, redop, 2, seed=1)
    for places in ([0], [511], [512], [COUNT - 1], [700, 600, 1299]):
        got = reduced(dtype, redop, how, FIRST, COUNT)
        got.view(np.uint32)[places] ^= 1
        assert compared(dtype, redop, how, got, -1) == (len(places), min(places))


def test_a_floating_average_may_be_two_units_off() -> None:
    dtype, redop = DATATYPES["float"], REDUCTIONS["avg"]
    how = recipe(dtype, redop, 3, seed=1)
    exact = reduced(dtype, redop, how, FIRST, COUNT)
    for off, wrong in ((0, 0), (2, 0), (3, COUNT)):
        got = (exact.view(np.int32) + np.int32(off)).view(np.float32)
        assert compared(dtype, redop, how, got, -1, redop.ulps(dtype))[0] == wrong, off
    assert REDUCTIONS["sum"].ulps(dtype) == REDUCTIONS["avg"].ulps(DATATYPES["int32"]) == 0


NARROWED = """
#include "{prelude}"
extern "C" void narrowed(const float* values, bfloat_t* into, u64 count) {{
  for (u64 i = 0; i < count; i++) into[i] = narrow(values[i], bfloat_t());
}}
"""


@pytest.fixture(params=[True, False], ids=["as on a GPU", "as on a CPU"])
def narrowed(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    options = (
        *compiler.defines(DATATYPES["bfloat16"], REDUCTIONS["sum"]),
        *(["-DFULL_NANS=true"] if request.param else []),
    )
    (tmp_path / "narrowed.cu").write_text(NARROWED.format(prelude=compiler.folder() / "prelude.cuh"))
    monkeypatch.setattr(compiler, "folder", lambda: tmp_path)
    function = compiler.host_function("narrowed.cu", "narrowed", options)

    def narrow(*bits: int) -> list[int]:
        values, into = np.array(bits, np.uint32), np.zeros(len(bits), np.uint16)
        function(*map(ctypes.c_void_p, (values.ctypes.data, into.ctypes.data)), ctypes.c_uint64(len(bits)))
        return [int(pattern) for pattern in into]

    narrow.gpu = request.param  # type: ignore[attr-defined]
    return narrow


def test_a_bfloat16_sum_that_is_no_number_stays_none(narrowed: Any) -> None:
    for nan in (0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FBFFFFF):
        bits = nan if narrowed.gpu else nan & 0xFFFF0000
        is_nan = bool(bits & 0x7FFFFF)  # without digits it is infinity
        assert (narrowed(bits)[0] & 0x7FFF > 0x7F80) is is_nan, hex(nan)


def test_numbers_and_infinities_are_rounded_to_the_nearest_even_bfloat16(narrowed: Any) -> None:
    exact = [bits << 16 for bits in range(2**16) if bits & 0x7FFF <= 0x7F80]
    assert narrowed(*exact) == [bits >> 16 for bits in exact]
    rng = np.random.default_rng(1)
    between = rng.integers(0, 0x7F7F, 10000)  # and the next one; in the middle of the two the even one counts
    for part, nearer in ((0x7FFF, 0), (0x8000, between % 2), (0x8001, 1), (1, 0), (0xFFFF, 1)):
        assert narrowed(*((between << 16) + part).tolist()) == (between + nearer).tolist()
