"""NCCL on GPUs: installed copies, environment, communicators, fast paths and logs."""

import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import ClassVar

from collbench.errors import UsageError
from collbench.platforms.gpu.cuda import NCCL_LIBRARY
from collbench.platforms.gpu.discover import Placement

MOST_CTAS = 64  # that NCCL ever uses
LIMIT = "NCCL_MAX_CTAS"
_SPARE = 2  # multiprocessors that are left to others where ranks share a GPU: the gate's block must find a place, too
MIXING = "NCCL_GRAPH_MIXING_SUPPORT"
CAPTURED = {MIXING: "0"}
"""The environment for operations in graphs: NCCL need not order them with others of the same communicator, by an
event before and after each operation. No operation is enqueued while a graph runs.
NCCL's documentation recommends it where one thread launches the graphs of several communicators.  CuPy does not
expose the equivalent of a communicator (graphUsageMode, NCCL 2.29)."""

SLICED = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
"""The environment for ranks on slices of one GPU: a permission, in case NCCL treats them as ranks that share it."""

FILE = "libnccl.so.2"
_IN_WHEEL = f"nvidia/nccl/lib/{FILE}"  # of nvidia-nccl-cu12 and -cu13
_PLACES = (FILE, f"lib/{FILE}", f"build/lib/{FILE}", _IN_WHEEL, f"lib/python3*/site-packages/{_IN_WHEEL}")
_ITS_NUMBER = (
    "import ctypes, sys; number = ctypes.c_int(); "
    "ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(number)); print(number.value)"
)
_LOADED_BY_CUPY = (
    "import cupy.cuda.nccl; "
    "print(*(line.split(None, 5)[5].strip() for line in open('/proc/self/maps') if 'libnccl.so' in line), sep='\\n')"
)


def sharing(multiprocessors: int, ranks: int) -> dict[str, str]:
    """Return the environment that NCCL needs where `ranks` ranks share a GPU."""
    # A power of two of CTAs for each rank, so that the kernels of all ranks find room at once.
    fair = 1 << (max(1, (multiprocessors - _SPARE) // ranks).bit_length() - 1)

    # On Hopper and newer NCCL launches clusters of CTAs, each within one GPC. On a part of a GPU some clusters may
    # not fit, and running ranks then wait for ever for the others.
    return {**SLICED, LIMIT: str(min(MOST_CTAS, fair)), "NCCL_CGA_CLUSTER_SIZE": "0", "NCCL_NVLS_ENABLE": "0"}


def environment(places: Placement, graph: bool) -> dict[str, str]:
    """Return the variables that NCCL needs for ranks placed so, and for operations in graphs."""
    settings = CAPTURED if graph else {}
    if places.shared:
        return settings | sharing(places.multiprocessors, places.most_sharing)
    return settings | SLICED if places.sliced else settings


def apply(settings: dict[str, str]) -> None:
    """Set what the user has not."""
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def in_words(version: int) -> str:
    """Return NCCL's version number as text: `2.30.7` for 23007."""
    # NCCL_VERSION in nccl.h has room for one digit of the minor version up to 2.8 (2804), and for two since.
    major = 1000 if version < 10000 else 10000
    return f"{version // major}.{version % major // 100}.{version % 100}"


@dataclass(frozen=True)
class NcclLibrary:
    """A copy of NCCL on this machine; `key` is its release, such as 2.30.7."""

    key: str
    file: Path
    platform: ClassVar[str] = "gpu"  # whose ranks load it
    product: ClassVar[str] = "nccl"

    @property
    def own(self) -> bool:
        """Whether it is the library that ranks load by default."""
        return self.file.resolve() == usual()

    @property
    def changes(self) -> dict[str, str]:
        """Variables that make ranks load this copy."""
        return {NCCL_LIBRARY: str(self.file)}


def find(word: str) -> NcclLibrary:
    """The library that a word of `--nccl` means: a file, a folder that holds one, or the release that ranks load.

    UsageError says how to install one if none is found.
    """
    path = Path(word).expanduser().absolute()
    places = chain.from_iterable(sorted(path.glob(place)) for place in _PLACES)
    if file := path if path.is_file() else next(places, None):
        return NcclLibrary(release_of(file), file)
    own = usual()
    release = release_of(own) if own else ""
    if own and word == release:
        return NcclLibrary(release, own)
    choices = f"{release} (what ranks load), " if own else ""
    raise UsageError(
        f"--nccl {word}: there is no {FILE}; give {choices}a file, a virtual environment, or a folder of "
        "`pip install --target FOLDER nvidia-nccl-cu13==RELEASE` (or -cu12)"
    )


@cache
def release_of(file: Path) -> str:
    """Return the version that the library reports, for example 2.30.7; UsageError if it is no NCCL."""
    # In a process of its own: two copies of NCCL in one process would share their names.
    done = _asked(_ITS_NUMBER, str(file))
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:]
        raise UsageError(f"--nccl {file} is no NCCL that can be loaded ({''.join(why)}); give a {FILE}")
    return in_words(int(done.stdout))


@cache
def usual() -> Path | None:
    """Return the file that ranks load by default, or None if it is not found."""
    if named := os.environ.get(NCCL_LIBRARY):
        return Path(named).resolve()
    loaded = _asked(_LOADED_BY_CUPY).stdout.strip().splitlines()
    return Path(loaded[0]).resolve() if loaded else None


def _asked(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program in a new process; return its output."""
    return subprocess.run([sys.executable, "-P", "-c", program, *words], capture_output=True, text=True, check=False)
