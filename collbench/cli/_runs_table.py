"""The list of runs as aligned lines; what is short of room shrinks and then goes, but a path stays whole."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from collbench.runfile.cut_off import WORD
from collbench.runfile.listing import Entry
from collbench.runfile.scan_folder import shown

GAP = "  "
_MANY = 3  # names up to which all are told, and not only how many they are


class Column(NamedTuple):
    """A column, and what may be done about it in a narrow terminal."""

    name: str
    text: Callable[[Entry], str]
    least: int | None = None  # characters that it may shrink to; as many as its longest text if None
    turn: int = 0  # columns with a low number go first; 0 stays for good


COLUMNS = (
    Column("started", lambda entry: _moment(entry.when)),
    Column("host", lambda entry: entry.facts.host, 6, 1),
    Column("topology", lambda entry: entry.facts.topology, 10, 3),
    Column("collectives", lambda entry: _names(entry.facts.collectives), 11, 4),
    Column("implementations", lambda entry: _names(entry.facts.implementations), 15, 2),
    Column("rows", lambda entry: str(entry.facts.rows), None, 1),
    Column("notes", lambda entry: ", ".join(notes(entry)), 8, 5),
    Column("tags", lambda entry: ", ".join(entry.tags), 8, 5),
    Column("run", lambda entry: shown(entry.path.parent)),
)


def lines(entries: Sequence[Entry], width: int | None = None) -> list[str]:
    """A heading and a line for each run, at most `width` characters wide where that is possible."""
    columns = [column for column in COLUMNS if not column.least or any(map(column.text, entries))]
    texts = {column.name: [column.name, *map(column.text, entries)] for column in columns}
    widths = {name: max(map(len, column)) for name, column in texts.items()}
    if width is not None:
        columns = _fit(columns, widths, width)
    sized = [[_cut(text, widths[column.name]) for text in texts[column.name]] for column in columns[:-1]]
    return [GAP.join(row) for row in zip(*sized, texts[columns[-1].name], strict=True)]


def notes(entry: Entry) -> list[str]:
    """What is out of the ordinary about a run."""
    facts = entry.facts
    if facts.broken:
        return ["broken"]
    said = ["predicted"] if "model" in facts.platforms else []
    said += [word for word in (facts.tool, facts.setting) if word]
    said += [f"{count} {word}" for count, word in ((facts.wrong, "wrong"), (facts.failed, "failed")) if count]
    return said + ([] if facts.complete else [WORD])


def _fit(columns: list[Column], widths: dict[str, int], width: int) -> list[Column]:
    """Shrink, the widest first; where that does not do, leave columns out."""
    left = list(columns)
    for turn in sorted({column.turn for column in columns}):
        left = [column for column in left if not column.turn or column.turn >= turn]
        if _line(min(column.least or widths[column.name], widths[column.name]) for column in left) <= width:
            break
    else:
        left = [column for column in left if not column.turn]
    shrinkable = [column for column in left if column.least]
    while shrinkable and _line(widths[column.name] for column in left) > width:
        widest = max(shrinkable, key=lambda column: widths[column.name] - (column.least or 0))
        if widths[widest.name] <= (widest.least or 0):
            break
        widths[widest.name] -= 1
    return left


def _line(widths: Iterable[int]) -> int:
    """The width of a line of such columns."""
    return sum(width + len(GAP) for width in widths) - len(GAP)


def _cut(text: str, width: int) -> str:
    return f"{text if len(text) <= width else text[: width - 1] + '…':<{width}}"


def _moment(when: float) -> str:
    """Local time, to the minute."""
    try:
        return datetime.fromtimestamp(when).isoformat(sep=" ", timespec="minutes")
    except (ValueError, OverflowError, OSError):
        return "?"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _MANY else str(len(names))
