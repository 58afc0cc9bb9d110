"""Ranks on GPUs for the checks, with an open platform, and the scale of the checks."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from collbench.algorithms import implementations, needs
from collbench.cases import Sampling, Sweep
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, REDUCTIONS
from collbench.errors import PlatformError, Unsupported
from collbench.platforms.gpu import cuda as gpu_cuda
from collbench.platforms.gpu import launch, nccl
from collbench.platforms.gpu import platform as gpu
from collbench.platforms.layout import MemoryLayout
from collbench.platforms.processes import Alone


@dataclass(frozen=True)
class Scale:
    """Counts, sizes in bytes, and times in seconds of the programs of this folder."""

    most_ranks: int = 8
    implementations: tuple[str, ...] = tuple(name for name, way in implementations().items() if "gpu" in way.platforms)
    calls: int = 200  # with changing data, of a small message
    launches: int = 20  # back to back, in a sample
    large: int = 20 * 2**20 + 12  # a message of several laps without whole packs
    dtypes: tuple[str, ...] = tuple(DATATYPES)
    redops: tuple[str, ...] = tuple(REDUCTIONS)
    bench: tuple[int, int] = (256 * 2**20, 4096)  # the sizes that have targets
    budget: float = 5.0  # seconds for one of these
    iters: int | None = None  # samples of it; None: as many as are needed
    sanitized: int = 40_012
    accounted: float = 0.2  # the least share of an operation's time that its log accounts for
    longest: float = 1.5  # the largest share of the traced operation's time in a rank's track
    slowest: float = 0.1  # an operation of some hundred bytes
    spins: int = launch.SPINS  # tries of a wait in vain
    in_vain: tuple[float, float] = (0.5, 25.0)  # seconds that such a wait may take
    compilers: int = 8  # processes, at most


SMALL_SCALE = Scale(
    most_ranks=3,
    implementations=("nccl", "ring-host", "ring-flags", "one-shot-ll", "nvls", "narrow-bfloat16"),  # one of every kind
    calls=2,
    launches=2,
    large=1244,
    dtypes=("float",),
    redops=("sum",),
    bench=(4096, 64),
    budget=0.0,
    iters=2,
    sanitized=64,
    accounted=0.0,
    longest=1e3,
    slowest=10.0,
    spins=500,
    in_vain=(0.0, 25.0),
    compilers=2,
)
"""The scale for the simulated machine of tests: all parts run."""
SCALE = SMALL_SCALE if os.environ.get("COLLBENCH_GPU_SCALE") == "small" else Scale()
SPARE = 8  # bytes of the largest element: sizes are rounded to whole ones


class Gpus(gpu_cuda.Cuda):
    """CUDA with a limited number of its GPUs."""

    most = 2**10

    def count(self) -> int:
        return min(self.most, super().count())


@dataclass(frozen=True)
class Place:
    """Ranks on the first `gpus` GPUs, or one rank on every GPU."""

    gpus: int | None
    ranks: int
    graph: bool = True

    def __str__(self) -> str:
        where = f"{self.ranks} ranks on {self.gpus} GPU" if self.gpus else "a rank on every GPU"
        return f"{where}, {'graphs' if self.graph else 'launches'}"


ON_GPU = [implementations()[name] for name in SCALE.implementations]


@contextmanager
def opened(place: Place, largest: int = SCALE.large, run: bool = True) -> Iterator[gpu.GpuPlatform]:
    """Yield the platform of a place; PlatformError without a GPU, Unsupported without enough GPUs.

    With `run` false, kernels are only compiled, so FIFO and log have no memory.
    """
    cuda = Gpus(gpu_cuda.load_cupy())
    cuda.most = place.gpus or cuda.most
    ranks = place.ranks or cuda.count()
    if place.gpus is None and ranks < 2:
        raise Unsupported("there is one GPU only")
    share_nccl(cuda, ranks)
    sweep = Sweep(
        collectives=tuple(COLLECTIVES.values()),
        sizes=(largest + SPARE * ranks,),
        dtypes=(DATATYPES["double"],),
        redops=(REDUCTIONS["sum"],),
        ranks=ranks,
        implementations=tuple(way.name for way in ON_GPU),
        sampling=Sampling(graph=place.graph, traced=run),
    )
    platform = gpu.GpuPlatform(cuda, sweep, laid_out(sweep, run), Alone())
    try:
        yield platform
    finally:
        platform.close()


def laid_out(sweep: Sweep, run: bool) -> MemoryLayout:
    """Return the regions of a rank's memory; without FIFOs if nothing is run."""
    needed = needs(sweep.implementations, sweep.ranks, "gpu")
    return MemoryLayout.of(sweep, needed if run else replace(needed, fifos=dict.fromkeys(needed.fifos, 0)))


_shared: list[dict[str, str]] = []  # NCCL's settings in this process


def share_nccl(cuda: gpu_cuda.Cuda, ranks: int) -> None:
    """Set the number of ranks that share a GPU; PlatformError if this process had another setting before.

    NCCL reads its environment once a process, so places with different settings need different processes.
    """
    crowd = -(-ranks // cuda.count())
    least = min(cuda.multiprocessors(device) for device in range(cuda.count()))
    settings = nccl.sharing(least, crowd) if crowd > 1 else {}
    if _shared and settings not in _shared:
        raise PlatformError(
            "NCCL reads its environment once: run places with other numbers of ranks by other processes"
        )
    _shared.append(settings)
    nccl.apply(settings)


def nccl_settings(platform: gpu.GpuPlatform) -> str:
    """Return NCCL's settings for shared GPUs in one line, because they limit its speed."""
    told = [f"{name}={os.environ[name]}" for settings in _shared[-1:] for name in settings]
    places = platform._places
    where = f"{places.most_sharing} ranks on {places.multiprocessors} multiprocessors"
    return f"NCCL, {where}: {', '.join(told) or 'its own defaults'}"
