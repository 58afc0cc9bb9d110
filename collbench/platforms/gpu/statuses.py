"""Statuses of NCCL that are newer than CuPy, whose own error fails of them."""

import traceback

_NEW = {7: "ncclInProgress", 8: "ncclTimeout"}
"""Of nccl.h 2.32; CuPy 14.2 (cupy_backends/cuda/libs/nccl.pyx, ERROR2) knows those up to 6."""


def beyond_cupy(error: KeyError) -> str:
    """What NCCL said, where CuPy has no name for it; "" for any other KeyError."""
    *_, last = traceback.extract_tb(error.__traceback__)
    name = _NEW.get(error.args[0], "") if last.filename.endswith("nccl.pyx") else ""
    return f"NCCL says {name}" if name else ""
