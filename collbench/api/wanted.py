"""From a user's words to a sweep; every wrong word is a UsageError that names the choices."""

import math
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from collbench.algorithms import choose, needs
from collbench.api.patience import DRIVER, leads, said_if_long, say
from collbench.cases import BINDS, SPINS, USUAL_STARTS, Sampling, SizeRange, Sweep
from collbench.collectives import COLLECTIVES, find_collective
from collbench.datatypes import DATATYPES, REDUCTIONS, find_datatype, find_reduction
from collbench.errors import PlatformError, UsageError, unknown
from collbench.platforms import find_platform, on_auto, platforms
from collbench.platforms.layout import Layout
from collbench.units import format_size, parse_size

Named = TypeVar("Named")

MOST_STARTS = 100
MOST_SAMPLES, MOST_RANKS = 10**7, 2**16  # for ranks of this machine, or of a launcher's
LONGEST = 1e7  # seconds: four months
SMALLEST_DEFAULT = 2**20  # bytes: where memory is so short that the default sweep ends below, say so instead


def make_sweep(options: Mapping[str, Any], launched: tuple[int, int] | None, copies: int = 1) -> tuple[str, Sweep]:
    """Platform and sweep; `launched` is rank and size given by an outside launcher.

    `copies` is how many sets of ranks will hold memory at once.  Where `auto` passes over GPUs, stderr says why.
    """
    _refuse(options)
    with said_if_long(DRIVER):
        platform = _platform(options["on"])
        ranks = _ranks(options["ranks"], platform, launched)
    _refuse_spin(options["spin"], platform)
    starts = _starts(options, launched)
    names = _implementations(options, platform, launched)

    def sweep_to(last: int) -> Sweep:
        sweep = make_cases(options, ranks, names, last)
        return replace(sweep, sampling=_sampling(options), spin=options["spin"], bind=options["bind"], starts=starts)

    if options["maxbytes"]:
        sweep = sweep_to(parse_size(options["maxbytes"]))
        _refuse_too_large(sweep, platform, copies * max(1, starts))
    else:
        sweep = _largest_that_fits(sweep_to, platform, copies * max(1, starts))
    return platform, sweep if starts else _with_usual_starts(sweep, platform, copies)


def _with_usual_starts(sweep: Sweep, platform: str, copies: int) -> Sweep:
    """The sweep; with one start of its ranks where memory has no room for as many as are usual."""
    try:
        _refuse_too_large(sweep, platform, copies * USUAL_STARTS)
    except PlatformError:
        return replace(sweep, starts=1)
    return sweep


def _implementations(options: Mapping[str, Any], platform: str, launched: tuple[int, int] | None) -> tuple[str, ...]:
    """Of that platform; UsageError if it has none, which says why it is this one where `auto` passes over another.

    Under a launcher every process takes the platform that it can, so the one in whose words this is told may be any.
    """
    remark = left_aside(options["on"], platform)
    try:
        names = choose(options["impl"], platform)
    except UsageError as error:
        raise UsageError(f"{error} ({remark})" if remark else error) from None
    if remark and leads(launched):
        say(f"collbench: {remark}")
    return names


def make_cases(options: Mapping[str, Any], ranks: int, implementations: tuple[str, ...], last: int) -> Sweep:
    """The sweep with nothing said of how to sample it; `last` is the largest size in bytes."""
    if not 0 <= options["root"] < ranks:
        raise UsageError(f"--root {options['root']} is no rank; choose from 0 to {ranks - 1}")
    asked = _asked(options, last)
    return Sweep(
        collectives=_names(options["op"], COLLECTIVES, find_collective),
        sizes=asked.sizes,
        dtypes=_names(options["datatype"], DATATYPES, find_datatype),
        redops=_names(options["redop"], REDUCTIONS, find_reduction),
        ranks=ranks,
        implementations=implementations,
        root=options["root"],
        in_place=options["in_place"],
        asked=asked,
    )


def _largest_that_fits(sweep_to: Callable[[int], Sweep], platform: str, copies: int) -> Sweep:
    """The default sweep, cut at what memory allows: the first command must work in a small container too."""
    last = find_platform(platform).largest
    while last > SMALLEST_DEFAULT:
        sweep = sweep_to(last)
        with suppress(PlatformError):
            if find_platform(platform).fits(_refuse_too_large(sweep, platform, copies), sweep.ranks):
                return sweep
        last //= 4
    sweep = sweep_to(last)
    _refuse_too_large(sweep, platform, copies)
    return sweep


def _refuse_too_large(sweep: Sweep, platform: str, copies: int) -> int:
    """Bytes that each rank needs, if they are no more than there can be."""
    nbytes = copies * Layout.of(sweep, needs(sweep.implementations, sweep.ranks, platform)).nbytes
    find_platform(platform).refuse_too_large(nbytes, sweep.ranks)
    return nbytes


