"""NVIDIA's tables of runs on Hopper and Blackwell: products on 8 bits, long samples, experts.  Numbers only.

Their recipes send gradients of 16 bits; what they recompute and keep on the CPU no table says.
"""

from collbench.commands.train.layouts import Choices
from collbench.commands.train.models import MODELS, Model
from tools.training.tables import Row, Table

_SIZES = ("tensor", "pipeline", "context", "chunks", "expert")


def _fixed(micro: int, sharding: str, *sizes: int) -> Choices:
    return {"micro": micro, "sharding": sharding} | dict(zip(_SIZES, sizes, strict=False))


def _nemotron(name: str, layers: int, hidden: int, heads: int, kv_heads: int = 0) -> Model:
    """Two matrices around a squared ReLU, and an output matrix of its own."""
    return Model(name, layers, hidden, heads, kv_heads, sequence=4096, vocabulary=256000, tied=False)


_MODELS = MODELS | {
    model.name: model
    for model in (
        # NeMo's configurations; their FLOPs a token are what the table's two columns come to.
        Model("gpt3-5b", 24, 4096, 32),
        Model("gpt3-20b", 44, 6144, 48),
        _nemotron("nemotron-8b", 32, 4096, 32),
        _nemotron("nemotron-22b", 40, 6144, 48),
        _nemotron("nemotron-340b", 96, 18432, 96, 8),
        # Their published configurations; every other layer of gpt-oss looks back 128 tokens only, which costs less.
        Model(
            "gpt-oss-120b", 36, 2880, 64, 8, 2880, 4096, 201088,
            gated=True, experts=128, top_k=4, head=64,
        ),
        Model(
            "qwen3-30b", 48, 2048, 32, 4, 768, 4096, 151936,
            gated=True, experts=128, top_k=8, head=128,
        ),
    )
}  # fmt: skip
_SUMMARY = "docs/source/performance/performance_summary.md: containers of July 2024"
NEMO_FP8 = Table(
    "NeMo on H100, 8 bits",
    f"NVIDIA/NeMo 070a0bb168, {_SUMMARY}",
    "dgx-h100",
    "modern",
    "tokens/s/GPU",
    tuple(
        Row(f"{name} on {gpus}", _MODELS[name], gpus, batch, _fixed(micro, "zero1", *sizes), value, precision="fp8")
        for name, gpus, batch, micro, sizes, value in (
            ("gpt3-5b", 64, 2048, 4, (1, 1, 1, 1), 22521),
            ("gpt3-20b", 64, 256, 2, (2, 1, 1, 1), 5851),
            ("gpt3-175b", 128, 256, 1, (4, 8, 1, 6), 726),
            ("gpt3-175b", 512, 2048, 2, (4, 8, 1, 6), 782),
            ("llama2-7b", 8, 128, 1, (1, 1, 1, 1), 16847),
            ("llama2-13b", 16, 128, 1, (1, 4, 1, 10), 8646),
            ("llama2-70b", 64, 128, 1, (4, 4, 1, 20), 1707),
            ("nemotron-8b", 64, 256, 4, (2, 1, 1, 1), 12701),
            ("nemotron-22b", 64, 256, 2, (2, 4, 1, 10), 4256),
            ("nemotron-340b", 128, 32, 1, (8, 8, 1, 12), 322),
            ("llama3-8b", 8, 128, 1, (1, 1, 2, 1), 12036),
            ("llama3-70b", 64, 128, 1, (4, 4, 2, 5), 1533),
        )
    ),
    gradients="bf16",
)
LONG = Table(
    "Samples of 4 Ki to 1 Mi tokens on H100, 8 bits",
    "NVIDIA/NeMo 0aa267117a, docs/source/performance/performance_long_sequence.md: Llama 2 7B, March 2024",
    "dgx-h100",
    "modern",
    "tokens/s/GPU",
    tuple(
        Row(
            f"{size} Ki on {size}", MODELS["llama2-7b"], size, 4096 // size, _fixed(1, "zero1", *sizes), value,
            sequence=size * 1024, precision="fp8",
        )
        for size, sizes, value in (
            (4, (1, 1, 1), 16671),
            (8, (1, 2, 1), 13907),
            (16, (2, 1, 1), 10082),
            (32, (2, 1, 2), 6687),
            (64, (4, 1, 2), 4021),
            (128, (4, 1, 4), 2260),
            (256, (4, 1, 8), 1214),
            (512, (8, 1, 16), 635),
            (1024, (8, 1, 32), 318),
        )
    ),
    gradients="bf16",
)  # fmt: skip
_Run = tuple[str, str, int, int, int, str, tuple[int, ...], float]


