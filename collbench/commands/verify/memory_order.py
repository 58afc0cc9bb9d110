"""The memory order of hand-written kernels: short runs under ThreadSanitizer, with ranks that come late."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from collbench.algorithms import Implementation, implementations, records
from collbench.errors import Unsupported
from collbench.measure import races
from collbench.measure.races import NARROW, Outcome, Run
from collbench.platforms import compiler
from collbench.platforms.layout import awaited
from collbench.units import counted

USUAL_RANKS = 2, 3, 4
MOST_RANKS = 8
UNSEEN = (
    "ThreadSanitizer cannot see scopes, fences, inline PTX, a switch, stores past the caches, and packets read too "
    "early (docs/kernels.md)"
)
STALLS = 2 * (races.START, races.BARRIER, races.PACKETS, races.RECEIVE)  # one for each run and seed
CALLS = 24
_USUAL = partial(Run, calls=CALLS, timeout=4000, careful=True)
_NARROW = {"calls": 6, "counts": (1003, 37, 1700), "threads": (32, 33, 40)}  # whole warps, which are slow here
_FRAME = re.compile(r"(?:^|[ /])([\w-]+\.cuh?):(\d+)", re.MULTILINE)  # a kernel's file and line in a stack
_MEANINGS = {
    races.CRASHED: "the kernel touches memory that it must not touch",
    races.WRONG: "the result is wrong",
    races.GAVE_UP: "some rank waits forever",
    races.RACE: "nothing orders two accesses",
}


class Subject(NamedTuple):
    """A kernel for a collective: how it is run on a number of ranks, and the function that compiles its program."""

    title: str
    run: Callable[..., Run]
    build: Callable[[], Path]


def subjects(names: Sequence[str], collectives: Sequence[str]) -> tuple[list[Subject], Mapping[str, set[str]]]:
    """Return the kernels to try, and by reason the names of those that cannot be tried.

    Unsupported if there is no kernel to try, or if programs with ThreadSanitizer do not run here.
    """
    chosen, untried = list[Subject](), dict[str, set[str]]()
    for name in names:
        way = implementations()[name]
        for collective in (each for each in collectives if each in way.collectives):
            try:
                chosen.append(_subject(way, collective))
            except Unsupported as reason:
                untried.setdefault(str(reason), set()).add(name)
    if not chosen:
        raise Unsupported(f"nothing to try: {'; '.join(untried) or 'no such collective'}; see `collbench list`")
    try:
        races.launcher()
    except races.NoSanitizer as error:
        raise Unsupported(f"--races needs ThreadSanitizer: {error}; set CXX to g++ or clang++") from None
    return chosen, untried


def _subject(way: Implementation, collective: str) -> Subject:
    """Return how to try a kernel; Unsupported with the reason if that is impossible."""
    folder, path, title = compiler.folder(), records.files().get(way.name), f"{way.name} {collective}"
    kernel = way.name if collective == "allreduce" else title.replace(" ", "-")
    if path and collective in races.collectives():
        record = records.read(path)
        entry, only = records.entry(way.name, record, collective), structs.replace(record, collectives=(collective,))
        build = partial(races.build_user_kernel, path.with_suffix(".cu"), entry, only, folder=folder)
        return Subject(title, partial(_USUAL, (races.USER_KERNEL,), fifo=record.fifo), build)
    if way.wire and way.wire.name == races.NARROW_WIRE:
        run = partial(_USUAL, (NARROW,), **_NARROW)
    elif kernel in races.kernels():
        run = partial(_USUAL, (kernel,))
    else:
        reasons = {
            f"the detector has no {collective}": path,
            "a library's code is not compiled here": way.library,
            "its kernel runs with another wire": way.wire,
            "it hands each case to another implementation": way.uses(),
        }
        raise Unsupported(next((reason for reason, holds in reasons.items() if holds), "the host orders its steps"))
    return Subject(title, run, partial(races.build, run(2).parts(), folder=folder))


def judged(subject: Subject, ranks: Sequence[int]) -> Mapping[str, Sequence[str]]:
    """Run a kernel on each number of ranks until some mistake shows, and return evidence in lines by kind of mistake.

    PlatformError if a run does not end.
    """
    try:
        binary = subject.build()
    except ValueError as error:
        errors = re.findall(r"^(?:\./)?(\S+:\d+):.*?error: (.*)$", str(error), re.MULTILINE)
        return {"not compiled": [": ".join(each) for each in errors[:2]] or [str(error).strip()[:200]]}
    evidence = {}
    for count in ranks:
        runs = [subject.run(count, seed=seed, stall=stall) for seed, stall in enumerate(STALLS, 1)]
        with ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(partial(races.outcome, binary), runs))
        for kind, meaning in _MEANINGS.items():
            if outcome := next((outcome for outcome in outcomes if kind in outcome.catchers), None):
                evidence[kind] = [f"with {count} ranks {meaning}:", *(f"  {line}" for line in _evidence(kind, outcome))]
        if evidence:
            break
    return evidence


def _evidence(kind: str, outcome: Outcome) -> Iterator[str]:
    """Yield sentences and lines of kernels that show a mistake of an outcome."""
    if kind == races.CRASHED:
        yield from _lines(outcome.stderr.partition("SEGV")[2])
    elif kind == races.WRONG:
        wrong = {**outcome.found[0]}
        where = "rank {rank}, call {call} of {count}: element {index} is {got:g}, not {wanted:g}"
        yield where.format(**wrong | {"call": wrong["call"] + 1, "count": counted(wrong["count"], "element")})
    elif kind == races.GAVE_UP:
        waits = [(rank, place) for rank, place in enumerate(outcome.waits) if place]
        yield from (f"rank {rank} waits for {awaited(place, rank, len(outcome.waits))}" for rank, place in waits)
    for verb, _, stack in next(iter(outcome.sides), []) if kind == races.RACE else ():
        if "Rank::launch" in stack:
            yield " ".join(["the kernel", f"{verb}s:", *_lines(stack)])
        elif verb == "read":
            yield "the caller checks a result"
        else:
            yield f"the caller {'clears a result' if 'std::fill' in stack else 'fills in the next input'}"


def _lines(stack: str) -> list[str]:
    """Return the innermost line of a kernel in a stack, of its own file rather than of a header; empty if none."""
    for name, number in sorted(_FRAME.findall(stack), key=lambda frame: frame[0].endswith("h"))[:1]:
        path = next(folder / name for folder in (compiler.folder(), compiler.own_folder()) if (folder / name).is_file())
        return [f"{name}:{number}: {path.read_text(encoding='utf-8').splitlines()[int(number) - 1].strip()}"]
    return []
