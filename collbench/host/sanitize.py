"""Foreign text made safe to show, foreign files read within bounds.

Text from a file, a launcher or the command line is sanitised once, where it enters. It becomes one line of bounded
length without control, bidirectional or invisible characters. Only regular files of bounded size are read, since a
pipe or /dev/zero may never end. Readers raise the error class that their caller passes.
"""

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

NAME = 200  # characters of a name
MESSAGE = 4000  # characters of a message
WORD = 500  # characters of a word in a message
DEEPEST = 24  # levels of nesting
SIGN = "\N{REPLACEMENT CHARACTER}"

FILE_BYTES = 2**28  # largest file with results
LINE_BYTES = 2**24  # longest line in it
TOML_BYTES = 2**18  # largest TOML file
GREATEST = 2**63  # largest whole number

# Invisible, although Unicode classifies them as letters or marks.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_BREAK = re.compile(r"[\t\n\v\f\r \x1c-\x1e\x85\u2028\u2029]+")
_LONG_WORD = re.compile(rf"\S{{{WORD + 1},}}")
_NUMBER = re.compile(r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?")
_LARGE = re.compile(r"[0-9]{19}")
_LONG_STRING = re.compile(rf'"[^"]{{{NAME + 1}}}')
# A dotted key: tomllib's time grows with the square of its parts.
_DOTTED = re.compile(r"""(?<![\w"'-])(?:[\w"'-]+[ \t]*\.[ \t]*){25}""")


def text(word: str, longest: int = NAME) -> str:
    """Return *word* as one line of at most *longest* characters, with a replacement for each unprintable one."""
    if len(word) <= longest and word.isprintable() and "  " not in word and not _INVISIBLE.search(word):
        return word
    line = _without_controls(_BREAK.sub(" ", word[: 2 * longest]))
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def message(words: str) -> str:
    """Return a sentence as one line, with long foreign words cut in the middle."""
    return text(_LONG_WORD.sub(lambda word: f"{word[0][: WORD // 2]}…{word[0][-WORD // 4 :]}", words[: 2**20]), MESSAGE)


def _without_controls(line: str) -> str:
    if not line.isprintable():
        line = "".join(character if character.isprintable() else SIGN for character in line)
    return _INVISIBLE.sub(SIGN, line)


def cell(word: object) -> object:
    """Return text that is safe in a spreadsheet: a formula gets a leading quote."""
    if not isinstance(word, str) or word.lstrip(" ")[:1] not in tuple("=+-@\t\r") or _NUMBER.fullmatch(word):
        return word
    return f"'{word}"


def tree(value: Any, depth: int = 0) -> Any:
    """Return JSON or TOML data with all text sanitised and without levels nested too deeply.

    ValueError for a number that is too large.
    """
    if isinstance(value, str):
        return text(value)
    if type(value) is int and abs(value) > GREATEST:
        raise ValueError(f"the number {str(value)[:24]} is larger than 2**63")
    if depth >= DEEPEST and isinstance(value, dict | list):
        return None
    if isinstance(value, list):
        return [tree(element, depth + 1) for element in value]
    if isinstance(value, dict):
        return {text(name): tree(element, depth + 1) for name, element in value.items()}
    return value


@contextmanager
def safe_read(path: Path, error: type[Exception], most: int = FILE_BYTES) -> Iterator[IO[bytes]]:
    """Open a regular file of at most *most* bytes; raise *error*, in one line, for anything else."""
    try:
        # Without O_NONBLOCK, opening a pipe without a writer blocks.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as reason:  # ValueError: a null in the name
        raise error(f"cannot read {path}: {getattr(reason, 'strerror', reason)}") from None
    status = os.fstat(handle)
    refusal = ""
    if not stat.S_ISREG(status.st_mode):
        refusal = f"it is {'a folder' if stat.S_ISDIR(status.st_mode) else 'a device, a pipe or the like'}, not a file"
    elif status.st_size > most:
        refusal = f"it has {status.st_size} bytes, and {most >> 10} KiB are the most"
    if refusal:
        os.close(handle)
        raise error(f"cannot read {path}: {refusal}")
    with os.fdopen(handle, "rb") as file:
        try:
            yield file
        except OSError as reason:
            raise error(f"cannot read {path}: {reason.strerror}") from None


def read_lines(path: Path, error: type[Exception]) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of each line, with its newline; a line that is too long is cut, without newline."""
    with safe_read(path, error) as file:
        number, left = 0, FILE_BYTES
        while left > 0 and (line := file.readline(LINE_BYTES)):
            number, left = number + 1, left - len(line)
            yield number, line
            while len(line) == LINE_BYTES and not line.endswith(b"\n"):
                line = file.readline(LINE_BYTES)
                left -= len(line)


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the object in a line of JSON, sanitised; ValueError with a short reason."""
    if len(line) >= LINE_BYTES:
        raise ValueError(f"longer than {LINE_BYTES >> 20} MiB")
    try:
        words = line.decode()
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None
    try:
        value = json.loads(words, parse_constant=_refuse_constant, object_pairs_hook=_unique_fields)
    except (json.JSONDecodeError, RecursionError):
        raise ValueError("not JSON") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    # Most lines need no change; check their text as a whole first.
    harmless = words.isascii() and words.rstrip("\r\n").isprintable() and "\\" not in words
    return value if harmless and not _LONG_STRING.search(words) and not _LARGE.search(words) else tree(value)


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"field {text(twice, 40)!r} is there twice")
    return fields


def read_toml(path: Path, error: type[Exception]) -> dict[str, Any]:
    """Return the fields of a TOML file, sanitised; raise *error*, in one line, if it is invalid."""
    import tomllib  # imported late to keep --help fast

    with safe_read(path, error, TOML_BYTES) as file:
        raw = file.read(TOML_BYTES + 1)
    try:
        words = raw.decode()
        if _DOTTED.search(words):
            raise ValueError("a key of 25 parts or more")
        fields: dict[str, Any] = tree(tomllib.loads(words))
    except UnicodeDecodeError:
        raise error(f"{path} cannot be read: not UTF-8 text") from None
    except RecursionError:
        raise error(f"{path} cannot be read: nested too deeply") from None
    except ValueError as reason:
        raise error(f"{path} cannot be read: {reason}") from None
    return fields
