"""Options and arguments that several commands take, and the requests that are made of their values."""

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from collbench.errors import StorageError, writing
from collbench.platforms import platforms

if TYPE_CHECKING:
    from collbench.api.requests import SweepRequest

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

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


class Renamed(click.Option):
    """An option with spellings of before, which still work and are not in the help."""

    FORMER = ("-o", "--output", "--as")

    def get_help_record(self, context: click.Context) -> tuple[str, str] | None:
        """Return the line of the help without former spellings."""
        shown = copy(self)
        shown.opts = [name for name in self.opts if name not in self.FORMER]
        return click.Option.get_help_record(shown, context)


PATH = _PrintablePath(path_type=Path)
PICTURE = _PrintablePath(dir_okay=False, path_type=Path)
RUN = click.argument("run", metavar="RUN", type=PATH)
RUNS = click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=PATH)
FORMATS = click.Choice(["png", "svg", "pdf"])  # of pictures


def writes(what: str) -> list[click.Parameter]:
    """Return the options that say in which formats pictures are written, and the folder to make for all that is."""
    formats = click.Option(["--format", "formats"], type=FORMATS, multiple=True, default=["png"])
    return [formats, click.Option(["--out"], type=PATH, help=f"Folder to make for {what}.")]


# ----------------------------------------------------------------------------------------------------------------- JSON

STANDARD = Path("-")  # standard output
_JSON, _SUFFIX = "--json", ".json"


class JsonCommand(click.Command):
    """A command whose `--json` may stand alone, also before a run or a folder: then it is `--json -`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse; the word behind `--json` is its file if it is `-` or ends in .json, and `--json=FILE` takes any."""
        words, rest = [], list(args)
        while rest:
            word = rest.pop(0)
            if word == "--":
                words += [word, *rest]
                break
            if word == _JSON:
                taken = rest and (rest[0] == str(STANDARD) or rest[0].endswith(_SUFFIX))
                word = f"{_JSON}={rest.pop(0) if taken else STANDARD}"
            words.append(word)
        return super().parse_args(context, words)


def json_option(what: str) -> Callable[[_Decorated], _Decorated]:
    """Return the option; `what` says what the JSON is of."""
    return click.option(
        _JSON, "as_json", type=PATH, metavar="FILE|-", help=f"Write {what} as JSON; - is standard output, and no more."
    )


@contextmanager
def into(place: Path) -> Iterator[None]:
    """Write what the block prints into that file, or print it where the place is STANDARD."""
    if place == STANDARD:
        yield
        return
    with redirect_stdout(io.StringIO()) as printed:
        yield
    with writing(place, f"{_JSON} FILE", StorageError):
        place.write_text(printed.getvalue(), encoding="utf-8")


# ------------------------------------------------------------------------------------------ names, as a shell completes


def completed(
    names: Callable[[], Iterable[str]], several: bool = True
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return an option's `shell_complete` for these names, which are looked up only then."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",") if several else ("", "", incomplete)
        given = before.split(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last) and name not in given]

    return complete


def _collectives() -> Iterable[str]:
    from collbench.collectives import COLLECTIVES

    return ["all", *COLLECTIVES]


def _implementations() -> Iterable[str]:
    from collbench.algorithms import implementations

    return ["all", "library", "ladder", "narrow", *implementations()]


def systems() -> Iterable[str]:
    """Return the names of all presets."""
    from collbench.topology.files import names

    return names()


def _places() -> Iterable[str]:
    return ["auto", *platforms(), *systems()]


def _dtypes() -> Iterable[str]:
    from collbench.datatypes import DATATYPES

    return ["all", *DATATYPES]


def _redops() -> Iterable[str]:
    from collbench.datatypes import REDUCTIONS

    return ["all", *REDUCTIONS]


# -------------------------------------------------------------------------------------------------------------- systems

HERE = click.Option(
    ["--on"], default="auto", metavar="|".join(("auto", *platforms())), help="Where the ranks live.", show_default=True
)  # and not on a described system

ANYWHERE = click.Option(
    ["--on"],
    default="auto",
    metavar="|".join(("auto", *platforms(), "SYSTEM", "FILE.toml")),
    help="Where the ranks live; on a described system nothing runs, a model predicts.",
)


def machine_option(default: str = "as the run file says") -> Callable[[_Decorated], _Decorated]:
    """Return the option that says what machine runs are of; `--as` was its name before."""
    return click.option(
        "--on",
        "--as",
        "on",
        cls=Renamed,
        metavar="SYSTEM|FILE.toml",
        shell_complete=completed(systems, several=False),
        help=f"What the machine is.  [default: {default}]",
    )


NODES = click.option(
    "--nodes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Nodes that ranks are spread over.  [default: as few as they fill]",
)

# -------------------------------------------------------------------------------------------------------------- a sweep

