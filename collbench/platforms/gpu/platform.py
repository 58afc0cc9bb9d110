"""Ranks as GPUs, through CuPy; more ranks than GPUs share them.

Started alone, one process holds all ranks, and rank r lives on device r modulo their number.  The ranks of one device
run a hand-written kernel together, as one cooperative grid: the only arrangement in which CUDA promises that blocks
which wait for each other all get to run.  Under an outside launcher each process holds one rank.  What differs lies
behind three objects: `Team` (how processes agree), `Ranks` (who lives where) and `Reach` (whose memory is where).
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

import numpy as np

from collbench.cases import Case, Sweep
from collbench.cost import gpus
from collbench.datatypes import DATATYPES, NONE, Array, Datatype, Reduction
from collbench.errors import CaseFailed, PlatformError, Unsupported
from collbench.measure.world import launched
from collbench.measurement import Mismatch
from collbench.note import Note
from collbench.platforms import WINDOW_HEAD, Moment, Prepared, Region, checking, kernels, processes, tracelog
from collbench.platforms.gpu import ipc, launch, nccl, peers, report
from collbench.platforms.gpu import multicast as gpu_multicast
from collbench.platforms.gpu.check import Checker
from collbench.platforms.gpu.cuda import Cuda, GpuKernel, Queue, compile_kernel, load_cupy
from collbench.platforms.gpu.launch import Launcher
from collbench.platforms.gpu.probe import STARTUP, available, broken, default_ranks, missing, refusal, refuse_too_large
from collbench.platforms.gpu.ranks import place_ranks
from collbench.platforms.gpu.timing import Gate, Stopwatch
from collbench.platforms.processes import Alone, Team

__all__ = [
    "LAST",
    "STARTUP",
    "available",
    "broken",
    "default_ranks",
    "missing",
    "open_platform",
    "probe_peers",
    "refusal",
    "refuse_too_large",
    "visible",
]

LAST = 128 * 2**20  # bytes: the largest message of a default sweep
_SHARE = 0.8  # of --timeout: then NCCL is named before the supervisor's patience ends


class GpuPlatform:
    """The ranks of the run that this process holds, and where all others are; to be made inside `team.agreeing()`."""

    name = "gpu"
    region = 1.5e-3  # a sample has one start of a graph in it, of some microseconds

    def __init__(
        self,
        cuda: Cuda,
        sweep: Sweep,
        need: Mapping[Region, int],
        fifos: Mapping[str, int],
        team: Team | None = None,
    ) -> None:
        self._cuda, self._sampling, self._fifos = cuda, sweep.sampling, fifos
        self._team = team = team or Alone()
        self.ranks, self.local = sweep.ranks, team.local(sweep.ranks)
        self._kernels: dict[tuple[str, str, str, str, tuple[str, ...]], GpuKernel] = {}
        self.tracing = False
        with cuda.failing_as(PlatformError, "the GPUs could not be set up"):
            self._places = place_ranks(cuda, team, sweep.ranks)
            self._devices, self.note = self._places.devices, Note(shared=self._places.shared)
            if self.note.shared:
                nccl.apply(nccl.sharing(self._places.multiprocessors, self._places.most_sharing))
            elif self._places.sliced:
                nccl.apply(nccl.SLICED)
            self._places.refuse_too_large(cuda, sum(need.values()))
            team.meet()  # all have looked at what is free before anyone takes of it
            self.hardware = gpus(sweep.ranks, len(self._places.gpus))
            self._queues = {rank: Queue(cuda, self._places.device[rank]) for rank in self.local}
            self._allocate(need, tuple(fifos))
            gate = self.kernel("gate.cu", "gate", DATATYPES["float"], NONE).functions[0]
            self._gate = Gate(cuda, gate, self._devices[0])
            self._stopwatch = Stopwatch(cuda, team, list(self._queues.values()), self._gate)
            self._probed = peers.probe(cuda, self._devices)
            self._reach = ipc.reach(cuda, team, self._places, self._memory.base)
        trace = fifos.get(tracelog.FIFO, 0)
        self._launcher = Launcher(cuda, self, self._places, self._queues, self._probed, trace)
        patience = nccl_patience(team, sweep.sampling.timeout)
        self.comm: Any = nccl.Communicators(cuda, team, self._places, self._queues, self._stopwatch, patience)

    def agreeing(self) -> AbstractContextManager[None]:
        """Run what is inside; if it fails on any process, raise the same error on all of them."""
        return self._team.agreeing()

    def _allocate(self, need: Mapping[Region, int], users: Sequence[str]) -> None:
        """The regions one after the other, and behind them the verdicts of a check."""
        *starts, end = np.cumsum([0, *need.values()]).tolist()
        self._starts = dict(zip(need, starts, strict=True))
        nbytes = end + self.ranks * checking.VERDICT.itemsize
        devices = [queue.device for queue in self._queues.values()]
        self._memory, self._multicast = gpu_multicast.allocate(self._cuda, devices, self.ranks, nbytes, users)
        verdicts = {rank: base + end for rank, base in zip(self.local, self._memory.base, strict=True)}
        self._checker = Checker(self._cuda, self, self._queues, verdicts)

    def address(self, region: Region, rank: int) -> int:
        """Where a region starts, by the same number on each device; Unsupported if its process shares no memory."""
        return int(self._reach.at(rank) + self._starts[region])

    def multicast(self, region: Region) -> int:
        """Where a region of all ranks starts; Unsupported, with the reason, if no switch knows their memory."""
        if not self._multicast.base:
            raise Unsupported(self._multicast.reason)
        return int(self._multicast.base + self._starts[region])

    def fifo(self, implementation: str) -> int:
        """Where an implementation's own FIFO starts behind the flags."""
        return self._fifos[implementation]

    def kernel(self, file: str, entry: str, dtype: Datatype, redop: Reduction, *options: str) -> GpuKernel:
        """A kernel compiled by NVRTC, or taken from CuPy's cache; one that knows other ranks for these."""
        one_device = self._places.one_device
        world = launch.defines(self.ranks, one_device) if kernels.knows_ranks(file) else ()
        options = (*((tracelog.TRACED,) if self.tracing else ()), *world, *options)
        key = file, entry, dtype.name, redop.name, options
        if key not in self._kernels:
            self._kernels[key] = compile_kernel(self._cuda, self._devices, file, entry, dtype, redop, options)
        return self._kernels[key]

    def blocks(self, most: int) -> int:
        """One on each multiprocessor that is a rank's share of the most crowded GPU: as many for every rank."""
        return max(1, min(most, self._places.multiprocessors // self._places.most_sharing))

    def cache(self) -> int:
        """Its share of the L2 cache of the most crowded GPU."""
        return self._places.cache // self._places.most_sharing

    def bind(self, kernel: GpuKernel, case: Case, blocks: int, threads: int, *arguments: Any) -> Callable[[int], None]:
        """One cooperative launch a device, on the stream of its first rank; Unsupported where it would not run."""
        return self._launcher.bind(kernel, case, blocks, threads, *arguments)

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
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while it ran"):
            self._stopwatch.wait()

    def time(self, prepared: Prepared, launches: int) -> float:
        """A graph's replay between two events of every rank's stream; without graphs, launches; else the host's clock.

        CaseFailed if CUDA or NCCL fails, or a kernel gave up.
        """
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while it ran"):
            if prepared.host_driven:
                seconds = self._stopwatch.on_host(prepared, launches)
            elif self._sampling.graph:
                seconds = self._stopwatch.of_graph(prepared, launches)
            else:
                seconds = self._stopwatch.of_launches(prepared, launches)
            if self._launcher.waits:
                self._refuse_given_up()
            slowest: float = max(self._team.exchange(seconds))
        return slowest / launches

    def _refuse_given_up(self) -> None:
        """A kernel that gives up leaves a one in the first word of its rank's window."""
        for rank, queue in self._queues.items():
            if queue.fetch(self.address(Region.WINDOW, rank), np.zeros(1, np.uint32))[0]:
                raise CaseFailed(f"a rank waited in vain for another's flag (rank {rank})")

    def fill(self, case: Case, seed: int) -> None:
        """On every rank's stream, and wait for all."""
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while the buffers were filled"):
            self._checker.fill(case, seed)
            self._stopwatch.wait()

    def check(self, case: Case, seed: int) -> Mismatch | None:
        """Every rank compares on its own stream; the lowest one with a mismatch speaks."""
        with self._team.agreeing(), self._cuda.failing_as(CaseFailed, "while the result was checked"):
            found = self._team.exchange(self._checker.check(case, seed))
        return next((each for each in found if each), None)

    def take_logs(self, rank: int) -> Array:
        """From the rank's device."""
        place = self.address(Region.WINDOW, rank) + WINDOW_HEAD + self.fifo(tracelog.FIFO)
        taken = self._queues[rank].fetch(place, np.zeros(tracelog.NBYTES // tracelog.LOG.itemsize, tracelog.LOG))
        self._cuda.runtime.memset(place, 0, tracelog.NBYTES)
        self._cuda.runtime.deviceSynchronize()
        return taken

    def moment(self, rank: int) -> Moment:
        """An event on the rank's stream; clocks of devices are set by the host's, to a few microseconds."""
        return self._stopwatch.moment(self._queues[rank])

    def gather(self, mine: list[Any]) -> list[Any]:
        """From every process."""
        return [each for part in self._team.exchange(mine) for each in part]

    def topology(self) -> dict[str, Any]:
        """Every rank's GPU and node, and what joins them."""
        with self._team.agreeing(), self._cuda.failing_as(PlatformError, "the GPUs could not be described"):
            return report.topology(self._team, self._places, self._reach, self._probed)

    def versions(self) -> dict[str, str]:
        """CuPy and what it found."""
        return report.versions(self._cuda, self._places)

    def close(self) -> None:
        """Give everything back; after a failure CUDA refuses even that, and the process ends anyway."""
        with self._team.agreeing():
            if any(self._team.exchange(self.comm.hung)):  # each call of CUDA could wait for ever for what hangs
                return
            healthy = False
            with suppress(*self._cuda.errors):
                self._stopwatch.wait()
                self._stopwatch.drop_graphs()
                healthy = True
            together = all(self._team.exchange(healthy))
            with suppress(*self._cuda.errors):
                if together:  # NCCL lets go of a communicator once all processes of a node do
                    self.comm.destroy()
                self._gate.free()
            self._reach.close()
            with suppress(*self._cuda.errors):
                self._memory.free()


def nccl_patience(team: Team, timeout: float) -> float:
    """Seconds that NCCL may take to start and for a first operation; among many processes, with no supervisor, more."""
    return _SHARE * timeout if isinstance(team, Alone) else max(STARTUP, timeout)


def open_platform(sweep: Sweep, need: Mapping[Region, int], fifos: Mapping[str, int]) -> GpuPlatform:
    """All ranks on the GPUs of this machine; under an outside launcher, this process's rank on one of them."""
    joined = launched()
    team = processes.of_launcher(sweep.ranks) if joined and joined[1] > 1 else Alone()
    with team.agreeing():
        if os.environ.get("CUDA_LAUNCH_BLOCKING", "0") != "0":
            raise PlatformError(
                "with CUDA_LAUNCH_BLOCKING a rank would wait for ever for one not yet launched: unset it"
            )
        return GpuPlatform(Cuda(load_cupy()), sweep, need, fifos, team)


def visible() -> tuple[list[str], list[str]]:
    """Bus ids and UUIDs of the GPUs, in CUDA's order and as CUDA_VISIBLE_DEVICES has it; PlatformError if none."""
    cuda = Cuda(load_cupy())
    with cuda.failing_as(PlatformError, "the GPUs could not be listed"):
        devices = range(cuda.count())
        return [cuda.runtime.deviceGetPCIBusId(device) for device in devices], [cuda.uuid(device) for device in devices]


def probe_peers(devices: Sequence[int]) -> peers.Probed:
    """For each ordered pair of devices, whether the first can use the second's memory, and why (not)."""
    if len(devices) < 2:
        return {}
    cuda = Cuda(load_cupy())
    with cuda.failing_as(PlatformError, "peer access could not be probed"):
        return peers.probe(cuda, devices)
