"""Published times of all-reduces by kernels of the hand-written algorithms, on one Hopper node behind NVSwitches.

PyTorch's kernels (`symm_mem_two_shot`, `symm_mem_multimem`) are those of vLLM's tables for 8 GPUs.  Its tables are of
CUDA graphs, and call PyTorch's kernels between two copies of the array (symm_mem.py), which the times include.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Sweep:
    """Seconds by bytes of an all-reduce on so many GPUs, as somebody published them."""

    source: str
    ranks: int
    seconds: Mapping[int, float]
    copies: int = 0  # of the whole array, within the published time


_VLLM_6 = "github.com/vllm-project/vllm pull request 24111 (6 x H100, bfloat16)"
# Which of that request's tables has how many GPUs follows from NCCL's column: 561 us at 128 MiB, as 8 x H100 elsewhere.
_VLLM_8 = "github.com/vllm-project/vllm pull request 42324 (SM 9.0, the last of its tables: 8 GPUs)"
_NCCL_8 = "github.com/aws-samples/awsome-distributed-training (8 x H100; NCCL, which takes its ring with LL there)"
_NCCL_4 = "github.com/xxrjun/nccl-tests-cluster (4 x H100; NCCL, which takes its ring with Simple there)"
_MIB = 1 << 20
_MANY = tuple(int(size * _MIB) for size in (0.5, 1, 1.5, 2, 3, 4, 8, 16, 32, 64, 128))


def _us(sizes: tuple[int, ...], *microseconds: float) -> dict[int, float]:
    return {size: time * 1e-6 for size, time in zip(sizes, microseconds, strict=True)}


SWEEPS: Mapping[str, tuple[Sweep, ...]] = {
    "ring-pipelined": (Sweep(_NCCL_4, 4, _us((128 * _MIB, 512 * _MIB, 2048 * _MIB), 614, 2309, 8966)),),
    "ring-ll": (Sweep(_NCCL_8, 8, _us((8, 1024, 8192, 65536), 12.9, 16.4, 16.9, 19.1)),),
    "one-shot": (
        Sweep(_VLLM_6, 6, _us(_MANY[:6], 13, 21, 30, 38, 53, 70)),
        Sweep(
            "github.com/vllm-project/vllm pull request 8558 (8 x H100)", 8, _us((1024, 16384, 32768), 5.75, 6.25, 6.7)
        ),
    ),
    "one-shot-ll": (
        Sweep(
            "NCCL's packets: 1.21 to 1.48 times as fast as vLLM's one-shot up to 16 KiB (vLLM pull request 33839), "
            "which takes 4.6 us in releases of that time (tools/model/one_node_nvidia.json)",
            8,
            _us((1024,), 3.4),
        ),
    ),
    "two-shot": (
        Sweep(_VLLM_6, 6, _us(_MANY[:6], 15, 17, 20, 26, 29, 37), copies=2),
        Sweep(_VLLM_8, 8, _us(_MANY, 15, 17, 19, 22, 29, 37, 65, 125, 242, 468, 923), copies=2),
    ),
    "nvls": (
        Sweep(_VLLM_6, 6, _us(_MANY[:6], 13, 16, 18, 21, 25, 31), copies=2),
        Sweep(_VLLM_8, 8, _us(_MANY, 11, 14, 16, 18, 23, 27, 46, 87, 165, 320, 631), copies=2),
    ),
}
"""By implementation."""
