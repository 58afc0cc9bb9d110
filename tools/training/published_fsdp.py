"""Published runs of PyTorch's FSDP: MosaicML's models of GPT's kind on A100 and H100, of 2023.

A selection of three tables, numbers only: all runs on several nodes of H100, most of those of A100, and some of every
model on a node.  Left out are samples of more than 4,096 tokens, whose attention was Triton's first FlashAttention (the
default of submit_benchmarks.py beside the tables; on H100 they were planned 3 to 31 % too fast), and 1b on 32 A100,
a fifth slower than on 16 and on 64.
"""

from collections.abc import Iterable

from collbench.commands.train.models import Model
from tools.training.tables import Row, Table

_SHAPES = {
    "125m": (12, 768, 12),
    "350m": (24, 1024, 16),
    "760m": (24, 1536, 12),
    "1b": (24, 2048, 16),
    "3b": (32, 2560, 20),
    "7b": (32, 4096, 32),
    "13b": (40, 5120, 40),
    "30b": (48, 7168, 56),
    "70b": (80, 8192, 64),
}
_Run = tuple[str, int, int, int, int, bool, float]  # model, tokens, GPUs, micro-batch, batch, recomputed, tokens/s/GPU
_FSDP = {"tensor": 1, "pipeline": 1, "context": 1, "sharding": "zero3", "offload": False}


def _rows(runs: Iterable[_Run]) -> tuple[Row, ...]:
    return tuple(
        Row(
            f"{name} on {gpus}, {sequence}",
            Model(name, *_SHAPES[name], sequence=sequence, vocabulary=50368),
            gpus,
            batch,
            _FSDP | {"micro": micro, "recompute": "full" if again else "none"},
            value,
        )
        for name, sequence, gpus, micro, batch, again, value in runs
    )


def _mosaic(name: str, system: str, gradients: str, runs: Iterable[_Run]) -> Table:
    source = "mosaicml/llm-foundry 061f2c7ce6, scripts/train/benchmarking/README.md"
    return Table(name, source, system, "modern", "tokens/s/GPU", _rows(runs), gradients=gradients, operator="MosaicML")


MPT_H100 = _mosaic(
    "MPT on H100, FSDP", "dgx-h100", "fp32",
    (
        ("70b", 2048, 64, 8, 2048, True, 1039),
        ("70b", 2048, 32, 2, 1024, True, 882),
        ("30b", 2048, 32, 14, 1344, True, 2308),
        ("30b", 2048, 16, 10, 480, True, 2263),
        ("30b", 2048, 8, 3, 504, True, 2002),
        ("30b", 4096, 8, 1, 168, True, 1802),
        ("13b", 4096, 8, 10, 240, True, 4717),
        ("13b", 2048, 64, 2, 128, False, 4800),
        ("13b", 2048, 32, 2, 64, False, 4811),
        ("13b", 2048, 16, 2, 32, False, 4767),
        ("13b", 2048, 8, 2, 16, False, 4792),
        ("7b", 2048, 8, 6, 48, False, 10643),
        ("3b", 2048, 64, 6, 1152, False, 22525),
        ("3b", 2048, 32, 6, 576, False, 23021),
        ("3b", 2048, 16, 10, 480, False, 24142),
        ("3b", 512, 8, 40, 1920, False, 27965),
        ("1b", 4096, 8, 7, 224, False, 38535),
        ("1b", 2048, 64, 20, 1280, False, 44402),
        ("1b", 2048, 32, 20, 640, False, 45130),
        ("1b", 2048, 16, 20, 320, False, 46037),
        ("1b", 2048, 8, 14, 112, False, 45455),
        ("760m", 2048, 32, 24, 768, False, 67971),
        ("760m", 2048, 16, 24, 384, False, 68551),
        ("760m", 2048, 8, 24, 384, False, 63147),
    ),
)  # fmt: skip
MPT_A100_80 = _mosaic(
    "MPT on A100 of 80 GB, FSDP", "azure-nd-a100-v4", "fp32",
    (
        ("70b", 2048, 64, 8, 2048, True, 410),
        ("70b", 2048, 32, 2, 1024, True, 373),
        ("30b", 2048, 8, 3, 504, True, 916),
        ("13b", 2048, 8, 2, 48, False, 2262),
        ("7b", 2048, 8, 6, 96, False, 4641),
        ("3b", 2048, 8, 10, 160, False, 10811),
        ("3b", 512, 8, 40, 1920, False, 12127),
        ("1b", 2048, 8, 14, 448, False, 20513),
        ("760m", 2048, 8, 24, 384, False, 32434),
        ("350m", 2048, 8, 32, 512, False, 58782),
        ("125m", 2048, 8, 40, 640, False, 142830),
    ),
)  # fmt: skip
MPT_A100_40 = _mosaic(
    "MPT on A100 of 40 GB, FSDP", "oci-a100", "bf16",
    (
        ("70b", 2048, 128, 4, 512, True, 376),
        ("70b", 2048, 64, 2, 128, True, 276),
        ("30b", 2048, 128, 6, 768, True, 865),
        ("30b", 2048, 32, 4, 128, True, 857),
        ("13b", 2048, 128, 16, 2048, True, 1972),
        ("13b", 2048, 64, 16, 1024, True, 1976),
        ("13b", 2048, 32, 14, 448, True, 1998),
        ("13b", 2048, 16, 10, 160, True, 1993),
        ("13b", 2048, 8, 4, 512, True, 1668),
        ("7b", 2048, 128, 18, 2304, True, 3623),
        ("7b", 2048, 64, 18, 1152, True, 3665),
        ("7b", 2048, 32, 18, 576, True, 3725),
        ("7b", 2048, 16, 16, 256, True, 3645),
        ("7b", 2048, 8, 12, 384, True, 3679),
        ("3b", 2048, 128, 6, 768, False, 9538),
        ("3b", 2048, 64, 6, 384, False, 9736),
        ("3b", 2048, 32, 6, 192, False, 9914),
        ("3b", 2048, 16, 5, 80, False, 9750),
        ("3b", 2048, 8, 5, 320, False, 10065),
        ("1b", 2048, 128, 10, 1280, False, 18647),
        ("1b", 2048, 64, 10, 640, False, 19001),
        ("1b", 2048, 16, 8, 128, False, 19085),
        ("1b", 2048, 8, 8, 512, False, 19271),
        ("350m", 2048, 128, 18, 2304, False, 51934),
        ("350m", 2048, 32, 18, 576, False, 53811),
        ("350m", 2048, 8, 16, 512, False, 55995),
        ("125m", 2048, 128, 26, 3328, False, 123936),
        ("125m", 2048, 32, 26, 832, False, 127122),
        ("125m", 2048, 8, 26, 624, False, 136334),
    ),
)  # fmt: skip
MOSAIC = (MPT_H100, MPT_A100_80, MPT_A100_40)
