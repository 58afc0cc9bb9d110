"""Options and arguments shared by several commands, and requests made from their values."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import click
from click.core import ParameterSource

from collbench.errors import StorageError, UsageError, write_file, writing
from collbench.host.files import try_to_write
from collbench.host.launcher import launched
from collbench.present.columns import csv_text
from collbench.requests.declared import NAMES, Word, declared
from collbench.requests.declared import SHARE as FRACTION
from collbench.requests.declared import TIME as DURATION
from collbench.requests.sweeps import SweepRequest
from collbench.requests.words import Anywhere
from collbench.units import parse_numbers

T = TypeVar("T")


def option(names: str, meaning: str | None = None, **more: Any) -> click.Option:
    """Return an option; `names` are separated by blanks, `meaning` is its help."""
    return click.Option(names.split(), help=meaning, **more)


_LONGEST, _LONGEST_NAME = 4000, 255  # characters of a path, bytes of each name in it


class _PrintablePath(click.Path):
    """A printable path; bytes that are not UTF-8 are shown as a replacement character."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return the path; an error if it is empty, too long or has control characters."""
        shown = os.fspath(value).encode(errors="replace").decode()
        if not shown:
            self.fail("the file name is empty", parameter, context)
        if not shown.isprintable():
            self.fail(f"{shown!r} has unprintable characters; rename it", parameter, context)
        if len(shown) > _LONGEST or max(len(name.encode()) for name in shown.split("/")) > _LONGEST_NAME:
            self.fail(f"{shown!r} is too long for a file name", parameter, context)
        return super().convert(value, parameter, context)


PATH = _PrintablePath(path_type=Path)
RUN = click.Argument(["run"], metavar="RUN", type=PATH)
RUNS = click.Argument(["runs"], metavar="RUN...", nargs=-1, required=True, type=PATH)


def try_output(path: Path | None, option: str, folder: Path | None) -> None:
    """Raise UsageError if a file cannot be written, before anything is measured; the file is not changed.

    Pipes and devices are not opened.  Under a launcher only rank 0 tries.  A file in `folder`, which is made later, is
    not tried.
    """
    if path in (None, STANDARD) or (launched() or (0, 1))[0] > 0 or (folder and path.parent == folder):
        return
    with writing(path, option):
        try_to_write(path)


def out_option(meaning: str, metavar: str = "FILE", **more: Any) -> click.Option:
    """Return the option `--out` (`-o`)."""
    return option("-o --out", meaning, metavar=metavar, **{"type": PATH} | more)


def folder_option(what: str) -> click.Option:
    """Return `--out` for a folder to make; `-o sum`, as in nccl-tests, is an error that names --redop."""
    return out_option(f"Folder to make for {what}.", "FOLDER", callback=_no_reduction)


def _no_reduction(context: click.Context, parameter: click.Parameter, folder: Path | None) -> Path | None:
    # Imported late: --help must not import NumPy.
    from collbench.datatypes import REDUCTIONS

    reduces = any(other.name == "redop" for other in context.command.params)
    if reduces and folder and {name.strip() for name in str(folder).split(",")} <= {*REDUCTIONS, "all"}:
        raise UsageError(f"-o {folder}: -o is the folder to write to; the reduction is --redop {folder}")
    return folder


STANDARD = Path("-")  # standard output
UNMEASURED = "nothing was measured"


def json_option(what: str) -> click.Option:
    """Return the option `--json`; `what` names the contents in its help."""
    return _written("--json as_json", f"Write {what} as JSON; - prints only the JSON.")


def csv_option(what: str) -> click.Option:
    """Return the option `--csv`; `what` names the subject of a line in its help."""
    return _written("--csv as_csv", f"Write CSV with a line for each {what}; - prints only the CSV.")


def _written(names: str, meaning: str) -> click.Option:
    """Return an option that takes a file; without a file its value is `-`."""
    return option(names, meaning, type=PATH, metavar="FILE|-", is_flag=False, flag_value=str(STANDARD))


def write_json(path: Path | None, value: Any, allow_nan: bool = True) -> None:
    """Write a value as JSON to a file, or print it if `path` is STANDARD; None writes nothing."""
    if path:
        write_text(path, "--json FILE", json.dumps(value, indent=2, allow_nan=allow_nan))


def write_text(path: Path, option: str, text: str) -> None:
    """Write text to the file that an option names, or print it if `path` is STANDARD; it ends with a newline."""
    text = text.removesuffix("\n")
    if path == STANDARD:
        getattr(sys.stdout, "write_whole", sys.stdout.write)(f"{text}\n")
        return
    write_file(path, f"{text}\n", option, StorageError)


def print_answer(
    table: Callable[[], None],
    as_json: Path | None,
    document: Any,
    as_csv: Path | None = None,
    columns: Sequence[str] = (),
    records: Iterable[Mapping[str, Any]] = (),
) -> None:
    """Print an answer as a table, unless its JSON or CSV goes to standard output, and write the JSON and CSV files."""
    if STANDARD not in (as_json, as_csv):
        table()
    write_json(as_json, document, allow_nan=False)
    if as_csv:
        write_text(as_csv, "--csv FILE", csv_text(columns, records))


