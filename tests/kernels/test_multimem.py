"""The kernel that has the switch add: what NVIDIA's compiler makes of it, and its algorithm with real threads."""

import re

import pytest

from collbench.algorithms.nvls import REDUCES
from collbench.collectives import chunk_elements
from collbench.datatypes import DATATYPES, REDUCTIONS
from tests.conftest import case
from tests.kernels.test_nvrtc import ERRORS, FLAGS, MEMORY, OWN_COUNTER, UNUSED, assert_no_spills, plain
from tools.kernels import nvrtc, sass
from tools.kernels.grid import Ranks
from tools.kernels.nvrtc import NEWER, STANDARD, compiled

FILE = "multimem.cu"
MULTIMEM = re.compile(r"\bmultimem\.[\w.:]+")
SCOPE = "relaxed.sys.global"
FLOATS = {  # what is loaded by reduction, an average being a sum, and what is stored
    "float": ({"sum": "add.v4.f32"}, "v4.f32"),
    "double": ({"sum": "add.f64"}, "f64"),
    "half": ({"sum": "add.acc::f32.v4.f16x2", "max": "max.v4.f16x2", "min": "min.v4.f16x2"}, "v4.f16x2"),
    "bfloat16": ({"sum": "add.acc::f32.v4.bf16x2", "max": "max.v4.bf16x2", "min": "min.v4.bf16x2"}, "v4.bf16x2"),
}
INTEGERS = {"int32": "s32", "uint32": "u32", "int64": "s64", "uint64": "u64"}
ABLE = [(dtype, redop) for dtype, redops in REDUCES.items() for redop in redops]
CALLS = 32  # word of a window that holds the number of the last call
UNABLE = [(dtype, redop) for dtype in DATATYPES for redop in REDUCTIONS if (dtype, redop) not in ABLE]
STEPS = re.compile(r"multimem|ld\.acquire|st\.release|fence\.proxy\.alias|bar\.sync")
MEETING = ["fence.proxy.alias", "bar.sync", "st.release", "ld.acquire", "bar.sync"]
PAST_A_FENCE = re.compile(
    r"@(%p\d+) bra\s+(\S+);\s+// begin inline asm\s+fence\.proxy\.alias;\s+// end inline asm\s+(\S+):"
)


def instructions(dtype: str, redop: str) -> tuple[str, str]:
    """The load and the store; signs do not matter to sums of 64 bits, which the assembler knows without."""
    if dtype in FLOATS:
        return f"ld_reduce.{SCOPE}.{FLOATS[dtype][0][redop]}", f"st.{SCOPE}.{FLOATS[dtype][1]}"
    kind = INTEGERS[dtype]
    loaded = f"add.{kind.replace('s64', 'u64')}" if redop == "sum" else f"{redop}.{kind}"
    return f"ld_reduce.{SCOPE}.{loaded}", f"st.{SCOPE}.{kind}"


SOME_ABLE = [("float", "sum"), ("bfloat16", "avg"), ("int64", "min")]


@pytest.mark.parametrize("pairs", [SOME_ABLE, pytest.param(ABLE, marks=pytest.mark.full)], ids=["some", "every"])
@pytest.mark.timeout(600)
def test_the_switch_is_asked_for_what_the_case_wants(pairs: list[tuple[str, str]]) -> None:
    """One kind of load and one of store, no more; and nothing goes through local memory or the constant cache.

    Proxy fence, meeting, what the switch does, proxy fence, meeting; barriers hand each fence's order on.
    """
    for dtype, redop in pairs:
        loads, stores = (f"multimem.{word}" for word in instructions(dtype, "sum" if redop == "avg" else redop))
        for arch in (NEWER[FILE],) if pairs is SOME_ABLE else (NEWER[FILE], 100):
            result = compiled(FILE, (), dtype, redop, arch)
            assert {*MULTIMEM.findall(result.ptx)} == {loads, stores}, (dtype, redop)
            assert b"nvls" in result.binary
            assert {*re.findall(r"warning #(\d+)", result.log)} <= {UNUSED}, (dtype, redop)
            assert ".nc" not in result.ptx, (dtype, redop)
            assert ".local" not in result.ptx, (dtype, redop)
            assert_no_spills(result, {"nvls": 512}, (dtype, redop, arch))
            words = STEPS.findall(result.ptx)
            words = [word for word, before in zip(words, ["", *words], strict=False) if word != before]
            assert words == [*MEETING, "multimem", "bar.sync", *MEETING], "a block's stores precede its second fence"
            others = {word for word in MEMORY.findall(MULTIMEM.sub("", result.ptx)) if not plain(word)}
            assert others <= FLAGS | ERRORS | {OWN_COUNTER, "fence.proxy.alias"}, (dtype, redop)


