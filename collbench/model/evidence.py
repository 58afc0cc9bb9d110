"""What stands behind the prediction of each hand-written rung: published times of kernels of the same algorithm.

A rung without any, or on another kind of GPU or link than those, is predicted from the rate of its links and from how
long waits take elsewhere.  That is a bound, and no expectation: such a row is marked, and is in no contest.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from collbench.topology.system import System
from collbench.wires import wire_nbytes


@dataclass(frozen=True)
class Published:
    """Seconds by bytes of an all-reduce on so many GPUs of one node, as somebody published them."""

    source: str
    ranks: int
    seconds: Mapping[int, float]
    arch: str = "sm90"
    fabric: str = "nvswitch"


@dataclass(frozen=True)
class Evidence:
    """Published times of a rung's algorithm, and which share of a link's rate follows from the largest of them."""

    published: tuple[Published, ...]
    reached: float = 1.0


_VLLM_6 = "github.com/vllm-project/vllm pull request 24111 (6 x H100, bfloat16)"
# Which of that request's tables has how many GPUs is told by NCCL's column: 561 us at 128 MiB, as 8 x H100 elsewhere.
_VLLM_8 = "github.com/vllm-project/vllm pull request 42324 (SM 9.0, the last of its tables: 8 GPUs)"
_NCCL_8 = "github.com/aws-samples/awsome-distributed-training (8 x H100; NCCL, which takes its ring with LL there)"
_NCCL_4 = "github.com/xxrjun/nccl-tests-cluster (4 x H100; NCCL, which takes its ring with Simple there)"
_MIB = 1 << 20
_MANY = tuple(int(size * _MIB) for size in (0.5, 1, 1.5, 2, 3, 4, 8, 16, 32, 64, 128))


def _us(sizes: tuple[int, ...], *microseconds: float) -> dict[int, float]:
    return {size: time * 1e-6 for size, time in zip(sizes, microseconds, strict=True)}


EVIDENCE: Mapping[str, Evidence] = {
    "ring-pipelined": Evidence(
        (Published(_NCCL_4, 4, _us(tuple(size * _MIB for size in (128, 512, 2048)), 614, 2309, 8966)),)
    ),
    "ring-ll": Evidence((Published(_NCCL_8, 8, _us((8, 1024, 8192, 65536), 12.9, 16.4, 16.9, 19.1)),)),
    "one-shot": Evidence(
        (
            Published(_VLLM_6, 6, _us(_MANY[:6], 13, 21, 30, 38, 53, 70)),
            Published(
                "github.com/vllm-project/vllm pull request 8558 (8 x H100)",
                8,
                _us((1024, 16384, 32768), 5.75, 6.25, 6.7),
            ),
        ),
    ),
    "one-shot-ll": Evidence(
        (
            Published(
                "NCCL's packets: 1.21 to 1.48 times as fast as vLLM's one-shot up to 16 KiB (vLLM pull request 33839), "
                "which takes 5.75 us (8558)",
                8,
                _us((1024,), 4.3),
            ),
        ),
    ),
    "two-shot": Evidence(
        (
            Published(_VLLM_6, 6, _us(_MANY[:6], 15, 17, 20, 26, 29, 37)),
            Published(_VLLM_8, 8, _us(_MANY, 15, 17, 19, 22, 29, 37, 65, 125, 242, 468, 923)),
        ),
        reached=0.69,
    ),
    "nvls": Evidence(
        (
            Published(_VLLM_6, 6, _us(_MANY[:6], 13, 16, 18, 21, 25, 31)),
            Published(_VLLM_8, 8, _us(_MANY, 11, 14, 16, 18, 23, 27, 46, 87, 165, 320, 631)),
        ),
        reached=0.65,
    ),
}
"""By rung.  PyTorch's kernels (`symm_mem_two_shot`, `symm_mem_multimem`) are those of vLLM's tables for 8 GPUs.

The shares that are reached are fitted to 16 MiB and more: 254 and 239 GB/s of the 370 that the ladder takes a link to
have.  NCCL's own kernels reach 310 of them where the switch adds (482 GB/s of bus bandwidth on 8 x H200:
github.com/stas00/ml-engineering), with many more blocks.
"""


def reached(system: System, name: str) -> float:
    """The share of its links' rate that a rung reaches there; those with a narrower wire are two-shots.

    Of PCIe nothing is known: there it is all.
    """
    known = EVIDENCE.get(name if wire_nbytes(name) is None else "two-shot")
    return known.reached if known and not system.meets_over_pcie else 1.0


def proven(system: System, name: str) -> bool:
    """Whether times of the rung's algorithm are published for such GPUs, joined in such a way."""
    known = EVIDENCE.get(name, Evidence(()))
    return any((one.arch, one.fabric) == (system.arch, system.fabric) for one in known.published)
