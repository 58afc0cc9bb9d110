"""Parsing of words in foreign files: numbers, sizes, times and texts."""

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

GREATEST = 2**62  # bytes of a message
MOST_RANKS = 2**20
SHORTEST, LASTING = 1e-12, 1e9  # seconds of an operation
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3}){1,6}(?:\.\d{0,9})?")
SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,9})?)([KMGT]?)((?:i?B)?)", re.IGNORECASE)


def clean(text: object, longest: int = 120) -> str:
    """Return a foreign text as one printable line, without control characters."""
    shown = "".join(char if char.isprintable() else " " for char in str(text)[: 4 * longest])
    return " ".join(shown.split())[:longest]


def number(word: object) -> float | None:
    """Return a finite number, or None for `N/A`, `nan`, `inf` and everything else."""
    if isinstance(word, bool) or not isinstance(word, str | int | float):
        return None

    # Python also accepts underscores and digits of every script, which no benchmark prints.
    if isinstance(word, str) and not NUMBER.fullmatch(word):
        return None
    try:
        value = float(word)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


Span = tuple[float, float]


def span(word: object, unit: float = 1.0) -> Span | None:
    """Return the range of values that round to the printed digits; None if the word is not a number."""
    if number(word) is None:
        return None
    value = Decimal(str(word))
    half = Decimal(5).scaleb(int(value.as_tuple().exponent) - 1)
    return float(value - half) * unit, float(value + half) * unit


def whole(word: object) -> int | None:
    """Return a whole number from 0 to the largest size, or None."""
    value = number(word)
    if value is None or not 0 <= value <= GREATEST or value != int(value):
        return None
    return int(value)


def plain(word: str) -> str:
    """Return a number without commas between thousands, and other words unchanged."""
    return word.replace(",", "") if THOUSANDS.fullmatch(word) else word


def sizes(word: str) -> list[int]:
    """Return the possible bytes of a size: `512M` is 2^29, `512MB` is 2^29 or 512 million; [] for other words."""
    match = SIZE.fullmatch(plain(word))
    if not match:
        return []
    digits, power, unit = Decimal(match[1]), " KMGT".index(match[2].upper() or " "), match[3].upper()
    meanings = [digits * 1024**power]
    if power and unit == "B":
        meanings.append(digits * 1000**power)
    return [int(value) for value in meanings if value == int(value) and value <= GREATEST]


def seconds_of(word: object, unit: float = 1e-6) -> float:
    """Return the seconds of a word in `unit`, a power of ten; 0 if no operation can take that time."""
    value, power = number(word), round(math.log10(unit))
    if value is None:
        return 0.0

    # Decimal, so that 12.87 us is 1.287e-05 to the last digit.
    seconds = float(Decimal(repr(value)).scaleb(power))
    return seconds if SHORTEST <= seconds <= LASTING else 0.0


def count(word: object) -> int | None:
    """Return a number of wrong elements, also printed with an exponent; None if it was not counted."""
    value = number(word)
    return None if value is None or value < 0 else int(min(value, float(GREATEST)))


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_texts(value: object) -> list[str]:
    """Return the texts of a list; [] for any other value."""
    return [line for line in as_list(value) if isinstance(line, str)]
