# ruff: noqa: N802 - the names are NCCL's
"""NCCL's functions that CuPy does not offer, for the made-up NCCL (nccl.py): an extension module that has them as C.

Each only asks the made-up NCCL, which registers itself.  An extension where nobody has says that no group is open, as a
second copy of the real one would.
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
from collbench.platforms.gpu.nccl.functions import FUNCTIONS, Config, SimInfo, UniqueId
from tools.stand_in.runtime import Runtime

_KINDS = {ctypes.c_void_p: "void*", ctypes.c_size_t: "size_t", ctypes.c_int: "int", UniqueId: "Id"}
_HEAD = """
#include <cstddef>
struct Id { unsigned char internal[128]; };
static int (*asked)(const char*, void**);
extern "C" void made_up_nccl(int (*answer)(const char*, void**)) { asked = answer; }
extern "C" const char* ncclGetErrorString(int) { return "the NCCL of the test says so"; }
extern "C" void ncclResetDebugInit() { if (asked) asked("ncclResetDebugInit", nullptr); }
"""
SINCE = {
    "ncclGroupSimulateEnd": 22200,
    **dict.fromkeys(("ncclCommWindowRegister", "ncclCommWindowDeregister"), 22700),
    **dict.fromkeys(("ncclAlltoAll", "ncclGather", "ncclScatter"), 22800),
}
NEWEST = 23200

Answer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p))


def build_extension(folder: Path, version: int = NEWEST) -> Path:
    """Build a substitute of CuPy's extension module, with the functions of that version of NCCL."""
    folder.mkdir(parents=True, exist_ok=True)
    text = _HEAD
    for name, kinds in FUNCTIONS.items():
        if SINCE.get(name, 0) <= version:
            taken = ", ".join(f"{_KINDS[kind]} a{number}" for number, kind in enumerate(kinds))
            places = ", ".join(f"&a{number}" for number, _ in enumerate(kinds))
            body = f'void* places[] = {{{places}}}; return asked ? asked("{name}", places) : 5;'
            text += f'extern "C" int {name}({taken}) {{ {body} }}\n'
    source, extension = folder / "extension.cpp", folder / "extension.so"
    source.write_text(text)
    subprocess.run([*compiler(), "-shared", "-fPIC", "-o", extension, source], check=True)
    return extension


@dataclass(eq=False)
class Simulation:
    """Answers of NCCL, and its queries: the names of the calls in each simulated group."""

    extension: Path
    expects: float = 12.5  # microseconds; negative: it leaves that unset
    each: float = 0.0  # microseconds more for every element
    status: int = 0
    registers: bool = True  # whether the library knows CuPy's groups
    makes_windows: bool = True  # or takes the buffers, makes no window of them and says why in its log
    groups: list[list[str]] = field(default_factory=list)
    elements: int = 0  # of the last group's largest call
    destroyed: int = 0  # communicators with a configuration
    policies: list[int] = field(default_factory=list)  # on CTAs, of each communicator with a configuration
    registered: list[str] = field(default_factory=list)  # what was done with buffers, in order

    def attach(self, nccl: Any) -> None:
        """Make the made-up NCCL's communicators a class of an extension that is loaded."""
        nccl.NcclCommunicator.__module__ = f"made_up_extension_{id(self)}"
        extension = ModuleType(nccl.NcclCommunicator.__module__)  # hypothesis looks at every one: it must be real
        extension.__file__ = str(self.extension)
        sys.modules[extension.__name__] = extension
        self._nccl, self._runtime, self._comms = nccl, Runtime(nccl._machine), dict[int, Any]()

        def answer(name: bytes, places: Any) -> int:
            kinds = FUNCTIONS.get(name.decode(), ())
            values = [kind.from_address(places[number]) for number, kind in enumerate(kinds)]
            numbers = [value if isinstance(value, UniqueId) else value.value for value in values]
            return int(getattr(self, f"_{name.decode()}", self._collective(name.decode()))(*numbers) or 0)

        self._answer = Answer(answer)
        loaded = ctypes.CDLL(str(self.extension))
        loaded.made_up_nccl(self._answer if self.registers else None)

    def _ncclResetDebugInit(self) -> None:
        self._nccl.debug = None

    def _ncclGroupSimulateEnd(self, info: int) -> int:
        status = self._nccl.simulate_end() or (self.status if self.groups[-1] else 0)
        expected = ctypes.c_float.from_address(info + SimInfo.estimatedTime.offset)
        expected.value = self.expects + self.each * self.elements if self.groups[-1] else -1.0
        return status

    def _ncclMemAlloc(self, place: int, size: int) -> None:
        ctypes.c_void_p.from_address(place).value = self._runtime.malloc(size)

    def _ncclMemFree(self, address: int) -> None:
        assert not self._comms, "a communicator may know it still"
        self._runtime.free(address)

    def _ncclCommInitRankConfig(self, place: int, ranks: int, identity: UniqueId, rank: int, config: int) -> None:
        comm = self._nccl.NcclCommunicator(ranks, bytes(identity.internal), rank)
        comm.policy = ctypes.c_int.from_address(config + Config.CTAPolicy.offset).value
        self.policies.append(comm.policy)
        self._comms[id(comm)] = comm
        ctypes.c_void_p.from_address(place).value = id(comm)

    def _ncclCommDestroy(self, comm: int) -> None:
        self._comms.pop(comm).destroy()
        self.destroyed += 1

    def _ncclCommGetAsyncError(self, comm: int, place: int) -> int:
        if comm not in self._comms:
            return 4
        ctypes.c_int.from_address(place).value = self._nccl._machine.network_error
        return 0

    def _ncclCommRegister(self, comm: int, address: int, size: int, place: int) -> None:
        self.registered.append(f"register {self._comms[comm]._rank}")
        ctypes.c_void_p.from_address(place).value = 1

    def _ncclCommWindowRegister(self, comm: int, address: int, size: int, place: int, flags: int) -> None:
        assert (size % 4096, flags) == (0, 1)
        assert self._nccl._calls is not None, "a window takes all ranks"
        if not self.makes_windows:
            self._nccl.say("INIT", "Symmetric registration is not supported in this communicator.")
            return
        self._comms[comm].window = address, address + size
        self._ncclCommRegister(comm, address, size, place)

    def _ncclCommDeregister(self, comm: int, handle: int) -> None:
        self.registered.append(f"forget {self._comms[comm]._rank}")

    def _ncclCommWindowDeregister(self, comm: int, handle: int) -> None:
        assert self._nccl._calls is not None, "a window takes all ranks"
        self.registered.append(f"close {self._comms[comm]._rank}")
        self._comms[comm].window = None

    def _collective(self, name: str) -> Callable[..., None]:
        """Return a collective of a communicator, which stands before the stream."""
        method = name.removeprefix("nccl")
        method = method[0].lower() + method[1:]
        return lambda *values: getattr(self._comms[values[-2]], method)(*values[:-2], values[-1])
