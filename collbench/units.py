"""Text of sizes, times and rates."""

import math
import re
from collections.abc import Callable, Iterable
from typing import Annotated

from msgspec import Meta

from collbench.errors import UsageError

FASTEST, SLOWEST = 1e-15, 1e9  # seconds; bounds of the time of an operation

Seconds = Annotated[float, Meta(gt=FASTEST, lt=SLOWEST)]  # the time of an operation
Duration = Annotated[float, Meta(ge=0, lt=SLOWEST)]  # the time of a part, which may be 0
Moment = Annotated[float, Meta(gt=-SLOWEST, lt=SLOWEST)]  # a moment on some clock, or a difference of two
Factor = Annotated[float, Meta(gt=0, lt=SLOWEST)]
Count = Annotated[int, Meta(ge=0)]

_BINARY = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
LARGEST = 2**60  # largest size in bytes
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:I?B)?\s*", re.IGNORECASE)


def parse_size(text: str | int, option: str = "") -> int:
    """Return the bytes of `8`, `64K`, `1.5G`, `128KB` or `2MiB`; every suffix is binary, as in nccl-tests."""
    match, named = _SIZE.fullmatch(str(text)), f"{option} {text!r}".lstrip()
    if not match:
        raise UsageError(f"{named} is not a size; write bytes or a binary suffix, such as 8, 64K, 128M or 1.5G")
    size = float(match[1]) * _BINARY[match[2].upper()]
    if size > LARGEST:
        raise UsageError(f"{named} is more than any memory holds; write at most {LARGEST >> 40}T")
    return int(size)


SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3.6e3, "d": 86.4e3, "w": 604.8e3}
"""Seconds of each unit of a duration."""
QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def duration(text: str, alone: str = "") -> float:
    """Return the seconds of `500ms`, `5s` or `2min`; `alone` is the unit of a plain number, other text gives 0."""
    match = QUANTITY.fullmatch(text)
    if not match:
        return 0.0
    seconds = float(match[1]) * SECONDS.get(match[2] or alone, 0.0)
    return seconds if seconds < SLOWEST else 0.0


def parse_duration(text: str | float, option: str) -> float:
    """Return the seconds of `500ms`, `5s`, `12h` or a number; UsageError with the option's name for other text."""
    seconds = duration(str(text), "s")
    if not seconds:
        raise UsageError(f"{option} {text!r} is no duration; write one such as 500ms, 5s, 2min, 12h or 30d")
    return seconds


def parse_share(text: str | float, option: str) -> float:
    """Return the number of `5%` or `0.05`; UsageError unless it is above 0 and below 1."""
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*(%?)\s*", str(text))
    share = float(match[1]) if match else 0.0
    if match and match[2]:
        share /= 100
    if not 0 < share < 1:
        raise UsageError(f"{option} {text!r} is no share; write it like 5% or 0.05")
    return share


def parse_numbers(text: str) -> list[int]:
    """Return the numbers of `64,96` or `8..8192` (doubling), unique and ascending; empty for other text."""
    numbers: set[int] = set()
    for word in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,12})(?:\.\.(\d{1,12}))?\s*", word, re.ASCII)
        if not match:
            return []
        number, last = int(match[1]), int(match[2] or match[1])
        if match[2] and not 0 < number <= last:
            return []
        numbers.add(number)
        while 0 < 2 * number <= last:
            number *= 2
            numbers.add(number)
    return sorted(numbers)


def format_size(nbytes: float) -> str:
    """Return `8 B`, `64 KiB` or `1.5 GiB`, with at most four significant digits."""
    for suffix in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.4g} {suffix}"
        nbytes /= 1024
    return f"{nbytes:.4g} TiB"


MOST_DIGITS = 3  # of a printed time or rate


def digits(halfwidth: float) -> int:
    """Return a number's certain digits, given half its interval over it: 3 for 0.01, 2 for 0.15, 1 for 1."""
    if not halfwidth > 0:
        return MOST_DIGITS
    return min(MOST_DIGITS, max(1, 1 + math.ceil(-math.log10(halfwidth))))


