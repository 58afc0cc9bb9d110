"""Options and arguments that several commands take, and the requests that are made of their values."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from collbench.errors import StorageError, UsageError, writing
from collbench.host.launcher import RENDEZVOUS, launched
from collbench.platforms import platforms
from collbench.present.columns import csv_text
from collbench.units import parse_duration, parse_share

if TYPE_CHECKING:
    from collbench.api.requests import SweepRequest


def option(names: str, meaning: str | None = None, **more: Any) -> click.Option:
    """Return the option of these names, with blanks between; `meaning` is its help."""
    return click.Option(names.split(), help=meaning, **more)


# ---------------------------------------------------------------------------------------------------------------- paths

_LONGEST, _LONGEST_NAME = 4000, 255  # characters of a path, bytes of a name in it


class _PrintablePath(click.Path):
    """A path that can be shown; a name that is no UTF-8 can, with a sign for what is none."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Return the path, unless a terminal would obey its name, or no file can have it."""
        shown = os.fspath(value).encode(errors="replace").decode()
        if not shown.isprintable():
            self.fail(f"{shown!r} holds signs that no name should; rename it", parameter, context)
        if len(shown) > _LONGEST or max(len(name.encode()) for name in shown.split("/")) > _LONGEST_NAME:
            self.fail(f"{shown!r} is longer than any name of a file", parameter, context)
        return super().convert(value, parameter, context)


PATH = _PrintablePath(path_type=Path)
PICTURE = _PrintablePath(dir_okay=False, path_type=Path)
RUN = click.Argument(["run"], metavar="RUN", type=PATH)
RUNS = click.Argument(["runs"], metavar="RUN...", nargs=-1, required=True, type=PATH)
FORMATS = click.Choice(["png", "svg", "pdf"])  # of pictures


def try_output(path: Path | None, option: str, folder: Path | None) -> None:
    """UsageError if that file cannot be written, before anything is measured; it stays as it is.

    Pipes and devices are not opened, and of a launcher's processes the first alone writes.  `folder` is made later.
    """
    if path in (None, STANDARD) or (launched() or (0, 1))[0] > 0 or (folder and path.parent == folder):
        return
    with writing(path, option):
        if path.exists():
            if path.is_file() or path.is_dir():
                path.open("ab").close()
            return
        place = path.resolve()  # of a link that leads nowhere, what it would lead to
        place.open("ab").close()
        place.unlink(missing_ok=True)


def writes(what: str) -> list[click.Parameter]:
    """Return the options that say in which formats pictures are written, and the folder to make for all that is."""
    formats = option("--format formats", type=FORMATS, multiple=True, default=["png"])
    return [formats, folder_option(what)]


def out_option(meaning: str, metavar: str = "FILE", **more: Any) -> click.Option:
    """Return `--out` and `-o`, which say where to write."""
    return option("-o --out", meaning, metavar=metavar, **{"type": PATH} | more)


def folder_option(what: str) -> click.Option:
    """Return `--out` for a folder that is made; `-o sum` of nccl-tests is refused with the option for it."""
    return out_option(f"Folder to make for {what}.", "FOLDER", callback=_no_reduction)


def _no_reduction(context: click.Context, parameter: click.Parameter, folder: Path | None) -> Path | None:
    reduces = any(other.name == "redop" for other in context.command.params)
    if folder and reduces and (_is_reduction(str(folder)) or str(folder) == "all"):
        raise UsageError(f"-o {folder}: -o is the folder to write to; the reduction is --redop {folder}")
    return folder


# ----------------------------------------------------------------------------------------------------------------- JSON

STANDARD = Path("-")  # standard output
_FILE_OR_STANDARD = "FILE|-"


class JsonCommand(click.Command):
    """A command whose `--json` and `--csv` may stand alone, also before a run or a folder: then it is `--json -`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse; the word behind `--json` is its file if it is `-` or ends in .json, and `--json=FILE` takes any."""
        words = list(args)
        alone = {name for option in self.params if option.metavar == _FILE_OR_STANDARD for name in option.opts}
        for place, word in enumerate(args[: args.index("--") if "--" in args else None]):
            file = (args[place + 1 : place + 2] or [""])[0]
            if word in alone and file != str(STANDARD) and not file.endswith(f".{word[2:]}"):
                words[place] = f"{word}={STANDARD}"
        return super().parse_args(context, words)


def json_option(what: str) -> click.Option:
    """Return the option; `what` says what the JSON is of."""
    meaning = f"Write {what} as JSON; - prints it, and nothing else."
    return option("--json as_json", meaning, type=PATH, metavar=_FILE_OR_STANDARD)


