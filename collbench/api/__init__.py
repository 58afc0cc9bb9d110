"""What collbench's commands do, as functions: `collbench.sweep`, `predict`, `read`, `compare`, `diagnose`, `plot`.

Their errors are those of the commands, with the words of the library: `ranks=999` where a user of the command line
wrote `--ranks 999`.
"""

import re
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import Any

from collbench.errors import CollbenchError

_OTHER_NAMES = {"b": "minbytes", "e": "maxbytes", "f": "stepfactor", "i": "stepbytes", "g": "ranks gpus", "n": "iters"}
_OTHER_NAMES |= {"w": "warmup", "d": "datatype", "r": "root", "G": "cudagraph", "T": "timeout", "as": "name machine"}
_OPTION = re.compile(
    r"""`[^`]*`                                    # a command of a shell stays one
    |(?<![\w-])--?(?P<option>[a-zA-Z][\w-]*)
    (?:\ (?P<value>'[^']*'|"[^"]*"|[\w.+%/-]*[\w%]))?  # which may also be the next word of the sentence""",
    re.VERBOSE,
)
_VALUE = re.compile(r"""['"].*|-?[\d.]+|[A-Z][A-Z.\w]*""")  # as it stands: a text, a number, or what stands for one


def of_library(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the library whose errors name its parameters, not the options of its command."""

    @wraps(function)
    def called(*values: Any, **named: Any) -> Any:
        try:
            return function(*values, **named)
        except CollbenchError as error:
            usual = {name: parameter.default for name, parameter in signature(function).parameters.items()}
            error.args = (reworded(str(error), usual | dict(zip(usual, values, strict=False)) | named),)
            raise

    called.__module__ = "collbench"  # where pickle finds it
    return called


def reworded(message: str, given: Mapping[str, object]) -> str:
    """Return a message with parameters instead of options: `ranks=999`; `given` has the values that were passed."""

    def parameter(match: re.Match[str]) -> str:
        option, value = match["option"] or "", match["value"] or ""
        names = [*_OTHER_NAMES.get(option, "").split(), option.replace("-", "_"), f"{option}s"]
        name = next((name for name in names if name in given), "")
        if not name:
            return match[0]
        if not value or _VALUE.fullmatch(value):
            return f"{name}={value}"
        # Of other words those are values that were passed, or that no sentence has: dgx-h100, 5s.
        if value == str(given[name]) or re.search(r"\d", value):
            return f"{name}={value!r}"
        return f"{name}= {value}"

    return _OPTION.sub(parameter, message)
