"""NVIDIA's compiler takes every kernel for every type and GPU, and makes of the flags exactly what they must be.

Each fact is asserted of a few programs by `make test`, of every architecture, type and reduction by `make test-all`.
"""

import re
from itertools import product

import pytest

from collbench.algorithms import narrow
from collbench.datatypes import REDUCTIONS, WIRES
from collbench.platforms import compiler
from collbench.platforms.gpu import launch
from collbench.platforms.layout import world_type
from tools.kernels import nvrtc
from tools.kernels.nvrtc import ARCHITECTURES, ONE_DEVICE, PROGRAMS, RANKS_MEET, compiled

Program = tuple[str, tuple[str, ...], str, str, int]  # file, options, type, reduction, architecture

REGISTERS = 65536  # of a multiprocessor, on every one of these architectures
SHARED = 48 << 10  # bytes that a block may have without asking
BOUNDS = re.compile(r"__launch_bounds__\((\d+), 1\)\s+(\w+)\(")
UNBOUNDED = 1024  # threads that a kernel without bounds may be launched with
UNUSED = "177"  # the warning that a constant of a header is not needed
ARITHMETIC = ("check.cu", "steps.cu")  # the others add as these do, and an average has most to do
FLAGS = {"st.release.sys.u32", "ld.acquire.sys.u32", "fence.acq_rel.sys", "st.relaxed.sys.u32"}
ERRORS = {"st.relaxed.sys.u32", "ld.relaxed.sys.u32"}  # the error word orders nothing
PACKETS = {"st.relaxed.sys.v2.b64", "ld.relaxed.sys.v2.b64"}
OWN_COUNTER = "atom.acq_rel.gpu.add.u32"  # of the blocks of one rank, which share a GPU
MEMORY = re.compile(r"\b(?:ld|st|atom|red|fence|membar)\b[.\w]*")
NARROW_TYPES = [("bfloat16", "avg"), ("int8", "avg")]  # elements of two and of one byte
MOVED = ("ring.cu", "direct.cu", "steps.cu")  # files that move whole arrays

BETWEEN_DEVICES = [(file, more) for file, more in PROGRAMS if more[-len(ONE_DEVICE) :] != ONE_DEVICE]
QUICK: list[Program] = [
    *((*program, "float", "sum", 90) for program in PROGRAMS),
    *((*program, *pair, 90) for program in BETWEEN_DEVICES if program in RANKS_MEET for pair in NARROW_TYPES),
    *((file, (), *pair, 90) for file in ARITHMETIC for pair in NARROW_TYPES),
]


def of_architecture(arch: int) -> list[Program]:
    return [(*program, *pair, arch) for program in PROGRAMS for pair in (("float", "sum"), ("int8", "avg"))]


def of_type(dtype: str) -> list[Program]:
    redops = dict.fromkeys(ARITHMETIC, ("none", *REDUCTIONS))
    return [(*one, dtype, redop, 90) for one in BETWEEN_DEVICES for redop in redops.get(one[0], ("avg",))]


LISTS = {f"sm_{arch}": of_architecture(arch) for arch in ARCHITECTURES}
LISTS |= {dtype: of_type(dtype) for dtype in ("float", "double", "half", "bfloat16", "int8", "uint64")}
ALL = pytest.mark.parametrize(
    "programs",
    [
        pytest.param(QUICK, id="quick"),
        *(pytest.param(programs, id=name, marks=pytest.mark.full) for name, programs in LISTS.items()),
    ],
)


def plain(word: str) -> bool:
    """An access that promises nothing to other threads: parameters, and ordinary global ones, also past the cache."""
    return bool(re.fullmatch(r"(?:ld|st)\.(?:param|global|local)(?:\.cs)?(?:\.v[24])?\.[a-z]\d+", word))


def assert_no_spills(program: nvrtc.Compiled, bounds: dict[str, int], case: object) -> None:
    """Nothing in local memory at all, and registers for a whole block of each kernel."""
    assert program.resources, case
    for name, taken in program.resources.items():
        assert (taken.stack, taken.spill_stores, taken.spill_loads) == (0, 0, 0), (name, case)
        assert 0 < taken.registers * bounds.get(name, UNBOUNDED) <= REGISTERS, (name, case)
        assert taken.shared <= SHARED, (name, case)


