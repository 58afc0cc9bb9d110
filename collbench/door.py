"""Files from anywhere: opened, bounded and parsed here, and their texts cleaned, so that all behind may trust them.

Only regular files of a bounded size are read: a pipe, a socket or /dev/zero would never end.
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from collbench import clean
from collbench.errors import CollbenchError, RunFileError, UsageError

LARGEST = 2**28  # bytes of a file with results
LONGEST = 2**24  # bytes of a line in one
DESCRIPTION = 2**18  # bytes of a file that describes something
GREATEST = 2**63  # no whole number is larger
DIGITS = 400  # of a number

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_LARGE = re.compile(r"[0-9]{19}")
_ENDLESS = re.compile(rf"[0-9]{{{DIGITS}}}")
_DOTTED = re.compile(r"""(?<![\w"'-])(?:[\w"'-]+[ \t]*\.[ \t]*){25}""")  # tomllib's time grows with its square
_LENGTHY = re.compile(rf'"[^"]{{{clean.NAME + 1}}}')


@contextmanager
def opened(path: Path, most: int = LARGEST, kind: type[CollbenchError] = RunFileError) -> Iterator[IO[bytes]]:
    """A regular file of at most so many bytes; an error of that kind, in one line, for anything else."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe without a writer would wait
    except (OSError, ValueError) as error:  # ValueError: a null in the name
        raise kind(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
    try:
        _refuse(os.fstat(handle), path, most, kind)
    except CollbenchError:
        os.close(handle)
        raise
    with os.fdopen(handle, "rb") as file:
        try:
            yield file
        except OSError as error:
            raise kind(f"cannot read {path}: {error.strerror}") from None


def _refuse(status: os.stat_result, path: Path, most: int, kind: type[CollbenchError]) -> None:
    if not stat.S_ISREG(status.st_mode):
        what = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise kind(f"cannot read {path}: it is {what}, not a file")
    if status.st_size > most:
        raise kind(f"cannot read {path}: it has {status.st_size} bytes, and {most >> 10} KiB are the most")


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each line, with its end; one that is too long comes cut, and so without an end."""
    with opened(path) as file:
        number, left = 0, LARGEST
        while left > 0 and (line := file.readline(LONGEST)):
            number, left = number + 1, left - len(line)
            yield number, line
            while len(line) == LONGEST and not line.endswith(b"\n"):
                line = file.readline(LONGEST)
                left -= len(line)


def record(line: bytes) -> dict[str, Any]:
    """The object that a line of JSON holds; ValueError that says what is wrong."""
    if len(line) >= LONGEST:
        raise ValueError(f"longer than {LONGEST >> 20} MiB")
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None
    value = _loaded(text)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    plain = text.isascii() and text.rstrip("\r\n").isprintable() and "\\" not in text and "printed" not in value
    return value if plain and not _LENGTHY.search(text) else clean.record(value)


def _loaded(text: str) -> Any:
    if _ENDLESS.search(text):
        raise ValueError(f"a number of {DIGITS} digits or more")
    whole = _whole if _LARGE.search(text) else None
    try:
        return json.loads(text, parse_int=whole, parse_constant=_no_number, object_pairs_hook=_once)
    except (json.JSONDecodeError, RecursionError):
        raise ValueError("not JSON") from None


def _whole(digits: str) -> int:
    number = int(digits)
    if abs(number) > GREATEST:
        raise ValueError(f"the number {digits[:24]}{'…' * (len(digits) > 24)} is larger than 2**63")
    return number


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"field {clean.text(twice, 40)!r} is there twice")
    return fields


def described(path: Path) -> dict[str, Any]:
    """The fields of a TOML file; UsageError in one line for what is none."""
    with opened(path, DESCRIPTION, UsageError) as file:
        raw = file.read(DESCRIPTION + 1)
    try:
        text = raw.decode()
        if _ENDLESS.search(text):
            raise ValueError(f"a number of {DIGITS} digits or more")
        if _DOTTED.search(text):
            raise ValueError("a key of 25 parts or more")
        fields: dict[str, Any] = clean.record(tomllib.loads(text))
    except UnicodeDecodeError:
        raise UsageError(f"{path} cannot be read: not UTF-8 text") from None
    except RecursionError:
        raise UsageError(f"{path} cannot be read: nested too deeply") from None
    except ValueError as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    return fields
