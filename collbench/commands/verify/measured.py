"""Repeated sums of random values: changes of their bits, and their errors.

All processes of the run execute this code alike, as in collbench/measure/sampling.py.

Values have the same bits on every machine: additions and multiplications form them from the raw words of a
counter-based generator, which NumPy keeps stable between releases.  An element's value depends on its law, its rank and
its index, not on the number of elements.
"""

import hashlib
import math
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import chain
from operator import or_

import numpy as np
from numpy.typing import NDArray

from collbench import algorithms
from collbench.algorithms import Implementation, implementations
from collbench.cases import Case, Sampling, Sweep
from collbench.collectives import REDUCED
from collbench.commands.verify import rows
from collbench.commands.verify.rows import BitDifference, Places, SumBits, SumError
from collbench.datatypes import DATATYPES, GROUP, Array, Datatype, Wire, bound
from collbench.errors import Unsupported
from collbench.measure.sampling import Heartbeat
from collbench.platforms import compiler
from collbench.platforms.checking import POISON, StressPlan
from collbench.platforms.interface import Platform
from collbench.platforms.layout import LINE, Needs, buffers
from collbench.platforms.processes import Team
from collbench.properties import PROPERTIES
from collbench.results import Result, Skipped

Numbers = NDArray[np.float64]
_OTHER = 2**32  # first stream after the streams of ranks
_AT_ONCE = 2**18  # elements
_ROOT_OF_3 = 1.7320508075688772
_LAYER = 1024  # elements of one scale
_TELLING = 128  # elements that suffice to show rounding after each addition
_WIDE = {"float": "double", "half": "float", "bfloat16": "float"}  # wider types of partial sums
_ENDLESS = 1e100
_SLACK = 1 + 2.0**-10  # for second-order terms of the bound

MOST = 50  # calls, within the budget
LEAST = 8  # calls, also beyond the budget
_LATE = 2e-6, 2e-3  # least and most seconds by which ranks are late
_SEED = 1
_JUDGED = 2**13  # approximate number of elements with a measured error

Held = dict[int, Array]  # by local rank: its values, or its part of the sum
_PROMPT: Mapping[int, np.generic] = {}


def _uniform(stream: int, first: int, count: int) -> Numbers:
    """Return four numbers in [0, 1) for each element of a stream, shape (4, count)."""
    words = np.random.Philox(key=stream).advance(first).random_raw(4 * count)  # a step of the counter gives four
    return (words >> np.uint64(11)).astype(np.float64).reshape(count, 4).T * 2.0**-53


def _normal(stream: int, first: int, count: int) -> Numbers:
    """Return nearly normal numbers with standard deviation 1: sums of four uniform numbers."""
    one, two, three, four = _uniform(stream, first, count)

    # The factor moves the sums off the grid of the uniform numbers, where additions would be exact.
    normal: Numbers = (one + two + (three + four) - 2.0) * _ROOT_OF_3
    return normal


def _wide(rank: int, first: int, count: int) -> Numbers:
    """Return nearly normal numbers times random powers of two from 2**-25 to 2**6."""
    exponents = (32 * _uniform(_OTHER + rank, first, count)[0]).astype(np.int64) - 25
    wide: Numbers = np.ldexp(_normal(rank, first, count), exponents)
    return wide


def _gradient(rank: int, first: int, count: int) -> Numbers:
    """Return noise of a rank plus a common mean (a quarter of the noise), in layers with scales of 2**-8 to 1/2."""
    start = first // _LAYER
    layers = np.arange(first, first + count) // _LAYER - start
    scales = (8 * _uniform(2 * _OTHER + 1, start, int(layers[-1]) + 1)[0]).astype(np.int64) - 8
    mean = 0.25 * _normal(2 * _OTHER, first, count)
    gradient: Numbers = np.ldexp(_normal(rank, first, count) + mean, scales[layers])
    return gradient


LAWS: dict[str, Callable[[int, int, int], Numbers]] = {"normal": _normal, "wide": _wide, "gradient": _gradient}
"""Laws of values by name: functions of rank, first index and count; return shape (count,)."""


def values(law: str, dtype: Datatype, rank: int, count: int) -> Array:
    """Return the values that a rank adds: storage values, shape (count,)."""
    added = np.zeros(count, dtype.storage)
    for first in range(0, count, _AT_ONCE):  # in parts, since a law needs 200 bytes per element
        part = added[first : first + _AT_ONCE]
        part[:] = dtype.encode(LAWS[law](rank, first, len(part)))
    return added


