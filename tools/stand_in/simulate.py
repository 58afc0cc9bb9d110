"""ncclGroupSimulateEnd for the made-up NCCL (nccl.py): a library, and an extension linked with it.

The library knows no groups: it asks the made-up NCCL, which registers itself.  A copy of it, where nobody has, says
that no group is open, as a second copy of the real one would.
"""

import ctypes
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from collbench.platforms.compiler import compiler

LIBRARY = """
#include <cstddef>
static int (*asked)(float*);
extern "C" void made_up_nccl(int (*answer)(float*)) { asked = answer; }
#ifdef SIMULATES
struct Info { size_t size; unsigned magic, version; float microseconds; };
extern "C" int ncclGroupSimulateEnd(Info* info) {
  float microseconds = info->microseconds;
  int status = asked ? asked(&microseconds) : 5;
  if (info->magic != 0x74685283) return 4;
  if (info->size >= sizeof(Info)) info->microseconds = microseconds;
  return status;
}
#endif
"""
EXTENSION = 'extern "C" void made_up_nccl(int (*)(float*)); extern "C" void* uses() { return (void*)made_up_nccl; }'

Answer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_float))


def build_extension(folder: Path, simulates: bool = True) -> Path:
    """What stands for CuPy's extension module; of an NCCL before 2.22 without `simulates`."""
    folder.mkdir(parents=True, exist_ok=True)
    library, extension = folder / "libnccl.so.2", folder / "extension.so"
    for path, text, options in (
        (library, LIBRARY, ["-DSIMULATES"] if simulates else []),
        (extension, EXTENSION, ["-Wl,--no-as-needed,-rpath,$ORIGIN", library]),
    ):
        source = path.with_suffix(".cpp")
        source.write_text(text)
        subprocess.run([*compiler(), "-shared", "-fPIC", "-o", path, source, *options], check=True)
    return extension


@dataclass(eq=False)
class Simulation:
    """What NCCL answers, and what it was asked: the names of the calls in each group that was simulated."""

    extension: Path
    expects: float = 12.5  # microseconds; negative: it leaves that unset
    each: float = 0.0  # microseconds more for every element
    status: int = 0
    registers: bool = True  # whether the library knows CuPy's groups
    groups: list[list[str]] = field(default_factory=list)
    elements: int = 0  # of the last group's largest call

    def attach(self, communicator: type, end: Callable[[], int]) -> None:
        """Make the class one of an extension that is loaded; `end` closes a group and says what came of it."""
        communicator.__module__ = f"made_up_extension_{id(self)}"
        extension = ModuleType(communicator.__module__)  # hypothesis looks at every module, so it must be a real one
        extension.__file__ = str(self.extension)
        sys.modules[extension.__name__] = extension

        def answer(microseconds: Any) -> int:
            status = end() or (self.status if self.groups[-1] else 0)
            microseconds[0] = self.expects + self.each * self.elements if self.groups[-1] else -1.0
            return status

        self._answer = Answer(answer)
        loaded = ctypes.CDLL(str(self.extension))
        loaded.made_up_nccl(self._answer if self.registers else None)
