"""JSON as nccl-tests writes it: with bare inf and nan, and cut short when the program was."""

import json
import math
import re
from typing import Any

from collbench.errors import RunFileError
from collbench.formats.imported import UnfitRow
from collbench.formats.source import Source

LARGEST = 2**26  # characters: parsed, they take twenty times as much memory
DEEPEST = 8
BARE = "bare"  # in run files, which are JSON proper, {"bare": "inf"} stands for such a word
_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
"""One that is not closed reaches to the end, so that no place is looked at twice."""
_WORDS = re.compile(_STRING + r"|-?\b(?:inf(?:inity)?|nan)\b", re.DOTALL | re.IGNORECASE)
_PROPER = {"inf": "Infinity", "infinity": "Infinity", "nan": "NaN"}
_BARE = re.compile(_STRING + r"|Infinity|NaN", re.DOTALL)


def parse(source: Source, array: str) -> tuple[dict[str, Any], bool]:
    """The object that a file is, and whether it is whole; of a torn one, what stands before the tear.

    So much of the list called `array` is kept as is whole.  RunFileError with the line if there is nothing.
    """
    if len(source.text) > LARGEST:
        raise RunFileError(f"{source.name} is larger than {LARGEST >> 20} MiB of JSON; split it")
    text = proper(source.text)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        partly = _salvaged(text, array)
        if not partly.get(array):
            raise RunFileError(f"{source.name}:{error.lineno}: not JSON: {error.msg}") from None
        return partly, False
    except (ValueError, RecursionError):
        raise RunFileError(f"{source.name}: its JSON has too long numbers or is nested too deeply") from None
    if not isinstance(value, dict):
        raise RunFileError(f"{source.name}:1: not a JSON object")
    return value, True


def proper(text: str) -> str:
    """The same with bare inf and nan as Python's JSON knows them."""
    return _WORDS.sub(lambda word: _proper(word[0]), text)


def _proper(word: str) -> str:
    if word[0] == '"':
        return word
    sign, bare = ("-", word[1:]) if word[0] == "-" else ("", word)
    proper = _PROPER[bare.lower()]
    return proper if proper == "NaN" else sign + proper


def _salvaged(text: str, array: str) -> dict[str, Any]:
    """The object's members up to where it is torn."""
    members: dict[str, Any] = {}
    decoder, at = json.JSONDecoder(), _skip(text, 0, "{")
    try:
        while text[at : at + 1] == '"':
            name, at = decoder.raw_decode(text, at)
            at = _skip(text, at, ":")
            if name == array and text[at : at + 1] == "[":
                members[name] = []
                at = _skip(text, at, "[")
                while text[at : at + 1] not in ("]", ""):
                    element, at = decoder.raw_decode(text, at)
                    members[name].append(element)
                    at = _skip(text, at, ",")
                at = _skip(text, at, "],")
                continue
            members[name], at = decoder.raw_decode(text, at)
            at = _skip(text, at, ",")
    except (ValueError, RecursionError):
        pass
    return members


def _skip(text: str, at: int, marks: str) -> int:
    """Behind white space and those marks."""
    while at < len(text) and (text[at].isspace() or text[at] in marks):
        at += 1
    return at


def kept(value: Any, depth: int = 0) -> Any:
    """A value as a run file can hold it; UnfitRow if it is nested too deeply."""
    if depth > DEEPEST:
        raise UnfitRow("it is nested too deeply")
    if isinstance(value, float) and not math.isfinite(value):
        return {BARE: "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if isinstance(value, list):
        return [kept(element, depth + 1) for element in value]
    if isinstance(value, dict):
        return {name: kept(element, depth + 1) for name, element in value.items()}
    return value


def restored(value: Any) -> Any:
    """The value that `kept` was given."""
    if isinstance(value, list):
        return [restored(element) for element in value]
    if isinstance(value, dict):
        if set(value) == {BARE} and value[BARE] in ("nan", "inf", "-inf"):
            return float(value[BARE])
        return {name: restored(element) for name, element in value.items()}
    return value


def dump(value: Any) -> str:
    """Text, with inf and nan as nccl-tests prints them."""
    words = {"Infinity": "inf", "NaN": "nan"}
    return _BARE.sub(lambda word: words.get(word[0], word[0]), json.dumps(value, indent=2)) + "\n"