def test_what_the_table_leaves_out_does_not_compile() -> None:
    for dtype, redop in UNABLE:
        with pytest.raises(nvrtc.CompileError, match=r"the switch has no such instruction|incomplete type"):
            compiled(FILE, (), dtype, redop)
    for instruction, kind, constraint in (("max.f32", "float", "=f"), ("add.s64", "long long", "=l")):
        text = f'"multimem.ld_reduce.relaxed.sys.global.{instruction} %0, [%1];" : "{constraint}"(x) : "l"(a)'
        source = f'extern "C" __global__ void f({kind}* a) {{ {kind} x; asm volatile({text}); *a = x; }}'
        with pytest.raises(nvrtc.CompileError):
            nvrtc.compile_source(source, 90, (STANDARD,))
    with pytest.raises(nvrtc.CompileError, match=f"requires .target sm_{NEWER[FILE]} or higher"):
        compiled(FILE, arch=80)


@pytest.mark.parametrize("arch", [NEWER[FILE], pytest.param(100, marks=pytest.mark.full)])
def test_a_proxy_fence_is_one_threads_business(arch: int) -> None:
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


def run(ranks: Ranks, seed: int, blocks: int, threads: int, **fields: int) -> None:
    of = ranks.case
    ranks.fill(seed)
    count = of.nbytes // of.dtype.itemsize
    places = (ranks.part(which, 0).ctypes.data for which in (0, 1))
    numbers = (*places, count, chunk_elements(count, of.ranks, of.dtype.itemsize))
    ranks.launch(FILE, "nvls", numbers, blocks=blocks, threads=threads, **fields)


def ranks_of(count: int, dtype: str, redop: str, starts: tuple[int, int] = (0, 0)) -> Ranks:
    chosen = DATATYPES[dtype]
    return Ranks(
        case(nbytes=count * chosen.itemsize, ranks=3, dtype=chosen, redop=REDUCTIONS[redop]), starts=[starts] * 3
    )


def test_any_length_and_alignment_is_reduced() -> None:
    for dtype, redop in SOME_ABLE:
        for count in (1, 3, 8, 67, 1003):
            for starts in [(0, 0), (1, 1), (3, 7), (2, 1), (0, 5)] if dtype == "bfloat16" or count == 67 else [(3, 7)]:
                ranks = ranks_of(count, dtype, redop, starts)
                for seed in (1, 2):
                    run(ranks, seed, blocks=2, threads=2)
                    assert ranks.right(seed), (dtype, count, starts)


def test_a_block_that_was_not_launched_for_long_waits_like_any_other() -> None:
    for calls in (1, 2**29 - 1, 2**29 + 1, 2**29 + 2**28, 2**30 - 2**16):
        ranks = ranks_of(67, "float", "sum")
        run(ranks, 0, blocks=8, threads=1)
        for head in ranks.heads:
            head[CALLS] = calls
        run(ranks, 1, blocks=8, threads=1, alone=True, spins=1000)
        assert [head[0] for head in ranks.heads] == [1, 0, 0], calls
