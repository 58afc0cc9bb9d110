"""The memory order of hand-written kernels: short runs under ThreadSanitizer, with ranks that come late."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

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
    "ThreadSanitizer cannot see scopes, fences, inline PTX, a switch, stores past the caches, packets read too early, "
    "and accesses outside of arrays, which `collbench verify` checks (docs/kernels.md)"
)
_STALLS = 2 * (races.START, races.BARRIER, races.PACKETS, races.RECEIVE)  # one for each run and seed
Subject = tuple[Callable[..., Run], Callable[[], Path]]
"""How a kernel runs on a number of ranks, and the function that compiles its program."""
_USUAL = partial(Run, calls=24, timeout=4000, careful=True)
EFFORT = f"each kernel: 24 calls x {len(_STALLS)} stalls on {{ranks}} ranks"
_NARROW = {"calls": 6, "counts": (1003, 37, 1700), "threads": (32, 33, 40)}  # whole warps, which are slow here
_FRAME = re.compile(r"(?:^|[ /])([\w-]+\.cuh?):(\d+)", re.MULTILINE)  # a kernel's file and line in a stack
_MEANINGS = {
    races.CRASHED: "the kernel touches memory that it must not touch",
    races.WRONG: "the result is wrong",
    races.GAVE_UP: "some rank waits forever",
    races.RACE: "nothing orders two accesses",
}


def subjects(names: Sequence[str], collectives: Sequence[str]) -> tuple[Mapping[str, Subject], Mapping[str, set[str]]]:
    """Return the kernels to try by implementation and collective, and by reason the names of others.

    Unsupported if there is no kernel to try, or if programs with ThreadSanitizer do not run here.
    """
    chosen, untried = dict[str, Subject](), dict[str, set[str]]()
    for way, collective in product(map(implementations().__getitem__, names), collectives):
        if collective in way.collectives:
            try:
                chosen[f"{way.name} {collective}"] = _subject(way, collective)
            except Unsupported as reason:
                untried.setdefault(str(reason), set()).add(way.name)
    if not chosen:
        raise Unsupported(f"nothing to try: {'; '.join(untried) or 'no such collective'}; see `collbench list`")
    try:
        races.launcher()
    except races.NoSanitizer as error:
        raise Unsupported(f"--races needs ThreadSanitizer: {error}; set CXX to g++ or clang++") from None
    return chosen, untried


def _subject(way: Implementation, collective: str) -> Subject:
    """Return how to try a kernel; Unsupported with the reason if that is impossible."""
    folder, path = compiler.folder(), records.files().get(way.name)
    suffix = "" if collective == "allreduce" else f"-{collective}"
    if path and f"ring-flags{suffix}" in races.kernels():
        record = records.read(path)
        entry, only = records.entry(way.name, record, collective), structs.replace(record, collectives=(collective,))
        run = partial(_USUAL, (races.USER_KERNEL,), fifo=record.fifo)
        return run, partial(races.build_user_kernel, path.with_suffix(".cu"), entry, only, folder=folder)
    if way.wire and way.wire.name == races.NARROW_WIRE:
        run = partial(_USUAL, (NARROW,), **_NARROW)
    elif way.name + suffix in races.kernels():
        run = partial(_USUAL, (way.name + suffix,))
    else:
        raise Unsupported(
            (path and f"the detector has no {collective}")
            or (way.library and "a library's code is not compiled here")
            or (way.wire and "its kernel runs with another wire")
            or (way.uses() and "it hands each case to another implementation")
            or "the host orders its steps"
        )
    return run, partial(races.build, run(2).parts(), folder=folder)


def judged(subject: Subject, ranks: Sequence[int]) -> Mapping[str, Sequence[str]]:
    """Run a kernel on each number of ranks until some mistake shows, and return evidence in lines by kind of mistake.

    PlatformError if a run does not end.
    """
    run, build = subject
    try:
        binary = build()
    except ValueError as error:
        errors = re.findall(r"^(?:\./)?(\S+:\d+):.*?error: (.*)$", str(error), re.MULTILINE)
        return {"not compiled": [": ".join(each) for each in errors[:2]] or [str(error).strip()[:200]]}
    for count in ranks:
        evidence = {}
        runs = [run(count, seed=seed, stall=stall) for seed, stall in enumerate(_STALLS, 1)]
        # Two at a time, so that a hang, which takes a minute to notice, ends the search.
        for first in range(0, len(runs), 2):
            with ThreadPoolExecutor(2) as pool:
                outcomes = list(pool.map(partial(races.outcome, binary), runs[first : first + 2]))
            for kind, meaning in _MEANINGS.items():
                if outcome := next((outcome for outcome in outcomes if kind in outcome.catchers), None):
                    lines = _evidence(kind, outcome)
                    evidence[kind] = [f"with {count} ranks {meaning}:", *(f"  {line}" for line in lines)]
            if evidence:
                return evidence
    return {}


def _evidence(kind: str, outcome: Outcome) -> Iterator[str]:
    """Yield sentences and lines of kernels that show a mistake of an outcome."""
    if kind == races.CRASHED:
        yield from _lines(outcome.stderr.partition("SEGV")[2])
    for each in outcome.found[:1] if kind == races.WRONG else ():
        where = "rank {rank}, call {call} of {count}: element {index} is {got:g}, not {wanted:g}"
        yield where.format(**{**each, "call": each["call"] + 1, "count": counted(each["count"], "element")})
    for rank, place in enumerate(outcome.waits) if kind == races.GAVE_UP else ():
        if place:
            yield f"rank {rank} waits for {awaited(place, rank, len(outcome.waits))}"
    for verb, _, stack in next(iter(outcome.sides), []) if kind == races.RACE else ():
        if "Rank::launch" in stack:
            yield " ".join(["the kernel", f"{verb}s:", *_lines(stack)])
        elif verb == "read":
            yield "the caller checks a result"
        else:
            yield f"the caller {'clears a result' if 'std::fill' in stack else 'fills in an input'}"


def _lines(stack: str) -> list[str]:
    """Return the innermost line of a kernel in a stack, of its own file rather than of a header; empty if none."""
    frames = sorted(_FRAME.findall(stack), key=lambda frame: frame[0].endswith("h"))
    for (name, number), folder in product(frames[:1], (compiler.folder(), compiler.own_folder())):
        if (folder / name).is_file():
            return [f"{name}:{number}: {(folder / name).read_text().splitlines()[int(number) - 1].strip()}"]
    return []