def exact(*terms: Numbers) -> Numbers:
    """Return the elementwise sums of the terms, rounded once."""
    return np.array([math.fsum(numbers) for numbers in zip(*(row.tolist() for row in terms), strict=True)])


def _ulp(dtype: Datatype, numbers: Numbers) -> Numbers:
    """Return the distance between neighbours of the type at each number (subnormals: at the smallest normal)."""
    smallest = float(dtype.decode(np.ones(1, f"u{dtype.itemsize}").view(dtype.storage))[0])
    spacing = np.ldexp(1.0, np.frexp(numbers)[1] - dtype.precision)
    return np.where(numbers == 0, smallest, np.maximum(spacing, smallest))


class Terms:
    """Numbers by rank, each of shape (elements,), their exact sums, and the bound of the magnitudes of partial sums."""

    def __init__(self, dtype: Datatype, stored: Iterable[Array]) -> None:
        self.numbers = [dtype.decode(row).astype(np.float64) for row in stored]
        self.total = exact(*self.numbers)
        self.magnitudes = (len(self.numbers) - 1) * reduce(np.add, map(np.abs, self.numbers)) * _SLACK


def sum_error(dtype: Datatype, terms: Terms, got: Array, wire: Wire | None = None) -> SumError:
    """Return the error of sums (storage values, shape (elements,)), and the type of partial sums that it shows."""
    numbers, total, magnitudes = terms.numbers, terms.total, terms.magnitudes
    sums = np.nan_to_num(dtype.decode(got).astype(np.float64), nan=_ENDLESS, posinf=_ENDLESS, neginf=-_ENDLESS)
    off = np.abs(exact(*numbers, -sums))

    # Each of the ranks - 1 additions loses up to half a unit in the last place of a partial sum, which is at most the
    # sum of all magnitudes (N. Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 4.2).
    limit, wide = magnitudes * 2.0**-dtype.precision, _WIDE.get(dtype.name)
    of_bound = float(np.max(off / np.where(limit > 0, limit, 1.0)))

    # If terms cancel to zero, the exact sum has no unit in the last place, so the result's unit counts.
    ulps = off / _ulp(dtype, np.maximum(np.abs(total), np.abs(sums)))

    # Partial sums of a wider type are rounded only once, at the end.  A sum of two ranks is always rounded once.
    accumulation = dtype.name if len(numbers) > 2 and len(got) >= _TELLING else ""
    if accumulation and wide:
        once = _ulp(dtype, total) / 2 + magnitudes * 2.0 ** -DATATYPES[wide].precision
        accumulation = wide if np.all(off <= once) else accumulation
    return SumError(
        elements=len(got),
        median=float(np.median(ulps)),
        most=float(ulps.max()),
        of_bound=of_bound,
        accumulation=accumulation if of_bound <= 1 else "narrower",
        of_wire=_of_wire(wire, np.array(numbers), off) if wire else 0.0,
    )


def _of_wire(wire: Wire, terms: Numbers, off: Numbers) -> float:
    """Return the largest error over its bound in a wire format, which depends on whole groups of elements."""
    groups = (slice(first, first + GROUP) for first in range(0, len(off), GROUP))
    return max(float(np.max(off[group] / bound(wire, terms[:, group]))) for group in groups)


def needs(sweep: Sweep, platform: str) -> Needs:
    """Return the memory that implementations need, with room for misaligned buffers."""
    needed = algorithms.needs(sweep.implementations, sweep.ranks, platform)
    most = max(max(case.send_count, case.receive_count) * case.dtype.itemsize for case in sweep.cases())
    return replace(needed, buffers=max(needed.buffers, most + LINE))


