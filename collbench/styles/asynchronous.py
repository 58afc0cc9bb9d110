"""`asynchronous`: weights that every rank reads and changes when ready, unless it is too far ahead of the slowest.

Stale synchronous parallel (Ho et al., NIPS 2013) on a parameter server (Li et al., OSDI 2014): the weights lie in the
memory of rank 0, which all ranks of a machine load and store under one lock.  A rank that is to begin its step c waits
until all others have made their step c - 1 - s, and one that is to hand its step c in until all others have begun their
step c - s; so with s = 0 all compute on the same weights, and the sum is that of synchronous training.  The slowest
rank never waits: there is always one that goes on.  Who waits sleeps (platforms/cpu/window.py).
"""

from collections.abc import Callable

import numpy as np

from collbench.cases import Job
from collbench.errors import CaseFailed
from collbench.learning.seat import Memory, Seat
from collbench.learning.trail import Kept, Part, Stepped, Weights, rate_of
from collbench.platforms.cpu import window
from collbench.platforms.layout import LINE, MAX_RANKS, WINDOW_HEAD, Region, view
from collbench.styles import Style, Training

NAME = "asynchronous"
_COUNTS = LINE + 2 * MAX_RANKS * 8  # bytes: the total, then what each rank has begun and made
_AHEAD = window.NBYTES + _COUNTS  # of the weights


class _Server:
    """The shared weights, and how far every rank is."""

    def __init__(self, seat: Seat) -> None:
        self._seat, self.last = seat, 0  # batches after which nobody begins or changes anything
        behind_flags = WINDOW_HEAD + seat.platform.layout.fifos[NAME]
        start = -(-(seat.platform.memory.address(Region.WINDOW, 0) + behind_flags) // LINE) * LINE
        self._monitor = window.Monitor(start)
        counts = view(start + window.NBYTES, _COUNTS).view(np.int64)
        self._total = counts[:1]
        self._begun, self._made = counts[LINE // 8 :].reshape(2, MAX_RANKS)[:, : seat.ranks]
        self._weights = view(start + _AHEAD, seat.job.nbytes).view(np.float32)

    def open(self) -> None:
        """*Collective*: the first weights, and nobody has begun."""
        self._seat.platform.team.meet()
        if self._seat.rank == 0:
            self._monitor.prepare()
            self._total[:], self._begun[:], self._made[:] = 0, 0, 0
            self._weights[:] = self._seat.first()
        self._seat.platform.team.meet()

    def read(self, step: int, weights: Weights) -> int | None:
        """The weights for a step of this rank, and how many batches went into them; None if enough have."""
        with self._monitor.held():
            self._until(lambda: bool(self._made.min() >= step - self._seat.job.staleness))
            if self._over():
                return None
            weights[:] = self._weights
            self._begun[self._seat.rank] = step + 1
            self._monitor.wake()
            return int(self._total[0])

    def change(self, step: int, change: Weights, memory: Memory) -> int | None:
        """Subtract, and keep what that leaves; how many batches went in with this one, None if it comes too late."""
        with self._monitor.held():
            self._until(lambda: bool(self._begun.min() > step - self._seat.job.staleness))
            if self._over():
                return None
            np.subtract(self._weights, change, out=self._weights)
            memory.keep(self._weights)
            self._total += 1
            self._made[self._seat.rank] = step + 1
            self._monitor.wake()
            return int(self._total[0])

    def _over(self) -> bool:
        return bool(self._total[0] >= self.last)

    def _until(self, met: Callable[[], bool]) -> None:
        patience = self._seat.patience
        if not self._monitor.until(lambda: self._over() or met(), patience):
            raise CaseFailed(f"rank {self._seat.rank} waited {patience:g} s in vain for the slowest rank")


def _prepare(seat: Seat) -> Training:
    server = _Server(seat)
    memory = seat.memory(seat.job.steps * seat.ranks)
    weights, change = seat.first(), seat.first()
    rate = rate_of(seat.job, seat.ranks)
    made: list[tuple[int, int]] = []  # batches in the weights that were read, and in those that were left
    server.open()

    def go(until: int) -> None:
        server.last = until * seat.ranks
        while (read := server.read(len(made), weights)) is not None:
            seat.learn(weights, len(made), change)
            np.multiply(change, rate, out=change)
            if (after := server.change(len(made), change, memory)) is None:
                seat.discard()  # and made again when training goes on
                break
            made.append((read, after))

    return Training(go, lambda: [_kept(seat, step, *made[step], memory) for step in range(len(made))])


def _kept(seat: Seat, step: int, read: int, after: int, memory: Memory) -> Kept:
    moment, weights = memory[step]
    return Kept(after, moment, weights, Stepped(after - 1, (Part(seat.rank, step, read),), seat.ranks))


def _fifo(job: Job) -> int:
    """With room to start at a line."""
    return LINE + _AHEAD + -(-job.nbytes // LINE) * LINE


STYLE = Style(
    name=NAME,
    summary="everyone changes rank 0's weights when ready, at most S steps ahead of the slowest (--staleness)",
    prepare=_prepare,
    fifo=_fifo,
    behind=lambda job: job.staleness,
    order=5,
)
