"""The releases of NCCL on this machine, and how ranks load one of them.

A library is asked which release it is in a process of its own, without a GPU: two copies of NCCL in one process would
share their names.
"""

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
from collbench.platforms.gpu.nccl import in_words

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


@dataclass(frozen=True)
class NcclLibrary:
    """A copy of NCCL on this machine; `key` is its release, such as 2.30.7."""

    key: str
    file: Path
    platform: ClassVar[str] = "gpu"  # whose ranks load it
    product: ClassVar[str] = "nccl"

    @property
    def own(self) -> bool:
        """Whether it is the one that ranks load if nobody tells them."""
        return self.file.resolve() == usual()

    @property
    def changes(self) -> dict[str, str]:
        """What has ranks load it: a change of their environment."""
        return {NCCL_LIBRARY: str(self.file)}


def find(word: str) -> NcclLibrary:
    """The library that a word of `--nccl` means: a file, a folder that holds one, or the release that ranks load.

    UsageError where there is none, with how to get one.
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
    """Return what the library says of itself, such as 2.30.7; UsageError if it is none."""
    done = _asked(_ITS_NUMBER, str(file))
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:]
        raise UsageError(f"--nccl {file} is no NCCL that can be loaded ({''.join(why)}); give a {FILE}")
    return in_words(int(done.stdout))


@cache
def usual() -> Path | None:
    """Return the file that ranks load if nobody tells them; None where that is not to be found."""
    if named := os.environ.get(NCCL_LIBRARY):
        return Path(named).resolve()
    loaded = _asked(_LOADED_BY_CUPY).stdout.strip().splitlines()
    return Path(loaded[0]).resolve() if loaded else None


def _asked(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Return what a program in Python prints, in a process of its own."""
    return subprocess.run([sys.executable, "-P", "-c", program, *words], capture_output=True, text=True, check=False)
