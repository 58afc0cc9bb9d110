"""One cell of NCCL's cost table: an algorithm with a protocol, its latency and its rate."""

from dataclasses import dataclass
from math import inf
from typing import overload

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Option:
    """One algorithm with one protocol: a cell of NCCL's table.  Seconds, bytes, bytes per second."""

    algorithm: str
    protocol: str
    channels: int  # in the table; NCCL runs twice as many rings and trees
    base: float  # latency before the first step
    intra: float  # latency of all steps within nodes, one after the other
    inter: float  # and of all between nodes
    rate: float  # of the array
    busbw: float  # of the links, as NCCL counts them
    bound: float  # of the links whatever the speeds of channels: NCCL may find far less where its ladder fits badly
    hops: int  # steps between nodes, one after the other; of a pipelined broadcast too, where NCCL counts one
    overhead: float = 0.0  # of intra: what NCCL adds to steps in a node where there are others, and machines do not
    placeholder: bool = False  # whether NCCL found no channels, so that its rates mean nothing; `bound` does
    correction: tuple[float, ...] = ()  # of the rate, by floor(log2(bytes / 64)); outside of them 1
    plateau: float = 1.0  # times the latency,
    plateau_from: float = inf  # from so many bytes on
    running: int = 1  # channels that run at most
    fed: float = 0.0  # bytes that there are of the array for every channel beyond the first

    @property
    def inside(self) -> float:
        """Seconds that the steps within nodes take, whatever NCCL counts for them to rank its options."""
        return self.intra - self.overhead

    @overload
    def seconds(self, nbytes: float) -> float: ...
    @overload
    def seconds(self, nbytes: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def seconds(self, nbytes: float | NDArray[np.float64]) -> float | NDArray[np.float64]:
        """NCCL's estimate for arrays of so many bytes.

        It may fall where a size passes a power of two and the correction jumps; doubling a size never lowers it.
        """
        sizes = np.asarray(nbytes, dtype=np.float64)
        latency = np.where(sizes >= self.plateau_from, self.plateau, 1.0) * (self.base + self.intra + self.inter)
        seconds = latency + sizes / (self.rate * self._corrected(sizes))
        return seconds if seconds.ndim else float(seconds)

    def channels_at(self, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """How many channels run: fewer for arrays of few bytes (`topoGetAlgoInfo` of src/enqueue.cc)."""
        return np.clip(sizes // self.fed, 1, self.running) if self.fed else np.full_like(sizes, self.running)

    def _corrected(self, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        if not self.correction:
            return np.ones_like(sizes)
        place = np.frexp(np.floor(sizes / 64))[1] - 1  # floor(log2), exactly
        known = (place >= 0) & (place < len(self.correction))
        return np.where(known, np.asarray(self.correction)[np.clip(place, 0, len(self.correction) - 1)], 1.0)
