"""The columns of nccl-tests' tables, by the words of their header; rows are matched from the right.

What stands left of a row (a launcher's tag, a date) then does not matter, nor that some versions leave a word out.
"""

import re
from dataclasses import dataclass, replace

from collbench.formats.source import exact, number

LEFT = ("size", "count", "type", "redop", "root")
TIMES = ("time", "cputime")
RESULTS = (*TIMES, "hipevt", "algbw", "busbw", "#wrong", "error", "i_min", "i_max", "i_p99", "i_cv%")
APPENDED = ("algo", "proto", "nchannels")  # by rccl-tests, in some versions without a header
STAMP = re.compile(r"(?<!\S)\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?!\S)")


@dataclass(frozen=True)
class Columns:
    """Names from left to right: of the case, of each place's results, and of what is appended."""

    case: tuple[str, ...]
    places: tuple[tuple[str, ...], ...]
    appended: tuple[str, ...] = ()
    in_place_first: bool = False  # a table of one place may be of that one

    @property
    def width(self) -> int:
        """Words of a row."""
        return len(self.case) + sum(map(len, self.places)) + len(self.appended)

    def in_place(self, place: int) -> bool:
        """Whether that place's results are of one buffer."""
        return place == 1 or self.in_place_first


@dataclass(frozen=True)
class LogRow:
    """The words of one row by their columns' names."""

    case: dict[str, str]
    places: tuple[dict[str, str], ...]
    appended: dict[str, str]


def header(words: list[str], above: str) -> Columns | None:
    """The columns that a line names; `above` is the line that names the places.  None if it is no header."""
    if "size" not in words or "type" not in words or "algbw" not in words or not set(words) & set(TIMES):
        return None
    words = words[words.index("size") :]
    first = next(at for at, word in enumerate(words) if word in TIMES)
    places: list[list[str]] = []
    appended: list[str] = []
    for word in words[first:]:
        if word in TIMES:
            places.append([])
        if word in RESULTS and not appended:
            places[-1].append(word)
        elif word in APPENDED:
            appended.append(word)
    case = tuple(word for word in words[:first] if word in LEFT)
    if len(places) > 2 or case[:1] != ("size",):
        return None
    alone = len(places) == 1 and "in-place" in above and "out-of-place" not in above
    return Columns(case, tuple(map(tuple, places)), tuple(appended), alone)


def stamped(line: str) -> tuple[str, str]:
    """A row without its date and time, and those."""
    stamps = STAMP.findall(line)
    return (STAMP.sub(" ", line), stamps[-1]) if stamps else (line, "")


def match(line: str, columns: Columns) -> LogRow | None:
    """The row that a line is, or None; the operation's name may be missing, as for hypercube."""
    words = stamped(line)[0].split()
    for variant in _variants(columns):
        if len(words) >= variant.width and (row := _row(words[-variant.width :], variant)):
            row.case.setdefault("redop", "")
            return row
    return None


def _variants(columns: Columns) -> list[Columns]:
    variants = [columns] if columns.appended else [replace(columns, appended=APPENDED), columns]
    if "redop" in columns.case:
        bare = tuple(name for name in columns.case if name != "redop")
        variants += [replace(variant, case=bare) for variant in variants]
    return variants


def _row(words: list[str], columns: Columns) -> LogRow | None:
    rest = iter(words)
    case = {name: next(rest) for name in columns.case}
    places = tuple({name: next(rest) for name in place} for place in columns.places)
    appended = {name: next(rest) for name in columns.appended}
    plausible = (
        exact(case["size"]) is not None
        and exact(case.get("count", "0")) is not None
        and case.get("type", "float")[:1].isalpha()
        and (case.get("redop") or "none")[:1].isalpha()
        and re.fullmatch(r"-?\d{1,9}", case.get("root", "0"))
        and all(_number(word) for place in places for word in place.values())
        and (not appended or appended["algo"][:1].isalpha())
    )
    return LogRow(case, places, appended) if plausible else None


def _number(word: str) -> bool:
    return number(word) is not None or word.lower().lstrip("+-") in ("n/a", "nan", "inf", "infinity")


def begins(line: str) -> bool:
    """Whether a line looks as if a row began there: two whole numbers and a type."""
    words = stamped(line)[0].split()[:3]
    return len(words) == 3 and all(exact(word) is not None for word in words[:2]) and words[2][0].isalpha()


def pieces(line: str) -> bool:
    """Whether a line may be the rest of a row: words that stand for numbers, and there are some."""
    words = stamped(line)[0].split()
    return bool(words) and all(map(_number, words))
