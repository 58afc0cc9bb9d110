"""The sources kernels/*.cu, and their compilation for the CPU.

A kernel file and its headers are first joined into one text. That text is the key of every cache, so that caches
notice edited headers. Compiler messages still name the original files and lines.
"""

import contextlib
import ctypes
import hashlib
import os
import platform
import posixpath
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from collbench.datatypes import Datatype, Reduction
from collbench.errors import PlatformError, SourceError
from collbench.host.cache import cached_file
from collbench.platforms.processes import Team
from collbench.topology.discover_cpu import read_text

_INCLUDE = re.compile(r'\s*#include "([^"]+)"\s*')
_ENTRY = re.compile(r'extern "C" __global__ void(?:\s+__launch_bounds__\([\d, ]+\))?\s+(\w+)\(')
_FLAGS = ("-std=c++20", "-O3", "-march=native", "-shared", "-fPIC", "-pthread", "-Wall", "-Wno-unknown-pragmas")
_COMPILING, _ANSWERING = 30.0, 10.0  # seconds that a compiler may take for a file, and to say its version
_HINT = "a C++20 compiler is needed: set CXX to one, or pip install ziglang"
_LONGEST = 400  # characters of a compiler's that go into an error
_PROOF = "gate.cu"  # the smallest file
_ERROR = re.compile(  # of g++ and clang++, file:line:column, or of NVRTC, file(line)
    r"^(?P<name>[^\s:(]+)[:(](?P<line>\d+)[:)](?:\d+:|:)?\s*(?:fatal |catastrophic )?error\b[^:]*:\s*(?P<words>.+)$",
    re.MULTILINE,
)


def folder() -> Path:
    """Return the folder of the kernels: $COLLBENCH_KERNELS (PlatformError if it is none), else the package's."""
    chosen = os.environ.get("COLLBENCH_KERNELS")
    if not chosen:
        return own_folder()
    if not Path(chosen).is_dir():
        raise PlatformError(f"COLLBENCH_KERNELS names {chosen}, which is no folder: correct or unset it")
    return Path(chosen)


def own_folder() -> Path:
    """Return the folder of the kernels that belong to this code."""
    package = Path(__file__).parents[1]
    installed = package / "_kernels"
    return installed if installed.is_dir() else package.parent / "kernels"


JUDGE = "check.cu"
"""The check of results is never on trial: its file and header are the package's, not those of `folder`."""


def _folders(file: str) -> tuple[Path, ...]:
    """Return where a kernel file and its headers are looked for, the first place first."""
    own = own_folder()
    return (own,) if file == JUDGE or Path(file).is_relative_to(own) else (folder(), own)


def _path_of(name: str, folders: Sequence[Path]) -> Path:
    """Return the file of that name in the first folder that has it; a path in the first folder if none has."""
    paths = [folder / name for folder in folders]
    return next((path for path in paths if path.is_file()), paths[0])


@cache
def source(file: str) -> str:
    """Return the text of a kernel file with its headers in place, each once, and `#line` where another file begins.

    Files that the folder on trial lacks are the package's.  SourceError if a file cannot be read.
    """
    folders, seen = _folders(file), set[str]()

    def expand(name: str, included_by: str) -> Iterator[str]:
        if name in seen:
            return
        seen.add(name)
        path = _path_of(name, folders)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"{included_by}{path} cannot be read: {getattr(error, 'strerror', error)}") from None

        # Compilers name the file and line that a text was joined from.
        yield f'#line 1 "{name}"'
        for number, line in enumerate(text.split("\n"), 1):
            if include := _INCLUDE.fullmatch(line):
                header = posixpath.normpath(posixpath.join(posixpath.dirname(name), include[1]))
                yield from expand(header, f"{path}:{number}: ")
                yield f'#line {number + 1} "{name}"'
            else:
                yield "" if line == "#pragma once" else line

    # Files are called by their paths within the folder: the text, which is the key of caches, is the same everywhere.
    first = Path(file)
    own = first.is_relative_to(own_folder())
    return "\n".join(expand(first.relative_to(own_folder()).as_posix() if own else file, ""))


