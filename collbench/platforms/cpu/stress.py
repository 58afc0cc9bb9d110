"""The stress check on CPUs: one call into C, in which this rank's calls follow each other within nanoseconds."""

import ctypes
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collbench.cases import Case
from collbench.datatypes import DATATYPES, NONE, Wire
from collbench.errors import CaseFailed
from collbench.platforms import checking, kernels, stress
from collbench.platforms.layout import Addresses, buffers
from collbench.results import Mismatch

_COPIES = 2**20  # bytes of results that are kept until they are compared
_LIST = np.dtype([("first", np.uint64), ("count", np.uint64)])  # `Probe::Stretch` of kernels/check.cu

_CHECK = np.dtype(
    [
        ("operation", np.uint64),
        ("arguments", np.uint64),
        ("send", np.uint64),
        ("receive", np.uint64),
        ("send_blocks", np.uint64),
        ("pieces", np.uint64),
        ("piece_count", np.uint64),
        ("stalls", np.uint64),
        ("halts", np.uint64),
        ("places", np.uint64),
        ("copies", np.uint64),
        ("verdicts", np.uint64),
        ("probe", stress.PROBE),
        ("how", checking.RECIPE),
        ("wire", checking.WIRE),
        ("rank", np.uint32),
        ("calls", np.uint32),
        ("kept", np.uint32),
        ("ulps", np.uint32),
        ("in_place", np.uint32),
        ("bounded", np.uint32),
        ("halted", np.uint32),
        ("reserved", np.uint32),
    ]
)
"""`struct Stress` of kernels/check.cu."""

_OPERATION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint)


class Operation:
    """What C calls for one operation: the kernel's own launches, or where Python makes them a way back into it."""

    def __init__(self, launch: Callable[[int], Any]) -> None:
        self.failure: BaseException | None = None
        self._launch = launch
        function: Any = launch.func if isinstance(launch, kernels.Loop) else _OPERATION(self._from_c)
        self._held = function
        self.address = ctypes.cast(function, ctypes.c_void_p).value
        self.arguments = ctypes.addressof(launch.args[0]) if isinstance(launch, kernels.Loop) else 0

    def _from_c(self, arguments: int, blocks: int, threads: int, launches: int) -> None:
        """C knows no exceptions: the first is kept, and after it nothing is launched."""
        if self.failure is None:
            try:
                self._launch(launches)
            except BaseException as failure:
                self.failure = failure


def singly(launch: Callable[[int], Any]) -> kernels.Loop | None:
    """A loop of the package's own round one operation, as fast to call; None where C cannot call the operation."""
    if not isinstance(launch, kernels.Loop):
        return None
    operation = Operation(launch)
    what: Any = (ctypes.c_void_p * 2)(operation.address, operation.arguments)
    what.held = operation
    repeat = kernels.host_function(kernels.JUDGE, "repeat", kernels.defines(DATATYPES["float"], NONE))
    return kernels.Loop(repeat, what, 1, 1)


def carry_out(
    memory: Addresses,
    case: Case,
    rank: int,
    launch: Callable[[int], Any],
    plan: stress.Plan,
    wire: Wire | None = None,
) -> Mismatch | None:
    """Make a rank's calls of a case, and say what is wrong on this rank; `launch` makes one after the other."""
    operation = Operation(launch)
    check, arrays = prepared(memory, case, rank, operation, plan, wire)
    run = kernels.host_function(kernels.JUDGE, "stress", kernels.defines(case.dtype, case.redop))
    refused = run(ctypes.c_void_p(check.ctypes.data))
    if operation.failure:
        raise operation.failure
    if refused:
        raise CaseFailed(f"no timer for the stress check ({os.strerror(refused)}); fix: raise ulimit -i")
    return stress.found(case, plan, rank, arrays["verdicts"], kept=True, wire=wire)


def prepared(
    memory: Addresses, case: Case, rank: int, operation: Operation, plan: stress.Plan, wire: Wire | None = None
) -> tuple[NDArray[np.void], dict[str, NDArray[Any]]]:
    """A rank's part as C knows it, and the arrays by name that it points to, which must live as long."""
    where = stress.probe(case, wire)
    pieces = np.array([(first, sent, source, 0) for first, source, sent in case.pieces(rank)], stress.PIECE)
    places = np.zeros(stress.stretches(where), _LIST)
    room = max(1, len(pieces)) * len(places) * int(where["length"]) * case.dtype.itemsize
    kept = min(plan.calls, max(1, _COPIES // room))
    arrays: dict[str, NDArray[Any]] = {
        "pieces": pieces,
        "stalls": plan.stalls(rank, case.ranks),
        "halts": np.ascontiguousarray(plan.halts(rank, case.ranks)),
        "places": places,
        "copies": np.zeros(kept * room, np.uint8),
        "verdicts": np.full(len(pieces), checking.CLEAN, checking.VERDICT),
    }
    check = np.zeros((), _CHECK)
    for name, array in arrays.items():
        check[name] = array.ctypes.data
    check["operation"], check["arguments"] = operation.address, operation.arguments
    check["send"], check["receive"] = buffers(memory, case, rank)
    check["send_blocks"], check["piece_count"] = case.send_count // case.block, len(pieces)
    check["probe"], check["how"] = where, checking.packed(case.recipe(plan.seed, wire))
    check["wire"], check["bounded"] = checking.packed_wire(wire), bool(wire)
    check["rank"], check["calls"], check["kept"], check["in_place"] = rank, plan.calls, kept, case.in_place
    check["ulps"] = case.redop.ulps(case.dtype)
    return check, arrays