def print_basis(model: str, assumed: Sequence[str] = ()) -> None:
    """Print the first lines of an answer: the modelled system, if any, and the assumptions."""
    if model:
        click.echo(f"model of {model}: {UNMEASURED}")
    if assumed:
        click.echo(f"assumed: {', '.join(assumed)}")


def completed(
    names: Callable[[], Iterable[str]] | str, several: bool = True, metavar: str = ""
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return an option's `shell_complete`, which proposes `names` and the lower-case words of its metavar.

    `names` is a function, or the path of a registry that is imported on completion, for example `datatypes.REDUCTIONS`.
    """

    def choices() -> Iterable[str]:
        yield from (word for word in metavar.split("|") if word.islower())
        registry: Any = names
        if isinstance(names, str):
            module, _, name = names.rpartition(".")
            registry = name and getattr(import_module(f"collbench.{module}"), name)
        if callable(registry):
            registry = registry()
        yield from registry

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        last = incomplete.rpartition(",")[2] if several else incomplete
        begun = incomplete.removesuffix(last)
        typed = begun.split(",")
        return [begun + name for name in choices() if name.startswith(last) and name not in typed]

    return complete


QUIET = option("-q --quiet", "Print only the rows and the path of the run file.", is_flag=True)


def given() -> dict[str, str]:
    """Return the options given on the command line: the longest spelling by parameter name."""
    context = click.get_current_context()
    every = {str(each.name): max(each.opts, key=len) for each in context.command.get_params(context)}
    return {name: every[name] for name in every if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}


class _Value(click.ParamType):  # type: ignore[type-arg]
    """Type of a word's value, which checks limits and choices; it parses times and shares, but not sizes."""

    def __init__(self, word: Word) -> None:
        self._opt = word.opt
        self._kinds = get_args(word.kind) or (word.kind,)
        self._plain: Any = click.STRING
        if not word.opt.unit:
            plain: dict[Any, Any] = {bool: click.INT, Path: PATH, str: click.STRING, int: click.INT, float: click.FLOAT}
            self._plain = next((plain[kind] for kind in plain if kind in self._kinds), click.STRING)
        self.name = (word.opt.unit or self._plain).name.lower()

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return the value; UsageError where it is impossible."""
        if self._plain is click.INT and self._opt.name in ("--nodes", "--ranks") and parse_numbers(str(value))[1:]:
            several = "`collbench step scale --on SYSTEM --ranks 8..64` predicts several"
            raise UsageError(f"{self._opt.name} {value} is not one number; {several}")
        value = self._plain.convert(value, parameter, context)
        self._opt.refuse(value)
        if self._opt.unit in (DURATION, FRACTION):
            return self._opt.read(value)
        return value > 0 if bool in self._kinds and not self._opt.unit else value


def options_of(request: Any, only: str = "", **defaults: Any) -> list[click.Parameter]:
    """Return the options of a request's words; `only` names some of them, separated by blanks.

    `defaults` replaces the defaults of the request, and its words are options even if `only` lacks them.
    """
    names = [*only.split(), *defaults]
    words = [word for word in declared(request).values() if word.opt.names and (not names or word.name in names)]
    return [option_of(word._replace(default=defaults.get(word.name, word.default))) for word in words]


def option_of(word: Word) -> click.Option:
    """Return the option that a word declares."""
    opt, meaning = word.opt, word.opt.help
    required = word.default is MISSING
    unsaid = required or word.default in (None, "", ())
    if unsaid and opt.usual:
        meaning = f"{meaning}  [default: {opt.usual}]"
    more: dict[str, Any] = {"required": required, "show_default": not unsaid}
    if not required:
        more["default"] = word.default
    if word.kind is bool and not opt.metavar:
        more["is_flag"] = True
    else:
        metavar = opt.metavar or "|".join(opt.choices) or getattr(opt.unit, "name", "")
        more |= {"type": _Value(word), "metavar": metavar or None, "multiple": get_origin(word.kind) is Sequence}
        more["shell_complete"] = completed(opt.complete, opt.unit is NAMES, metavar)
        # A switch that takes a number, such as `-G 0` of nccl-tests.
        if word.kind is bool:
            more["default"] = int(word.default)
    if word.name == "out":
        more["callback"] = _no_reduction
    return option(f"{opt.names} {word.name}", meaning, **more | dict(opt.click))


ANYWHERE = option_of(Word("on", str, get_args(Anywhere)[1], "auto"))
(HERE,) = options_of(SweepRequest, "on")
"""The option --on for ranks that are started, not modelled on a described system."""


class Renaming(click.Command):
    """A command that still takes `earlier` options, separated by blanks, which its help does not show."""

    def __init__(self, name: str | None, earlier: str, params: Iterable[click.Parameter], **more: Any) -> None:
        every = list(params)
        self._earlier = [each for each in every if each.name in earlier.split()]
        super().__init__(name, params=[each for each in every if each not in self._earlier], **more)

    def get_params(self, context: click.Context) -> list[click.Parameter]:
        """Return all parameters; the earlier ones are last and hidden."""
        for each in self._earlier:
            each.hidden = True  # type: ignore[attr-defined]
        return [*super().get_params(context), *self._earlier]


def made(request: type[T], options: Mapping[str, Any], **fixed: Any) -> T:
    """Return a request made from a command's options; `fixed` are words for which the command has no option."""
    return request(**{name: options[name] for name in declared(request) if name in options} | fixed)
