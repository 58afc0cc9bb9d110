"""From the words of the command line to what ranks compute in a step; every wrong word is a UsageError."""

import math
import re
from collections.abc import Sequence

from collbench.errors import UsageError
from collbench.measure.calibration import Work

_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_FLOPS = {"FLOP": 1.0, "KFLOP": 1e3, "MFLOP": 1e6, "GFLOP": 1e9, "TFLOP": 1e12}
_WORK = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?)\s*([a-z]+)\s*", re.IGNORECASE)
LONGEST = 10.0  # seconds of computing in a step
MOST_FLOPS = 1e15
MOST_FACTOR = 1000.0


def parse_work(text: str) -> Work:
    """`1ms`, `250us` or `200MFLOP`."""
    match = _WORK.fullmatch(text)
    unit = match[2] if match else ""
    if match and unit.lower() in _SECONDS:
        work = Work(seconds=float(match[1]) * _SECONDS[unit.lower()])
    elif match and unit.upper().removesuffix("S") in _FLOPS:
        work = Work(flops=float(match[1]) * _FLOPS[unit.upper().removesuffix("S")])
    else:
        raise UsageError(f"--compute {text!r} is no work; give a time or operations, such as 1ms, 250us or 200MFLOP")
    if not (0 < work.seconds <= LONGEST or 0 < work.flops <= MOST_FLOPS):
        raise UsageError(f"--compute {text!r} is not possible; give more than 0, at most {LONGEST:g}s or 1000TFLOP")
    return work


def parse_slow(words: Sequence[str], ranks: int) -> tuple[tuple[int, float], ...]:
    """`1` or `1:1.5`: the ranks that compute so many times as much, each once."""
    slow: dict[int, float] = {}
    for word in words:
        name, colon, factor = word.partition(":")
        if not name.strip().isdecimal():
            raise UsageError(f"--slow-rank {word!r} is no rank; give R or R:FACTOR, such as 1 or 1:1.5")
        rank = int(name)
        if rank >= ranks:
            raise UsageError(f"--slow-rank {word!r} is no rank; choose from 0 to {ranks - 1}")
        if rank in slow:
            raise UsageError(f"--slow-rank gives rank {rank} twice; give it once")
        slow[rank] = _factor(word, factor) if colon else 2.0
    return tuple(sorted(slow.items()))


def _factor(word: str, factor: str) -> float:
    try:
        value = float(factor)
    except ValueError:
        value = math.nan
    if not 0 < value <= MOST_FACTOR:
        raise UsageError(f"--slow-rank {word!r} has no factor; give a number above 0, at most {MOST_FACTOR:g}")
    return value
