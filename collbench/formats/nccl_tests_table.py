"""The tables of nccl-tests and rccl-tests: columns by the words of their header, rows read from the right.

What stands left of a row (a launcher's tag, a date) then does not matter, nor that some versions leave a word out.
"""

import re
from dataclasses import dataclass, replace

from collbench.formats.source import body, exact, number

CASE = ("size", "count", "type", "redop", "root")
TIMES = ("time", "cputime")
RESULTS = (*TIMES, "hipevt", "algbw", "busbw", "#wrong", "error", "i_min", "i_max", "i_p99", "i_cv%")
APPENDED = ("algo", "proto", "nchannels")  # by rccl-tests, in some versions without a header
MARKS = re.compile(r"^[#|(](?=size|bytes)|[|),;]$")
OTHER_NAMES = {"bytes": "size", "n": "count", "op": "redop", "res": "error", "delta": "error", "wrong": "#wrong"}
"""Of 2015 to 2018, whose times are milliseconds; and of a header that lost its marks on the way."""
TYPES = r"float\d{0,2}|half|double|bfloat16|u?int\d{0,2}|u?char|f8e[45]m[23]|fp8_e[45]m[23]|nccl[A-Z]\w{2,12}"
START = re.compile(rf"(?<![\w.,:/-])\d{{1,19}}\s++\d{{1,19}}\s++(?:{TYPES})(?!\S)", re.IGNORECASE)
HEADER = re.compile(r"out-of-place|in-place|\(B\) .{0,80}\([um]s\)")  # the lines above and below the names
STAMP = re.compile(r"(?<!\S)\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?!\S)")


@dataclass(frozen=True)
class Columns:
    """Names from left to right: of the case, of the results of each place, and of what is appended."""

    case: tuple[str, ...]
    places: tuple[tuple[str, ...], ...]
    appended: tuple[str, ...] = ()
    in_place_first: bool = False  # whether a table of one place is of that in place
    unit: float = 1e-6  # seconds that its times count

    @property
    def width(self) -> int:
        """Words of a row."""
        return len(self.case) + sum(map(len, self.places)) + len(self.appended)

    def in_place(self, place: int) -> bool:
        """Whether the results of that place are of one buffer."""
        return place == 1 or self.in_place_first


@dataclass(frozen=True)
class TableRow:
    """The words of one row by the names of their columns."""

    line: str
    case: dict[str, str]
    places: tuple[dict[str, str], ...]
    appended: dict[str, str]

    @property
    def stamp(self) -> str:
        """Date and time of the row (-S), or an empty text."""
        stamps = STAMP.findall(self.line)
        return stamps[-1] if stamps else ""


def read_header(words: list[str], above: str = "") -> Columns | None:
    """Return the columns that a line names, None if it is no header; `above` is the line that names the places."""
    words = [word.lower() for word in words]
    if not any("algbw" in word for word in words):
        return None
    milliseconds = "bytes" in words and "n" in words
    words = [MARKS.sub("", word) or word for word in words]
    words = [OTHER_NAMES.get(word, word) for word in words]
    if not {"size", "type", "algbw"} <= set(words) or not set(words) & set(TIMES):
        return None
    words = words[words.index("size") :]
    first = min(words.index(word) for word in TIMES if word in words)
    case = tuple(word for word in words[:first] if word in CASE)
    places: list[list[str]] = []
    appended: list[str] = []
    for word in words[first:]:
        if word in TIMES:
            places.append([])
        if word in APPENDED:
            appended.append(word)
        elif word in RESULTS or word[-1].isalpha():  # a later version may print columns that are not known yet
            places[-1].append(word)
    if len(places) > 2 or case[:1] != ("size",):
        return None
    in_place_first = len(places) == 1 and "in-place" in above and "out-of-place" not in above
    unit = 1e-3 if milliseconds else 1e-6
    return Columns(case, tuple(map(tuple, places)), tuple(appended), in_place_first, unit)


def names_columns(line: str) -> bool:
    """Whether a line is one of those that head a table: the places, the names of the columns, and their units."""
    text = body(line)
    return HEADER.search(text) is not None or read_header(text.split()) is not None


def read_row(line: str, columns: Columns) -> TableRow | None:
    """Return the row that a line is, or None; the name of the operation may be missing, as for hypercube."""
    text = STAMP.sub(" ", line)
    start = START.search(text)
    words = text[start.start() if start else 0 :].split()
    for variant in _variants(columns):
        if len(words) < variant.width:
            continue
        row = _row(line, words[-variant.width :], variant)
        if not row and start and not any(map(_is_number, words[variant.width :])):  # a remark stands behind the row
            row = _row(line, words[: variant.width], variant)
        if row:
            row.case.setdefault("redop", "")
            return row
    return None


def _variants(columns: Columns) -> list[Columns]:
    variants = [columns] if columns.appended else [replace(columns, appended=APPENDED), columns]
    if "redop" in columns.case:
        without = tuple(name for name in columns.case if name != "redop")
        variants += [replace(variant, case=without) for variant in variants]
    return variants


def _row(line: str, words: list[str], columns: Columns) -> TableRow | None:
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
        and all(_is_number(word) for place in places for word in place.values())
        and (not appended or appended["algo"][:1].isalpha())
    )
    return TableRow(line, case, places, appended) if plausible else None


def _is_number(word: str) -> bool:
    """Whether a word stands for a number; `4e-07*` is an error that rccl-tests finds too large."""
    return number(word.removesuffix("*")) is not None or word.lower().lstrip("+-") in ("n/a", "nan", "inf", "infinity")


def begins_row(line: str, known: bool = True) -> bool:
    """Whether a row seems to begin in a line: two whole numbers and a type, of any name below a known header."""
    text = STAMP.sub(" ", line)
    if START.search(text):
        return True
    words = text.split()[:3]
    return known and len(words) == 3 and all(exact(word) is not None for word in words[:2]) and words[2][0].isalpha()


def continues_row(line: str) -> bool:
    """Whether a line may be the rest of a row: words that stand for numbers, and there are some."""
    words = STAMP.sub(" ", line).split()
    return bool(words) and all(map(_is_number, words))