def _bridge(name: str, system: str, *runs: _Run) -> Table:
    """Megatron-Bridge's page: the newest container that has a run, with experts loaded evenly and no token dropped."""
    rows = tuple(
        Row(
            f"{model} on {gpus}{'' if precision == 'fp8' else ', 16 bits'}", _MODELS[model], gpus, batch,
            _fixed(micro, sharding, *sizes), value, precision=precision,
        )
        for model, precision, gpus, batch, micro, sharding, sizes, value in runs
    )  # fmt: skip
    source = "NVIDIA-NeMo/Megatron-Bridge df0289c180, docs/performance-summary.md: containers 25.11 to 26.02.01"
    return Table(name, source, system, "modern", "tokens/s/GPU", rows, gradients="bf16")


H100_FP8 = _bridge(
    "Llama 3 on H100, 8 bits",
    "dgx-h100",
    ("llama3-8b", "fp8", 8, 128, 1, "zero3", (1, 1, 1, 1), 14451),
    ("llama3-70b", "fp8", 64, 256, 1, "zero1", (4, 8, 1, 5), 1639),
    ("llama3-405b", "fp8", 1024, 1536, 1, "zero1", (8, 8, 2, 8), 311),
)
B200_FP8 = _bridge(
    "Llama 3 on B200, 8 bits",
    "dgx-b200",
    ("llama3-8b", "fp8", 8, 128, 2, "zero1", (1, 1, 1, 1), 30624),
    ("llama3-405b", "fp8", 128, 64, 1, "zero1", (4, 8, 2, 8), 661),
)
GB200_FP8 = _bridge(
    "Llama 3 on GB200, 8 bits",
    "gb200-nvl72",
    ("llama3-8b", "fp8", 8, 128, 2, "zero1", (1, 1, 1, 1), 31508),
    ("llama3-70b", "fp8", 64, 256, 2, "zero3", (1, 1, 1, 1), 4357),
    ("llama3-405b", "fp8", 256, 1536, 1, "zero1", (4, 16, 1, 4), 818),
)
H100_MOE = _bridge(
    "Experts on H100",
    "dgx-h100",
    ("qwen3-30b", "fp8", 16, 1024, 1, "zero1", (1, 2, 1, 12, 8), 9058),
    ("gpt-oss-120b", "bf16", 64, 1280, 1, "zero1", (1, 4, 1, 1, 8), 5984),
)
B200_MOE = _bridge(
    "Experts on B200",
    "dgx-b200",
    ("qwen3-30b", "fp8", 8, 512, 4, "zero1", (1, 1, 1, 1, 8), 26695),
    ("qwen3-235b", "fp8", 256, 8192, 1, "zero1", (1, 8, 1, 1, 8), 3805),
    ("gpt-oss-120b", "bf16", 64, 1280, 4, "zero1", (1, 1, 1, 1, 8), 13722),
)
GB200_MOE = _bridge(
    "Experts on GB200",
    "gb200-nvl72",
    ("qwen3-30b", "fp8", 8, 512, 4, "zero1", (1, 1, 1, 1, 8), 26373),
    ("qwen3-235b", "fp8", 256, 8192, 1, "zero1", (1, 8, 1, 1, 32), 5530),
    ("gpt-oss-120b", "bf16", 64, 1280, 4, "zero1", (1, 1, 1, 1, 64), 15754),
    ("qwen3-235b", "bf16", 256, 8192, 1, "zero1", (1, 8, 1, 3, 32), 4916),
)
NVIDIA = (NEMO_FP8, LONG, H100_FP8, B200_FP8, GB200_FP8, H100_MOE, B200_MOE, GB200_MOE)
"""Left out are runs on 4 bits, models that are no plain transformers, experts dealt out within tensor parallelism,
and micro-batches of one sample on 8 GPUs, with which the same page has 2.8 times fewer tokens than with four."""