def measure(
    case: Case,
    names: Sequence[str],
    platform: Platform,
    sampling: Sampling,
    heartbeat: Heartbeat,
    repeated: Container[str] | None = None,
) -> Iterator[Result]:
    """*Collective*: yield a result for each implementation; CaseFailed if a kernel gives up waiting.

    Implementations in `repeated` add once: an earlier start tried them in all ways.
    """
    assert isinstance(case.work, rows.Bits)
    added = {}
    for rank in platform.local:
        heartbeat(names[0], f"values of rank {rank}")
        added[rank] = values(case.work.law, case.dtype, rank, case.send_count)

    # Exchange the judged elements of all ranks, so that every process has the exact sums.
    groups = np.arange(0, case.send_count, GROUP * (case.send_count // _JUDGED | 1))
    judged: Places = np.add.outer(groups, np.arange(min(GROUP, case.send_count))).ravel()
    judged = judged[judged < case.send_count]
    by_rank = reduce(or_, platform.team.exchange({rank: array[judged] for rank, array in added.items()}))
    terms = Terms(case.dtype, (by_rank[rank] for rank in range(case.ranks)))
    for name in names:
        heartbeat(name)
        try:
            say = partial(heartbeat, name)
            way = _Way(implementations()[name], case, platform, added)
            yield _trial(way, name in (repeated or ()), added, sampling, say, judged, terms)
        except Unsupported as reason:
            yield Skipped(case, name, platform.name, str(reason))


class _Way:
    """An implementation prepared for a case; `sums` adds the values."""

    def __init__(self, implementation: Implementation, case: Case, platform: Platform, added: Held) -> None:
        implementation.refuse(case)
        self.implementation, self.case, self._added = implementation, case, added
        self.platform = implementation.home(platform, case)
        with platform.team.agreeing():
            self.prepared = implementation.prepare(case, self.platform)
        self._stall = self.platform.launcher.kernel(compiler.JUDGE, "stall", case.dtype, case.redop)
        self._nothing = np.full(case.receive_count * case.dtype.itemsize, POISON, np.uint8)

    def sums(self, late: Mapping[int, np.generic] = _PROMPT, graph: bool = False, added: Held | None = None) -> Held:
        """*Collective*: add once; return the sums of local ranks.  `late` has nanoseconds by rank."""
        platform, launcher, case = self.platform, self.platform.launcher, self.case
        home = {rank: buffers(platform.memory, case, rank) for rank in platform.local}
        with platform.team.agreeing(), platform.compute.stepping():
            for rank, (send, receive) in home.items():
                launcher.store(rank, receive, self._nothing)  # erases the result of the last call
                launcher.store(rank, send, (added or self._added)[rank])
        launcher.synchronize()
        if graph:
            platform.clock.time(self.prepared, 1)
        else:
            with platform.team.agreeing(), platform.compute.stepping():
                for rank, nanoseconds in late.items():
                    launcher.bind_one(self._stall, rank, 1, nanoseconds)()
                platform.compute.join_streams()
                self.prepared.launch(1)
        launcher.synchronize()
        size, held = case.dtype.itemsize, {}
        with platform.team.agreeing(), platform.compute.stepping():
            platform.compute.refuse_given_up()
            for rank, (_, receive) in home.items():
                if _parts(case, rank):
                    held[rank] = launcher.fetch(rank, receive, case.block * size).view(case.dtype.storage)
        return held


def _parts(case: Case, rank: int) -> list[int]:
    """Return the first element of a rank's part of the sum in a list; empty if it has none."""
    return [sent for _, source, sent in case.pieces(rank) if source == REDUCED]


def _trial(
    way: _Way,
    once: bool,
    added: Held,
    sampling: Sampling,
    say: Callable[[str], None],
    judged: Places,
    terms: Terms,
) -> SumBits:
    """*Collective*: repeat the addition in all ways, unless only `once`, and return the facts about the sums."""
    case, platform, team = way.case, way.platform, way.platform.team
    begun = time.perf_counter()
    first = way.sums()
    seconds = max(team.exchange(time.perf_counter() - begun))

    # Facts of each rank's part of the sum: first element, digest, selected bits, and the judged elements.
    by_rank: dict[int, tuple[int, bytes, Array, Array]] = {}
    for rank, mine in first.items():
        (sent,) = _parts(case, rank)
        within = judged[np.searchsorted(judged, sent) : np.searchsorted(judged, sent + case.block)] - sent
        by_rank[rank] = sent, hashlib.blake2b(mine.tobytes()).digest(), mine[rows.places(case.block)], mine[within]
    by_rank = reduce(or_, team.exchange(by_rank))
    parts = {by_rank[rank][0]: by_rank[rank] for rank in sorted(by_rank, reverse=True)}  # the lowest rank wins
    _, digests, bits, got = zip(*(parts[sent] for sent in sorted(parts)), strict=True)

    # The first difference of each way to repeat the addition.
    differences: dict[str, BitDifference | None] = {}
    calls, tries = 1, iter(()) if once else _tries(way, added, first, seconds, sampling)
    if len(parts) < len(by_rank):
        common = first
        if len({digest for _, digest, *_ in by_rank.values()}) > 1:
            common = dict.fromkeys(first, next(filter(len, team.exchange(first.get(0, ())))))
        tries = chain([(rows.RANKS, "", common, first)], tries)
    for what, where, before, sums in tries:
        say(what)
        calls += what == rows.CALLS
        differences[what] = _agreed(team, case, what, where, before, sums)

        # A difference may come from the repetition alone: repeat the plain call to find out.
        if differences[what] and what not in (rows.RANKS, rows.CALLS):
            again = f"call {calls + 1} or later, "
            differences[rows.CALLS] = _agreed(team, case, rows.CALLS, again, first, way.sums())
            if differences[rows.CALLS]:
                del differences[what]
        if differences.get(rows.CALLS):
            break
    return SumBits(
        case=case,
        implementation=way.implementation.name,
        platform=platform.name,
        digest=hashlib.blake2b(b"".join(digests), digest_size=8).hexdigest(),
        bits=tuple(bits[0].view(f"i{case.dtype.itemsize}").tolist()),
        calls=calls,
        compared=tuple(differences),
        differences=tuple(filter(None, differences.values())),
        error=sum_error(case.dtype, terms, np.concatenate(got), way.implementation.wire),
        note=platform.note | way.prepared.note,
        library=way.prepared.library,
    )


def _agreed(team: Team, case: Case, what: str, where: str, before: Held, sums: Held) -> BitDifference | None:
    """*Collective*: return the difference of the first rank that has one, or None."""
    pairs = ((rank, before[rank], sums[rank]) for rank in sums)
    mine = (rows.difference(what, f"{where}rank {rank}", case.dtype, *both) for rank, *both in pairs)
    return next(filter(None, team.gather(next(filter(None, mine), None))), None)


def _tries(
    way: _Way, added: Held, first: Held, seconds: float, sampling: Sampling
) -> Iterator[tuple[str, str, Held, Held]]:
    """*Collective*: yield (trial, place in words, reference sums, sums) for each way to repeat the addition."""
    case, platform, implementation = way.case, way.platform, way.implementation

    # Different ranks are late in each call, which changes the order of arrival.
    plan = StressPlan(MOST, min(max(seconds, _LATE[0]), _LATE[1]), _SEED)
    stalls = {rank: plan.stalls(rank, case.ranks) for rank in platform.local}
    end = time.perf_counter() + sampling.budget
    # Doubled values, whose sums are exactly twice as large, show old inputs and results.  In this order of both kinds
    # (the Thue-Morse sequence) those of some call differ, however many calls ago they were written.
    kinds = (("", added, first), ("values doubled, ", _doubled(case, added), _doubled(case, first)))
    for call in range(1, MOST):
        late = {rank: nanoseconds[call] for rank, nanoseconds in stalls.items()}
        kind, values_of, expected = kinds[call.bit_count() % 2]
        yield rows.CALLS, f"call {call + 1} of up to {MOST}, {kind}", expected, way.sums(late, added=values_of)
        if call + 1 >= LEAST and platform.team.any_of(time.perf_counter() > end):
            break
    if platform.clock.graphs and not way.prepared.host_driven:
        yield rows.GRAPH, "in a graph, ", first, way.sums(graph=True)
    for each in PROPERTIES.values():
        other = replace(case, **{each.name: each.other})
        try:
            sums = _Way(implementation, other, platform, added).sums()
        except Unsupported:  # leave this comparison out
            continue
        yield each.subject, f"{each.title(each.other)}, ", first, sums
    by = case.block // 3 + 1
    moved = {rank: _moved(case, array, by) for rank, array in added.items()}
    sums = _Way(implementation, case, platform, moved).sums()
    expected = {rank: _moved(case, array, by) for rank, array in first.items()}
    yield rows.POSITION, f"values moved by {by:,} elements, ", expected, sums


def _doubled(case: Case, held: Held) -> Held:
    return {rank: case.dtype.encode(2 * case.dtype.decode(array)) for rank, array in held.items()}


def _moved(case: Case, array: Array, by: int) -> Array:
    return np.roll(array.reshape(-1, case.block), by, axis=1).reshape(-1)
