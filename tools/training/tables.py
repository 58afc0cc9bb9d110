"""What published training runs are written down as: tables of runs, with their sources."""

from dataclasses import dataclass
from typing import NamedTuple

from collbench.commands.train.layouts import Choices
from collbench.commands.train.models import Model


class Row(NamedTuple):
    """One run; `value` is in the table's unit."""

    label: str
    model: Model
    gpus: int
    batch: int
    fixed: Choices
    value: float
    sequence: int = 0  # 0: the table's
    precision: str = "bf16"


@dataclass(frozen=True)
class Table:
    """Runs by the same people with the same software on the same machine."""

    name: str
    source: str
    system: str
    stack: str
    unit: str  # "TFLOP/s, recomputed counted", "TFLOP/s", "tokens/s/GPU", "MFU" or "s"
    rows: tuple[Row, ...]
    gradients: str = "fp32"
    sequence: int = 0  # 0: the model's
    operator: str = "NVIDIA"  # who ran them: what others run is nobody's kin in the fit
    others: tuple[str, ...] = ()  # errors that other models have published of the same runs
