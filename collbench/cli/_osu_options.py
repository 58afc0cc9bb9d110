"""Options of the OSU Micro-Benchmarks, and what they come to as those of a sweep.

Names, letters and usual values are those of `osu_latency --help` and `osu_allreduce --help` of OMB 7.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import click

from collbench.cli._paths import PATH
from collbench.cli._sweep_options import DEFAULTS, HERE, shared
from collbench.collectives import WINDOW
from collbench.errors import UsageError, unknown
from collbench.formats.osu_tests import TYPES, OsuKind
from collbench.units import parse_size

DEVICES = {"cuda": "gpu", "host": "cpu"}
PLACES = {"D": "gpu", "H": "cpu"}  # of RANK0's and RANK1's buffers: on the device, on the host
_LARGEST_OF_PAIRS, _LARGEST = "4M", "1M"


def osu_options(kind: OsuKind, nonblocking: bool) -> list[click.Parameter]:
    """Those of the program of that test."""
    largest = _LARGEST_OF_PAIRS if kind.own else _LARGEST
    options: list[click.Parameter] = [
        click.Option(["-m", "--message-size"], metavar="[MIN:]MAX", help=f"Bytes of a message; default: 1:{largest}."),
        click.Option(["-i", "--iterations"], type=int, metavar="N", help="Samples; default: as many as are needed."),
        click.Option(["-x", "--warmup"], type=int, default=1, metavar="N", help="Untimed samples first."),
        click.Option(["-f", "--full"], is_flag=True, help="The fastest and the slowest sample too."),
        click.Option(["-c", "--validation"], is_flag=True, help="No effect: every row is checked."),
        click.Option(["-T", "--type"], metavar="NAME", help="Of MPI: mpi_char, mpi_int, mpi_float, ..."),
        click.Option(["-d", "--accelerator"], metavar="|".join(DEVICES), help="Where buffers are; default: --on auto."),
        click.Option(
            ["-W", "--window-size"],
            type=int,
            default=WINDOW,
            metavar="N",
            hidden=not kind.own,
            help="Messages in flight; another number has no effect.",
        ),
        click.Option(["--timeout"], type=float, default=DEFAULTS["timeout"], help="Seconds that fail a case."),
        click.Option(["--out"], type=PATH, metavar="FOLDER", help="Folder to make for a run file; default: none."),
        *shared("ranks", "budget", "spin", "bind", "quiet"),
        HERE,
    ]
    if nonblocking:
        tests = click.Option(["-t", "--num_test_calls"], type=int, default=0, help="Above 0, ask MPI_Test meanwhile.")
        return [*(option for option in options if option.name != "full"), tests]
    places = [click.Argument(["places"], nargs=-1, metavar="[RANK0 RANK1]")] if kind.own else []
    return [*places, *options, *shared(impl="library")]


def remarks(options: Mapping[str, Any]) -> Iterator[str]:
    """A line for what was given and changes nothing."""
    if options["window_size"] != WINDOW:
        yield f"-W {options['window_size']} has no effect: {WINDOW} messages are in flight, as without -W"


def as_sweep(kind: OsuKind, options: Mapping[str, Any]) -> dict[str, Any]:
    """The words of a sweep without its sizes, which need the number of ranks."""
    same = {name: options[name] for name in ("ranks", "budget", "spin", "bind", "timeout", "warmup")}
    return (
        DEFAULTS
        | same
        | {
            "op": kind.measured.name,
            "impl": options.get("impl", "library"),
            "on": _where(options),
            "iters": options["iterations"],
            "datatype": _dtype(kind, options["type"]),
        }
    )


def _where(options: Mapping[str, Any]) -> str:
    """The platform of --on, or the one whose memory -d and the words for both ranks name; UsageError if none is."""
    device, places = options["accelerator"], options.get("places", ())
    if device is not None and device not in DEVICES:
        raise unknown("-d", device, DEVICES)
    if not places:
        return DEVICES[device] if device else str(options["on"])
    words, fix = " ".join(places), "give D D for buffers on GPUs, or H H for buffers on the host"
    if any(place.startswith("M") for place in places):
        raise UsageError(f"{words}: managed memory is not measured here; {fix}")
    if len(places) != 2 or not set(places) <= set(PLACES):
        raise UsageError(f"{words} does not say where the buffers of two ranks are; {fix}")
    if len(set(places)) > 1:
        raise UsageError(f"{words}: the ranks of a run live on GPUs or on CPUs, all of them; {fix}")
    where = PLACES[places[0]]
    if options["on"] not in ("auto", where) or (device == "host" and where != DEVICES[device]):
        raise UsageError(f"{words} are buffers of a {where}, and -d or --on says another; leave those out, or {fix}")
    return where


def _dtype(kind: OsuKind, name: str | None) -> str:
    if name is None:
        return "float" if kind.measured.reduces else "int8"
    if name.upper() not in TYPES:
        raise unknown("-T", name, [known.lower() for known in TYPES])
    return TYPES[name.upper()]


def bounds(kind: OsuKind, said: str | None, ranks: int, itemsize: int) -> tuple[int, int]:
    """The smallest and largest whole array in bytes; `said` counts as OSU does, by default 1 B upwards."""
    usual = _LARGEST_OF_PAIRS if kind.own else _LARGEST
    words = said or usual
    least, _, most = words.partition(":") if ":" in words else ("", "", words)
    first = parse_size(least) if least else itemsize if kind.measured.reduces else 1
    last = parse_size(most or usual)
    if not 1 <= first <= last:
        raise UsageError(f"-m {words} has no size; give MIN:MAX in bytes, from 1, such as -m 8:1M")
    times = kind.messages(ranks)
    return times * max(first, itemsize), times * max(last, itemsize)
