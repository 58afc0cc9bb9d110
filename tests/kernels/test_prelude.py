"""The numbers that kernels narrow their sums to, where a GPU's own differ from a CPU's."""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.platforms import kernels

BFLOAT = DATATYPES["bfloat16"]
NARROWED = """
#include "{prelude}"
extern "C" void narrowed(const float* values, bfloat_t* into, u64 count) {{
  for (u64 i = 0; i < count; i++) into[i] = narrow(values[i], bfloat_t());
}}
"""


@pytest.fixture(params=[True, False], ids=["as on a GPU", "as on a CPU"])
def narrowed(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the kernels make of 32-bit patterns: 16-bit ones."""
    options = *kernels.defines(BFLOAT, REDUCTIONS["sum"]), *(["-DFULL_NANS=true"] if request.param else [])
    (tmp_path / "narrowed.cu").write_text(NARROWED.format(prelude=kernels.folder() / "prelude.cuh"))
    monkeypatch.setattr(kernels, "folder", lambda: tmp_path)
    function = kernels.host_function("narrowed.cu", "narrowed", options)

    def narrow(*bits: int) -> list[int]:
        values, into = np.array(bits, np.uint32), np.zeros(len(bits), np.uint16)
        function(*map(ctypes.c_void_p, (values.ctypes.data, into.ctypes.data)), ctypes.c_uint64(len(bits)))
        return [int(pattern) for pattern in into]

    narrow.gpu = request.param  # type: ignore[attr-defined]
    return narrow


def test_a_bfloat16_sum_that_is_no_number_stays_none(narrowed: Any) -> None:
    """A GPU's own has all digits set, which as a number would be rounded to -0; a CPU's end as a bfloat16's do."""
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
