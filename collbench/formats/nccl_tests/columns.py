"""The columns of nccl-tests' tables, by the words of their header; rows are matched from the right.

What stands left of a row (a launcher's tag, a date) then does not matter, nor that some versions leave a word out.
"""

import re
from dataclasses import dataclass, replace

from collbench.formats.source import exact, number

LEFT = ("size", "count", "type", "redop", "root")
TIMES = ("time", "cputime")
_MARKS = re.compile(r"^[#|(](?=size|bytes)|[|),;]$")
OTHER_NAMES = {"bytes": "size", "n": "count", "op": "redop", "res": "error", "delta": "error", "wrong": "#wrong"}
"""Of 2015 to 2018, whose times are milliseconds; and a header that lost its marks on the way."""
RESULTS = (*TIMES, "hipevt", "algbw", "busbw", "#wrong", "error", "i_min", "i_max", "i_p99", "i_cv%")
APPENDED = ("algo", "proto", "nchannels")  # by rccl-tests, in some versions without a header
TYPES = r"float\d{0,2}|half|double|bfloat16|u?int\d{0,2}|u?char|f8e[45]m[23]|fp8_e[45]m[23]|nccl[A-Z]\w{2,12}"
START = re.compile(rf"(?<![\w.,:/-])\d{{1,19}}\s++\d{{1,19}}\s++(?:{TYPES})(?!\S)", re.IGNORECASE)
STAMP = re.compile(r"(?<!\S)\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?!\S)")


@dataclass(frozen=True)
class Columns:
    """Names from left to right: of the case, of each place's results, and of what is appended."""

    case: tuple[str, ...]
    places: tuple[tuple[str, ...], ...]
    appended: tuple[str, ...] = ()
    in_place_first: bool = False  # a table of one place may be of that one
    unit: float = 1e-6  # seconds that its times count

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
    words = [word.lower() for word in words]
    if not any("algbw" in word for word in words):
        return None
    old = "bytes" in words and "n" in words
    words = [OTHER_NAMES.get(word, word) for word in (_MARKS.sub("", word) or word for word in words)]
    if not {"size", "type", "algbw"} <= set(words) or not set(words) & set(TIMES):
        return None
    words = words[words.index("size") :]
    first = next(at for at, word in enumerate(words) if word in TIMES)
    places: list[list[str]] = []
    appended: list[str] = []
    for word in words[first:]:
        if word in TIMES:
            places.append([])
        if word in APPENDED:
            appended.append(word)
        elif word[-1].isalpha() or word in RESULTS:
            places[-1].append(word)  # also what a later version may print
    case = tuple(word for word in words[:first] if word in LEFT)
    if len(places) > 2 or case[:1] != ("size",):
        return None
    alone = len(places) == 1 and "in-place" in above and "out-of-place" not in above
    return Columns(case, tuple(map(tuple, places)), tuple(appended), alone, 1e-3 if old else 1e-6)


def stamped(line: str) -> tuple[str, str]:
    """A row without its date and time, and those."""
    stamps = STAMP.findall(line)
    return (STAMP.sub(" ", line), stamps[-1]) if stamps else (line, "")


def match(line: str, columns: Columns) -> LogRow | None:
    """The row that a line is, or None; the operation's name may be missing, as for hypercube."""
    text = stamped(line)[0]
    start = START.search(text)
    words = text[start.start() if start else 0 :].split()
    for variant in _variants(columns):
        if len(words) < variant.width:
            continue
        row = _row(words[-variant.width :], variant)
        if not row and start and not any(map(_number, words[variant.width :])):  # somebody's remark behind it
            row = _row(words[: variant.width], variant)
        if row:
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
    """`4e-07*` is an error that rccl-tests finds too large."""
    return number(word.removesuffix("*")) is not None or word.lower().lstrip("+-") in ("n/a", "nan", "inf", "infinity")


def begins(line: str, known: bool = True) -> bool:
    """Whether a line looks as if a row began there: two whole numbers and a type, of any name below a known header."""
    text = stamped(line)[0]
    if START.search(text):
        return True
    words = text.split()[:3]
    return known and len(words) == 3 and all(exact(word) is not None for word in words[:2]) and words[2][0].isalpha()


def pieces(line: str) -> bool:
    """Whether a line may be the rest of a row: words that stand for numbers, and there are some."""
    words = stamped(line)[0].split()
    return bool(words) and all(map(_number, words))
