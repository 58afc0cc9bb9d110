"""What commands about steps take: how much is computed, on how many ranks, and which of them are slow on purpose."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from collbench.cases import BUCKET_UNIT, Step
from collbench.errors import UsageError
from collbench.measure.calibration import Work
from collbench.platforms.gpu.nccl import MOST_CTAS
from collbench.units import format_size, parse_size

_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_FLOPS = {"FLOP": 1.0, "KFLOP": 1e3, "MFLOP": 1e6, "GFLOP": 1e9, "TFLOP": 1e12, "PFLOP": 1e15}
_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-zA-Z]*)\s*", re.IGNORECASE)
_LONGEST = 1e4  # seconds of computing in a step
_MOST_FLOPS = 1e21
_SLOWEST = 1000.0
MOST_COUNTS = 64  # of ranks, in one scaling
MOST_RANKS = 2**30
LARGEST_MATRIX = 2**15
MOST_BUCKETS = 1024  # of a step


def parse_work(text: str) -> Work:
    """`10ms` or `2GFLOP`; UsageError with the choices otherwise."""
    match = _NUMBER.fullmatch(text)
    number, unit = (float(match[1]), match[2]) if match else (0.0, "")
    seconds = number * _TIMES.get(unit.lower(), 0.0)
    flops = number * _FLOPS.get(unit.upper().removesuffix("S") if unit.upper().endswith("FLOPS") else unit.upper(), 0.0)
    if 0 < seconds <= _LONGEST:
        return Work(seconds=seconds)
    if 0 < flops <= _MOST_FLOPS:
        return Work(flops=flops)
    units = ", ".join((*_TIMES, *_FLOPS))
    raise UsageError(
        f"--compute {text} is no amount of computing; give one above 0 with a unit ({units}), such as 10ms"
    )


def predicted_work(options: Mapping[str, Any]) -> Work:
    """Of a rank on a described system; UsageError for what nobody can say there."""
    work = parse_work(options["compute"] or "100ms")
    if work.flops:
        raise UsageError(
            f"--compute {options['compute']} says nothing on a described system, whose FLOP/s nobody wrote down; "
            "give a time, such as 100ms"
        )
    if options["slow_rank"]:
        raise UsageError("--slow-rank goes with ranks that are measured; on a described system leave it out")
    if not 0 <= options["noise"] <= 100:
        raise UsageError(f"--noise {options['noise']:g} is no spread; give per cent from 0 to 100")
    return work


def parse_ranks(text: str) -> tuple[int, ...]:
    """`1,2,4` or `8..4096`, which doubles; ascending.  UsageError otherwise."""
    counts: list[int] = []
    for word in text.split(","):
        first, dots, last = word.strip().partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()) or len(first + last) > 20:
            raise UsageError(f"--ranks {text} names no numbers of ranks; give some, such as 1,2,4 or 8..4096")
        counts += _doubling(int(first), int(last)) if dots else [int(first)]
    wanted = tuple(sorted(set(counts)))
    if not wanted or wanted[0] < 1 or wanted[-1] > MOST_RANKS:
        raise UsageError(f"--ranks {text} goes beyond 1 to {MOST_RANKS}; give numbers of ranks within, such as 1,2,4")
    if len(wanted) < 2:
        raise UsageError(f"--ranks {text} is one number of ranks, and scaling compares several; give such as 1,{text}")
    if len(wanted) > MOST_COUNTS:
        raise UsageError(f"--ranks {text} are more than {MOST_COUNTS} numbers; give fewer")
    return wanted


def _doubling(first: int, last: int) -> list[int]:
    if not 0 < first <= last:
        raise UsageError(f"--ranks {first}..{last} goes down or starts at 0; give the fewest first, such as 1..8")
    counts = [first]
    while counts[-1] * 2 <= last and len(counts) <= MOST_COUNTS:
        counts.append(counts[-1] * 2)
    return counts


def parse_slow(texts: Sequence[str], ranks: int) -> tuple[tuple[int, float], ...]:
    """`1` or `1:1.5`, which computes so many times as much; UsageError for a rank that there is not."""
    slow: dict[int, float] = {}
    for text in texts:
        word, _, factor = text.partition(":")
        if not word.isdecimal() or not int(word[:9]) < ranks:
            raise UsageError(f"--slow-rank {text} is no rank of {ranks}; choose from 0 to {ranks - 1}, such as 0:1.5")
        slow[int(word)] = _factor(text, factor or "2")
    return tuple(sorted(slow.items()))


def _factor(text: str, factor: str) -> float:
    match = _NUMBER.fullmatch(factor)
    number = float(match[1]) if match and not match[2] else 0.0
    if not 1 <= number <= _SLOWEST:
        raise UsageError(f"--slow-rank {text} is slow by no factor; give one from 1 to {_SLOWEST:g}, such as 0:1.5")
    return number


def parse_buckets(text: str | None, nbytes: int) -> tuple[int, ...]:
    """Sizes in bytes, ascending; by default a 16th of all, a quarter, and all.  UsageError for more than there is."""
    if text is None:
        return tuple(sorted({max(BUCKET_UNIT, nbytes // part) for part in (16, 4, 1)}))
    sizes = tuple(sorted({parse_size(word) for word in text.split(",")}))
    if sizes[-1] > nbytes:
        raise UsageError(
            f"--buckets {format_size(sizes[-1])} is more than the {format_size(nbytes)} of gradients; give at most that"
        )
    if sizes[0] < BUCKET_UNIT or nbytes // sizes[0] > MOST_BUCKETS:
        least = max(BUCKET_UNIT, nbytes // MOST_BUCKETS)
        raise UsageError(f"--buckets {format_size(sizes[0])} are too many; give at least {format_size(least)}")
    return sizes


def parse_ctas(text: str | None, libraries: Sequence[str]) -> tuple[int, ...]:
    """Numbers, ascending; none by default.  UsageError for what NCCL never uses, and where it is not measured."""
    if text is None:
        return ()
    if "nccl" not in libraries:
        raise UsageError(f"--ctas {text} limits NCCL, which is not measured here; leave it out, or add nccl on GPUs")
    words = [word.strip() for word in text.split(",")]
    if wrong := [word for word in words if not (word.isdecimal() and word.isascii() and 1 <= int(word) <= MOST_CTAS)]:
        raise UsageError(
            f"--ctas {wrong[0] or text} is no number of CTAs; give some from 1 to {MOST_CTAS}, such as 4,16"
        )
    return tuple(sorted(set(map(int, words))))


def check_matrix(asked: int | None, usual: int) -> int:
    """Rows of a matrix; UsageError for none, or for more than anybody multiplies."""
    size = usual if asked is None else asked
    if not 1 <= size <= LARGEST_MATRIX:
        raise UsageError(f"--matrix {size} is no number of rows; give one from 1 to {LARGEST_MATRIX}")
    return size


def one_step(work: Work, platform: str, size: int, slow: tuple[tuple[int, float], ...] = (), bucket: int = 0) -> Step:
    """The step of one rank alone; its products are counted by the clock where the work is a time."""
    return Step(work.products(platform, size), size, bucket=bucket, slow=slow)
