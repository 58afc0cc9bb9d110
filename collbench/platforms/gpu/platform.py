"""Ranks as GPUs, through CuPy; more ranks than GPUs share them.

Started alone, one process holds all ranks, and rank r lives on device r modulo their number.  The ranks of one device
run a hand-written kernel together, as one cooperative grid: the only arrangement in which CUDA promises that blocks
which wait for each other all get to run.  Under an outside launcher each process holds one rank.  What differs lies
behind three objects: `Team` (how processes agree), `Placement` (who lives where) and `Reach` (whose memory is where).
"""

import copy
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

import numpy as np

from collbench.cases import Case, Sweep
from collbench.datatypes import DATATYPES, NONE, Array, Datatype, Reduction
from collbench.errors import CaseFailed, PlatformError
from collbench.flaws import Flaw, Mismatch, Overrun
from collbench.note import Note
from collbench.platforms import checking
from collbench.platforms.gpu import nccl, peers, report
from collbench.platforms.gpu.check import Checker
from collbench.platforms.gpu.computing import GpuComputing
from collbench.platforms.gpu.cuda import FIRST, USUAL, Cuda, GpuKernel, Queue, load_cupy
from collbench.platforms.gpu.hardware import gpus
from collbench.platforms.gpu.launch import KernelCache, Launcher
from collbench.platforms.gpu.logging import GpuLogging
from collbench.platforms.gpu.memory import RankMemory
from collbench.platforms.gpu.placement import place_ranks
from collbench.platforms.gpu.probe import STARTUP
from collbench.platforms.gpu.products import GpuProducts
from collbench.platforms.gpu.stress import Stress
from collbench.platforms.gpu.timing import StartGate, Stopwatch
from collbench.platforms.layout import Layout, Region
from collbench.platforms.processes import Alone, Team
from collbench.platforms.roles import Limits, Platform, Prepared
from collbench.platforms.stress import HESITATES, Plan, lost
from collbench.scheduling import Watch
from collbench.wires import Wire

_SHARE = 0.8  # of --timeout: then NCCL is named before the supervisor's patience ends


