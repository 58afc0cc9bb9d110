"""NCCL's own estimate of an operation, by ncclGroupSimulateEnd (NCCL 2.22 and newer), which CuPy does not offer.

A group of calls that is closed by it is planned as any other, but not enqueued.  Every copy of NCCL counts its own
groups, so the function must be that of the copy which CuPy calls.  It is looked up through CuPy's extension module,
among the libraries that this one was linked with; nothing is loaded for it.

Structure and numbers are those of nccl.h; a test compiles that header and compares.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from math import isfinite
from typing import Any

MAGIC = 0x74685283
VERSION = 22203  # of the header that had these fields first
UNKNOWN = -1.0  # NCCL_UNDEF_FLOAT

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


def find(nccl: Any) -> SimulateEnd | None:
    """The function of the NCCL behind `cupy.cuda.nccl`; None if that is too old, or not to be found.

    No group may be open.
    """
    extension = getattr(sys.modules.get(nccl.NcclCommunicator.__module__), "__file__", None)
    if not extension:
        return None
    try:
        function = ctypes.CDLL(extension, mode=os.RTLD_NOLOAD).ncclGroupSimulateEnd
    except (OSError, AttributeError):
        return None
    return (lambda: _seconds(function)) if _closes_groups(function, nccl) else None


def _closes_groups(function: Any, nccl: Any) -> bool:
    """Whether it closes an empty group that CuPy opens; for another copy of NCCL there would be none to close."""
    nccl.groupStart()
    if function(ctypes.byref(SimInfo())) == 0:
        return True
    with suppress(nccl.NcclError):  # it may be closed all the same
        nccl.groupEnd()
    return False


def _seconds(function: Any) -> float | None:
    """What NCCL leaves unset stays negative."""
    info = SimInfo()
    failed = function(ctypes.byref(info))
    known = not failed and isfinite(info.estimatedTime) and info.estimatedTime > 0
    return info.estimatedTime * _MICROSECONDS if known else None
