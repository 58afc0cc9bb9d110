"""NCCL on the GPUs of a run: communicators, its own fast paths, what it says that it ran, and its environment."""

import os

from collbench.platforms.gpu.placement import Placement

MOST_CTAS = 64  # that NCCL ever uses
LIMIT = "NCCL_MAX_CTAS"
_SPARE = 2  # multiprocessors that are left to others where ranks share a GPU: the gate's block must find a place, too
MIXING = "NCCL_GRAPH_MIXING_SUPPORT"
CAPTURED = {MIXING: "0"}
"""The environment for operations in graphs: NCCL need not order them with others of the same communicator, for which it
would put an event before and behind each operation of a graph.  Here no operation is enqueued while a graph runs.
NCCL's documentation recommends it where one thread launches the graphs of several communicators.  The same in the
configuration of a communicator (graphUsageMode, NCCL 2.29) is not to be had through CuPy."""

SLICED = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
"""The environment for ranks on slices of one GPU, should NCCL take them for ranks that share it: only a permission."""


def sharing(multiprocessors: int, ranks: int) -> dict[str, str]:
    """Return the environment that NCCL needs where so many ranks share a GPU."""
    # A power of two of CTAs for each rank, so that the kernels of all ranks find room at once.
    fair = 1 << (max(1, (multiprocessors - _SPARE) // ranks).bit_length() - 1)

    # On Hopper and newer NCCL launches clusters of CTAs, each of which must find its multiprocessors within one GPC: on
    # a part of a GPU not all of them may, and the ranks that run wait for ever for the ones that do not.
    return {
        **SLICED,
        LIMIT: str(min(MOST_CTAS, fair)),
        "NCCL_CGA_CLUSTER_SIZE": "0",
        "NCCL_NVLS_ENABLE": "0",
    }


def environment(places: Placement, graph: bool) -> dict[str, str]:
    """Return the variables that NCCL needs for ranks placed so, and for operations in graphs."""
    settings = CAPTURED if graph else {}
    if places.shared:
        return settings | sharing(places.multiprocessors, places.most_sharing)
    return settings | SLICED if places.sliced else settings


def apply(settings: dict[str, str]) -> None:
    """Set what the user has not."""
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def in_words(version: int) -> str:
    """Return the words for NCCL's number of a version, such as `2.30.7` for 23007."""
    # NCCL_VERSION in nccl.h has room for one digit of the minor version up to 2.8 (2804), and for two since.
    major = 1000 if version < 10000 else 10000
    return f"{version // major}.{version % major // 100}.{version % 100}"