def first_error(file: str, log: str) -> str:
    """Return place and words of the first error in the sources of a kernel file that a compiler's log names, or ""."""
    text = source(file)
    for error in _ERROR.finditer(log):
        if f'#line 1 "{error["name"]}"' in text:
            path = _path_of(error["name"], _folders(file))
            return f"{path}:{error['line']}: {error['words'].strip()[:_LONGEST]}"
    return ""


def entries(file: str) -> list[str]:
    """The kernels that a file defines."""
    return _ENTRY.findall(source(file))


def require(file: str, entry: str) -> None:
    """Raise SourceError unless a file defines that kernel."""
    if entry not in entries(file):
        path = _path_of(file, _folders(file))
        raise SourceError(f'{path} has no kernel {entry}, which begins with `extern "C" __global__ void {entry}(`')


def defines(dtype: Datatype, redop: Reduction) -> tuple[str, ...]:
    """The compiler's options that fix element type and reduction, for NVRTC and C++ alike."""
    return f"-DELEMENT={dtype.cpp}", f"-DREDOP={redop.code}"


class Loop(partial[None]):
    """Launches that are one call into C; `func` and `args` are what other C code needs to make them."""


@dataclass(frozen=True)
class HostKernel:
    """A kernel compiled for the CPU; arguments are NumPy scalars, or arrays of one structure, as CuPy takes them."""

    function: Any  # void (*)(void** arguments, unsigned blocks, unsigned threads, unsigned launches)

    def bind(self, *arguments: Any, blocks: int = 1, threads: int = 1) -> "Loop":
        """Fix the arguments, so that launches cost one call into C: a function of how many follow each other."""
        held = tuple(np.array(argument, ndmin=1) for argument in arguments)
        pointers: Any = (ctypes.c_void_p * len(held))(*(array.ctypes.data for array in held))
        pointers.held = held  # keeps alive the objects that they point to
        return Loop(self.function, pointers, blocks, threads)

    def __call__(self, *arguments: Any, blocks: int = 1, threads: int = 1, launches: int = 1) -> None:
        """Run to the end, `launches` times in sequence."""
        self.bind(*arguments, blocks=blocks, threads=threads)(launches)


def host_function(file: str, name: str, options: Sequence[str] = ()) -> Any:
    """Return a plain function of a kernel file, through ctypes: no kernel, but a step around kernels on a CPU."""
    return getattr(loaded(file, options), name)


def host_kernel(file: str, entry: str, options: Sequence[str] = ()) -> HostKernel:
    """Compile a kernel for this CPU, or take it from the cache; PlatformError if that is not possible."""
    require(file, entry)
    function = getattr(loaded(file, options), f"launch_{entry}")
    function.restype = None
    function.argtypes = (ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint)
    return HostKernel(function)


def loaded(file: str, options: Sequence[str] = ()) -> ctypes.CDLL:
    """Load the kernels of a file; OSError if not even what the compiler makes now can be loaded."""
    try:
        return ctypes.CDLL(str(host_library(file, tuple(options))))
    except OSError:
        # The file in the cache is damaged, as by a disk that was full: it is compiled anew.
        host_library(file, tuple(options)).unlink(missing_ok=True)
        host_library.cache_clear()
        return ctypes.CDLL(str(host_library(file, tuple(options))))


@cache
def host_library(file: str, options: tuple[str, ...]) -> Path:
    """The shared library with the kernels of that file, compiled once per source, options, compiler and CPU."""
    # Each kernel gets a plain C function that launches it: what ctypes and other C code call.
    launchers = "".join(
        f'\nextern "C" void launch_{entry}(void** arguments, unsigned blocks, unsigned threads, unsigned launches) {{\n'
        f"  launch({entry}, arguments, blocks, threads, launches);\n}}\n"
        for entry in entries(file)
    )
    text = f'{source(file)}\n#line 1 "launchers"{launchers}'
    command = (*compiler(), *_FLAGS, *options)

    # All that the result depends on: a cache in a home directory may serve several machines and compilers.
    flags = re.search(r"^(?:flags|Features)\s*:.*$", read_text(Path("/proc/cpuinfo")), re.MULTILINE)
    machine = platform.machine() + (flags[0] if flags else platform.processor())  # for -march=native
    key = hashlib.sha256("\0".join((text, *command, compiler_version(), machine)).encode()).hexdigest()
    stem = f"{Path(file).stem}-{key[:16]}"
    return cached_file(stem, ".so", PlatformError, lambda product: _compile(command, text, product, file))


