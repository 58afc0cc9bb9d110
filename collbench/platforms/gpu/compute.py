"""Matrix products on GPUs, by cuBLAS through CuPy, for every rank on another stream than its collectives.

Collectives' streams have a higher priority where a GPU can choose, so that few of their blocks wait for many of these.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np

from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.errors import CaseFailed, PlatformError
from collbench.platforms import checking, compiler
from collbench.platforms.gpu.cuda import USUAL, Stream, why
from collbench.platforms.gpu.launch import GpuLauncher
from collbench.platforms.interface import Compute
from collbench.platforms.products import Chain, Moment, Products
from collbench.results.facts import GemmMismatch


class _Matrices:
    """The matrices of one rank, on its device."""

    def __init__(self, launcher: GpuLauncher, chain: Chain, begin: Callable[[str], None]) -> None:
        begin(f"making matrices of rank {chain.rank}")
        self._cupy, self._chain, self._launcher = launcher.cuda.cupy, chain, launcher
        self.collectives = launcher.streams[chain.rank]
        self.computing = Stream(launcher.cuda, self.collectives.device, USUAL)
        self._compare = launcher.kernel(compiler.JUDGE, "compare_product", DATATYPES["float"], REDUCTIONS["sum"])
        self._one, self._zero = np.ones(1, np.float32), np.zeros(1, np.float32)  # cuBLAS takes them by address
        with self.computing.enter():
            self._factor, self._start = self._cupy.asarray(chain.factor), self._cupy.asarray(chain.start)
            self._last, self._next = self._cupy.empty_like(self._start), self._cupy.empty_like(self._start)
        self.reset()
        begin(f"loading cuBLAS, rank {chain.rank}")
        with self.computing.enter():
            self._cupy.cuda.get_cublas_handle()

        # The first product loads the kernel, for which CUDA may wait until all others are done.
        begin(f"first product of rank {chain.rank}")
        self.enqueue(1)
        self.computing.enter().synchronize()

    def enqueue(self, count: int) -> None:
        """Enqueue so many products."""
        # By cuBLAS itself: CuPy's matmul costs the host several times as much, and its cuBLAS no graph may capture.
        # cuBLAS stores columns, so what it multiplies are transposes, in the other order.
        size, factor = self._chain.size, self._factor.data.ptr
        scale = self._one.ctypes.data, self._zero.ctypes.data
        with self.computing.enter():
            handle, sgemm = self._cupy.cuda.get_cublas_handle(), self._cupy.cuda.cublas.sgemm
            for _ in range(count):
                last, result = self._last.data.ptr, self._next.data.ptr
                sgemm(handle, 0, 0, size, size, size, scale[0], last, size, factor, size, scale[1], result, size)
                self._last, self._next = self._next, self._last
        self._made += count

    def reset(self) -> None:
        with self.computing.enter():
            self._last[...] = self._start
            self._next.fill(float("nan"))
        self._made = 0

    def failure(self) -> GemmMismatch | None:
        """Return the first wrong element, or None."""
        # Compared on the device: the host would take a tenth of a second, so only what is wrong is copied there.
        size = self._chain.size
        with self.computing.enter() as stream:
            rows = self._cupy.asarray(self._chain.rows(self._made))
            verdict = self._cupy.asarray(checking.CLEAN.reshape(1).view(np.uint64))
            matrices = (np.uint64(array.data.ptr) for array in (self._last, self._start, rows))
            arguments = *matrices, np.uint32(size), np.uint64(verdict.data.ptr)
            self._launcher.bind_one(self._compare, self._chain.rank, size**2, *arguments, on=self.computing)()
            seen, wrong, *_ = self._cupy.asnumpy(verdict, stream=stream).tolist()
            checking.refuse_unseen(seen, size**2)
            return self._chain.failure(self._made, self._cupy.asnumpy(self._last, stream=stream)) if wrong else None


class GpuProducts(Products):
    """The matrices of this process's ranks."""

    def __init__(self, launcher: GpuLauncher, size: int, begin: Callable[[str], None]) -> None:
        self._cuda, self._team, self._moment = launcher.cuda, launcher.team, launcher.clock.clocks.moment
        self._of = {rank: _Matrices(launcher, Chain(size, rank), begin) for rank in launcher.streams}

    @property
    def streams(self) -> list[Stream]:
        """The computing streams."""
        return [matrices.computing for matrices in self._of.values()]

    def enqueue(self, rank: int, count: int) -> None:
        """On the rank's computing stream."""
        self._of[rank].enqueue(count)

    def moment(self, rank: int) -> Moment:
        """Return an event on the computing stream."""
        return self._moment(self._of[rank].computing)

    def hand_over(self, rank: int) -> None:
        """Make the stream of the collectives wait for an event of the computing stream."""
        matrices = self._of[rank]
        matrices.collectives.enter().wait_event(matrices.computing.mark())

    def take_over(self, rank: int) -> None:
        """Make the computing stream wait for an event of the collectives' stream."""
        matrices = self._of[rank]
        mark = matrices.collectives.mark()
        matrices.computing.enter().wait_event(mark)

    def reset(self) -> None:
        """Reset the products on every rank's stream."""
        for matrices in self._of.values():
            matrices.reset()

    def check(self) -> GemmMismatch | None:
        """The lowest rank with a wrong element speaks."""
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while ranks computed"):
            failure = next(filter(None, (matrices.failure() for matrices in self._of.values())), None)
            return next(filter(None, self._team.exchange(failure)), None)


class GpuCompute(Compute):
    """The ranks of a device run a kernel together, on the stream of the first: the others' streams wait for it."""

    queued = True

    def __init__(self, launcher: GpuLauncher) -> None:
        self._launcher, self._cuda, self._clock = launcher, launcher.cuda, launcher.clock
        self._products: dict[int, GpuProducts] = {}  # by size; the last one that was asked for

    def products(self, size: int, begin: Callable[[str], None] = lambda phase: None) -> GpuProducts:
        """Return matrices of this process's ranks; PlatformError, with what to install, without room or cuBLAS.

        The same ones for the same size: another round of measurements neither makes them again nor takes more memory.
        """
        if size not in self._products:
            self._products.clear()
            failures = self._cuda.cupy.cuda.compiler.CompileException, RuntimeError, ImportError, MemoryError, OSError
            try:
                made = GpuProducts(self._launcher, size, begin)
            except failures as error:
                raise PlatformError(f"matrices of {size} x {size} cannot be multiplied: {why(error)}") from error
            self._clock.besides = made.streams
            self._products[size] = made
        return self._products[size]

    def join_streams(self) -> None:
        """Make every stream of a device wait for all its others."""
        self._launcher.join_streams()

    def stepping(self) -> AbstractContextManager[None]:
        """Return a context that translates CUDA's failures: after some, every call of CUDA raises."""
        return self._cuda.failing_as(CaseFailed, "while a step was carried out")

    def refuse_given_up(self) -> None:
        """Raise CaseFailed if a kernel of a local rank waited in vain."""
        self._clock.refuse_given_up()
