"""NVIDIA's runtime compiler by ctypes, without a GPU and CuPy, and the programs that our kernels become.

A program is a file with the options of a rung.
"""

import ctypes
import fcntl
import hashlib
import os
import pickle
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from collbench.algorithms import ring
from collbench.datatypes import DATATYPES, NONE, REDUCTIONS
from collbench.host.cache import cache_folder
from collbench.platforms import compiler
from collbench.platforms.gpu import launch, memory
from tools import in_nvidia_wheels

NEWER = {"multimem.cu": memory.OLDEST}  # not for every GPU and type
FILES = sorted(path.name for path in compiler.folder().glob("*.cu") if path.name not in NEWER)
ARCHITECTURES = (70, 80, 90, 100)
STANDARD = "-std=c++17"  # supported by the oldest NVRTC that CuPy supports
PIPELINED = ("-DSLOTS=4", "-DMERGED", f"-DIN_FLIGHT={ring.IN_FLIGHT}")
ONE_DEVICE = launch.defines(4, one_device=True)  # the options for four ranks that share a GPU
VARIANTS = {  # the ring's two rungs between devices, and on one; the others on one, where more is known at compile time
    "ring.cu": [(), PIPELINED, (*PIPELINED, *ONE_DEVICE)],
    "direct.cu": [(), ONE_DEVICE],
    "one_shot_ll.cu": [(), ONE_DEVICE],
    "narrow.cu": [(), ONE_DEVICE],
}
PROGRAMS = [(file, more) for file in FILES for more in VARIANTS.get(file, [()])]
RANKS_MEET = [(file, more) for file, more in PROGRAMS if "PARAMETER(World)" in compiler.source(file)]


class CompileError(Exception):
    """The log of a compiler that refuses."""


_FORM = Path(__file__).read_text()  # part of the cache key: another text of this file may keep another form
_RESOURCES = re.compile(  # the format of ptxas -v
    r"Function properties for (\w+)\n"
    r".*?(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n"
    r".*?Used (\d+) registers(?:.*?(\d+) bytes smem)?"
)


@dataclass(frozen=True)
class Resources:
    """The resources of a kernel; all except registers in bytes."""

    stack: int
    spill_stores: int
    spill_loads: int
    registers: int  # of a thread
    shared: int  # of a block, static


@dataclass(frozen=True)
class Compiled:
    """A kernel file compiled for one architecture."""

    arch: int
    log: str  # warnings
    ptx: str
    binary: bytes  # accepted by the assembler

    @property
    def resources(self) -> dict[str, Resources]:
        """The resources of each kernel, from the assembler's log."""
        found = {}
        for name, *numbers in _RESOURCES.findall(self.log):
            found[name] = Resources(*(int(number or 0) for number in numbers))
        return found


@cache
def compiled(
    file: str, more: tuple[str, ...] = (), dtype: str = "float", redop: str = "sum", arch: int = 90
) -> Compiled:
    reduction = NONE if redop == "none" else REDUCTIONS[redop]
    options = (*compiler.defines(DATATYPES[dtype], reduction), *more, STANDARD)
    return compile_source(compiler.source(file), arch, options)


def known(file: str, ranks: int, arch: int, *more: str) -> Compiled:
    """Return a kernel file for a known number of ranks: loops over ranks are unrolled."""
    return compiled(file, (*more, *launch.defines(ranks, one_device=False)), arch=arch)


def library_path() -> Path | None:
    """Return the compiler of the wheel nvidia-cuda-nvrtc-cu12 (or its successors), if one is installed."""
    return next(iter(in_nvidia_wheels("*/lib/libnvrtc.so.*")), None)


@cache
def library() -> ctypes.CDLL:
    path = library_path()
    assert path is not None
    return ctypes.CDLL(str(path))


def compile_source(source: str, arch: int, options: tuple[str, ...]) -> Compiled:
    """Compile as CuPy compiles a RawModule; CompileError with the compiler's log if it refuses."""
    verbose = "--ptxas-options=-v"  # CuPy lacks this option, which changes only the log
    return _compile(source, arch, (f"--gpu-architecture=sm_{arch}", verbose, *options))


def version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


def _compile(source: str, arch: int, options: tuple[str, ...]) -> Compiled:
    """Compile once and keep the result on disk, because parallel tests need the same programs.

    The key has the size of the compiler and not its path, so that checkouts share the cache.
    """
    path = library_path()
    assert path is not None
    pieces = (source, *options, path.name, str(path.stat().st_size), str(version()), _FORM)
    kept = cache_folder() / f"nvrtc-{hashlib.sha256(chr(0).join(pieces).encode()).hexdigest()[:16]}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            scratch = kept.with_suffix(f".{os.getpid()}")  # so that nobody reads half a file after a crash
            scratch.write_bytes(pickle.dumps(_compiled(source, arch, options)))
            scratch.replace(kept)
    found: Compiled = pickle.loads(kept.read_bytes())
    return found


def _compiled(source: str, arch: int, options: tuple[str, ...]) -> Compiled:
    program = ctypes.c_void_p()
    _check(library().nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None))
    words = ("-ftz=true", "--device-as-default-execution-space", *options)
    encoded = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
    failed = library().nvrtcCompileProgram(program, len(words), encoded)
    log = _text(program, "ProgramLog")
    if failed:
        raise CompileError(log)
    made = Compiled(arch, log, _text(program, "PTX"), _bytes(program, "CUBIN"))
    _check(library().nvrtcDestroyProgram(ctypes.byref(program)))
    return made


def _bytes(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(library(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(library(), f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _text(program: ctypes.c_void_p, what: str) -> str:
    return _bytes(program, what).rstrip(b"\0").decode()


def _check(status: int) -> None:
    assert status == 0, f"NVRTC error {status}"
