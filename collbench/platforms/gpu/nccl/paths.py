"""NCCL's optional fast paths: registered buffers and the CTA policy.

NVLS and network cards access registered buffers in place. Symmetric buffers (a window, NCCL 2.27) have the same
offset on every rank; for these NCCL has separate kernels and, without CTAs, copy engines. Each path has its own
communicators. All share one additional allocation: symmetric memory must come from ncclMemAlloc, and other processes'
kernels cannot reach that as they reach our memory.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from collbench.errors import CaseFailed, PlatformError, Unsupported
from collbench.platforms import checking
from collbench.platforms.gpu.cuda import Cuda
from collbench.platforms.gpu.discover import Placement
from collbench.platforms.gpu.nccl.functions import COLLECTIVE_SYMMETRIC, FUNCTIONS, Config, NcclFunctions, UniqueId
from collbench.platforms.interface import FastPath
from collbench.platforms.layout import LINE, Memory, MemoryLayout, Region
from collbench.platforms.processes import Team

_PAGE = 4096  # NCCL_WIN_REQUIRED_ALIGNMENT


class PathMemory(Memory):
    """Send and receive buffers of the local ranks in NCCL's memory, and behind them the verdicts of a check.

    Making it is *collective*; Unsupported if NCCL has no memory for it on any process.
    """

    def __init__(
        self, cuda: Cuda, team: Team, functions: NcclFunctions, places: Placement, layout: MemoryLayout
    ) -> None:
        # Hand-written kernels never work here: the regions that only they use shrink to a line.
        sizes = dict(layout.sizes) | {Region.STAGING: LINE, Region.WINDOW: LINE}
        self.layout = replace(layout, sizes=sizes, fifos={}, ends={})
        self.local = places.local
        self._functions = functions
        nbytes = self.layout.nbytes + len(places.places) * checking.VERDICT.itemsize
        self.nbytes = -(-nbytes // _PAGE) * _PAGE
        self.base: dict[int, int] = {}

        # All look at what is free before anyone takes of it, and nobody keeps what another could not have.
        try:
            with team.agreeing():
                places.refuse_too_large(cuda, self.nbytes)
                team.meet()
                for rank in places.local:
                    cuda.runtime.setDevice(places.device[rank])
                    address = ctypes.c_void_p()
                    functions.call("ncclMemAlloc", ctypes.byref(address), self.nbytes)
                    self.base[rank] = int(address.value or 0)
        except (PlatformError, CaseFailed) as error:
            self.close()
            raise Unsupported(f"NCCL has no memory for it: {error}") from None

    def address(self, region: Region, rank: int) -> int:
        """Return where a region of a local rank starts."""
        return self.base[rank] + self._start(region)

    def verdicts(self, rank: int) -> int:
        """Return where a local rank has room for a verdict on each piece."""
        return self.base[rank] + self.layout.nbytes

    def close(self) -> None:
        """Give it back; no communicator may know it any more."""
        while self.base:
            self._functions.call("ncclMemFree", self.base.popitem()[1])


class PathCommunicator:
    """One rank's communicator with what CuPy's lacks: a policy on CTAs, registered buffers, newer collectives.

    Its calls have the names and arguments of CuPy's NcclCommunicator.  Groups are CuPy's.
    """

    def __init__(
        self, functions: NcclFunctions, ranks: int, identity: Sequence[int], rank: int, path: FastPath
    ) -> None:
        self._functions, self._path = functions, path
        self._comm = ctypes.c_void_p()
        self._handle = ctypes.c_void_p()  # of the registered buffers
        config = Config()
        if path.policy is not None:
            config.CTAPolicy = path.policy

        # Before CuPy 14 an id is a tuple of signed characters, which ctypes takes for unsigned ones.
        number = UniqueId((ctypes.c_ubyte * 128)(*identity))
        arguments = ctypes.byref(self._comm), ranks, number, rank, ctypes.byref(config)
        functions.call("ncclCommInitRankConfig", *arguments)

    def __getattr__(self, name: str) -> Any:
        function = f"nccl{name[0].upper()}{name[1:]}"
        bound = self._functions.find(function) if function in FUNCTIONS else None
        if not bound:
            raise AttributeError(name)

        # Bound once: looking it up would take as long as the call.
        def call(*arguments: Any) -> None:
            if status := bound(*arguments[:-1], self._comm, arguments[-1]):
                raise self._functions.failure(function, status)

        self.__dict__[name] = call
        return call

    def register(self, address: int, nbytes: int) -> None:
        """Tell NCCL of the buffers at an address; of a window all ranks must, in one group."""
        handle = ctypes.byref(self._handle)
        if self._path.symmetric:
            window = self._comm, address, nbytes, handle, COLLECTIVE_SYMMETRIC
            self._functions.call("ncclCommWindowRegister", *window)
        else:
            self._functions.call("ncclCommRegister", self._comm, address, nbytes, handle)

    @property
    def refused(self) -> bool:
        """Whether NCCL took the buffers without an error and made no window of them."""
        return self._path.symmetric and not self._handle

    def check_async_error(self) -> None:
        """Raise CaseFailed where NCCL knows that another process or the way to it is gone."""
        status = ctypes.c_int()
        self._functions.call("ncclCommGetAsyncError", self._comm, ctypes.byref(status))
        if status.value:
            raise CaseFailed(f"NCCL lost a rank (status {status.value})")

    def forget(self) -> None:
        """Have NCCL forget the buffers; of a window all ranks must, in one group."""
        if self._handle:
            name = "ncclCommWindowDeregister" if self._path.symmetric else "ncclCommDeregister"
            self._functions.call(name, self._comm, self._handle)

    def destroy(self) -> None:
        """Free it, once it knows no buffers any more."""
        self._functions.call("ncclCommDestroy", self._comm)
