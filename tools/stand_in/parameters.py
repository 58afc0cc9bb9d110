"""Parameters of functions, of those that are made up and those that they stand for, and how the two compare."""

import ast
import inspect
import re
from typing import Any

Parameters = list[tuple[str, str]]
"""Names, with a star before those that must be named, and defaults as text, which is empty if there is none."""


def signature(real: Any) -> Parameters:
    """Of a function or class; a compiled one says it in the first line of its docstring."""
    try:
        found = inspect.signature(real).parameters.values()
    except ValueError:
        return documented(real.__doc__ or "")
    star = {inspect.Parameter.KEYWORD_ONLY: "*"}
    named = [row for row in found if row.name != "self"]
    return [
        (
            star.get(parameter.kind, "") + parameter.name,
            "" if parameter.default is parameter.empty else repr(parameter.default),
        )
        for parameter in named
    ]


def documented(text: str) -> Parameters:
    """`f(int a, *, size_t b=0) -> int`."""
    match = re.match(r"[\w.]+\((.*?)\)(?: ->|$)", text.partition("\n")[0])
    assert match, f"no parameters in {text[:80]!r}"
    found, star = [], ""
    for part in (part.strip() for part in match[1].split(",")):
        star = "*" if part == "*" else star
        if part not in ("", "*", "self"):
            name, _, default = part.partition("=")
            found.append((star + name.split()[-1], default.strip()))
    return found


def expect_the_same(name: str, mine: Parameters, theirs: Parameters, constants: Any = None) -> None:
    """Parameters that are left out are the last ones, or have names, and have defaults; a default is the same value."""
    by_place = [word for word, _ in mine if not word.startswith("*")]
    assert by_place == [word for word, _ in theirs[: len(by_place)]], name
    real, own = ({word.lstrip("*"): default for word, default in found} for found in (theirs, mine))
    assert own.keys() <= real.keys(), name
    assert all(default for parameter, default in real.items() if parameter not in own), name
    for parameter, default in own.items():
        assert bool(default) == bool(real[parameter]), (name, parameter)
        if default:
            value = getattr(constants, real[parameter], None) or ast.literal_eval(real[parameter])
            assert ast.literal_eval(default) == value, (name, parameter)
