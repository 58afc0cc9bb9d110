"""Published training runs: what was trained on what, dealt out how, and how fast it was.  Numbers only, with sources.

What a table does not say (micro-batch, chunks of stages) the planner chooses, as whoever published it did.
"""

from collbench.commands.train.layouts import Choices
from collbench.commands.train.models import MODELS, Model
from tools.training.published_experts import BY_SIZE, FOLDING, MIXTRAL
from tools.training.published_fsdp import MOSAIC
from tools.training.published_nvidia import B200_MOE, H100_MOE, LONG, NEMO_FP8, NVIDIA
from tools.training.tables import Row, Table


def _megatron(name: str, layers: int, hidden: int, heads: int) -> Model:
    """Of Megatron-Core's table: 131,072 words, samples of 4,096."""
    return Model(name, layers, hidden, heads, sequence=4096, vocabulary=131072)


_FULL = {"recompute": "full"}


def _interleaved(tensor: int, pipeline: int) -> Choices:
    """As section 5.1 of the paper says; with how many chunks it does not."""
    return _FULL | {"tensor": tensor, "pipeline": pipeline, "schedule": "interleaved" if pipeline > 1 else "1f1b"}


A100_2021 = Table(
    "Megatron-LM on A100, weak scaling",
    "Narayanan et al. 2021, arXiv:2104.04473, table 1; Megatron-LM 50a4b5fa02, images/cases_april2021.png",
    "dgx-a100",
    "megatron-2021",
    "TFLOP/s, recomputed counted",
    tuple(
        Row(name, MODELS[f"megatron-{name}"], gpus, batch, _interleaved(tensor, pipeline), value)
        for name, tensor, pipeline, gpus, batch, value in (
            ("1.7b", 1, 1, 32, 512, 137),
            ("3.6b", 2, 1, 64, 512, 138),
            ("7.5b", 4, 1, 128, 512, 142),
            ("18b", 8, 1, 256, 1024, 135),
            ("39b", 8, 2, 512, 1536, 138),
            ("76b", 8, 4, 1024, 1792, 140),
            ("145b", 8, 8, 1536, 2304, 148),
            ("310b", 8, 16, 1920, 2160, 155),
            ("530b", 8, 35, 2520, 2520, 163),
            ("1t", 8, 64, 3072, 3072, 163),
        )
    ),
    gradients="bf16",
)
GPT3_2021 = Table(
    "GPT-3 175B on 1,024 A100",
    "Megatron-LM README, 2021",
    "dgx-a100",
    "megatron-2021",
    "TFLOP/s, recomputed counted",
    (Row("175b", MODELS["gpt3-175b"], 1024, 1536, _FULL | {"tensor": 8, "pipeline": 16}, 138),),
    gradients="bf16",
)
H100_WEAK = Table(
    "Megatron-Core on H100, weak scaling",
    "Megatron-LM r0.8, images/model_table.png",
    "dgx-h100",
    "modern",
    "TFLOP/s",
    tuple(
        Row(
            name,
            _megatron(name, layers, hidden, heads),
            gpus,
            batch,
            {"tensor": tensor, "pipeline": pipeline, "context": 1, "sharding": "zero1"},
            value,
        )
        for name, hidden, layers, heads, tensor, pipeline, gpus, batch, value in (
            ("1.7b", 2048, 24, 16, 1, 1, 48, 192, 408.8),
            ("7.1b", 4096, 30, 32, 2, 1, 96, 192, 465.9),
            ("16b", 6144, 32, 48, 4, 1, 192, 192, 489.1),
            ("32b", 7168, 48, 56, 8, 1, 384, 192, 459.6),
            ("70b", 8192, 84, 64, 8, 2, 768, 384, 419.7),
            ("119b", 10240, 92, 80, 8, 4, 1536, 768, 420.5),
            ("177b", 12288, 96, 96, 8, 6, 2304, 1152, 432.8),
            ("314b", 16384, 96, 128, 8, 8, 3072, 1536, 474.4),
            ("462b", 18432, 112, 144, 8, 16, 6144, 3072, 459.9),
        )
    ),
)
H100_STRONG = Table(
    "Megatron-Core on H100, strong scaling of 177B",
    "Megatron-LM README: 47 % on 96 GPUs, 42 % on 4,608",
    "dgx-h100",
    "modern",
    "MFU",
    tuple(
        Row(
            f"{gpus}",
            _megatron("177b", 96, 12288, 96),
            gpus,
            1152,
            {"tensor": 8, "context": 1, "sharding": "zero1"},
            value,
        )
        for gpus, value in ((96, 0.47), (4608, 0.42))
    ),
)
TABLE_2 = Table(
    "PTD-P on A100",
    "Narayanan et al. 2021, table 2",
    "dgx-a100",
    "megatron-2021",
    "TFLOP/s, recomputed counted",
    tuple(
        Row(f"{name} on {gpus}", MODELS[model], gpus, batch, _interleaved(8, pipeline), value)
        for name, model, pipeline, gpus, batch, value in (
            ("175b", "gpt3-175b", 12, 384, 1536, 153),
            ("175b", "gpt3-175b", 12, 768, 1536, 149),
            ("175b", "gpt3-175b", 12, 1536, 1536, 141),
            ("530b", "megatron-530b", 35, 560, 2240, 171),
            ("530b", "megatron-530b", 35, 1120, 2240, 167),
            ("530b", "megatron-530b", 35, 2240, 2240, 159),
        )
    ),
    gradients="bf16",
)
ZERO_3 = Table(
    "ZeRO-3 on A100",
    "Narayanan et al. 2021, table 2",
    "dgx-a100",
    "deepspeed-2021",
    "TFLOP/s, recomputed counted",
    tuple(
        Row(
            f"{name} on {gpus}",
            MODELS[model],
            gpus,
            batch,
            _FULL | {"tensor": 1, "pipeline": 1, "sharding": "zero3", "micro": micro},
            value,
        )
        for name, model, gpus, batch, micro, value in (
            ("175b", "gpt3-175b", 384, 1536, 4, 144),
            ("175b", "gpt3-175b", 768, 1536, 2, 88),
            ("175b", "gpt3-175b", 1536, 1536, 1, 44),
            ("530b", "megatron-530b", 640, 2560, 4, 138),
            ("530b", "megatron-530b", 1120, 2240, 2, 98),
            ("530b", "megatron-530b", 2240, 2240, 1, 48),
        )
    ),
    gradients="bf16",
)
_KORTHIKANTI = (
    ("22b", Model("22b", 48, 6144, 64), 8, 4, 1, 1, 4, 1.42, 1.10),
    ("175b", MODELS["gpt3-175b"], 64, 64, 8, 3, 1, 18.13, 13.75),
    ("530b", MODELS["megatron-530b"], 280, 280, 35, 3, 1, 49.05, 37.83),
    ("1t", MODELS["megatron-1t"], 512, 512, 64, 1, 1, 94.42, 71.49),
)
KORTHIKANTI = Table(
    "Recomputation on A100",
    "Korthikanti et al. 2022, arXiv:2205.05198, table 5",
    "dgx-a100",
    "megatron-2022",
    "s",
    tuple(
        Row(
            f"{name}, {'selective' if selective else 'full'}",
            model,
            gpus,
            batch,
            {
                "tensor": 8, "pipeline": pipeline, "chunks": chunks, "micro": micro, "sharding": "ddp",
                "recompute": "selective" if selective else "full", "sequential": selective,
            },
            seconds,
        )
        for name, model, gpus, batch, pipeline, chunks, micro, full, quick in _KORTHIKANTI
        for selective, seconds in ((False, full), (True, quick))
    ),
    gradients="bf16",
)  # fmt: skip
MT_NLG = Table(
    "MT-NLG 530B on A100",
    "Smith et al. 2022, arXiv:2201.11990, section 3",
    "dgx-a100",
    "megatron-2021",
    "s",
    tuple(
        Row(f"{gpus}", MODELS["megatron-530b"], gpus, 1920, _FULL | {"tensor": 8, "pipeline": 35, "micro": 1}, seconds)
        for gpus, seconds in ((2240, 60.1), (2800, 50.2), (3360, 44.4))
    ),
    gradients="bf16",
    others=("llm-analysis 0.4 %, given every row's TFLOP/s (its examples/megatron-turing-nlg)",),
)
LLAMA_3 = Table(
    "Llama 3 405B on H100",
    "Grattafiori et al. 2024, arXiv:2407.21783, table 4",
    "dgx-h100",
    "modern",
    "MFU",
    tuple(
        Row(f"{gpus}", MODELS["llama3-405b"], gpus, 2048, {"tensor": 8, "pipeline": 16, "context": 1}, value)
        for gpus, value in ((8192, 0.43), (16384, 0.41))
    ),
    operator="Meta",
)
MEGASCALE = Table(
    "MegaScale, 175B on Ampere",
    "Jiang et al. 2024, arXiv:2402.15627: 55.2 % MFU on 12,288 GPUs",
    "dgx-a100",
    "modern",
    "MFU",
    (
        Row(
            "12288", MODELS["gpt3-175b"], 12288, 6144,
            {"tensor": 8, "pipeline": 8, "chunks": 6, "schedule": "interleaved", "context": 1}, 0.552,
        ),
    ),
    operator="ByteDance",
)  # fmt: skip
FSDP = Table(
    "FSDP, Llama 2 7B on 128 A100",
    "PyTorch blog, IBM and Meta: 3,700 tokens a second and GPU, 57 % MFU",
    "dgx-a100",
    "modern",
    "MFU",
    (Row("128", MODELS["llama2-7b"], 128, 256, {"tensor": 1, "pipeline": 1, "sharding": "zero3"}, 0.57),),
    operator="IBM and Meta",
)
FITTED_TO = (
    A100_2021, GPT3_2021, TABLE_2, H100_WEAK, H100_STRONG, NEMO_FP8, LONG, *MOSAIC,
    H100_MOE, B200_MOE, FOLDING, MIXTRAL,
)  # fmt: skip
"""Tables that the constants are fitted to; all others are never seen by a fit, but for ZeRO-3's rate of gathering."""
TABLES = (
    *FITTED_TO, ZERO_3, KORTHIKANTI, MT_NLG, LLAMA_3, MEGASCALE, FSDP,
    *(table for table in (*NVIDIA, *BY_SIZE) if table not in FITTED_TO),
)  # fmt: skip
