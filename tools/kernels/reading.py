"""The programs whose machine code tests look into."""

from collections.abc import Iterable

from collbench.datatypes import Wire
from collbench.platforms.gpu import launch
from tools.kernels import facts, nvrtc, sass
from tools.kernels.nvrtc import PIPELINED, RANKS_MEET, STANDARD, compiled

READ = (80, 90, 100)
RANKS = (2, 4, 8)  # that kernels are compiled for
RINGS = [(), PIPELINED]
DTYPES = ("float", "half", "bfloat16", "double", "int8")  # that a ring is read for


def of_ranks(arch: int) -> list[tuple[str, tuple[str, ...], nvrtc.Compiled]]:
    """Every program whose ranks meet, disassembled together: the start of the disassembler takes longest."""
    programs = [(file, more, compiled(file, more, arch=arch)) for file, more in RANKS_MEET]
    together(program for _, _, program in programs)
    return programs


def together(programs: Iterable[nvrtc.Compiled]) -> list[nvrtc.Compiled]:
    """Programs, disassembled by one run of the disassembler for each architecture."""
    several = list(programs)
    sass.read_together(several)
    return several


def primitives(arch: int) -> nvrtc.Compiled:
    """Kernels that only call one primitive each."""
    return nvrtc.compile_source(facts.probes(), arch, (STANDARD,))


def ring(more: tuple[str, ...], dtype: str, arch: int) -> nvrtc.Compiled:
    """The ring; floats are added, other types averaged."""
    return compiled("ring.cu", more, dtype, "avg" if dtype != "float" else "sum", arch)


def known(file: str, ranks: int, arch: int) -> nvrtc.Compiled:
    """A program for so many ranks."""
    return compiled(file, launch.defines(ranks, one_device=False), arch=arch)


def wired(wire: Wire, arch: int) -> nvrtc.Compiled:
    """The all-reduce of two ranks by a wire: a loop over the others is one turn."""
    return compiled("narrow.cu", (f"-DWIRE={wire.code}", *launch.defines(2, one_device=False)), arch=arch)
