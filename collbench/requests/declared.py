"""Declarations of parameters: options, checks and library functions follow from each.

A request is a frozen dataclass.  Each field declares its type, options, help text, limits and default:

    @dataclass(frozen=True)
    class PlanRequest(Request):
        on: Annotated[str, Opt("--on", "The system to train on.", metavar="SYSTEM")] = "dgx-h100"
        _: KW_ONLY
        ranks: Ranks = None  # several requests share this Annotated type (collbench.requests.words)
        each: Annotated[Callable[[Result], object] | None, Opt("", "Called with every result.")] = None  # no option

The command passes `params=options_of(PlanRequest)`, and its callback calls `made(PlanRequest, options)`
(cli/options.py). The library function is decorated with `@takes(PlanRequest)`, which adds the parameters and the
`Args` of its docstring. A request checks limits and choices when it is created; a subclass with a `__post_init__`
calls that of `Request` first.
"""

import inspect
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from collbench.errors import UsageError, unknown
from collbench.units import parse_duration, parse_share, parse_size

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_RAISES = """
Raises:
    UsageError: Something does not exist or is impossible.
    Unsupported: No implementation carries out any of the cases.
    PlatformError: The hardware cannot do it.
    StorageError: The run can no longer be written.
"""
_WIDTH = 110  # characters of a line of `Args`


class Unit(NamedTuple):
    """Notation of a value."""

    name: str  # in the help of an option
    read: Callable[[Any, str], float] | None  # takes the value and the name of its option
    form: str  # a sentence for the library


NAMES = Unit("NAME[,NAME]|all", None, 'Several names are a sequence, or a text with commas; "all" selects every name.')
SIZE = Unit("SIZE", parse_size, 'A size is in bytes, or a text such as "64K".')
TIME = Unit("TIME", parse_duration, 'A time is in seconds, or a text such as "500ms".')
SHARE = Unit("SHARE", parse_share, 'A share is a number below 1, or a text such as "5%".')


@dataclass(frozen=True, eq=False)
class Opt:
    """The options of a field, their help and the limits of its values."""

    names: str  # the options, separated by blanks; empty for a parameter of the library only
    help: str  # one sentence
    usual: str = ""  # the default in words, if the value does not show it
    metavar: str = ""  # placeholder of the value in the help
    unit: Unit | None = None
    choices: Iterable[str] = ()  # the only values
    least: float | None = None  # the smallest number
    above: float | None = None  # exclusive lower bound of a number
    most: float | None = None  # the largest number
    library: str = ""  # the library's help, if it differs
    # Shell completions in addition to the words of `metavar`: names, or where they are, as in `datatypes.REDUCTIONS`.
    complete: Callable[[], Iterable[str]] | str = ""
    click: Mapping[str, Any] = field(default_factory=dict)  # further arguments of click.Option

    @property
    def name(self) -> str:
        """The option as messages name it."""
        names = self.names.split()
        return next((name for name in names if name.startswith("--")), names[0])

    def refuse(self, value: Any) -> None:
        """Raise UsageError for a value out of range."""
        if value is None:
            return
        choices = list(self.choices)
        if choices and value not in choices:
            raise unknown(self.name, value, choices)
        limits = {"more than": self.above, "at least": self.least, "at most": self.most}
        within = " and ".join(f"{word} {_plain(limit)}" for word, limit in limits.items() if limit is not None)
        if not within:
            return
        number = self.read(value)
        low = (self.above is not None and number <= self.above) or (self.least is not None and number < self.least)
        high = self.most is not None and number > self.most
        if low or high or not math.isfinite(number):
            raise UsageError(f"{self.name} {_plain(value)} is impossible; give {within}")

    def read(self, value: Any) -> Any:
        """Return a value with a unit as a number: "5s" is 5.0."""
        if self.unit and self.unit.read and value is not None:
            return self.unit.read(value, self.name)
        return value

    @property
    def sentence(self) -> str:
        """Help of the library's parameter."""
        if self.library:
            return self.library
        sentence = self.help.removesuffix(".")
        if self.usual:
            sentence += f"; by default {self.usual}"
        words = self.metavar.split("|") if "|" in self.metavar and self.metavar.islower() else []
        if choices := ", ".join(f'"{choice}"' for choice in list(self.choices) or words):
            sentence += f". One of {choices}"
        return f"{sentence}."


def _plain(number: Any) -> str:
    return f"{number:g}" if isinstance(number, float) else str(number)


class Word(NamedTuple):
    """A field of a request that declares a parameter."""

    name: str
    kind: Any  # its type, without the declaration
    opt: Opt
    default: Any  # dataclasses.MISSING if a value is required

    def usual(self, value: Any) -> bool:
        """Return whether a value equals the default in any notation: 60.0 is "60s"."""
        return bool(self.opt.read(value) == self.opt.read(self.default))


def declared(request: Any) -> Mapping[str, Word]:
    """Return the declared parameters of a request by name."""
    kinds = get_type_hints(request, include_extras=True)
    words = {}
    for each in fields(request):
        if get_origin(kinds[each.name]) is Annotated:
            kind, opt = get_args(kinds[each.name])
            words[each.name] = Word(each.name, kind, opt, each.default)
    return words


@dataclass(frozen=True)
class Request:
    """A user's request; UsageError for an unknown choice or a number out of range."""

    def __post_init__(self) -> None:
        for word in declared(type(self)).values():
            word.opt.refuse(getattr(self, word.name))


def takes(request: Callable[P, R], only: str = "") -> Callable[[Callable[[R], T]], Callable[P, T]]:
    """Return a decorator that gives a function of a request the request's parameters, their help, and usual errors.

    `only` names the parameters, separated by blanks, if the function has not all.
    """
    kinds = get_type_hints(request)
    words = {name: word for name, word in declared(request).items() if not only or name in only.split()}

    def decorated(function: Callable[[R], T]) -> Callable[P, T]:
        @wraps(function)
        def called(*values: P.args, **named: P.kwargs) -> T:
            return function(request(**shown.bind(*values, **named).arguments))  # type: ignore[call-arg]

        # Help and notebooks show only the types, without the declarations in Annotated.
        signature = inspect.signature(request)
        used = [each for name, each in signature.parameters.items() if not only or name in words]
        parameters = [each.replace(annotation=kinds[each.name]) for each in used]
        shown = signature.replace(parameters=parameters, return_annotation=get_type_hints(function)["return"])
        text, returns, rest = inspect.cleandoc(function.__doc__ or "").partition("\nReturns:")
        rest, prompt, examples = rest.partition("\n>>> ")
        raises = "" if "Raises:" in rest else _RAISES
        called.__signature__ = shown  # type: ignore[attr-defined]
        called.__doc__ = "\n".join([text, *_arguments(words), f"{returns}{rest}{raises}{prompt}{examples}"])
        return called

    return decorated


def _arguments(words: Mapping[str, Word]) -> Iterator[str]:
    forms = dict.fromkeys(word.opt.unit.form for word in words.values() if word.opt.unit)
    yield from textwrap.wrap(" ".join(forms), _WIDTH)
    yield from ("", "Args:") if forms else ("Args:",)
    for name, word in words.items():
        text = f"    {name}: {word.opt.sentence}"
        yield from textwrap.wrap(text, _WIDTH, subsequent_indent=" " * 8)