def csv_option(what: str) -> click.Option:
    """Return the option; `what` says what has a line."""
    meaning = f"Write a line for each {what} as CSV; - prints it, and nothing else."
    return option("--csv as_csv", meaning, type=PATH, metavar=_FILE_OR_STANDARD)


def write_json(place: Path | None, value: Any, allow_nan: bool = True) -> None:
    """Write a value as JSON into that file, or print it where the place is STANDARD; nothing where there is none."""
    if place:
        write_text(place, "--json FILE", json.dumps(value, indent=2, allow_nan=allow_nan))


def write_text(path: Path, option: str, text: str) -> None:
    """Write the file that an option names, or print where it is STANDARD, with an end to the last line."""
    text = text.removesuffix("\n")
    if path == STANDARD:
        click.echo(text)
        return
    with writing(path, option, StorageError):
        path.write_text(f"{text}\n", encoding="utf-8")


def print_answer(
    table: Callable[[], None],
    as_json: Path | None,
    document: Any,
    as_csv: Path | None = None,
    columns: Sequence[str] = (),
    records: Iterable[Mapping[str, Any]] = (),
) -> None:
    """Print an answer as a table unless it goes to standard output as JSON or CSV, and write the files of these."""
    if STANDARD not in (as_json, as_csv):
        table()
    write_json(as_json, document, allow_nan=False)
    if as_csv:
        write_text(as_csv, "--csv FILE", csv_text(columns, records))


# --------------------------------------------------------------------------------------------------- names and numbers


