"""Parameters of functions, of those that are made up and those that they stand for, and how the two compare."""

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from collbench.platforms.compiler import source
from tools.stand_in.cuda import Graph, Machine

OWN = ("machine", "enqueue", "stop", "add", "origin", "ended", "reached")  # what the made-up streams have besides
ON_INSTANCES = ("ptr", "device_id")  # and what the real ones have once there is a driver
MODULES = ("runtime", "driver", "nvrtc", "compiler")  # of cupy.cuda; nccl and cublas are compared on their own

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


def offered(machine: Machine, real: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, made-up and real for everything that the made-up CuPy has, but for NCCL."""
    fake = machine.cupy()
    stream, module = (
        fake.cuda.Stream(non_blocking=True),
        fake.RawModule(code=source("gate.cu"), options=("-std=c++17",)),
    )
    kernel = module.get_function("gate")
    pairs = [
        (getattr(fake.cuda, name), getattr(real.cuda, name)) for name in ("runtime", "driver", "nvrtc", "compiler")
    ]
    pairs += [(fake, real), (fake.cuda, real.cuda), (stream, real.cuda.Stream), (Graph(machine), real.cuda.Graph)]
    pairs += [(fake.cuda.Event(), real.cuda.Event), (module, real.RawModule), (kernel, real.RawKernel)]
    pairs += [(kernel.kernel, real.cuda.Function)]
    with stream:
        pairs += [(fake.asarray(np.zeros((2, 2), np.float32)), real.ndarray)]
    for mine, theirs in pairs:
        for name in dir(mine):
            if not name.startswith("_") and name not in (*OWN, *ON_INSTANCES, *MODULES, "nccl", "cublas"):
                yield f"{getattr(theirs, '__name__', theirs)}.{name}", getattr(mine, name), getattr(theirs, name)
