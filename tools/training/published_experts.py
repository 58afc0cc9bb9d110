"""Published runs of models with large and with small experts, from 64 to 1,024 H100.  Numbers only."""

from dataclasses import replace

from collbench.commands.train.layouts import Choices
from collbench.commands.train.models import MODELS, Model
from tools.training.tables import Row, Table

_8X22B = MODELS["mixtral-8x22b"]
_MODELS = {
    "8x22b": _8X22B,
    "8x22b-g8t8": replace(_8X22B, name="mixtral-8x22b-g8t8", ffn=2048, experts=64, top_k=8),
    "8x70b": replace(MODELS["llama3-70b"], name="llama3-8x70b", sequence=4096, experts=8, top_k=2),
    "qwen2-57b": Model(
        "qwen2-57b", 28, 3584, 28, 4, 2560, 4096, 151936, gated=True, experts=64, top_k=8, shared=8,
    ),
}  # fmt: skip


def _stages(tensor: int, expert: int, pipeline: int) -> Choices:
    return {
        "tensor": tensor, "expert": expert, "pipeline": pipeline, "context": 1, "micro": 1, "sharding": "zero1",
        "sequential": True, "offload": False,
    }  # fmt: skip


_MCORE = {
    "8x22b": _stages(2, 4, 8),
    "8x22b-g8t8": _stages(2, 8, 8),
    "8x70b": _stages(8, 4, 8),
    "qwen2-57b": _stages(2, 4, 4),
}
FOLDING = Table(
    "Experts by size on H100",
    "Liu et al. 2025, arXiv:2504.14960, tables 3 and 4: Megatron-Core without folding, no token over capacity",
    "dgx-h100",
    "modern",
    "MFU",
    tuple(
        Row(f"{name} on {gpus}, {batch}", _MODELS[name], gpus, batch, _MCORE[name], value / 100, sequence=4096)
        for name, gpus, batch, value in (
            ("8x22b", 128, 256, 46.3),
            ("8x22b", 128, 1024, 49.4),
            ("8x22b", 256, 1024, 48.0),
            ("8x22b", 512, 1024, 45.5),
            ("8x22b", 1024, 1024, 42.3),
            ("8x22b-g8t8", 128, 256, 17.1),
            ("8x22b-g8t8", 128, 1024, 19.8),
            ("8x22b-g8t8", 256, 1024, 18.4),
            ("8x22b-g8t8", 512, 1024, 16.3),
            ("8x22b-g8t8", 1024, 1024, 13.4),
            ("8x70b", 256, 256, 38.8),
            ("8x70b", 256, 1024, 40.1),
            ("8x70b", 512, 1024, 39.5),
            ("8x70b", 1024, 1024, 39.1),
            ("qwen2-57b", 64, 256, 35.3),
            ("qwen2-57b", 64, 1024, 36.2),
            ("qwen2-57b", 128, 1024, 36.0),
            ("qwen2-57b", 256, 1024, 34.8),
            ("qwen2-57b", 512, 1024, 32.5),
            ("qwen2-57b", 1024, 1024, 29.8),
        )
    ),
)


def _flat(tensor: int, expert: int, sharding: str) -> Choices:
    return {**_stages(tensor, expert, 1), "sharding": sharding, "sequential": tensor > 1}


FLAT = Table(
    "Experts on H100, no stages",
    "Liu et al. 2025, arXiv:2504.14960, table 3",
    "dgx-h100",
    "modern",
    "MFU",
    tuple(
        Row(f"{name} on {gpus}, {fixed['sharding']}", _MODELS[name], gpus, 256, fixed, value / 100, sequence=4096)
        for name, gpus, fixed, value in (
            ("8x22b", 128, _flat(2, 8, "zero3"), 23.4),
            ("8x22b", 128, _flat(4, 8, "zero1"), 36.6),
            ("8x22b-g8t8", 128, _flat(4, 8, "zero3"), 9.0),
            ("8x22b-g8t8", 128, _flat(8, 8, "zero1"), 8.7),
            ("8x70b", 256, _flat(8, 8, "zero3"), 19.6),
            ("qwen2-57b", 64, _flat(1, 8, "zero3"), 25.4),
            ("qwen2-57b", 64, _flat(4, 4, "zero1"), 23.1),
        )
    ),
)
MIXTRAL = Table(
    "Mixtral 8x7B on H100",
    "Megatron-LM 0b4c4cfced, megatron/core/transformer/moe/README.md: 438 TFLOP/s, and its mapping",
    "dgx-h100",
    "modern",
    "TFLOP/s",
    (
        Row(
            "64", MODELS["mixtral-8x7b"], 64, 256, {**_stages(1, 8, 4), "chunks": 8, "sequential": False}, 438,
            sequence=4096,
        ),
    ),
)  # fmt: skip
MIXTRAL_B200 = Table(
    "Mixtral 8x7B on B200, 8 bits",
    "NeMo user guide, performance summary, container 25.02",
    "dgx-b200",
    "modern",
    "tokens/s/GPU",
    (
        Row(
            "64", MODELS["mixtral-8x7b"], 64, 256, {**_stages(1, 8, 1), "micro": 2, "sequential": False}, 15457,
            sequence=4096, precision="fp8",
        ),
    ),
    gradients="bf16",
)  # fmt: skip
MIXTRAL_GB200 = replace(
    MIXTRAL_B200, name="Mixtral 8x7B on GB200, 8 bits", source="NeMo user guide, performance summary, container 25.04",
    system="gb200-nvl72", rows=(MIXTRAL_B200.rows[0]._replace(value=19275),),
)  # fmt: skip
BY_SIZE = (FOLDING, FLAT, MIXTRAL, MIXTRAL_B200, MIXTRAL_GB200)