def _refuse(options: Mapping[str, Any]) -> None:
    """What no sweep can be made of."""
    if options["check"] < 1:
        raise UsageError("-c 0 is not possible: a number that was not checked is never printed")
    if options["spin"] not in SPINS:
        raise unknown("--spin", options["spin"], SPINS)
    if options["bind"] not in BINDS:
        raise unknown("--bind", options["bind"], BINDS)
    for name, least, most in (("iters", 1, MOST_SAMPLES), ("warmup", 0, MOST_SAMPLES), ("ranks", 1, MOST_RANKS)):
        if options[name] is not None and options[name] < least:
            raise UsageError(f"--{name} {options[name]} is too few; give at least {least}")
        if options[name] is not None and options[name] > most:
            raise UsageError(f"--{name} {options[name]} is too many; give at most {most}")
    for name in ("budget", "timeout"):
        if not 0 < options[name] <= LONGEST:
            raise UsageError(f"--{name} {options[name]} is no time; give seconds above 0, at most {LONGEST:g}")


def _starts(options: Mapping[str, Any], launched: tuple[int, int] | None) -> int:
    """How often the ranks are started; 0: as often as is usual."""
    wanted = options["starts"]
    if wanted is None:
        return 1 if launched else 0
    if launched and wanted != 1:
        raise UsageError(f"--starts {wanted}: the launcher started the ranks, once; leave --starts out")
    if not 1 <= wanted <= MOST_STARTS:
        raise UsageError(f"--starts {wanted} is no number of starts; choose from 1 to {MOST_STARTS}")
    return int(wanted)


def _refuse_spin(spin: str, platform: str) -> None:
    """UsageError for a way to wait where no rank waits on a core."""
    able = [name for name, kind in platforms().items() if kind.spins]
    if spin != "auto" and platform not in able:
        raise UsageError(f"--spin {spin}: ranks wait on cores on {', '.join(able)} only; leave it out on {platform}")


def _platform(name: str) -> str:
    if name == "auto":
        return on_auto()
    if name not in platforms():
        raise unknown("--on", name, ("auto", *platforms()))
    return name


def _ranks(wanted: int | None, platform: str, launched: tuple[int, int] | None) -> int:
    if launched is None:
        return wanted or find_platform(platform).default_ranks()
    if wanted not in (None, launched[1]):
        raise UsageError(f"--ranks {wanted} although the launcher started {launched[1]}; leave --ranks out")
    return launched[1]


def _asked(options: Mapping[str, Any], last: int) -> SizeRange:
    first = parse_size(options["minbytes"])
    if first < 1:
        raise UsageError("-b 0 is no message; the smallest is 1 byte")
    if first > last and options["maxbytes"]:
        raise UsageError(f"-b {options['minbytes']} is above -e {options['maxbytes']}; swap them")
    if options["stepbytes"]:
        step = parse_size(options["stepbytes"])
        if step < 1:
            raise UsageError("-i 0 never gets to -e; give at least 1 byte, or -f 2")
        return SizeRange(first, max(first, last), step=step)
    if not 1 < options["stepfactor"] < math.inf:
        raise UsageError(f"-f {options['stepfactor']:g} never gets to -e; give a factor above 1, such as 2")
    return SizeRange(first, max(first, last), options["stepfactor"])


def _sampling(options: Mapping[str, Any]) -> Sampling:
    return Sampling(
        budget=options["budget"],
        iters=options["iters"],
        warmup=options["warmup"],
        timeout=options["timeout"],
        graph=options["cudagraph"] > 0 and not options["no_graph"],
    )


def _names(text: str, registry: Mapping[str, Named], find: Callable[[str], Named]) -> tuple[Named, ...]:
    if text == "all":
        return tuple(registry.values())
    named = {find(name.strip()): name.strip() for name in text.split(",")}
    for value, name in named.items():
        if value not in registry.values():
            raise UsageError(f"{name!r} is known from other tools only; choose from: {', '.join(registry)}")
    return tuple(named)


def default_folder(sweep: Sweep, where: str = "") -> Path:
    """`results/runs/<time>-<collectives>-<where>`, new for every run; `where` is this host unless it is given."""
    return new_folder([collective.name for collective in sweep.collectives], where or socket.gethostname())


def new_folder(collectives: Sequence[str], where: str) -> Path:
    """The same from names."""
    stem = f"{datetime.now():%Y%m%d-%H%M%S}-{'-'.join(collectives[:3])}-{where}"
    folder = Path("results", "runs", stem)
    count = 2
    while folder.exists():
        folder, count = folder.with_name(f"{stem}-{count}"), count + 1
    return folder


def of_described(options: Mapping[str, Any]) -> str:
    """The option among these that only a described system has a use for, if one is given."""
    given = (name for name in ("nodes", "ranks_per_node") if options[name] is not None)
    return next((f"--{name.replace('_', '-')}" for name in given), "")


def left_aside(wanted: str, platform: str) -> str:
    """A line for the user if `auto` passed over hardware whose driver is there, else nothing."""
    for name, kind in platforms().items() if wanted == "auto" else ():
        if name == platform:
            break
        if reason := kind.obstacle():
            return f"the {name} cannot be used, so this is the {platform}: {reason}"
    return ""


def cut_short(sweep: Sweep, platform: str) -> str:
    """A sentence for the user if memory cut the default sweep short, else nothing."""
    if sweep.sizes[-1] * 4 > find_platform(platform).largest:
        return ""
    return f"stopping at {format_size(sweep.sizes[-1])}: larger messages do not fit in the memory that is free here"
