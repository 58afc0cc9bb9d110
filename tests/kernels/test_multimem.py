"""The kernel that has the switch add: what NVIDIA's compiler makes of it, and its algorithm with real threads."""

import re

import numpy as np
import pytest

from collbench.collectives import chunk_elements
from collbench.datatypes import DATATYPES, REDUCTIONS, Array
from collbench.implementations.nvls import REDUCES
from collbench.platforms import kernels
from collbench.platforms.layout import WINDOW_HEAD, WORLD
from tests.conftest import case
from tests.kernels.test_nvrtc import ERRORS, FLAGS, MEMORY, OWN_COUNTER, UNUSED, assert_no_spills, plain
from tools.kernels import nvrtc, sass
from tools.kernels.nvrtc import NEWER, STANDARD, compiled

FILE = "multimem.cu"
MULTIMEM = re.compile(r"\bmultimem\.[\w.:]+")
SCOPE = "relaxed.sys.global"
LOADED = {  # by type and reduction; an average is a sum
    "float": {"sum": "add.v4.f32"},
    "double": {"sum": "add.f64"},
    "half": {"sum": "add.acc::f32.v4.f16x2", "max": "max.v4.f16x2", "min": "min.v4.f16x2"},
    "bfloat16": {"sum": "add.acc::f32.v4.bf16x2", "max": "max.v4.bf16x2", "min": "min.v4.bf16x2"},
    "int32": {"sum": "add.s32", "max": "max.s32", "min": "min.s32"},
    "uint32": {"sum": "add.u32", "max": "max.u32", "min": "min.u32"},
    "int64": {"sum": "add.u64", "max": "max.s64", "min": "min.s64"},
    "uint64": {"sum": "add.u64", "max": "max.u64", "min": "min.u64"},
}
STORED = {
    "float": "v4.f32",
    "double": "f64",
    "half": "v4.f16x2",
    "bfloat16": "v4.bf16x2",
    "int32": "s32",
    "uint32": "u32",
    "int64": "s64",
    "uint64": "u64",
}
ABLE = [(dtype, redop) for dtype, redops in REDUCES.items() for redop in redops]
CALLS = 32  # word of a window that holds the number of the last call
UNABLE = [(dtype, redop) for dtype in DATATYPES for redop in REDUCTIONS if (dtype, redop) not in ABLE]
PAST_A_FENCE = re.compile(
    r"@(%p\d+) bra\s+(\S+);\s+// begin inline asm\s+fence\.proxy\.alias;\s+// end inline asm\s+(\S+):"
)


