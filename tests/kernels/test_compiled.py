"""What NVIDIA's assembler makes of the kernels: registers, no spills, and the instructions that reach memory.

Registers and spills are read for sm_70 too.  Its instructions are not: no wheel has a disassembler for it, so that of
the primitives is read for sm_75 instead, and sm_70 has only its PTX tested (test_nvrtc.py).
"""

import re

import pytest

from collbench import kernels
from collbench.platforms.logs import TRACED
from tests.conftest import ROOT
from tests.kernels import facts, sass
from tests.kernels.facts import ARRAY, PRIMITIVES, VECTORS
from tests.kernels.test_nvrtc import ARCHITECTURES, PROGRAMS, RANKS_MEET, STANDARD, compiled, each

REGISTERS = 65536  # of a multiprocessor, on every one of these architectures
SHARED = 48 << 10  # bytes that a block may have without asking
BOUNDS = re.compile(r"__launch_bounds__\((\d+), 1\)\s+(\w+)\(")
UNBOUNDED = 1024  # threads that a kernel without bounds may be launched with
PAIRS = [  # most of them compiled for test_nvrtc.py too; integers of one byte take most registers
    *(("float", "sum", arch) for arch in ARCHITECTURES),
    *((dtype, "avg", 90) for dtype in ("double", "half", "bfloat16", "int8", "uint64")),
    *(("int8", "avg", arch) for arch in (70, 100)),
]
READ = (80, 90, 100)
STRONG = {"MEMBAR.ALL.SYS", "ST.E.STRONG.SYS", "LD.E.STRONG.SYS", "MEMBAR.ALL.GPU", "ATOM.E.ADD.STRONG.GPU"}


@pytest.mark.parametrize(("dtype", "redop", "arch"), PAIRS)
@each(PROGRAMS)
def test_nothing_is_spilled_and_a_whole_block_finds_its_registers(
    file: str, more: tuple[str, ...], dtype: str, redop: str, arch: int
) -> None:
    """Nothing in local memory at all: no stack, no spills, in any kernel."""
    bounds = {name: int(threads) for threads, name in BOUNDS.findall(kernels.source(file))}
    assert bounds or (file, more) not in RANKS_MEET
    resources = compiled(file, more, dtype, redop, arch).resources
    assert sorted(resources) == sorted(kernels.entries(file))
    for name, taken in resources.items():
        assert (taken.stack, taken.spill_stores, taken.spill_loads) == (0, 0, 0), name
        assert 0 < taken.registers * bounds.get(name, UNBOUNDED) <= REGISTERS, name
        assert taken.shared <= SHARED, name


@pytest.mark.parametrize("arch", [75, *READ])
@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_primitive_becomes_these_instructions(name: str, arch: int) -> None:
    """All that reach memory, in this order."""
    assert facts.primitives(arch)[name] == PRIMITIVES[name].instructions(arch)


@each(RANKS_MEET)
@pytest.mark.parametrize("arch", READ)
def test_kernels_reach_memory_by_the_primitives_alone(file: str, more: tuple[str, ...], arch: int) -> None:
    """Never through the cache for constants, nor to local memory; and arrays or packets by sixteen bytes."""
    found = sass.memory_instructions(compiled(file, more, arch=arch).binary)
    packets = "packets.cuh" in (kernels.folder() / file).read_text()
    for name in kernels.entries(file):
        words = set(found[name])
        strong = {word for word in words if "STRONG" in word or word.startswith("MEMBAR")}
        assert {"MEMBAR.ALL.SYS", "ST.E.STRONG.SYS", "LD.E.STRONG.SYS"} <= strong, name
        assert strong - STRONG == (VECTORS if packets else set()), name
        assert packets or words >= ARRAY, name
        weak = words - strong - {sass.BARRIER, "CCTL.IVALL"}
        assert all(re.fullmatch(r"(LD|ST)G\.E(\.U8|\.U16|\.64|\.128)?", word) for word in weak), (name, weak)


@each(RANKS_MEET)
@pytest.mark.parametrize("arch", READ)
def test_every_flag_is_stored_behind_a_barrier_of_the_system(file: str, more: tuple[str, ...], arch: int) -> None:
    """The merged publication, and it alone, has one for two flags."""
    for name, words in sass.memory_instructions(compiled(file, more, arch=arch).binary).items():
        order = [word for word in words if word != "CCTL.IVALL"]
        before = [order[i - 1] for i, word in enumerate(order) if word == "ST.E.STRONG.SYS"]
        assert set(before) <= {"MEMBAR.ALL.SYS", *(["ST.E.STRONG.SYS"] if "-DMERGED" in more else [])}, name
        assert ("ST.E.STRONG.SYS" in before) == ("-DMERGED" in more), name


def test_the_page_has_these_facts() -> None:
    """Counts of registers are compared where the page is of the compiler that is installed; another may differ."""
    page = (ROOT / "docs" / "compiled.md").read_text()
    assert facts.instructions_table() in page
    if f"NVRTC {facts.version()}" in page:
        assert facts.registers_table() in page
    else:
        for file, more in PROGRAMS:
            assert all(f"| `{name}` |" in page for name in kernels.entries(file)), (file, more)


SPILLING = """extern "C" __global__ void __launch_bounds__(1024, 2) f(float* x) {
  float y[64];
  for (int i = 0; i < 64; i++) y[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
  for (int i = 0; i < 64; i++) x[i * 1024 + threadIdx.x] = y[i] * y[63 - i] + y[(i + 7) % 64];
}"""
INDEXED = """struct S { float* of[64]; };
extern "C" __global__ void f(S s, int i) { s.of[i] += 1; *s.of[i + threadIdx.x] = 1; }"""


@pytest.mark.parametrize("source", [SPILLING, INDEXED], ids=["too few registers", "a parameter that is indexed"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_local_memory_is_seen_where_there_is_some(source: str, arch: int) -> None:
    """The tests above can fail."""
    result = facts.nvrtc.compile_source(source, arch, (STANDARD,))
    assert result.resources["f"].stack > 0
    if arch in READ:
        assert {word.partition(".")[0] for word in sass.memory_instructions(result.binary)["f"]} >= {"STL", "LDL"}


@each(RANKS_MEET)
def test_keeping_a_log_spills_nothing_and_orders_nothing(file: str, more: tuple[str, ...]) -> None:
    """Its kernel has the same accesses between ranks, and clocks."""
    plain, traced = compiled(file, more), compiled(file, (*more, TRACED))
    for name, taken in traced.resources.items():
        assert (taken.stack, taken.spill_stores, taken.spill_loads) == (0, 0, 0), name
        assert taken.registers * 512 <= REGISTERS, name
        strong = [
            [word for word in sass.memory_instructions(each.binary)[name] if "STRONG" in word]
            for each in (plain, traced)
        ]
        assert set(strong[0]) == set(strong[1]), name
    assert "%globaltimer" in traced.ptx
    assert "%clock64" in traced.ptx
    assert "%globaltimer" not in plain.ptx