_NAMES = "NAME[,NAME]|all"
SWEEP_OPTIONS = {
    str(option.name): option
    for option in (
        click.Option(
            ["--op"],
            default="allreduce",
            metavar=_NAMES,
            shell_complete=completed(_collectives),
            help="Collectives (see collbench list).",
        ),
        click.Option(
            ["--impl"],
            default="all",
            metavar="NAME[,NAME]|library|ladder|narrow|all",
            shell_complete=completed(_implementations),
            help="Implementations.",
        ),
        click.Option(
            ["--on"],
            default="auto",
            metavar="|".join(("auto", *platforms(), "SYSTEM", "FILE.toml")),
            shell_complete=completed(_places, several=False),
            help="Where the ranks live; on a described system (see predict) nothing runs, a model predicts.",
        ),
        click.Option(
            ["--nodes"], type=int, metavar="N", help="Nodes of a described system; default: as it says, mostly 1."
        ),
        click.Option(["-g", "--ranks", "--ngpus", "ranks"], type=int, help="Ranks; default: every GPU, on a CPU 2."),
        click.Option(
            ["--ranks-per-node"],
            type=int,
            metavar="N",
            help="GPUs to use of each node of a described system; default: all.",
        ),
        click.Option(["-b", "--minbytes"], default="8", metavar="SIZE", help="Smallest message."),
        click.Option(
            ["-e", "--maxbytes"],
            metavar="SIZE",
            help="Largest message; default: 128M, or what free memory allows; predicted 8G.",
        ),
        click.Option(["-f", "--stepfactor"], type=float, default=4.0, help="Each size is so many times the last."),
        click.Option(["-i", "--stepbytes"], metavar="SIZE", help="Sizes this far apart, instead of -f."),
        click.Option(["-n", "--iters"], type=int, help="Take so many samples, instead of as many as are needed."),
        click.Option(
            ["-w", "--warmup", "--warmup_iters", "warmup"], type=int, default=1, help="Untimed samples first."
        ),
        click.Option(["-c", "--check"], type=int, default=1, help="For nccl-tests' sake: every row is checked."),
        click.Option(
            ["-d", "--datatype"],
            default="float",
            metavar=_NAMES,
            shell_complete=completed(_dtypes),
            help="Element types.",
        ),
        click.Option(
            ["-o", "--redop"], default="sum", metavar=_NAMES, shell_complete=completed(_redops), help="Reductions."
        ),
        click.Option(["-r", "--root"], type=int, default=0, help="Root rank of collectives that have one."),
        click.Option(["--in-place"], is_flag=True, help="Send from and receive into one buffer."),
        click.Option(["-G", "--cudagraph"], type=int, default=1, help="On a GPU, time captured graphs; 0: launches."),
        click.Option(["--no-graph"], is_flag=True, help="The same as -G 0."),
        click.Option(["--budget"], type=float, default=0.5, help="Seconds for a case, all implementations together."),
        click.Option(["-T", "--timeout"], type=float, default=30.0, help="Seconds without progress that fail a case."),
        click.Option(["--spin"], default="auto", metavar="auto|yield|busy", help="On a CPU, how a rank waits."),
        click.Option(
            ["--bind"],
            default="core",
            metavar="core|none",
            help="On a CPU, bind each rank to a core where there are enough.",
        ),
        click.Option(
            ["--ab"],
            multiple=True,
            metavar="'NAME=VALUE ...'",
            help="Measure with these variables, interleaved with the environment as it is; NAME= makes a variable "
            "empty, -NAME unset. Given twice: one setting against the other.",
        ),
        click.Option(
            ["--mpi"],
            default="",
            metavar="LIB[,LIB]",
            help="On a CPU, the MPI libraries to measure, interleaved: mpich, openmpi, intel, ... or a folder; "
            "default: mpi4py's.",
        ),
        click.Option(
            ["--starts"],
            type=int,
            metavar="N",
            help="Start the ranks so often: ± covers what another start gives; default: 3 where that is quick, else 1.",
            show_default=False,
        ),
        click.Option(["-q", "--quiet"], is_flag=True, help="Rows and where they are, and no more."),
        click.Option(
            ["--json", "as_json"],
            type=PATH,
            metavar="FILE|-",
            help="Write what was measured as JSON too; - is standard output, and the table goes to stderr.",
        ),
        click.Option(["-I", "--percentiles"], is_flag=True, help="Show min, p95, p99 and max of the samples too."),
        click.Option(["--out"], type=PATH, help="Folder to make for run file and plots."),
        click.Option(["--plot/--no-plot"], default=True, help="Draw the plots at the end."),
    )
}
"""The options of `collbench sweep` by name; other commands share them."""

MEASURING = (
    *("iters", "warmup", "check", "cudagraph", "no_graph", "budget", "timeout", "spin", "bind", "starts"),
    *("ab", "mpi", "percentiles"),
)
"""The options that say how to measure; they change no prediction."""

_REQUEST = (
    *("op", "impl", "on", "nodes", "ranks", "ranks_per_node", "minbytes", "maxbytes", "stepfactor", "stepbytes"),
    *("iters", "warmup", "datatype", "redop", "root", "in_place", "budget", "timeout", "spin", "bind", "starts", "mpi"),
)


def shared(*names: str, **defaults: Any) -> list[click.Parameter]:
    """Return these options of `sweep`, in its order; those in `defaults` have another default than there."""
    options: list[click.Parameter] = []
    for name, option in SWEEP_OPTIONS.items():
        if name in names or name in defaults:
            changed = copy(option)
            changed.default = defaults.get(name, option.default)
            options.append(changed)
    return options


def sweep_request(options: Mapping[str, Any], **fixed: Any) -> "SweepRequest":
    """Return the request that a command's options make; `fixed` are words for which the command has no option.

    Raises:
        UsageError: A word is unknown or a number is out of range.

    """
    from collbench.api.requests import SweepRequest

    words = {name: options[name] for name in _REQUEST if name in options}
    graph = options.get("cudagraph", 1) > 0 and not options.get("no_graph", False)
    return SweepRequest.parse(**words | fixed, cudagraph=graph)
