"""Instructions of the kernels' primitives, and the tables of docs/kernels.md."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collbench.platforms import compiler
from tools import table, table_in
from tools.kernels import nvrtc, sass, streams

ARRAY = {"LDG.E.128", "STG.E.128"}
VECTORS = {"LD.E.128.STRONG.SYS", "ST.E.128.STRONG.SYS"}


@dataclass(frozen=True)
class Primitive:
    """A function of the headers, the kernel that only calls it, and its instructions."""

    parameters: str
    call: str
    words: str

    def instructions(self, arch: int) -> tuple[str, ...]:
        """Return the instructions; up to sm_75 ordinary accesses also name the system's scope, which orders nothing."""
        suffix = ".SYS" if arch <= 75 else ""
        return tuple(word + suffix if word[:3] in ("LDG", "STG") else word for word in self.words.split())


_LOOK, _GIVE_UP = "LD.E.STRONG.SYS CCTL.IVALL", "LD.E.STRONG.SYS ST.E.STRONG.SYS"  # the flag; the error word
_PUBLISH = "MEMBAR.ALL.SYS ST.E.STRONG.SYS"
_WAIT = "PARAMETER(World) world, Flag* error"
PRIMITIVES = {
    "publish": Primitive("Flag* a, unsigned n", "publish(a, n)", f"{sass.BARRIER} {_PUBLISH}"),
    "publish_two": Primitive(
        "Flag* a, unsigned n, Flag* b, unsigned m",
        "publish(a, n, b, m)",
        f"{sass.BARRIER} MEMBAR.ALL.SYS CCTL.IVALL ST.E.STRONG.SYS ST.E.STRONG.SYS",
    ),
    "await_flag": Primitive(
        f"{_WAIT}, Flag* a, unsigned n", "await(a, n, world, error)", f"{_LOOK} {_GIVE_UP} {sass.BARRIER}"
    ),
    "await_two": Primitive(
        f"{_WAIT}, Flag* a, unsigned n, Flag* b, unsigned m",
        "await(a, n, b, m, world, error)",
        f"{_LOOK} {_GIVE_UP} {_LOOK} {_GIVE_UP} {sass.BARRIER}",
    ),
    "send": Primitive("Packets* to, u64 x, unsigned n", "send_packets(to, x, n)", "ST.E.128.STRONG.SYS"),
    "receive": Primitive(
        f"{_WAIT}, Packets* from, unsigned n, u64* x",
        "*x = receive_packets(from, n, world, error)",
        f"LD.E.128.STRONG.SYS LD.E.128.STRONG.SYS {_GIVE_UP} STG.E.64",
    ),
    "count_blocks": Primitive(
        "unsigned* a, unsigned* x", "*x = count_in(a)", "MEMBAR.ALL.GPU ATOM.E.ADD.STRONG.GPU CCTL.IVALL STG.E"
    ),
    "packs": Primitive(
        "Pack* to, Pack* from",
        "to[threadIdx.x] = combine(to[threadIdx.x], from[threadIdx.x])",
        "LDG.E.128 LDG.E.128 STG.E.128",
    ),
}


def probes() -> str:
    """Return a source with a kernel for each primitive that only calls it."""
    calls = (f'extern "C" __global__ void call_{n}({p.parameters}) {{ {p.call}; }}\n' for n, p in PRIMITIVES.items())
    return compiler.source("packets.cuh") + "".join(calls)


def compiled_primitives(arch: int) -> nvrtc.Compiled:
    return nvrtc.compile_source(probes(), arch, (nvrtc.STANDARD,))


def written() -> Iterator[tuple[Path, str]]:
    """Yield the page with the instructions on sm_80 and later, and with the bugs that the harness must catch."""
    rows = []
    for primitive in PRIMITIVES.values():
        words = ", ".join(f"`{word}`" for word in primitive.instructions(90))
        rows.append([f"`{primitive.call}`", words])
    yield table_in("docs/kernels.md", table(("Call", "Instructions"), rows))
    yield table_in("docs/kernels.md", streams.bugs_table())
