"""Foreign words made fit to be shown: one line, of bounded length, and nothing that a terminal or a reader's eye obeys.

This is done once, where data enters: by collbench/door.py for files, and by collbench/errors.py for messages.
"""

import re
from typing import Any

NAME = 200  # characters of a name
MESSAGE = 4000  # of a message
WORD = 500  # of a word in one
VERBATIM = 2**14  # of a line that is kept as another tool printed it
DEEPEST = 24  # containers around a value
SIGN = "\N{REPLACEMENT CHARACTER}"

_INVISIBLE = re.compile(  # letters and marks by Unicode's classes, though there is nothing to see
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_BREAK = re.compile(r"[\t\n\v\f\r \x1c-\x1e\x85\u2028\u2029]+")
_LONG = re.compile(rf"\S{{{WORD + 1},}}")


def text(word: str, longest: int = NAME) -> str:
    """One line: blanks and breaks as single spaces, a sign for controls, changes of direction and what is invisible."""
    if len(word) <= longest and word.isprintable() and "  " not in word and not _INVISIBLE.search(word):
        return word
    line = _seen(_BREAK.sub(" ", word[: 2 * longest]))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def message(words: str) -> str:
    """The same for a sentence, of which single words may be foreign and long."""
    return text(_LONG.sub(lambda word: f"{word[0][: WORD // 2]}…{word[0][-WORD // 4 :]}", words[: 2**20]), MESSAGE)


def verbatim(line: str) -> str:
    """A line as another tool printed it, tabs and all blanks kept."""
    return "\t".join(map(_seen, line[:VERBATIM].split("\t")))


def _seen(line: str) -> str:
    if not line.isprintable():
        line = "".join(sign if sign.isprintable() else SIGN for sign in line)
    return _INVISIBLE.sub(SIGN, line)


_NUMBER = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?")


def cell(word: object) -> object:
    """What may stand in a table that a spreadsheet opens: a text that it would reckon with gets a quote before it."""
    if not isinstance(word, str) or word.lstrip(" ")[:1] not in tuple("=+-@\t\r") or _NUMBER.fullmatch(word):
        return word
    return f"'{word}"


_VERBATIM = ("printed", "layout")


def record(value: Any, shown: Any = text, depth: int = 0) -> Any:
    """What JSON or TOML held, with every text in it made so; what lies too deep is left out."""
    if isinstance(value, str):
        return shown(value)
    if depth >= DEEPEST and isinstance(value, dict | list):
        return None
    if isinstance(value, list):
        return [record(element, shown, depth + 1) for element in value]
    if not isinstance(value, dict):
        return value
    return {
        text(name): record(element, verbatim if name in _VERBATIM else shown, depth + 1)
        for name, element in value.items()
    }
