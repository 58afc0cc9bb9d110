"""NVIDIA's compiler takes every kernel for every type and GPU, and makes of the flags exactly what they must be."""

import re
from functools import cache

import pytest

from collbench.datatypes import DATATYPES, NONE, REDUCTIONS
from collbench.implementations import ring_pipelined
from collbench.platforms import kernels
from collbench.platforms.gpu import launch, multicast
from tools.kernels import nvrtc

NEWER = {"multimem.cu": multicast.OLDEST}  # not for every GPU and type: test_multimem.py
FILES = sorted(path.name for path in kernels.folder().glob("*.cu") if path.name not in NEWER)
ARCHITECTURES = (70, 80, 90, 100)
STANDARD = "-std=c++17"  # what CuPy's oldest supported NVRTC is sure to have
UNUSED = "177"  # the warning that a constant of a header is not needed
ARITHMETIC = ("check.cu", "steps.cu")  # quick to compile; the others add as these do, and an average has most to do
PIPELINED = ("-DSLOTS=4", "-DMERGED", f"-DIN_FLIGHT={ring_pipelined.IN_FLIGHT}")
ONE_DEVICE = launch.defines(4, one_device=True)  # what four ranks that share a GPU add
VARIANTS = {  # the ring's two rungs between devices, and on one; the others on one, where more is known when compiled
    "ring.cu": [(), PIPELINED, (*PIPELINED, *ONE_DEVICE)],
    "direct.cu": [(), ONE_DEVICE],
    "one_shot_ll.cu": [(), ONE_DEVICE],
    "narrow.cu": [(), ONE_DEVICE],  # its other wires: test_compiled.py
}
PROGRAMS = [(file, more) for file in FILES for more in VARIANTS.get(file, [()])]
RANKS_MEET = [(file, more) for file, more in PROGRAMS if "PARAMETER(World)" in kernels.source(file)]
FLAGS = {"st.release.sys.u32", "ld.acquire.sys.u32", "fence.acq_rel.sys", "st.relaxed.sys.u32"}
ERRORS = {"st.relaxed.sys.u32", "ld.relaxed.sys.u32"}  # the error word orders nothing
PACKETS = {"st.relaxed.sys.v2.b64", "ld.relaxed.sys.v2.b64"}
OWN_COUNTER = "atom.acq_rel.gpu.add.u32"  # of the blocks of one rank, which share a GPU
ENTRY = re.compile(r'^extern "C" __global__ void\s+(?:__launch_bounds__\(.*?\)\s+)?(?P<name>\w+)\(.*?^}\n', re.M | re.S)
MOVED = [("float", "sum"), ("bfloat16", "avg"), ("int8", "avg")]  # elements of four, two and one bytes
MEMORY = re.compile(r"\b(?:ld|st|atom|red|fence|membar)\b[.\w]*")


@cache
def compiled(
    file: str,
    more: tuple[str, ...] = (),
    dtype: str = "float",
    redop: str = "sum",
    arch: int = 90,
    only: tuple[str, ...] = (),
) -> nvrtc.Compiled:
    """A kernel file; with `only`, no more of its kernels than those."""
    return nvrtc.compile_source(source(file, only), arch, options(more, dtype, redop))


def options(more: tuple[str, ...], dtype: str, redop: str) -> tuple[str, ...]:
    reduction = NONE if redop == "none" else REDUCTIONS[redop]
    return (*kernels.defines(DATATYPES[dtype], reduction), *more, STANDARD)


def source(file: str, only: tuple[str, ...] = ()) -> str:
    """The text of a kernel file without its other kernels, if some are named."""
    return ENTRY.sub(lambda entry: entry[0] if not only or entry["name"] in only else "", kernels.source(file))


@cache
def ptx(file: str, more: tuple[str, ...], dtype: str, redop: str) -> str:
    """Without the assembler's work, where that is not needed for another test."""
    if more[-len(ONE_DEVICE) :] != ONE_DEVICE or dtype in ("float", "int8"):
        return compiled(file, more, dtype, redop).ptx
    return nvrtc.ptx(kernels.source(file), 90, options(more, dtype, redop))