def significant(value: float, count: int, most: int = 12) -> str:
    """Return a number with `count` significant digits and at most `most` decimals, without exponent: 0.15, 25, 160."""
    if not value or not math.isfinite(value):
        return f"{value:.0f}"
    place = count - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, place)
    # Rounding may add a digit in front: 0.996 with two digits is 1.0.
    decimals = count - 1 - math.floor(math.log10(abs(rounded))) if rounded else place
    return f"{rounded:.{min(most, max(0, decimals))}f}"


def format_seconds(seconds: float, count: int = MOST_DIGITS) -> str:
    """Return a time in a suitable unit with `count` significant digits: `310 ns`, `4.21 us`, `1.5 ms`, `2 s`."""
    scale, unit = 1.0, "s"
    for smaller, name in ((1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if abs(seconds) < 999.5 * smaller:
            scale, unit = smaller, name
    value = seconds / scale
    return f"{format_figure(value) if count == MOST_DIGITS else significant(value, count)} {unit}"


def format_rate(rate: float, count: int = MOST_DIGITS) -> str:
    """Return bytes per second as GB/s (1e9, as in nccl-tests), with decimals suited to a column."""
    gigabytes = rate / 1e9
    decimals = 1
    if gigabytes < 10:
        decimals = 3 if gigabytes >= 0.1 else 4
    return f"{gigabytes:.{decimals}f}" if count == MOST_DIGITS else significant(gigabytes, count, decimals)


def format_figure(value: float) -> str:
    """Return a number with three digits, or all digits of a larger one: 0.00014, 1.62, 3,903; `?` if not finite."""
    if not math.isfinite(value):
        return "?"
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


RANGE = " .. "  # the sign of a range, in every output


def format_range(low: float, high: float, form: Callable[[float], str] = format_figure) -> str:
    """Return `1.58 .. 1.66`, `1.6` if both ends have the same text, and an empty text if one is unknown."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return RANGE.join(dict.fromkeys((form(low), form(high))))


def counted(count: int, noun: str) -> str:
    """Return `1 node` or `2,048 nodes`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_interval(low: float, high: float, form: Callable[[float], str] = format_figure) -> str:
    """Return ` (1.58 .. 1.66)` to follow a value, without unknown ends."""
    if math.isfinite(low) and math.isfinite(high):
        return f" ({form(low)}{RANGE}{form(high)})"
    if math.isfinite(low):
        return f" (at least {form(low)})"
    return f" (at most {form(high)})" if math.isfinite(high) else ""


def printable(text: str) -> str:
    """Return the text with reversible escapes for unprintable characters."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def unit_of(seconds: float) -> tuple[float, str]:
    """Return the seconds and the name of a suitable unit for a long time: days, hours, min or s."""
    units = ((86400.0, "days"), (3600.0, "hours"), (60.0, "min"))
    return next((unit for unit in units if seconds >= 2 * unit[0]), (1.0, "s"))


def format_duration(seconds: float, count: int = MOST_DIGITS) -> str:
    """Return a long run's duration as `42 days`, `5.2 hours` or `31 min`; a shorter one as `format_seconds` does."""
    scale, unit = unit_of(seconds)
    return f"{format_rounded(seconds / scale, count)} {unit}" if scale > 1 else format_seconds(seconds, count)


def format_rounded(value: float, count: int) -> str:
    """Return a number with `count` significant digits: 5,100, 310, 0.64."""
    return format_figure(value if count == MOST_DIGITS else float(significant(value, count)))


def format_count(value: float, count: int = MOST_DIGITS) -> str:
    """Return a large number with at most three digits: `950`, `12.3 k`, `1.23 M`, `4.5 bn`, `2 tn`."""
    if count != MOST_DIGITS:
        value = float(significant(value, count))
    for scale, unit in ((1e12, " tn"), (1e9, " bn"), (1e6, " M"), (1e3, " k")):
        if value >= 0.9995 * scale:
            return f"{format_figure(value / scale)}{unit}"
    return format_figure(value)


def format_list(items: Iterable[object]) -> str:
    """Return items as `2, 3 and 4`; empty if there are none."""
    words = list(map(str, items))
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
