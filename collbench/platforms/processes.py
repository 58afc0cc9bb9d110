"""The processes of a run: identity, exchange of messages, agreement on errors.

An error on one process (no memory, a GPU that does not answer) must reach all before any acts on it, or the others
wait for ever. So every exchange first asks whether a process failed. A process that fails inside `agreeing` takes
part in the next exchange of the others, and all raise its error. A process that waits for an order sleeps. MPI
(mpi_processes.py) or sockets (socket_processes.py) carry the messages.

Ranks on CPUs detect that they were off their cores: by wall time minus CPU time (clock_gettime(2),
CLOCK_THREAD_CPUTIME_ID), involuntary context switches (getrusage(2), RUSAGE_THREAD) and cores (sched_getcpu(3)).
"""

import ctypes
import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from collbench.datatypes import Array
from collbench.errors import CollbenchError, PlatformError
from collbench.exits import BAD
from collbench.host.launcher import neighbours

_BOOT = Path("/proc/sys/kernel/random/boot_id")  # distinguishes machines with the same name

SentError = tuple[type[CollbenchError], str]


@cache
def usable_cores() -> frozenset[int]:
    """Return the cores that this process may run on, as they were before its rank was bound to one of them."""
    return frozenset(os.sched_getaffinity(0))


def node_name() -> tuple[str, str]:
    """Return what only the processes of a machine have in common: its name, and which boot of which machine it is."""
    return socket.gethostname(), _BOOT.read_text(encoding="ascii").strip() if _BOOT.exists() else ""


def crowded() -> bool:
    """Whether the launcher started more processes on this machine than there are cores for them, as far as it says.

    One that a launcher bound to a core may not look at the others' yet; its parent was there before it was bound.
    """
    cores = [len(os.sched_getaffinity(0))]
    with suppress(OSError):  # a parent outside this container
        cores.append(len(os.sched_getaffinity(os.getppid())))
    return neighbours() > max(cores)


class Team(ABC):
    """Processes of a run, which hold one rank each; only what the host knows passes through here."""

    comm: Any = None  # the mpi4py communicator, where MPI started them

    # Of several processes: an array goes between the leader and another rank as fast as can be.
    send: Callable[[Array, int], None]
    receive: Callable[[Array, int], None]
    sleep_until_sent: Callable[[], None]
    """Come back, on any rank but the leader, once the leader has sent something."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.leader = rank == 0
        self.trouble = ""  # this process's error, until the others have received it

    @abstractmethod
    def gather(self, mine: Any) -> list[Any]:
        """*Collective*: return what each process gives, by rank; nobody's failure is heard."""

    @abstractmethod
    def broadcast(self, message: Any) -> Any:
        """*Collective*: return the leader's value on every process; a process that waits for it sleeps."""

    def any_of(self, mine: bool) -> bool:
        """*Collective*: whether it is so on any process."""
        return any(self.gather(mine))

    def slowest(self, mine: Array) -> Array:
        """*Collective*: return the largest of each number over all processes; valid until the next call."""
        largest: Array = np.max(self.gather(mine), axis=0)
        return largest

    def neighbours(self) -> list[int]:
        """*Collective*: return the ranks of this machine and, where Slurm has several nodes on it, of this node."""
        nodes = self.gather((os.environ.get("SLURMD_NODENAME"), node_name()))
        return [rank for rank, node in enumerate(nodes) if node == nodes[self.rank]]

    @abstractmethod
    def abort(self) -> None:
        """End every process of the run at once."""

    def local(self, ranks: int) -> Sequence[int]:
        """The rank of this process; PlatformError if there are not as many processes as ranks."""
        if self.size != ranks:
            raise PlatformError(f"world size {self.size} although {ranks} ranks were requested: {self.start_as}")
        return (self.rank,)

    start_as = "leave --ranks to the launcher, or have it start as many processes"

    def exchange(self, mine: Any) -> list[Any]:
        """Return what each process gives, by rank; the error of a process that failed instead."""
        self.meet()
        return self.gather(mine)

    def meet(self) -> None:
        """Come back once every process has come here; the error of one that failed instead."""
        self._settle(None)

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """Run what is inside; if it fails on any process, raise the same error on all of them."""
        try:
            yield
        except Exception as error:
            # All processes have raised an agreed error already: another exchange would find nobody.
            if getattr(error, "agreed", False):
                raise
            self._settle(error)
        else:
            self._settle(None)

    def _settle(self, error: Exception | None) -> None:
        """Raise the error of the lowest rank that failed, on every process; return if none did."""
        # One bit first: nearly always nothing failed, and some operations are timed with this in them.
        # A watcher of this process can report its error until the other processes have received it.
        if error:
            self.trouble = str(error)
        failed = self.any_of(error is not None)
        self.trouble = ""
        if not failed:
            return
        failures: list[SentError | None] = self.gather(_sendable(error))

        # The lowest rank's error is raised by all, with its rank unless all errors are alike.
        rank, (kind, text) = next((rank, failure) for rank, failure in enumerate(failures) if failure)
        common = kind(text if len(set(failures)) == 1 else f"rank {rank}: {text}")
        common.agreed = True
        raise common from error

    def bind(self, cores: Sequence[int]) -> None:
        """Keep the calling thread on the core that is this rank's; without cores it stays where it may run."""
        if cores and usable_cores():
            with suppress(OSError):  # a control group may have taken the core away
                os.sched_setaffinity(0, {cores[self.rank]})

    def cores_to_bind(self, choose: Callable[[int], Sequence[int]]) -> list[int]:
        """*Collective*: a core for each rank of a launcher that has not bound them; empty where one was bound.

        `choose` returns a machine's cores for a number of ranks, and is called on every machine.
        """
        places = self.exchange((node_name(), sorted(os.sched_getaffinity(0))))
        here = [rank for rank, (node, _) in enumerate(places) if node == places[self.rank][0]]
        alike = all(places[rank] == places[self.rank] for rank in here)

        # The first rank of a machine chooses for all: each would see another load, and two might choose one core.
        chosen = self.exchange(choose(len(here)) if alike and here[0] == self.rank else ())[here[0]]
        cores = self.exchange(chosen[here.index(self.rank)] if chosen else None)
        return [] if None in cores else cores