def completed(
    names: Callable[[], Iterable[str]], several: bool = True
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return an option's `shell_complete` for these names, which are looked up only then."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        given = before.split(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last) and name not in given]

    return complete


def _all_of(names: str, meaning: str, default: str, module: str, registry: str) -> click.Option:
    """Return the option that takes `all`, or names of a registry, whose module is imported only to complete them."""

    def every() -> Iterable[str]:
        return ["all", *getattr(import_module(f"collbench.{module}"), registry)]

    return option(names, meaning, default=default, metavar="NAME[,NAME]|all", shell_complete=completed(every))


def _implementations() -> Iterable[str]:
    from collbench.algorithms import implementations

    return ["all", "library", "ladder", "narrow", *implementations()]


def systems() -> Iterable[str]:
    """Return the names of all presets."""
    from collbench.topology.files import names

    return names()


class _Measured(click.types.FloatParamType):
    """A number with its unit, read by a function that takes the text and the name of the option."""

    def __init__(self, name: str, parse: Callable[[str, str], float]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        """Return the number in the unit that the code has."""
        return self._parse(value, parameter.opts[-1] if parameter else "")


TIME, SHARE = _Measured("time", parse_duration), _Measured("share", parse_share)


# -------------------------------------------------------------------------------------------------------------- systems

_HERE = "|".join(("auto", *platforms()))
HERE = option("--on", "Where the ranks live.", default="auto", metavar=_HERE, show_default=True)
"""Where ranks are started, and not on a described system."""
ANYWHERE = option(
    "--on",
    "Where the ranks live; on a described system (see predict) nothing runs, a model predicts.",
    default="auto",
    metavar=f"{_HERE}|SYSTEM|FILE.toml",
    shell_complete=completed(lambda: ["auto", *platforms(), *systems()], several=False),
)
NODES = option("--nodes", "Nodes of the ranks.  [default: as few as they fill]", type=click.IntRange(1), metavar="N")


def machine_option(default: str = "as the run file says", meaning: str = "What the machine is.") -> click.Option:
    """Return the option that says what machine runs are of."""
    return option(
        "--on",
        f"{meaning}  [default: {default}]",
        metavar="SYSTEM|FILE.toml",
        shell_complete=completed(systems, several=False),
    )


# -------------------------------------------------------------------------------------------------------------- a sweep


def _meet_in(context: click.Context, parameter: click.Parameter, folder: Path | None) -> None:
    """Name the folder in the environment, where it is looked for when the processes are connected."""
    if folder:
        os.environ[RENDEZVOUS] = str(folder.absolute())


_SWEEP = (
    _all_of("--op", "Collectives (see collbench list).", "allreduce", "collectives", "COLLECTIVES"),
    option(
        "--impl",
        "Implementations.",
        default="all",
        metavar="NAME[,NAME]|library|ladder|narrow|all",
        shell_complete=completed(_implementations),
    ),
    ANYWHERE,
    option("--nodes", "Nodes of a described system; default: as it says, mostly 1.", type=int, metavar="N"),
    option("-g --ranks --ngpus ranks", "Ranks; default: every GPU, on a CPU 2.", type=int),
    option("--ranks-per-node", "GPUs to use of each node of a described system; default: all.", type=int, metavar="N"),
    option("-b --minbytes", "Smallest message.", default="8", metavar="SIZE"),
    option("-e --maxbytes", "Largest message; default: 128M or what memory allows, predicted 8G.", metavar="SIZE"),
    option("-f --stepfactor", "Each size is so many times the last.", type=float, default=4.0),
    option("-i --stepbytes", "Sizes this far apart, instead of -f.", metavar="SIZE"),
    option("-n --iters", "Take so many samples, instead of as many as are needed.", type=int),
    option("-w --warmup --warmup_iters warmup", "Untimed samples first.", type=int, default=1),
    option("-c --check", "For nccl-tests' sake: every row is checked.", type=int, default=1),
    _all_of("-d --datatype", "Element types.", "float", "datatypes", "DATATYPES"),
    _all_of("--redop", "Reductions.", "sum", "datatypes", "REDUCTIONS"),
    option("-r --root", "Root rank of collectives that have one.", type=int, default=0),
    option("--in-place", "Send from and receive into one buffer.", is_flag=True),
    option("-G --cudagraph", "On a GPU, time replays of a CUDA graph; 0: launches.", type=int, default=1),
    option("--no-graph", "The same as -G 0.", is_flag=True),
    option("--budget", "Time for a case, all implementations together.", type=TIME, default="500ms"),
    option("-T --timeout", "Time without progress that fails a case.", type=TIME, default="30s"),
    option(
        "--rendezvous",
        "Under a launcher: find each other in this folder, which all processes see, and not by MPI or torch's store.",
        type=PATH,
        metavar="FOLDER",
        expose_value=False,
        is_eager=True,  # errors of other options are agreed upon by all processes
        callback=_meet_in,
    ),
    option("--spin", "On a CPU, how a rank waits.", default="auto", metavar="auto|yield|busy"),
    option("--bind", "Bind ranks to cores; under a launcher, each near its GPU.", default="core", metavar="core|none"),
    option(
        "--ab",
        "Measure with these variables, interleaved with the environment as it is; NAME= makes a variable empty, -NAME "
        "unset. Given twice: one setting against the other.",
        multiple=True,
        metavar="'NAME=VALUE ...'",
    ),
    option(
        "--mpi",
        "On a CPU, the MPI libraries to measure, interleaved: mpich, openmpi, intel, ... or a folder; default: "
        "mpi4py's.",
        default="",
        metavar="LIB[,LIB]",
        show_default=False,
    ),
    option(
        "--starts",
        "Start the ranks N times, so that ± covers how starts differ; default: 3 where that is quick, else 1.",
        type=int,
        metavar="N",
        show_default=False,
    ),
    option("-q --quiet", "Print the rows and where the run file is, and nothing else.", is_flag=True),
    json_option("the results"),
    option("-I --percentiles", "Show min, p95, p99 and max of the samples too.", is_flag=True),
    folder_option("run file and plots"),
    option("--plot/--no-plot", "Draw the plots at the end.", default=True),
)
SWEEP_OPTIONS: Mapping[str, click.Option] = {str(given.name): given for given in _SWEEP}
"""The options of `collbench sweep` by name; other commands share them."""

MEASURING = (
    *("iters", "warmup", "check", "cudagraph", "no_graph", "budget", "timeout", "spin", "bind", "starts"),
    *("rendezvous", "ab", "mpi", "percentiles"),
)
"""The options that say how to measure; they change no prediction."""


def shared(*names: str, **defaults: Any) -> list[click.Parameter]:
    """Return these options of `sweep`, in its order; those in `defaults` have another default than there."""
    options: list[click.Parameter] = []
    for name, given in SWEEP_OPTIONS.items():
        if name in names or name in defaults:
            changed = copy(given)
            if name in defaults:
                changed.default = defaults[name]
                changed.help = (given.help or "").partition("; default:")[0].rstrip(".") + "."
            options.append(changed)
    return options


def given() -> dict[str, str]:
    """Return the options that the command line has, each with its longest spelling."""
    context = click.get_current_context()
    every = {str(each.name): max(each.opts, key=len) for each in context.command.params}
    return {name: every[name] for name in every if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}


def sweep_request(options: Mapping[str, Any], **fixed: Any) -> "SweepRequest":
    """Return the request that a command's options make; `fixed` are words for which the command has no option.

    UsageError where a word is unknown or a number is out of range.
    """
    from collbench.api.requests import SweepRequest, SweepWords

    words = {name: options[name] for name in ("op", *SweepWords.__annotations__) if name in options}
    graph = options.get("cudagraph", 1) > 0 and not options.get("no_graph", False)
    return SweepRequest(**words | fixed | {"cudagraph": graph})


# ----------------------------------------------------------------------------------- options that nccl-tests alone has


class Unneeded(NamedTuple):
    """An option of nccl-tests that changes nothing here; unless its value is the usual one, stderr says why."""

    letter: str
    name: str
    usual: int
    why: str


UNNEEDED = (
    Unneeded("a", "average", 3, "the slowest rank counts, as with -a 3"),
    Unneeded("C", "report_cputime", 0, "times are those of whole operations, on the device too"),
    Unneeded("D", "device_implementation", 0, "--impl names what carries an operation out"),
    Unneeded("M", "memory_report", 0, "what is free is looked at before the start, and not reported"),
    Unneeded("N", "run_cycles", 1, "a case is sampled until its median is known, once"),
    Unneeded("p", "parallel_init", 0, "communicators are made together, and that is not timed"),
    Unneeded("R", "local_register", 0, "NCCL's buffers are not registered"),
    Unneeded("S", "report_timestamps", 0, "rows have no time of day; the run file has that of its start"),
    Unneeded("u", "unalign", 0, "buffers begin where their memory does"),
    Unneeded("x", "cta_policy", 0, "NCCL's own policy is measured; NCCL_CTA_POLICY sets it"),
    Unneeded("y", "stream_null", 0, "every rank has a stream of its own"),
    Unneeded("z", "blocking", 0, "a sample ends once every rank is done, and nothing in it is waited for"),
)
"""Names, letters and usual values are those of nccl-tests' README and of `all_reduce_perf --help`."""
NCCL_NAMES = ("nthreads", "agg_iters", "output_file", *(unneeded.name for unneeded in UNNEEDED))


def nccl_options() -> list[click.Parameter]:
    """Return the options that nccl-tests alone has; help hides them, and docs/options.md lists them."""
    return [
        option("-t --nthreads", type=click.IntRange(min=1), default=1, metavar="N", hidden=True),
        option("-m --agg_iters", default="1", metavar="N|MIN:MAX", hidden=True),
        option("-J --output_file", type=PATH, metavar="FILE", hidden=True),
        *(
            option(f"-{letter} --{name}", f"No effect: {why}.", type=int, metavar="N", default=usual, hidden=True)
            for letter, name, usual, why in UNNEEDED
        ),
    ]


def nccl_remarks(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each option of nccl-tests that was given and changes nothing."""
    for letter, name, usual, why in UNNEEDED:
        if options[name] != usual:
            yield f"-{letter} {options[name]} has no effect: {why}"
    aggregated, op = options["agg_iters"], options.get("op", "")
    if aggregated != "1" and ":" not in aggregated:
        yield (
            f"-m {aggregated} has no effect: operations are called back to back until a sample lasts long enough, "
            "and never fused; sizes are -m MIN:MAX, or -b and -e"
        )
    if _is_reduction(op):
        yield f"--op {op} is taken as nccl-tests' --op, the reduction: --redop {op} of an allreduce"
    if options["check"] < 1:
        yield f"-c {options['check']} has no effect: a number that was not checked is never printed"


def _is_reduction(op: str) -> bool:
    """Whether --op names what nccl-tests calls an operation; `all` is all collectives."""
    from collbench.datatypes import REDUCTIONS  # here: --help needs none of it, and no NumPy

    return bool(op) and all(name.strip() in REDUCTIONS for name in op.split(","))


def without_nccl_options(options: Mapping[str, Any], joined: tuple[int, int] | None) -> dict[str, Any]:
    """Return the options with what nccl-tests' mean here: threads times GPUs are ranks, -m MIN:MAX is -b and -e."""
    meant = {name: value for name, value in options.items() if name not in NCCL_NAMES} | {"check": 1}
    if _is_reduction(options.get("op", "")):
        meant |= {"op": "allreduce", "redop": options["op"]}
    threads, aggregated = options["nthreads"], options["agg_iters"]
    if threads > 1 and joined:
        raise UsageError(f"-t {threads}: the launcher started {joined[1]} processes, and each is a rank; leave -t out")
    if threads > 1:
        meant["ranks"] = threads * (options["ranks"] or 1)
    if ":" in aggregated:
        first, _, last = aggregated.partition(":")
        meant["minbytes"], meant["maxbytes"] = first or meant["minbytes"], last or meant["maxbytes"]
    elif not aggregated.isdecimal():
        raise UsageError(f"-m {aggregated} is neither; give MIN:MAX in bytes, or -b MIN -e MAX")
    return meant
