"""How much the programs of this folder do: all of it on a GPU, little on the machine that tests make up.

COLLBENCH_GPU_SCALE=small chooses little.  Every program runs all of its parts in both; only counts and sizes differ.
What the numbers are taken from is imported when they are asked for: the campaign itself only wants the name checked.
"""

import os
from dataclasses import dataclass, field
from functools import cache

from collbench.errors import unknown

VARIABLE = "COLLBENCH_GPU_SCALE"


def _on_gpus() -> tuple[str, ...]:
    from collbench.algorithms import implementations

    return tuple(name for name, way in implementations().items() if "gpu" in way.platforms)


def _dtypes() -> tuple[str, ...]:
    from collbench.datatypes import DATATYPES

    return tuple(DATATYPES)


def _redops() -> tuple[str, ...]:
    from collbench.datatypes import REDUCTIONS

    return tuple(REDUCTIONS)


def _spins() -> int:
    from collbench.platforms.gpu import launch

    return launch.SPINS


@dataclass(frozen=True)
class Scale:
    """Sizes in bytes, times in seconds."""

    most_ranks: int = 8
    implementations: tuple[str, ...] = field(default_factory=_on_gpus)
    swept: str = "allreduce,broadcast,allgather"
    calls: int = 200  # with changing data, of a small message
    launches: int = 20  # back to back, in a sample
    launches_in_graphs: tuple[int, ...] = (64, 256, 512, 768)  # of 1,024 in one graph nothing came back
    large: int = 20 * 2**20 + 12  # a message of several laps and no whole packs
    dtypes: tuple[str, ...] = field(default_factory=_dtypes)
    redops: tuple[str, ...] = field(default_factory=_redops)
    newcomer: tuple[str, ...] = ()  # options of a user's first sweep
    checked: tuple[str, ...] = ("--budget", "40s")
    sweep: tuple[str, ...] = ("-b", "8", "-e", "256M", "-f", "4")
    few: tuple[str, ...] = ("-b", "4K", "-e", "64M", "-f", "128")  # sizes where two runs are compared
    tools: tuple[str, ...] = ("-b", "64M", "-e", "1G", "-f", "4", "-n", "20")  # where the host's launches cost nothing
    explained: tuple[str, ...] = ("-b", "64K", "-e", "16M", "-f", "256")
    processes: tuple[str, ...] = (
        *("--op", "allreduce,broadcast,allgather,reducescatter"),
        *("-b", "4", "-e", "256K", "-f", "60", "-n", "2"),
    )
    crowded_processes: tuple[str, ...] = (  # the same of more than two, which wait for turns of milliseconds
        *("--op", "allreduce,allgather", "-b", "240", "-e", "16K", "-f", "60", "-n", "1"),
    )
    pairs: str = "pingpong,bandwidth,bidirectional,multipair"  # of OSU
    verified: tuple[str, ...] = ("-d", "all", "--redop", "all", "--op", "allreduce", "--impl", "all,narrow")
    settings: tuple[str, ...] = (  # of a sweep under two of them
        *("--impl", "ring-events,two-shot,auto", "--ab", "CUDA_DEVICE_MAX_CONNECTIONS=8"),
        *("-b", "4K", "-e", "16M", "-f", "64"),
    )
    late: tuple[str, ...] = ("--impl", "auto,two-shot,nccl")
    scaled: tuple[str, ...] = ("--impl", "auto,nccl", "--compute", "5ms", "--gradients", "64M", "--matrix", "2048")
    overlapped: tuple[str, ...] = (
        *("--impl", "auto,two-shot,ring-events,ring-host,nccl"),
        *("--compute", "5ms", "--gradients", "64M", "--buckets", "4M,16M,64M", "--matrix", "2048"),
    )
    bench: tuple[int, int] = (256 * 2**20, 4096)  # the sizes that have targets
    budget: float = 5.0  # for a size of the bench
    iters: int | None = None  # samples of the bench, instead of as many as are needed
    copied: int = 256 * 2**20  # by the first copy
    sanitized: int = 40_012
    accounted: float = 0.2  # the least share of an operation's time that its log must account for
    longest: float = 1.5  # of the traced operation's time, the most that a rank's track may take
    slowest: float = 0.1  # an operation of some hundred bytes
    spins: int = field(default_factory=_spins)  # tries of a wait that is in vain
    in_vain: tuple[float, float] = (0.5, 25.0)  # how long that may take
    agreement: float = 0.02  # relative difference of the medians of nccl-tests and `nccl`
    compilers: int = 8  # processes, at most

    def ranks(self, wanted: int) -> int:
        """So many, or as many as there may be."""
        return min(wanted, self.most_ranks)


@cache
def full() -> Scale:
    """On a GPU."""
    return Scale()


@cache
def small() -> Scale:
    """On the machine that tests make up."""
    return Scale(
        most_ranks=3,
        implementations=(
            "nccl",
            "ring-host",
            "ring-flags",
            "one-shot-ll",
            "nvls",
            "narrow-bfloat16",
        ),  # all kinds, a refusal
        swept="allreduce",
        calls=2,
        launches=2,
        launches_in_graphs=(2, 4),
        large=1244,
        dtypes=("float",),
        redops=("sum",),
        newcomer=("--impl", "nccl,ring-flags", "-b", "64", "-e", "64", "-n", "2"),
        checked=("--budget", "0.1s", "--slower", "90%", "-b", "64", "-e", "64"),
        sweep=("-b", "64", "-e", "64", "-n", "2"),
        few=("-b", "64", "-e", "64", "-n", "2"),
        tools=("-b", "64", "-e", "64", "-f", "4", "-n", "2"),
        explained=("-b", "4K", "-e", "4K", "--impl", "ring-flags"),  # a picture for every rung takes seconds
        processes=("--op", "allreduce", "-b", "64", "-e", "64", "-n", "2"),
        crowded_processes=("--op", "allreduce", "-b", "64", "-e", "64", "-n", "1"),
        pairs="pingpong",
        verified=("--op", "allreduce", "--impl", "one-shot-ll"),
        settings=("--impl", "ring-flags", "--ab", "CUDA_DEVICE_MAX_CONNECTIONS=8", "-b", "64", "-e", "64", "-n", "2"),
        late=(
            *("--impl", "ring-flags", "--steps", "20", "--compute", "50KFLOP", "-b", "4K"),
            *("--budget", "0.01"),
        ),
        scaled=(
            *("--impl", "ring-flags,nccl", "--compute", "50KFLOP", "--gradients", "4K", "--matrix", "16"),
            *("--budget", "0.01"),
        ),
        overlapped=(
            *("--impl", "ring-flags,ring-host,nccl", "--compute", "1ms", "--gradients", "4K", "--buckets", "1K"),
            *("--matrix", "16", "--budget", "0.01"),
        ),
        bench=(4096, 64),
        budget=0.0,
        iters=2,
        copied=2**16,
        sanitized=64,
        accounted=0.0,
        longest=1e3,
        slowest=10.0,
        spins=500,
        in_vain=(0.0, 25.0),
        agreement=1e3,  # times of a made-up machine are those of threads that are made for a launch
        compilers=2,
    )


SCALES = {"full": full, "small": small}


def name() -> str:
    """Of the one that the environment names; UsageError with the choices if there is none of that name."""
    wanted = os.environ.get(VARIABLE, "full")
    if wanted not in SCALES:
        raise unknown(VARIABLE, wanted, SCALES)
    return wanted


def chosen() -> Scale:
    """That one; UsageError as from `name`."""
    return SCALES[name()]()