def bounds_of(file: str) -> dict[str, int]:
    return {name: int(threads) for threads, name in BOUNDS.findall(compiler.source(file))}


@ALL
@pytest.mark.timeout(600)
def test_kernels_compile_without_warnings_spill_nothing_and_order_memory_as_proved(programs: list[Program]) -> None:
    for program in programs:
        file, more, dtype, *_ = program
        result = compiled(*program)
        assert {*re.findall(r"warning #(\d+)", result.log)} <= {UNUSED}, program
        assert sorted(result.resources) == sorted(compiler.entries(file)), program
        assert all(f".entry {entry}(" in result.ptx for entry in compiler.entries(file)), program
        assert bounds_of(file) or (file, more) not in RANKS_MEET, file
        assert_no_spills(result, bounds_of(file), program)
        if (file, more) in RANKS_MEET:
            assert_ordered_as_proved(result.ptx, file, more, program)
        if file in MOVED and dtype in ("float", "bfloat16", "int8"):
            assert re.search(r"ld\.global\.v4\.[fu]32", result.ptx), program
            assert re.search(r"st\.global\.v4\.[fu]32", result.ptx), program


def assert_ordered_as_proved(ptx: str, file: str, more: tuple[str, ...], program: Program) -> None:
    """Flags: release and acquire, or one fence for two flags.  Packets: whole 64-bit words.  All at one scope."""
    strong = {word for word in MEMORY.findall(ptx) if not plain(word)} - {OWN_COUNTER}
    scope, other = (".gpu", ".sys") if "-DONE_DEVICE" in more else (".sys", ".gpu")
    assert not any(other in word for word in strong), program
    strong = {word.replace(scope, ".sys") for word in strong}
    if "packets.cuh" in (compiler.folder() / file).read_text():
        assert strong == PACKETS | ERRORS, program
    else:
        assert {"st.release.sys.u32", "ld.acquire.sys.u32"} <= strong <= FLAGS | ERRORS, program
    assert ".nc" not in ptx, f"{program}: loads through the constant cache may return what was there before"
    assert ".local" not in ptx, f"{program}: a copy of the World would cost every thread three kilobytes"


@pytest.mark.full
@pytest.mark.timeout(600)
def test_nothing_is_spilled_for_any_wire_nor_number_of_ranks_that_is_known() -> None:
    two, eight = (launch.defines(ranks, one_device=False) for ranks in (2, 8))
    for more, pair in product((two, eight), [("float", "sum"), ("int8", "avg"), ("half", "avg"), ("uint64", "avg")]):
        assert_no_spills(compiled("direct.cu", more, *pair), bounds_of("direct.cu"), (more, pair))
    for wire, more, arch in product(WIRES.values(), ((), (narrow.FEEDBACK,), eight), (70, 100)):
        program = compiled("narrow.cu", (f"-DWIRE={wire.code}", *more), arch=arch)
        assert_no_spills(program, {"narrow_allreduce": narrow.THREADS}, (wire.code, more, arch))


def test_a_world_is_as_long_as_its_ranks_need() -> None:
    for ranks in (2, 9, 128):
        more = launch.defines(ranks, one_device=False)
        (nbytes,) = re.findall(r"ring_ll_allreduce_param_0\[(\d+)\]", compiled("ring_ll.cu", more).ptx)
        assert int(nbytes) == world_type(launch.room_for(ranks)).itemsize, ranks
        assert ranks <= launch.room_for(ranks), ranks
    assert world_type(launch.room_for(8)).itemsize < 256


def test_gpus_are_compiled_for_nans_of_their_own() -> None:
    text = compiled("steps.cu", (), "bfloat16", "sum").ptx
    assert re.search(r"setp\.\w+\.[us]32\s.*, 213909504[01];", text)
    assert not re.search(r"213909504[01]", compiled("steps.cu", (), "half", "sum").ptx)