class Alone(Team):
    """The one process of a run, which holds every rank; never imports MPI."""

    def __init__(self) -> None:
        super().__init__(rank=0, size=1)

    def gather(self, mine: Any) -> list[Any]:
        """Return what this process gives."""
        return [mine]

    exchange = gather

    def broadcast(self, message: Any) -> Any:
        """Return the message."""
        return message

    def abort(self) -> None:
        """End this process."""
        os._exit(BAD)

    def local(self, ranks: int) -> Sequence[int]:
        """Return all ranks."""
        return range(ranks)

    def meet(self) -> None:
        """Do nothing: there is nobody to wait for."""

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """Run the block; errors pass unchanged."""
        yield


def _sendable(error: Exception | None) -> SentError | None:
    """Return an error in a form that can be sent; any error but collbench's becomes the platform's."""
    if error is None:
        return None
    if isinstance(error, CollbenchError):
        return type(error), str(error)
    return PlatformError, f"{type(error).__name__}: {error}"


OFF_CORE = 0.02
"""Share of a sample's time from which on a rank that was off its core has spoiled the sample."""

_LIBRARY = ctypes.CDLL(None)
_SCHEDSTAT = Path("/proc/thread-self/schedstat")


class SchedulingWatch:
    """A rank's view of its scheduling while it is timed; `off_core` is of all ranks and the last region alone."""

    def __init__(self) -> None:
        self.off_core = 0.0  # largest share, over the ranks, of the last timed region
        self.switches = 0  # involuntary, of this rank since a row was begun
        self.cores: set[int] = set()  # likewise

    @property
    def spoiled(self) -> bool:
        """Whether a rank was off its core in the last region for so long that its time means nothing."""
        return self.off_core > OFF_CORE

    def look(self) -> None:
        """Note on which core this thread runs now."""
        self.cores.add(_LIBRARY.sched_getcpu())

    def take(self) -> tuple[int, tuple[int, ...]]:
        """Return this rank's switches and cores since this was last called."""
        taken = self.switches, tuple(sorted(self.cores))
        self.switches, self.cores = 0, set()
        return taken


class RunQueue:
    """How long a thread waits for a core while it does something that may also sleep: `with` it around that.

    Afterwards `seconds` is how long that lasted, and `off_core` the share of it in which the thread had no core.
    """

    def __enter__(self) -> Self:
        self._delay, self._start = run_delay(), time.perf_counter()
        self.seconds, self.off_core = 0.0, 0.0
        return self

    def __exit__(self, *exception: object) -> None:
        self.seconds = time.perf_counter() - self._start
        self.off_core = (run_delay() - self._delay) / self.seconds

    @property
    def spoiled(self) -> bool:
        """Whether the thread was off its core for so long that the time means nothing."""
        return self.off_core > OFF_CORE


def run_delay() -> float:
    """Return the seconds in which this thread could have run and had no core; 0 where the kernel counts none."""
    # The second number of schedstat (Documentation/scheduler/sched-stats.rst).  Unlike wall less CPU time, it leaves
    # out what a thread waits for by itself, in a lock or a sleep.
    try:
        return int(_SCHEDSTAT.read_text().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0
