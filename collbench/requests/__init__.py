"""collbench's commands as functions: `collbench.sweep`, `predict`, `read`, `check`, `compare`, `plot`.

They raise the commands' errors, which name parameters instead of options: `ranks=999`, not `--ranks 999`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from inspect import signature
from numbers import Integral, Real
from os import PathLike, fspath
from types import NoneType, UnionType
from typing import Any, get_args, get_origin
from warnings import warn

from collbench.errors import CollbenchError, UsageError, unknown
from collbench.presence import UNTIL, commands
from collbench.properties import NCCL_TESTS

_OTHER_NAMES = {"b": "minbytes", "e": "maxbytes", "f": "stepfactor", "i": "stepbytes", "g": "ranks gpus", "n": "iters"}
_OTHER_NAMES |= {"w": "warmup", "d": "datatype", "r": "root", "G": "cudagraph", "T": "timeout"}
_OTHER_NAMES |= {"as": "name machine", "ranks": "counts"} | {each.letter: each.name for each in NCCL_TESTS}
_OPTION = re.compile(
    r"""`[^`]*`                                    # shell commands stay as they are
    |(?<![\w-])--?(?P<option>[a-zA-Z][\w-]*)
    (?:\ (?P<value>'[^']*'|"[^"]*"|[\w.+%/,-]*[\w%]))?  # may also be the next word of the sentence""",
    re.VERBOSE,
)
_VALUE = re.compile(r"""['"].*|-?[\d.]+|[A-Z][A-Z.\w]*""")  # a quoted text, a number or a placeholder
_KINDS: dict[object, tuple[Any, Callable[[Any], object], str]] = {  # accepted type, converter, noun
    int: (Integral, int, "whole number"),  # includes NumPy's integers
    float: (Real, lambda number: number if isinstance(number, int) else float(number), "number"),
    str: (str | PathLike, fspath, "text"),
}


def functions(earlier: bool = False) -> dict[str, str]:
    """Return the module of each library function by name; with *earlier*, of each deprecated name."""
    names = {} if earlier else {"read": "collbench.requests.words"}
    for record in commands().values():
        if bool(record.now) is earlier:
            names |= {name: f"{record.package}.{module}" for name, module in record.functions.items()}
    return names


def function(name: str) -> Callable[..., Any]:
    """Import a function of the library."""
    module = functions().get(name) or functions(earlier=True)[name]
    return of_library(getattr(import_module(module), name), "" if name in functions() else name)


def of_library(function: Callable[..., Any], earlier: str = "") -> Callable[..., Any]:
    """Wrap a library function: check its values, name parameters in errors, and warn about an *earlier* name."""
    parameters = signature(function).parameters

    @wraps(function)
    def called(*values: Any, **named: Any) -> Any:
        if earlier:
            now = f"collbench.{commands()[earlier].now}"
            warn(f"collbench.{earlier} is {now} now; the earlier name goes with {UNTIL}", DeprecationWarning, 2)
        if wrong := [name for name in named if name not in parameters]:
            raise unknown(f"parameter of {function.__name__}()", wrong[0], parameters)
        call = signature(function).bind(*values, **named)
        for name, value in call.arguments.items():
            call.arguments[name] = converted(name, value, parameters[name].annotation, parameters[name].default)
        try:
            return function(*call.args, **call.kwargs)
        except CollbenchError as error:
            call.apply_defaults()
            error.args = (reworded(str(error), call.arguments),)
            raise

    called.__module__, called.__qualname__ = "collbench", earlier or function.__name__  # where pickle finds it
    return called


def converted(name: str, value: object, annotation: Any, default: object = None) -> object:
    """Convert a value to the parameter's annotated type; UsageError if that fails."""
    nouns = []
    for part in get_args(annotation) if isinstance(annotation, UnionType) else [annotation]:
        kind = get_origin(part) or part
        if kind is Sequence and isinstance(value, Iterable):
            elements = [name for name in value.split(",") if name.strip()] if isinstance(value, str) else [*value]
            if default and not elements:
                raise UsageError(f"{name}= is empty; give at least one")
            return [converted(name, element, get_args(part)[0]) for element in elements]
        taken, plain, noun = _KINDS.get(kind, (kind, lambda same: same, kind.__name__.lower()))
        # In Python True is a number; as a value it is a mistake.
        if isinstance(value, taken) and (kind is bool or not isinstance(value, bool)):
            return plain(value)
        if kind is not NoneType:
            nouns.append(noun)
    if "text" in nouns and isinstance(value, list | tuple):  # the command takes such names and numbers with commas
        return ",".join(map(str, value))
    raise UsageError(f"{name}={value!r} is no {' or '.join(nouns)}")


def reworded(message: str, passed: Mapping[str, object]) -> str:
    """Return a message with options replaced by parameters: `ranks=999`; `passed` holds the values of the call."""

    def parameter(match: re.Match[str]) -> str:
        option, value = match["option"] or "", match["value"] or ""
        names = [*_OTHER_NAMES.get(option, "").split(), option.replace("-", "_"), f"{option}s"]
        name = next((name for name in names if name in passed), "")
        if not name:
            return match[0]
        if not value or _VALUE.fullmatch(value):
            return f"{name}={value}"

        # The word after an option is its value, or the next word of the sentence. It is a value if it was passed, or
        # contains a digit (dgx-h100, 5s).
        if value == str(passed[name]) or re.search(r"\d", value):
            return f"{name}={value!r}"
        return f"{name}= {value}"

    return _OPTION.sub(parameter, message)
