"""The memory of other processes' ranks, through CUDA IPC: exported, opened, proved, closed.

A process tells where its rank's memory is by a handle of the driver's allocation and the offset in it.  What is opened
is closed by everyone before the owner frees it.  Nothing is trusted before what each process stores there has arrived
and what it loads is right, in both directions of every pair, two ranks of one GPU included.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain

from collbench.errors import PlatformError, Unsupported
from collbench.platforms import checking
from collbench.platforms.gpu import driver
from collbench.platforms.gpu.cuda import Cuda, Memory
from collbench.platforms.gpu.peers import NBYTES, Hand, pattern_kernels
from collbench.platforms.gpu.placement import Placement
from collbench.platforms.processes import Team

Exported = tuple[bytes, int] | str
"""Handle of the allocation and offset in it, or why there is none."""


class Reach:
    """Where the memory of every rank starts, as this process may load and store it; only its own if there are nodes.

    Making and closing one is *collective*, and `refusal`, why other ranks' memory is out of reach, the same everywhere.
    """

    def __init__(self, cuda: Cuda, team: Team, places: Placement, bases: Sequence[int]) -> None:
        self._cuda, self._team, self._places = cuda, team, places
        self.base = dict(zip(places.local, bases, strict=True))
        self.refusal = ""
        self._opened: list[int] = []
        if len(self.base) < len(places.places):
            self._reach_out()

    def at(self, rank: int) -> int:
        """The start of a rank's memory; Unsupported, with the reason, if it is out of reach."""
        if rank not in self.base:
            raise Unsupported(self.refusal)
        return self.base[rank]

    def refuse(self, reason: str) -> None:
        """Give up the others' memory; on every process with the same reason."""
        self._release()
        self.refusal = reason

    def close(self) -> None:
        """Let go of the others' memory; afterwards nobody holds this process's, which may be freed."""
        self._release()
        self._team.meet()

    def _reach_out(self) -> None:
        if self._places.nodes > 1:
            self.refuse(f"the ranks are on {self._places.nodes} nodes, and a kernel reaches its own node's memory only")
            return
        (rank,) = self.base
        exported: list[Exported] = self._team.exchange(self._export(self.base[rank]))
        failures = [
            f"rank {owner} cannot share its memory: {reason}"
            for owner, reason in enumerate(exported)
            if isinstance(reason, str)
        ]
        failed = self._team.exchange("" if failures else self._open(rank, exported))
        if reason := next(filter(None, (*failures, *failed)), ""):
            self.refuse(reason)

    def _export(self, address: int) -> Exported:
        failures: tuple[type[Exception], ...] = (PlatformError, *self._cuda.errors)
        try:
            start, _ = driver.load().allocation(address)
            return self._cuda.runtime.ipcGetMemHandle(start), address - start
        except failures as error:
            return str(error)

    def _open(self, rank: int, exported: list[Exported]) -> str:
        """Open every other rank's memory on this rank's device; why not, or nothing."""
        self._cuda.runtime.setDevice(self._places.device[rank])
        for owner, memory in enumerate(exported):
            if owner == rank or isinstance(memory, str):
                continue
            handle, offset = memory
            try:
                self._opened.append(self._cuda.runtime.ipcOpenMemHandle(handle))
            except self._cuda.errors as error:
                return f"rank {rank} cannot open the memory of rank {owner}: {error}"
            self.base[owner] = self._opened[-1] + offset
        return ""

    def _release(self) -> None:
        while self._opened:
            with suppress(*self._cuda.errors):  # after a failure CUDA refuses even that
                self._cuda.runtime.ipcCloseMemHandle(self._opened.pop())
        self.base = {rank: at for rank, at in self.base.items() if rank in self._places.local}


def reach(cuda: Cuda, team: Team, places: Placement, bases: Sequence[int]) -> Reach:
    """*Collective*: every rank's memory, of which this process holds that at `bases`.

    Others' only once a trial on a small piece has shown that it can be trusted.
    """
    reached = Reach(cuda, team, places, bases)
    if len(reached.base) > len(places.local) and (reason := _tried(cuda, team, places)):
        reached.refuse(reason)
    return reached


def _tried(cuda: Cuda, team: Team, places: Placement) -> str:
    """What is wrong with the memory of other processes, or nothing."""
    memory = Memory(cuda, places.devices, 2 * NBYTES + checking.VERDICT.itemsize)
    reached = Reach(cuda, team, places, memory.base)
    reason = reached.refusal
    if not reason:
        (functions,) = pattern_kernels(cuda, places.devices)
        hand = Hand(cuda, places.devices[0], memory.base[0] + 2 * NBYTES, functions)
        reason = _Trial(cuda, team, reached, hand).failure()
    reached.close()
    memory.free()
    return reason


class _Trial:
    """Every rank does the same to the one so many places to its right, all at one time.

    Each has two boxes: it writes into `outbox` itself, and others into `inbox`.
    """

    def __init__(self, cuda: Cuda, team: Team, reached: Reach, hand: Hand) -> None:
        self._errors, self._team, self._reach, self._hand = cuda.errors, team, reached, hand
        self._mine, self._ranks = team.rank, len(reached.base)
        self._round = 0
        self._wrong: list[tuple[int, int, str]] = []  # who, whose memory, what

    def failure(self) -> str:
        """The first of all that went wrong, or nothing."""
        for distance in range(1, self._ranks):
            right, left = (self._mine + distance) % self._ranks, (self._mine - distance) % self._ranks
            for way in (self._store, self._load, self._copy):
                way(right, left)
                self._team.meet()  # before the boxes are used again
                self._round += 1
        failures = sorted(chain.from_iterable(self._team.exchange(self._wrong)))
        return next((f"rank {who} cannot use the memory of rank {whose}: {what}" for who, whose, what in failures), "")

    def _store(self, right: int, left: int) -> None:
        self._try(right, lambda: self._hand.write(self._inbox(right), self._seed(self._mine)))
        self._team.meet()
        self._look(left, self._mine, "a kernel's stores", self._inbox(self._mine), self._seed(left))

    def _load(self, right: int, left: int) -> None:
        self._try(right, lambda: self._hand.write(self._outbox(self._mine), self._seed(self._mine)))
        self._team.meet()
        self._look(self._mine, right, "a kernel's loads", self._outbox(right), self._seed(right))

    def _copy(self, right: int, left: int) -> None:
        self._try(right, lambda: self._hand.write(self._outbox(self._mine), self._seed(self._mine)))
        self._try(right, lambda: self._hand.copy(self._inbox(right), self._outbox(self._mine)))
        self._team.meet()
        self._look(left, self._mine, "a copy", self._inbox(self._mine), self._seed(left))

    def _try(self, right: int, act: Callable[[], None]) -> None:
        try:
            act()
        except self._errors as error:
            self._wrong.append((self._mine, right, str(error)))

    def _look(self, who: int, whose: int, what: str, place: int, seed: int) -> None:
        """`what` is what `who` did to the memory of `whose`; one of the two is this rank."""
        try:
            if not self._hand.holds(place, seed):
                self._wrong.append((who, whose, f"{what} gave wrong data"))
        except self._errors as error:
            self._wrong.append((who, whose, str(error)))

    def _inbox(self, rank: int) -> int:
        return self._reach.at(rank)

    def _outbox(self, rank: int) -> int:
        return self._reach.at(rank) + NBYTES

    def _seed(self, writer: int) -> int:
        """A pattern that nobody has written before."""
        return 1 + self._round * self._ranks + writer
