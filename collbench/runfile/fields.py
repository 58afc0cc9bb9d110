"""Fields of a line as what they must be: a run file may come from anywhere, and hold whatever JSON can."""

from collections.abc import Mapping
from typing import Any

from collbench.host.sanitize import text


def whole(fields: Mapping[str, Any], name: str) -> int:
    """A field that must be a whole number: JSON's true is none, and nor is a text of digits: ValueError."""
    value = fields[name]
    if type(value) is not int:
        raise ValueError(f"field {name!r} is {_shown(value)}, not a whole number")
    return value


def duration(fields: Mapping[str, Any], name: str) -> float:
    """A field that must be a number; ValueError if it is none."""
    return durations({name: [fields[name]]}, name)[0]


def durations(fields: Mapping[str, Any], name: str) -> tuple[float, ...]:
    """A field that must be a list of numbers; ValueError if it is none."""
    values = fields[name]
    if not isinstance(values, list):
        raise ValueError(f"field {name!r} is {_shown(values)}, not a list of numbers")
    if not set(map(type, values)) <= {int, float}:
        wrong = next(value for value in values if type(value) not in (int, float))
        raise ValueError(f"field {name!r} holds {_shown(wrong)}, which is no number")
    return tuple(map(float, values))


def _shown(value: object) -> str:
    return text(repr(value)[:80], 40)