def each(programs: list[tuple[str, tuple[str, ...]]]) -> pytest.MarkDecorator:
    names = ["".join([file, *more]) for file, more in programs]
    return pytest.mark.parametrize(("file", "more"), programs, ids=names)


@each(
    [(file, more) for file, more in PROGRAMS if more[-len(ONE_DEVICE) :] != ONE_DEVICE]
)  # types matter to none of that
@pytest.mark.parametrize("dtype", ["float", "double", "half", "bfloat16", "int8", "uint64"])
def test_every_kernel_compiles_for_every_type_and_reduction(file: str, more: tuple[str, ...], dtype: str) -> None:
    for redop in ("none", *REDUCTIONS) if file in ARITHMETIC else ("avg",):
        result = compiled(file, more, dtype, redop)
        assert {*re.findall(r"warning #(\d+)", result.log)} <= {UNUSED}, redop
        for entry in kernels.entries(file):
            assert f".entry {entry}(" in result.ptx, redop
            assert entry.encode() in result.binary, redop


@each(PROGRAMS)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_kernel_compiles_for_every_architecture(file: str, more: tuple[str, ...], arch: int) -> None:
    assert compiled(file, more, arch=arch).binary


@each(RANKS_MEET)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_only_accesses_of_the_proved_protocols_order_memory(file: str, more: tuple[str, ...], arch: int) -> None:
    """Flags: release and acquire, or one fence for two flags.  Packets: whole 64-bit words.  All at one scope."""
    strong = {word for word in MEMORY.findall(compiled(file, more, arch=arch).ptx) if not plain(word)}
    strong -= {OWN_COUNTER}
    scope, other = (".gpu", ".sys") if "-DONE_DEVICE" in more else (".sys", ".gpu")
    assert not any(other in word for word in strong)
    strong = {word.replace(scope, ".sys") for word in strong}
    if "packets.cuh" in (kernels.folder() / file).read_text():
        assert strong == PACKETS | ERRORS
    else:
        assert {"st.release.sys.u32", "ld.acquire.sys.u32"} <= strong <= FLAGS | ERRORS


def plain(word: str) -> bool:
    """An access that promises nothing to other threads: parameters, and ordinary global loads and stores."""
    return bool(re.fullmatch(r"(?:ld|st)\.(?:param|global|local)(?:\.v[24])?\.[a-z]\d+", word))


@each(RANKS_MEET)
@pytest.mark.parametrize(("dtype", "redop"), MOVED)
def test_what_a_peer_writes_is_never_read_through_the_constant_cache(
    file: str, more: tuple[str, ...], dtype: str, redop: str
) -> None:
    """`.nc` loads may return what was there before the kernel started."""
    assert ".nc" not in ptx(file, more, dtype, redop)


@each(RANKS_MEET)
def test_nothing_is_kept_in_local_memory(file: str, more: tuple[str, ...]) -> None:
    """Neither a copy of the World, which would cost every thread three kilobytes, nor what belongs in registers."""
    assert ".local" not in compiled(file, more).ptx


@pytest.mark.parametrize("file", ["ring.cu", "direct.cu", "steps.cu"])
@pytest.mark.parametrize(("dtype", "redop"), MOVED)
def test_arrays_are_moved_sixteen_bytes_at_a_time(file: str, dtype: str, redop: str) -> None:
    """Loads and stores alike; single elements are for what does not fill a pack."""
    text = ptx(file, (), dtype, redop)
    assert re.search(r"ld\.global\.v4\.[fu]32", text)
    assert re.search(r"st\.global\.v4\.[fu]32", text)


def test_ptx_is_the_same_without_the_assembler() -> None:
    """So it may be looked at without."""
    whole = compiled("one_shot_ll.cu", ONE_DEVICE, "int8", "avg").ptx
    assert nvrtc.ptx(kernels.source("one_shot_ll.cu"), 90, options(ONE_DEVICE, "int8", "avg")) == whole


def test_what_is_wrong_is_refused() -> None:
    """The tests above can fail."""
    with pytest.raises(nvrtc.CompileError, match="undefined_name"):
        nvrtc.compile_source('extern "C" __global__ void f() { undefined_name(); }', 90, (STANDARD,))