def _compile(command: Sequence[str], text: str, product: Path, file: str) -> None:
    origin = product.with_suffix(".cpp")
    origin.write_text(text, encoding="utf-8")

    # By names within that folder, which the compiler has to itself: no other folder is looked into.
    names = ["-o", product.name, origin.name]
    status, _, errors = ask([*command, *names], _COMPILING, _HINT, product.parent)
    if status:
        if error := first_error(file, errors):
            raise SourceError(f"{file} could not be compiled: {error}")
        complaint = errors.strip() or f"status {status}, and not a word"
        first = next((line for line in complaint.splitlines() if "error" in line), complaint)[:_LONGEST]
        raise PlatformError(f"{file} could not be compiled: {command[0]}: {first}; {_HINT}")
    if not product.is_file():
        raise PlatformError(f"{command[0]} says that it compiled {file}, but made no library; {_HINT}")


def prove_compiler(team: Team) -> None:
    """*Collective*: PlatformError unless the compiler makes a library that loads: better now than in every case.

    It compiles a source of the package, so that the compiler is not blamed for kernels on trial.
    """
    complaint = ""

    # One process tries: the others would wait for it, and then try the same again.
    if team.leader:
        try:
            loaded(str(own_folder() / _PROOF))
        except SourceError as error:  # the package's source: the compiler is another, or too old
            complaint = f"{error}; {_HINT}"
        except PlatformError as error:
            complaint = str(error)
        except OSError as error:
            complaint = f"what {compiler()[0]} compiled cannot be loaded: {error}; {_HINT}"
    complaint = team.broadcast(complaint)
    if complaint:
        agreed = PlatformError(complaint)
        agreed.agreed = True
        raise agreed


@cache
def compiler() -> tuple[str, ...]:
    """The C++ compiler: $CXX, else c++, g++ or clang++ on the path, else the ziglang wheel."""
    if chosen := os.environ.get("CXX", "").split():
        if program := shutil.which(chosen[0]):
            return str(Path(program).absolute()), *chosen[1:]
        raise PlatformError(f"the C++ compiler {chosen[0]!r} named by CXX is not on the path: unset CXX, or correct it")
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return (name,)

    # A compiler that pip can install where there is none.
    zig = (sys.executable, "-P", "-m", "ziglang")
    if ask([*zig, "version"], _ANSWERING, _HINT)[0] == 0:
        return *zig, "c++"
    raise PlatformError(
        "no C++ compiler found (tried $CXX, c++, g++, clang++, ziglang); fix: apt install g++, or pip install ziglang"
    )


@cache
def compiler_version() -> str:
    """Return the first line of what the compiler says of itself."""
    return ask([*compiler(), "--version"], _ANSWERING, _HINT)[1].partition("\n")[0]


def ask(command: Sequence[str], seconds: float, hint: str, scratch: Path | None = None) -> tuple[int, str, str]:
    """Return exit status (above 128 after a signal), output and errors of a program, whatever their bytes.

    After *seconds* it is killed with all its children.  Its working folder is *scratch*, for temporary files too.
    PlatformError, which ends in *hint*, if the program cannot be run or takes too long.
    """
    try:
        # Files of a killed compiler go with its scratch folder, and its children with its process group.
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            cwd=scratch,
            env=os.environ | {"TMPDIR": str(scratch)} if scratch else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            process_group=0,
        ) as process:
            try:
                output, errors = process.communicate(timeout=seconds)
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                raise PlatformError(f"{command[0]} did not end within {seconds:g} s; {hint}") from None
    except OSError as error:
        raise PlatformError(f"{command[0]} cannot be run: {error.strerror}; {hint}") from None
    status = process.returncode
    return (status if status >= 0 else 128 - status), output, errors
