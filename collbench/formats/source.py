"""A foreign file as text, and the numbers in it: what is too large or no number is refused, not guessed."""

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path

from collbench.errors import RunFileError
from collbench.host.sanitize import safe_read

LARGEST = 2**28  # bytes of a file
LONGEST = 2**14  # characters of a line that may say something
HEAD = 2**16  # characters in which signs of a format are looked for first
GREATEST = 2**62  # that a size in bytes may be
SHORTEST, LASTING = 1e-12, 1e9  # seconds that an operation may take
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
LONG = 64  # characters of a number
STDIN = "-"


@dataclass(frozen=True)
class Source:
    """A file's content; bytes that are not UTF-8 have become replacement characters."""

    name: str  # as the user gave it
    text: str

    def lines(self) -> Iterator[tuple[int, str]]:
        """Number and text of each line, without its end; lines that are too long to mean anything come as empty."""
        start, number = 0, 1
        while start < len(self.text):
            end = self.text.find("\n", start)
            end = len(self.text) if end < 0 else end
            yield number, self.text[start:end].rstrip("\r") if end - start <= LONGEST else ""
            start, number = end + 1, number + 1

    @cached_property
    def first(self) -> str:
        """The first line that is not blank."""
        return next((line.strip() for _, line in self.lines() if line.strip()), "")

    @property
    def torn(self) -> bool:
        """Whether it stops in the middle of a line."""
        return not self.text.endswith("\n")

    @property
    def file(self) -> str:
        """The file's own name, for a header."""
        return clean(Path(self.name).name) or "stdin"


def load(path: Path) -> Source:
    """A file, or standard input for `-`; RunFileError if it cannot be read or is too large."""
    if str(path) != STDIN:
        with safe_read(path, RunFileError, LARGEST) as file:
            return decode(str(path), file.read(LARGEST + 1))
    try:
        return decode(STDIN, sys.stdin.buffer.read(LARGEST + 1))
    except (OSError, AttributeError) as error:  # AttributeError: it is closed
        raise RunFileError(f"cannot read standard input: {getattr(error, 'strerror', 'it is closed')}") from None


def decode(name: str, raw: bytes) -> Source:
    """The text of a file's bytes."""
    if len(raw) > LARGEST:
        raise RunFileError(f"{name} is larger than {LARGEST >> 20} MiB; cut out the part with the results")
    wide = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
    return Source(name, raw.decode("utf-16" if wide else "utf-8-sig", errors="replace"))


def clean(text: object, longest: int = 120) -> str:
    """A foreign word that can be printed: one line, nothing that a terminal would act upon."""
    shown = "".join(char if char.isprintable() else " " for char in str(text)[: 4 * longest])
    return " ".join(shown.split())[:longest]


def number(word: object) -> float | None:
    """A finite number, or None for `N/A`, `nan`, `inf` and everything else."""
    if isinstance(word, bool) or not isinstance(word, str | int | float):
        return None
    if isinstance(word, str) and not (len(word) <= LONG and NUMBER.fullmatch(word)):
        return None  # Python's own idea of a number has underscores and digits of every script
    try:
        value = float(word)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def whole(word: object) -> int | None:
    """A whole number from 0 to what a size may be, or None."""
    value = number(word)
    return int(value) if value is not None and 0 <= value <= GREATEST and value == int(value) else None


def exact(word: str) -> int | None:
    """The same, written in digits only."""
    return int(word) if len(word) <= 20 and word.isascii() and word.isdigit() and int(word) <= GREATEST else None


def microseconds(word: object) -> float:
    """Seconds from a word in us; 0 where it is no time that an operation could take."""
    return seconds_of(word, 1e-6)


def seconds_of(word: object, unit: float) -> float:
    """Seconds from a word that counts that power of ten of them; 0 where it is no time that an operation could take."""
    value, power = number(word), round(math.log10(unit))
    seconds = 0.0 if value is None else float(f"{Decimal(repr(value)).scaleb(power)}")  # 12.87 us is 1.287e-05
    return seconds if SHORTEST <= seconds <= LASTING else 0.0


def count(word: object) -> int | None:
    """How many elements are wrong, printed with six digits at most; None where it does not say."""
    value = number(word)
    return None if value is None or value < 0 else int(min(value, float(GREATEST)))
