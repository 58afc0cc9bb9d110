"""Messages between chosen pairs of ranks, timed for `collbench scan`.

A library sends and receives. With `copy` the sender copies into its peer's memory by the fastest method; with
`kernel` a kernel stores there. Each rank has its own time, since groups measured at once are independent.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from collbench.algorithms import implementations, libraries
from collbench.cases import Case
from collbench.collectives import Flight, exchange
from collbench.errors import CaseFailed
from collbench.platforms import compiler
from collbench.platforms.checking import POISON
from collbench.platforms.interface import Platform, Prepared
from collbench.platforms.layout import buffers
from collbench.platforms.processes import RunQueue

IN_FLIGHT = 2  # messages in flight: a single one that both ends send first never arrives
COPY, KERNEL = "copy", "kernel"
_OFF_CORE = 0.1  # largest share of a valid sample in which a rank had no core
To = Sequence[int | None]
"""For each rank the peer that it sends to, or None."""
BySample = dict[int, list[float]]  # seconds per message, for each rank that sends or receives


class Exchanges:
    """Exchanges of messages of a case's size, by a library or by `copy` or `kernel`.

    Ranks in `slow` are late after every operation, by (factor - 1) times its seconds, measured by the first call of
    `calibrate`.
    """

    def __init__(self, case: Case, way: str, platform: Platform, slow: Mapping[int, float] | None = None) -> None:
        self.case, self.way, self.platform, self._slow = case, way, platform, slow or {}
        self.answers = way not in (COPY, KERNEL)  # whether the peer takes part in a round trip
        self._lateness: list[Callable[[], None]] = []
        self._sample = 0.0  # seconds of the last samples
        self._nothing = np.full(case.nbytes, POISON, np.uint8)
        with platform.team.agreeing(), platform.compute.stepping():
            for rank in platform.local:
                send, received = buffers(platform.memory, case, rank)
                platform.launcher.store(rank, send, np.full(case.nbytes, _mark(rank), np.uint8))
                platform.launcher.store(rank, received, self._nothing)

    def prepared(self, to: To, count: int = IN_FLIGHT, answered: bool = False) -> Prepared:
        """*Collective*: return `count` messages from each rank to its peer, sent back on arrival if `answered`.

        Unsupported if there is no such library, or no memory that both ranks can use.
        """
        platform = self.platform
        if self.way in (COPY, KERNEL):
            with platform.team.agreeing():
                return self._late(self._copies(to, count))
        flights = [Flight(lambda rank, ranks: to[rank], count)]
        if answered:
            back = {peer: rank for rank, peer in enumerate(to) if peer is not None}
            flights.append(Flight(lambda rank, ranks: back.get(rank), count))
        with platform.team.agreeing():
            case = replace(self.case, collective=exchange(tuple(flights)))
            return self._late(implementations()[self.way].prepare(case, platform))

    def _copies(self, to: To, count: int) -> Prepared:
        case, platform = self.case, self.platform
        platform.launcher.refuse_apart()
        each: list[Callable[[], object]] = []
        for rank in platform.local:
            if (peer := to[rank]) is None:
                continue
            source, target = buffers(platform.memory, case, rank)[0], buffers(platform.memory, case, peer)[1]
            each.append(self._copy(rank, source, target))

        def launch(launches: int) -> None:
            for _ in range(launches * count):
                for copy in each:
                    copy()

        return Prepared(launch, groups=count)

    def _late(self, prepared: Prepared) -> Prepared:
        """Return the same operations with a delay of slow ranks after each."""

        def launch(launches: int) -> None:
            each = 1 if self._lateness else launches
            for _ in range(launches // each):
                prepared.launch(each)
                for late in self._lateness:
                    late()

        return replace(prepared, launch=launch)

    def _copy(self, rank: int, source: int, target: int) -> Callable[[], object]:
        case, launcher = self.case, self.platform.launcher
        if self.way == COPY:
            return lambda: launcher.copy(rank, target, source, case.nbytes)
        put, packs = launcher.kernel("steps.cu", "put", case.dtype, case.redop), case.block
        return launcher.bind_one(put, rank, packs, np.uint64(target), np.uint64(source), np.uint64(packs))

    def seconds(self, prepared: Prepared, ranks: Sequence[int], launches: int, samples: int, messages: int) -> BySample:
        """*Collective*: return the seconds of a message, by rank: `samples` samples of `launches` launches.

        A sample in which the rank waited for its core has a minus sign, also on zero.
        """
        platform, mine = self.platform, [rank for rank in ranks if rank in self.platform.local]
        queued = platform.compute.queued
        platform.launcher.synchronize()
        times: BySample = {rank: [] for rank in mine}
        lasted = [0.0]
        if not mine and platform.note.oversubscribed:
            time.sleep(1.5 * samples * self._sample)  # else this rank would take a core from the measured ranks
        with platform.team.agreeing(), platform.compute.stepping():
            for _ in range(samples if mine or queued else 0):
                with RunQueue() as waited:
                    taken = platform.clock.time_each(prepared, launches)
                spoiled = waited.off_core > _OFF_CORE and not queued
                for rank in mine:
                    lasted.append(taken[rank])
                    times[rank].append((-1 if spoiled else 1) * taken[rank] / launches / messages)
        platform.launcher.synchronize()
        with platform.team.agreeing(), platform.compute.stepping():
            platform.compute.refuse_given_up()
        everyone: BySample = {}
        self._sample = 0.0
        for of_process, usual in platform.team.exchange((times, float(np.median(lasted)))):
            everyone |= of_process
            self._sample = max(self._sample, usual)
        return everyone

    def refuse_wrong(self, to: To) -> None:
        """*Collective*: raise CaseFailed if a rank lacks the last exchange's message, and clear the buffers."""
        case, platform = self.case, self.platform
        sources = {peer: rank for rank, peer in enumerate(to) if peer is not None}
        with platform.team.agreeing(), platform.compute.stepping():
            for rank in set(platform.local) & set(sources):
                received = buffers(platform.memory, case, rank)[1]
                got = platform.launcher.fetch(rank, received, case.nbytes)
                platform.launcher.store(rank, received, self._nothing)
                if (got != _mark(sources[rank])).any():
                    raise CaseFailed(f"rank {rank} did not receive what rank {sources[rank]} sent, by {self.way}")

    def calibrate(self, to: To, region: float, count: int = IN_FLIGHT, answered: bool = False) -> int:
        """*Collective*: return the number of operations in a sample, and set the delays of slow ranks."""
        if self.platform.note.oversubscribed:
            to = [peer if rank < 2 else None for rank, peer in enumerate(to)]
        ranks = sorted({end for rank, peer in enumerate(to) if peer is not None for end in (rank, peer)})
        prepared, messages = self.prepared(to, count, answered), count * (1 + answered)
        launches, seconds, most = 1, math.inf, self.platform.clock.most_held(prepared)

        # The first sample warms caches and tells idle ranks how long to sleep; ranks may share a core at first.
        for _ in range(6):
            tried = self.seconds(prepared, ranks, launches, 5, messages)
            every, good = together(tried, ranks[:2])
            seconds = min(seconds, messages * min(good or every))
            launches = max(1, min(most, math.ceil(region / seconds)))
        for rank in [rank for rank in self._slow if rank in self.platform.local]:
            self._lateness.append(self._stall(rank, (self._slow[rank] - 1) * seconds))
        return launches

    def _stall(self, rank: int, seconds: float) -> Callable[[], None]:
        """Return a function that delays a rank's queue; on a CPU it spins, since sleep takes longer."""
        case, launcher = self.case, self.platform.launcher
        if self.platform.compute.queued:
            stall = launcher.kernel(compiler.JUDGE, "stall", case.dtype, case.redop)
            return launcher.bind_one(stall, rank, 1, np.uint64(1e9 * seconds))

        def spin() -> None:
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                pass

        return spin


def _mark(rank: int) -> int:
    return 1 + rank % 120  # POISON is larger


def ways(platform: str) -> tuple[str, ...]:
    """Return a platform's ways to send messages, its library first."""
    library = next(name for name in libraries() if platform in implementations()[name].platforms)
    return library, COPY, KERNEL


def together(taken: BySample, group: Sequence[int]) -> tuple[list[float], list[float]]:
    """Return the samples of a group's slowest member, all and then only those in which each member had its core."""
    samples = np.array([taken[rank] for rank in group])
    slowest, good = np.abs(samples).max(axis=0), ~np.signbit(samples).any(axis=0)  # ranks without a part have 0.0
    return slowest.tolist(), slowest[good].tolist()


def quartile(samples: Sequence[float]) -> float:
    """Return the lower quartile: disturbances only add time, and may affect half of the samples."""
    return float(np.quantile(samples, 0.25, method="inverted_cdf"))
