"""NCCL functions that CuPy does not offer, called through ctypes.

They must come from the copy of NCCL that CuPy calls, since every copy has its own groups and communicators. They are
looked up among the libraries linked to CuPy's extension module, without loading another. A test compares their types
with those of NCCL 2.27 to 2.32 (tests/platforms/gpu/nccl_interface.toml).
"""

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from math import isfinite
from typing import Any

from collbench.errors import CaseFailed, Unsupported

MAGIC = 0x74685283
VERSION = 22203  # of the header that had these fields first
UNKNOWN = -1.0  # NCCL_UNDEF_FLOAT
UNDEFINED = -(2**31)  # NCCL_CONFIG_UNDEF_INT
COLLECTIVE_SYMMETRIC = 0x01  # NCCL_WIN_COLL_SYMMETRIC

_MICROSECONDS = 1e-6

SimulateEnd = Callable[[], float | None]
"""Close this thread's open group and enqueue nothing: seconds that NCCL expects of it; None if it cannot say."""


class SimInfo(ctypes.Structure):
    """`ncclSimInfo_t`; a new one is what NCCL_SIM_INFO_INITIALIZER makes."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("estimatedTime", ctypes.c_float),  # microseconds
    ]

    def __init__(self) -> None:
        super().__init__(ctypes.sizeof(SimInfo), MAGIC, VERSION, UNKNOWN)


class UniqueId(ctypes.Structure):
    """`ncclUniqueId`, which functions take by value."""

    _fields_ = [("internal", ctypes.c_ubyte * 128)]


class Config(ctypes.Structure):
    """`ncclConfig_t` of NCCL 2.27; a new one is what NCCL_CONFIG_INITIALIZER makes."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
        ("cgaClusterSize", ctypes.c_int),
        ("minCTAs", ctypes.c_int),
        ("maxCTAs", ctypes.c_int),
        ("netName", ctypes.c_char_p),
        ("splitShare", ctypes.c_int),
        ("trafficClass", ctypes.c_int),
        ("commName", ctypes.c_char_p),
        ("collnetEnable", ctypes.c_int),
        ("CTAPolicy", ctypes.c_int),
        ("shrinkShare", ctypes.c_int),
        ("nvlsCTAs", ctypes.c_int),
    ]

    def __init__(self) -> None:
        super().__init__(ctypes.sizeof(Config), 0xCAFEBEEF, 22700)  # newer libraries take the older structure
        for field in self._fields_[3:]:
            setattr(self, field[0], UNDEFINED if field[1] is ctypes.c_int else None)


_P, _N, _I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int

FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "ncclGroupSimulateEnd": (_P,),
    "ncclMemAlloc": (_P, _N),
    "ncclMemFree": (_P,),
    "ncclCommInitRankConfig": (_P, _I, UniqueId, _I, _P),
    "ncclCommGetAsyncError": (_P, _P),
    "ncclCommDestroy": (_P,),
    "ncclCommRegister": (_P, _P, _N, _P),
    "ncclCommDeregister": (_P, _P),
    "ncclCommWindowRegister": (_P, _P, _N, _P, _I),
    "ncclCommWindowDeregister": (_P, _P),
    "ncclAllReduce": (_P, _P, _N, _I, _I, _P, _P),
    "ncclBroadcast": (_P, _P, _N, _I, _I, _P, _P),
    "ncclReduce": (_P, _P, _N, _I, _I, _I, _P, _P),
    "ncclAllGather": (_P, _P, _N, _I, _P, _P),
    "ncclReduceScatter": (_P, _P, _N, _I, _I, _P, _P),
    "ncclAlltoAll": (_P, _P, _N, _I, _P, _P),
    "ncclGather": (_P, _P, _N, _I, _I, _P, _P),
    "ncclScatter": (_P, _P, _N, _I, _I, _P, _P),
    "ncclSend": (_P, _N, _I, _I, _P, _P),
    "ncclRecv": (_P, _N, _I, _I, _P, _P),
}
"""Argument types of each function; all return an ncclResult_t."""


class NcclFunctions:
    """The functions by name, of the copy of NCCL behind `cupy.cuda.nccl`."""

    def __init__(self, nccl: Any) -> None:
        self._nccl = nccl
        extension = getattr(sys.modules.get(nccl.NcclCommunicator.__module__), "__file__", None)
        self._handle: Any = None
        with suppress(OSError):
            self._handle = ctypes.CDLL(extension, mode=os.RTLD_NOLOAD) if extension else None

    def find(self, name: str) -> Callable[..., int] | None:
        """Return a function with its types; None where this NCCL is too old for it, or is not to be found."""
        function = getattr(self._handle, name, None)
        if function:
            function.argtypes = FUNCTIONS.get(name, ())
        return function

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; Unsupported where this NCCL lacks it, CaseFailed with NCCL's own reason where it fails."""
        function = self.find(name)
        if not function:
            raise Unsupported(f"this NCCL has no {name}: upgrade nvidia-nccl-cu12 (or -cu13) to 2.28 or newer")
        if status := function(*arguments):
            raise self.failure(name, status)

    def failure(self, name: str, status: int) -> CaseFailed:
        """Return the error of a function that failed, in NCCL's words."""
        words = self._handle.ncclGetErrorString
        words.restype = ctypes.c_char_p
        return CaseFailed(f"{name}: {words(status).decode()}")

    def simulate_end(self) -> SimulateEnd | None:
        """Return ncclGroupSimulateEnd (2.22); None if NCCL has none, or is not the copy that counts CuPy's groups."""
        function = self.find("ncclGroupSimulateEnd")
        if not function:
            return None

        # An empty group shows whose groups it counts: for another copy than CuPy's there would be none to close.
        self._nccl.groupStart()
        if function(ctypes.byref(SimInfo())) == 0:
            return lambda: _estimate(function)
        with suppress(self._nccl.NcclError):  # it may be closed all the same
            self._nccl.groupEnd()
        return None


def _estimate(function: Callable[..., int]) -> float | None:
    """Return NCCL's estimate of the open group in seconds; None where NCCL leaves it unset, which is negative."""
    info = SimInfo()
    if function(ctypes.byref(info)) or not isfinite(info.estimatedTime) or info.estimatedTime <= 0:
        return None
    return float(info.estimatedTime) * _MICROSECONDS