class GpuPlatform(GpuComputing, GpuLogging):
    """The ranks of the run that this process holds, and where all others are; made inside `team.agreeing()`."""

    name = "gpu"
    region = 1.5e-3  # a sample has one start of a graph in it, of some microseconds
    limits = Limits(1e-7, 1e14, "five times what the fastest memory and the largest cache of a GPU bring")

    def __init__(self, cuda: Cuda, sweep: Sweep, layout: Layout, team: Team) -> None:
        self._cuda, self.team, self.layout = cuda, team, layout
        self._graph = sweep.sampling.graph
        self._options: tuple[str, ...] = ()  # of every kernel
        self._lost = 0  # nanoseconds, by kernels that hesitate
        self._products: dict[int, GpuProducts] = {}
        with cuda.failing_as(PlatformError, "the GPUs could not be set up"):
            self._places = places = place_ranks(cuda, team, sweep.ranks)
            nccl.apply(nccl.environment(places))
            self._memory = RankMemory(cuda, team, places, layout)
            priority = FIRST if any(sweep.steps) else USUAL  # before what the same ranks compute meanwhile
            self._queues = queues = {rank: Queue(cuda, places.device[rank], priority) for rank in places.local}
            self._kernels = KernelCache(cuda, places)
            gate = self._kernels.get("gate.cu", "gate", DATATYPES["float"], NONE).functions[0]
            self._gate = StartGate(cuda, gate, places.devices[0])
            self._probed = peers.probe(cuda, places.devices)
        self._launcher = Launcher(cuda, self._memory, places, queues, self._probed)
        self._checker = Checker(cuda, self._memory, self._kernels, self._launcher, queues)
        self._stress = Stress(cuda, self._memory, self._kernels, self._launcher, queues)
        self._stopwatch = Stopwatch(cuda, team, list(queues.values()), self._gate)
        patience = nccl_patience(team, sweep.sampling.timeout)
        self.comm = nccl.Communicators(cuda, team, places, queues, self._stopwatch, patience)
        self.scheduled = Watch()  # ranks on devices have no cores to lose
        self.ranks, self.local, self.note = sweep.ranks, places.local, Note(shared=places.shared)
        self.cache: int | None = min(place.cache for place in places.places) // places.most_sharing
        self.hardware = gpus(sweep.ranks, len(places.gpus))

    def address(self, region: Region, rank: int) -> int:
        """Where a region starts, by the same number on each device; Unsupported if its process shares no memory."""
        return self._memory.address(region, rank)

    def multicast(self, region: Region) -> int:
        """Where a region of all ranks starts; Unsupported, with the reason, if no switch knows their memory."""
        return self._memory.multicast(region)

    def kernel(self, file: str, entry: str, dtype: Datatype, redop: Reduction, *options: str) -> GpuKernel:
        """A kernel compiled by NVRTC, or taken from CuPy's cache; one that knows other ranks for these."""
        return self._kernels.get(file, entry, dtype, redop, *self._options, *options)

    def blocks(self, most: int) -> int:
        """One on each multiprocessor that is a rank's share of the most crowded GPU: as many for every rank."""
        return max(1, min(most, self._places.multiprocessors // self._places.most_sharing))

    def bind(self, kernel: GpuKernel, case: Case, blocks: int, threads: int, *arguments: Any) -> Callable[[int], None]:
        """One cooperative launch a device, on the stream of its first rank; Unsupported where it would not run."""
        return self._launcher.bind(kernel, case, blocks, threads, *arguments, lost=self._lost)

    def bind_one(self, kernel: GpuKernel, rank: int, count: int, *arguments: Any) -> Callable[[], None]:
        """A launch on the rank's stream."""
        return self._launcher.bind_one(kernel, rank, count, *arguments)

    def copy(self, rank: int, target: int, source: int, nbytes: int) -> None:
        """By the copy engine; the driver sees from the addresses which devices, and stages where it must."""
        runtime = self._cuda.runtime
        runtime.memcpyAsync(target, source, nbytes, runtime.memcpyDefault, self._queues[rank].use().ptr)

    def mark(self, rank: int) -> Any:
        """An event on the rank's stream."""
        return self._queues[rank].mark()

    def after(self, rank: int, token: Any) -> None:
        """The stream waits, whichever devices the two are on."""
        self._queues[rank].enter().wait_event(token)

    def synchronize(self) -> None:
        """Wait for every rank's stream, and for every process.

        Host-driven rungs pay for it at every step, so it does no more: `time` asks at its end whether a kernel gave up.
        """
        with self.team.agreeing(), self._cuda.failing_as(CaseFailed, "while it ran"):
            self._stopwatch.wait()

    def barrier(self) -> None:
        """Return None: ranks on devices have no cores."""

    def floor(self, case: Case) -> Sequence[Prepared]:
        """None: the line rates of data sheets bound what GPUs do (collbench/analysis/roofline.py)."""
        return ()

    def time(self, prepared: Prepared, launches: int) -> float:
        """A graph's replay between two events of every rank's stream; without graphs, launches; else the host's clock.

        CaseFailed if CUDA or NCCL fails, or a kernel gave up.
        """
        with self.team.agreeing(), self._cuda.failing_as(CaseFailed, "while it ran"):
            if prepared.host_driven:
                seconds = self._stopwatch.on_host(prepared, launches)
            elif self._graph:
                seconds = self._stopwatch.of_graph(prepared, launches)
            else:
                seconds = self._stopwatch.of_launches(prepared, launches)
            if self._launcher.waits:
                self.refuse_given_up()
            slowest: float = max(self.team.exchange(seconds))
        return slowest / launches

    def fetch(self, rank: int, address: int, nbytes: int) -> Array:
        """Behind what the rank's stream was given: the copy itself does not wait for a stream of ours."""
        self._queues[rank].enter().synchronize()
        return self._queues[rank].fetch(address, np.zeros(nbytes, np.uint8))

    def fill(self, case: Case, seed: int, wire: Wire | None = None) -> None:
        """On every rank's stream, and wait for all."""
        with self.team.agreeing(), self._cuda.failing_as(CaseFailed, "while the buffers were filled"):
            self._checker.fill(case, seed, wire)
            self._stopwatch.wait()

    def check(self, case: Case, seed: int, wire: Wire | None = None) -> Flaw | None:
        """Every rank compares on its own stream; the lowest one with a mismatch speaks."""
        with self.team.agreeing(), self._cuda.failing_as(CaseFailed, "while the result was checked"):
            every = self.team.exchange(self._checker.check(case, seed, wire))
        digests = {rank: digest for _, own in every for rank, digest in own.items()}
        return checking.agreed((flaw for flaw, _ in every), digests)

    def stress(self, case: Case, prepared: Prepared, plan: Plan) -> Mismatch | None:
        """Every rank makes its calls and judges them on its own stream; the lowest one with a mismatch speaks."""
        with self.team.agreeing(), self._cuda.failing_as(CaseFailed, "while calls followed each other"):
            self.team.meet()
            found = self._stress.carry_out(case, prepared, plan)
            if self._launcher.waits:
                self.refuse_given_up()
            mismatches = self.team.exchange(found)
        return next(filter(None, mismatches), None)

    def hesitant(self, seconds: float) -> Self:
        """Itself, but for an option of the compiler and what kernels are told."""
        other = copy.copy(self)
        other._options, other._lost = (HESITATES,), lost(seconds)
        return other

    def singly(self, prepared: Prepared) -> Prepared | None:
        """The host enqueues every operation, so there is no other loop."""
        return None

    def overrun(self, case: Case) -> Overrun | None:
        """Every rank looks at its own guards; the lowest one speaks."""
        with self.team.agreeing(), self._cuda.failing_as(CaseFailed, "while what lies beside buffers was read"):
            self._stopwatch.wait()
            overruns = self.team.exchange(self._checker.overrun(case))
        return next(filter(None, overruns), None)

    def topology(self) -> dict[str, Any]:
        """Every rank's GPU and node, and what joins them."""
        with self.team.agreeing(), self._cuda.failing_as(PlatformError, "the GPUs could not be described"):
            return report.topology(self.team, self._places, self._memory.refusal, self._probed)

    def versions(self) -> dict[str, str]:
        """CuPy and what it found."""
        return report.versions(self._cuda, self._places)

    def close(self) -> bool:
        """Give everything back; after a failure CUDA refuses even that, and the process ends anyway."""
        with self.team.agreeing():
            if any(self.team.exchange(self.comm.hung)):  # each call of CUDA could wait for ever for what hangs
                return False
            healthy = False
            with suppress(*self._cuda.errors):
                self._stopwatch.wait()
                self._stopwatch.drop_graphs()
                healthy = True
            together = all(self.team.exchange(healthy))
            with suppress(*self._cuda.errors):
                if together:  # NCCL lets go of a communicator once all processes of a node do
                    self.comm.destroy()
                self._gate.free()
            self._memory.close()
        return True


def nccl_patience(team: Team, timeout: float) -> float:
    """Seconds that NCCL may take to start and for a first operation; among many processes, with no supervisor, more."""
    return _SHARE * timeout if isinstance(team, Alone) else max(STARTUP, timeout)


def open_platform(sweep: Sweep, layout: Layout, team: Team) -> Platform:
    """All ranks on the GPUs of this machine; under an outside launcher, this process's rank on one of them."""
    with team.agreeing():
        if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") != "0":
            raise PlatformError(
                "with CUDA_LAUNCH_BLOCKING a rank would wait for ever for one not yet launched: unset it"
            )
        return GpuPlatform(Cuda(load_cupy()), sweep, layout, team)