def some_and_all(some: list[tuple[str, str]], every: list[tuple[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("pairs", [some, pytest.param(every, marks=pytest.mark.full)], ids=["some", "every"])


SOME_ABLE = [("float", "sum"), ("bfloat16", "avg"), ("int64", "min")]


@some_and_all(SOME_ABLE, ABLE)
@pytest.mark.timeout(600)
def test_the_switch_is_asked_for_what_the_case_wants(pairs: list[tuple[str, str]]) -> None:
    """One kind of load and one of store, no more; and nothing goes through local memory or the constant cache."""
    for dtype, redop in pairs:
        wanted = LOADED[dtype]["sum" if redop == "avg" else redop]
        loads, stores = f"multimem.ld_reduce.{SCOPE}.{wanted}", f"multimem.st.{SCOPE}.{STORED[dtype]}"
        for arch in (NEWER[FILE],) if pairs is SOME_ABLE else (NEWER[FILE], 100):
            result = compiled(FILE, (), dtype, redop, arch)
            assert {*MULTIMEM.findall(result.ptx)} == {loads, stores}, (dtype, redop)
            assert b"nvls" in result.binary
            assert {*re.findall(r"warning #(\d+)", result.log)} <= {UNUSED}, (dtype, redop)
            assert ".nc" not in result.ptx, (dtype, redop)
            assert ".local" not in result.ptx, (dtype, redop)
            assert_no_spills(result, {"nvls": 512}, (dtype, redop, arch))


@some_and_all(SOME_ABLE, ABLE)
@pytest.mark.timeout(600)
def test_flags_and_proxy_fences_stand_round_the_switch(pairs: list[tuple[str, str]]) -> None:
    """Proxy fence, meeting, what the switch does, proxy fence, meeting; barriers hand each fence's order on."""
    meeting = ["fence.proxy.alias", "bar.sync", "st.release", "ld.acquire", "bar.sync"]
    for dtype, redop in pairs:
        ptx = compiled(FILE, (), dtype, redop).ptx
        words = re.findall(r"multimem|ld\.acquire|st\.release|fence\.proxy\.alias|bar\.sync", ptx)
        words = [word for word, before in zip(words, ["", *words], strict=False) if word != before]
        assert words == [*meeting, "multimem", "bar.sync", *meeting], "a block's stores come before its second fence"
        others = {word for word in MEMORY.findall(MULTIMEM.sub("", ptx)) if not plain(word)}
        assert others <= FLAGS | ERRORS | {OWN_COUNTER, "fence.proxy.alias"}, (dtype, redop)


@some_and_all([("float", "max"), ("int8", "sum")], UNABLE)
def test_what_the_table_leaves_out_does_not_compile(pairs: list[tuple[str, str]]) -> None:
    """The assembler's word is the last: a type or reduction that it takes would belong into the table."""
    for dtype, redop in pairs:
        with pytest.raises(nvrtc.CompileError, match=r"the switch has no such instruction|incomplete type"):
            compiled(FILE, (), dtype, redop)


def test_the_assembler_has_no_more_than_the_table() -> None:
    kinds = {"=f": "float", "=d": "double", "=l": "long long", "=r": "int"}
    wanted = [("max.f32", "=f"), ("min.f64", "=d"), ("add.s64", "=l"), ("add.s8", "=r"), ("mul.f32", "=f")]
    for instruction, register in wanted:
        text = f'"multimem.ld_reduce.relaxed.sys.global.{instruction} %0, [%1];" : "{register}"(x) : "l"(a)'
        kind = kinds[register]
        source = f'extern "C" __global__ void f({kind}* a) {{ {kind} x; asm volatile({text}); *a = x; }}'
        with pytest.raises(nvrtc.CompileError):
            nvrtc.compile_source(source, 90, (STANDARD,))
    with pytest.raises(nvrtc.CompileError, match=f"requires .target sm_{NEWER[FILE]} or higher"):
        compiled(FILE, arch=80)


@pytest.mark.parametrize("arch", [NEWER[FILE], pytest.param(100, marks=pytest.mark.full)])
def test_a_proxy_fence_is_one_threads_business(arch: int) -> None:
    """It is a fence of the GPU and one of the system, and a branch leads all threads but the first past it."""
    result = compiled(FILE, arch=arch)
    (code,) = sass.listing(result).values()
    words = [word for word, _ in code]
    assert words.count("MEMBAR.SC.SYS") == words.count("MEMBAR.SC.GPU") == 2
    guards = PAST_A_FENCE.findall(result.ptx)
    assert len(guards) == result.ptx.count("fence.proxy.alias") == 2
    for predicate, target, label in guards:
        assert target == label, "the branch goes just past the fence"
        (thread,) = re.findall(rf"setp\.ne\.s32\s+{predicate}, (%r\d+), 0;", result.ptx)
        assert re.search(rf"mov\.u32\s+{thread}, %tid\.x;", result.ptx)


class Ranks:
    """Inputs and results of all ranks, so many elements behind an aligned address, and a margin round each."""

    MARGIN = 32  # elements

    def __init__(self, ranks: int, count: int, starts: tuple[int, int], dtype: str, redop: str) -> None:
        self.count, self.starts, self.dtype = count, starts, DATATYPES[dtype]
        self.case = case(nbytes=count * self.dtype.itemsize, ranks=ranks, dtype=self.dtype, redop=REDUCTIONS[redop])
        self.windows = [_aligned(WINDOW_HEAD) for _ in range(ranks)]
        self.arrays = [[self._array() for _ in range(ranks)] for _ in starts]

    def _array(self) -> Array:
        array = _aligned((2 * self.MARGIN + self.count) * self.dtype.itemsize)
        array[:] = 0xEE
        return array.view(self.dtype.storage)

    def part(self, which: int, rank: int) -> Array:
        """The input (0) or the result (1) of a rank."""
        return self.arrays[which][rank][self.starts[which] :][: self.count]

    def run(self, seed: int, blocks: int, threads: int, alone: bool = False, spins: int = 2**40) -> None:
        """Fill, and one launch for all ranks, or for the first alone."""
        world = np.zeros((), WORLD)
        for rank, window in enumerate(self.windows):
            self.part(0, rank)[:] = self.case.input(rank, seed)
            world["window"][rank] = window.ctypes.data
            world["send"][rank], world["receive"][rank] = (self.part(which, rank).ctypes.data for which in (0, 1))
        ranks = self.case.ranks
        world["ranks"], world["stride"], world["blocks"] = ranks, 1, blocks
        world["spins"], world["yield_after"] = spins, 1
        kernel = kernels.host_kernel(
            FILE, "nvls", (*kernels.defines(self.dtype, self.case.redop), "-DHOST_GRID", "-O1")
        )
        shard = chunk_elements(self.count, ranks, self.dtype.itemsize)
        numbers = (world["send"][0], world["receive"][0], self.count, shard)
        kernel(world, *map(np.uint64, numbers), blocks=blocks * (1 if alone else ranks), threads=threads)

    def expect_result(self, seed: int) -> None:
        """Everywhere, and nothing beside it was written."""
        for rank, array in enumerate(self.arrays[1]):
            np.testing.assert_array_equal(self.part(1, rank), self.case.expected(rank, seed)[0][1])
            beside = np.delete(array, np.s_[self.starts[1] : self.starts[1] + self.count])
            assert (beside.view(np.uint8) == 0xEE).all()


def _aligned(nbytes: int) -> Array:
    raw = np.zeros(nbytes + 128, np.uint8)
    return raw[-raw.ctypes.data % 128 :][:nbytes]


def test_any_length_and_alignment_is_reduced() -> None:
    """The host's stand-in for the switch does nothing at an address that a switch would refuse."""
    for dtype, redop in SOME_ABLE:
        for count in (1, 3, 8, 67, 1003):
            for starts in [(0, 0), (1, 1), (3, 7), (2, 1), (0, 5)] if dtype == "bfloat16" or count == 67 else [(3, 7)]:
                ranks = Ranks(3, count, starts, dtype, redop)
                for seed in (1, 2):
                    ranks.run(seed, blocks=2, threads=2)
                    ranks.expect_result(seed)


def test_a_block_that_was_not_launched_for_long_waits_like_any_other() -> None:
    """Its old flags are never news, although their numbers are compared modulo 2**32."""
    for calls in (1, 2**29 - 1, 2**29 + 1, 2**29 + 2**28, 2**30 - 2**16):
        ranks = Ranks(3, 67, (0, 0), "float", "sum")
        heads = [window[:WINDOW_HEAD].view(np.uint32) for window in ranks.windows]
        ranks.run(0, blocks=8, threads=1)
        for head in heads:
            head[CALLS] = calls
        ranks.run(1, blocks=8, threads=1, alone=True, spins=1000)
        assert [head[0] for head in heads] == [1, 0, 0], calls
