"""The machine code that tests look into: of one architecture, all that any test reads is disassembled together.

The start of the disassembler takes longer than a dozen programs.
"""

import random
from functools import cache, partial

from collbench.platforms.gpu import launch
from collbench.platforms.stress import HESITATES
from collbench.platforms.tracelog import TRACED
from collbench.wires import WIRES, Wire
from tests.kernels.test_nvrtc import ARCHITECTURES, NEWER, PIPELINED, RANKS_MEET, STANDARD, compiled
from tools.kernels import facts, nvrtc, sass

READ = (80, 90, 100)
RANKS = (2, 4, 8)  # that kernels are compiled for
PAIRS = [  # most of them compiled for test_nvrtc.py too; integers of one byte take most registers
    *(("float", "sum", arch) for arch in ARCHITECTURES),
    *((dtype, "avg", 90) for dtype in ("double", "half", "bfloat16", "int8", "uint64")),
    *(("int8", "avg", arch) for arch in (70, 100)),
]
RINGS = [(), PIPELINED]
DTYPES = ("float", "half", "bfloat16", "double", "int8")  # that a ring is read for
LOCAL = {  # sources whose kernel needs local memory
    "too few registers": """extern "C" __global__ void __launch_bounds__(1024, 2) f(float* x) {
  float y[64];
  for (int i = 0; i < 64; i++) y[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
  for (int i = 0; i < 64; i++) x[i * 1024 + threadIdx.x] = y[i] * y[63 - i] + y[(i + 7) % 64];
}""",
    "a parameter that is indexed": """struct S { float* of[64]; };
extern "C" __global__ void f(S s, int i) { s.of[i] += 1; *s.of[i + threadIdx.x] = 1; }""",
}


def listing(program: nvrtc.Compiled) -> sass.Listing:
    """As in sass.py, of one of the programs below or of any other."""
    _together(program.arch)
    return sass.listing(program)


def memory_instructions(program: nvrtc.Compiled) -> dict[str, tuple[str, ...]]:
    """As in sass.py."""
    _together(program.arch)
    return sass.memory_instructions(program)


def primitives(arch: int) -> nvrtc.Compiled:
    """Kernels that only call one primitive each."""
    return nvrtc.compile_source(facts.probes(), arch, (STANDARD,))


def local(name: str, arch: int) -> nvrtc.Compiled:
    """One of LOCAL."""
    return nvrtc.compile_source(LOCAL[name], arch, (STANDARD,))


def ring(more: tuple[str, ...], dtype: str, arch: int) -> nvrtc.Compiled:
    """With its all-reduce at least."""
    redop = "avg" if dtype != "float" else "sum"
    return compiled("ring.cu", more, dtype, redop, arch, () if (dtype, redop, arch) in PAIRS else ("ring_allreduce",))


def direct(ranks: int, arch: int) -> nvrtc.Compiled:
    """With the kernels that ask all ranks at once, at least."""
    more = launch.defines(ranks, one_device=False)
    return compiled("direct.cu", more, arch=arch, only=() if arch == 90 and ranks != 4 else ("one_shot", "two_shot"))


def packets(ranks: int, arch: int) -> nvrtc.Compiled:
    """The all-reduce of packets."""
    return compiled("one_shot_ll.cu", launch.defines(ranks, one_device=False), arch=arch)


def wired(wire: Wire, arch: int) -> nvrtc.Compiled:
    """The all-reduce of two ranks by a wire: a loop over the others is one turn."""
    return compiled("narrow.cu", (f"-DWIRE={wire.code}", *launch.defines(2, one_device=False)), arch=arch)


def narrow_listing(wire: Wire, arch: int) -> tuple[tuple[str, str], ...]:
    """Its code."""
    return listing(wired(wire, arch))["narrow_allreduce"]


@cache
def _together(arch: int) -> None:
    """In any order, so that workers side by side compile different ones first."""
    makers = [partial(primitives, arch)]
    if arch in READ:
        makers += [partial(local, name, arch) for name in LOCAL]
        makers += [partial(compiled, file, more, arch=arch) for file, more in RANKS_MEET]
        makers += [partial(ring, more, dtype, arch) for more in RINGS for dtype in DTYPES]
        makers += [partial(make, ranks, arch) for make in (direct, packets) for ranks in RANKS]
        makers += [partial(wired, wire, arch) for wire in WIRES.values()]
    if arch == 90:
        options = TRACED, HESITATES
        makers += [partial(compiled, file, (*more, option)) for file, more in RANKS_MEET for option in options]
    makers += [partial(compiled, file, arch=arch) for file, oldest in NEWER.items() if oldest <= arch]
    sass.read_together([make() for make in random.sample(makers, len(makers))])
