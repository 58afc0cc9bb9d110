"""Makes sums of random values again and again: what changes their bits, and their errors against exact sums.

Runs alike on every process of the run, as collbench/measure/sampling.py does.

Values are made of the raw words of a counter-based generator, which NumPy keeps as they are from release to release,
by additions and multiplications alone: so they have the same bits on every machine.  An element's value depends on
its law, its rank and its index, not on how many there are.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from collbench.datatypes import DATATYPES, Array, Datatype
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
_OTHER = 2**32  # streams behind those of ranks
_AT_ONCE = 2**18  # elements
_ROOT_OF_3 = 1.7320508075688772
_LAYER = 1024  # elements of one scale
_TELLING = 128  # elements from which on a rounding at each addition shows in some of them for sure
_WIDE = {"float": "double", "half": "float", "bfloat16": "float"}  # what may keep partial sums instead
_ENDLESS = 1e100
_SLACK = 1 + 2.0**-10  # for terms of second order in the bound

MOST = 50  # calls, within the budget
LEAST = 8  # calls, however slow they are
_LATE = 2e-6, 2e-3  # seconds that ranks come late, at least and at most
_SEED = 1
_JUDGED = 2**14  # elements whose error is looked at, about

Held = dict[int, Array]  # by local rank what it adds, or what it has of the sum
_PROMPT: Mapping[int, np.generic] = {}


def _uniform(stream: int, first: int, count: int) -> Numbers:
    """Return four numbers below 1 for each element of a stream, of shape (4, count)."""
    words = np.random.Philox(key=stream).advance(first).random_raw(4 * count)  # four at each step of its counter
    return (words >> np.uint64(11)).astype(np.float64).reshape(count, 4).T * 2.0**-53


def _normal(stream: int, first: int, count: int) -> Numbers:
    """Return numbers that are nearly normal, with a standard deviation of 1: sums of four that are not."""
    one, two, three, four = _uniform(stream, first, count)

    # The factor takes them off the grid of the uniform numbers, on which additions would be exact.
    normal: Numbers = (one + two + (three + four) - 2.0) * _ROOT_OF_3
    return normal


def _wide(rank: int, first: int, count: int) -> Numbers:
    """Return the same times a power of two from 2**-25 to 2**6."""
    exponents = (32 * _uniform(_OTHER + rank, first, count)[0]).astype(np.int64) - 25
    wide: Numbers = np.ldexp(_normal(rank, first, count), exponents)
    return wide


def _gradient(rank: int, first: int, count: int) -> Numbers:
    """Return noise of each rank with a mean of all of them, a quarter of it, in layers with scales of 2**-8 to 1/2."""
    start = first // _LAYER
    layers = np.arange(first, first + count) // _LAYER - start
    scales = (8 * _uniform(2 * _OTHER + 1, start, int(layers[-1]) + 1)[0]).astype(np.int64) - 8
    mean = 0.25 * _normal(2 * _OTHER, first, count)
    gradient: Numbers = np.ldexp(_normal(rank, first, count) + mean, scales[layers])
    return gradient


LAWS: dict[str, Callable[[int, int, int], Numbers]] = {"normal": _normal, "wide": _wide, "gradient": _gradient}
"""What ranks add, by name: so many values of a rank from one on, of shape (count,)."""


def values(law: str, dtype: Datatype, rank: int, count: int) -> Array:
    """Return what a rank adds: storage values, shape (count,)."""
    added = np.zeros(count, dtype.storage)
    for first in range(0, count, _AT_ONCE):  # which takes 200 bytes for an element meanwhile
        part = added[first : first + _AT_ONCE]
        part[:] = dtype.encode(LAWS[law](rank, first, len(part)))
    return added


def exact(*terms: Numbers) -> Numbers:
    """Return the sums of the terms, element by element, rounded once."""
    return np.array([math.fsum(numbers) for numbers in zip(*(row.tolist() for row in terms), strict=True)])


def _ulp(dtype: Datatype, numbers: Numbers) -> Numbers:
    """Return how far numbers of the type are apart there; below the smallest normal one as far as at that."""
    smallest = float(dtype.decode(np.ones(1, f"u{dtype.itemsize}").view(dtype.storage))[0])
    spacing = np.ldexp(1.0, np.frexp(numbers)[1] - dtype.precision)
    return np.where(numbers == 0, smallest, np.maximum(spacing, smallest))


class Terms:
    """Numbers by rank, each of shape (elements,), their exact sums, and their magnitudes, once for each addition."""

    def __init__(self, dtype: Datatype, stored: Iterable[Array]) -> None:
        self.numbers = [dtype.decode(row).astype(np.float64) for row in stored]
        self.total = exact(*self.numbers)
        self.magnitudes = (len(self.numbers) - 1) * reduce(np.add, map(np.abs, self.numbers)) * _SLACK


def sum_error(dtype: Datatype, terms: Terms, got: Array) -> SumError:
    """Return how far sums, storage values of shape (elements,), are off, and what that says."""
    numbers, total, magnitudes = terms.numbers, terms.total, terms.magnitudes
    sums = np.nan_to_num(dtype.decode(got).astype(np.float64), nan=_ENDLESS, posinf=_ENDLESS, neginf=-_ENDLESS)
    off = np.abs(exact(*numbers, -sums))

    # Each of ranks - 1 additions loses up to half a unit of a partial sum, none of which is larger than all terms
    # together (N. Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 4.2).
    bound, wide = magnitudes * 2.0**-dtype.precision, _WIDE.get(dtype.name)
    of_bound = float(np.max(off / np.where(bound > 0, bound, 1.0)))

    # Where terms cancel to nothing, the exact sum has no unit in the last place, and the result has one.
    ulps = off / _ulp(dtype, np.maximum(np.abs(total), np.abs(sums)))

    # Partial sums of a wider type are rounded to this one once, at the end; of two ranks every sum is.
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
    )


def needs(sweep: Sweep, platform: str) -> Needs:
    """Return what implementations want of memory, with room for buffers that are misaligned."""
    needed = algorithms.needs(sweep.implementations, sweep.ranks, platform)
    most = max(max(case.send_count, case.receive_count) * case.dtype.itemsize for case in sweep.cases())
    return replace(needed, buffers=max(needed.buffers, most + LINE))


def measure(
    case: Case, names: Sequence[str], platform: Platform, sampling: Sampling, heartbeat: Heartbeat, *_: object
) -> Iterator[Result]:
    """*Collective*: yield a result of each implementation; CaseFailed if a kernel gives up waiting."""
    assert isinstance(case.work, rows.Bits)
    added = {}
    for rank in platform.local:
        heartbeat(names[0], f"values of rank {rank}")
        added[rank] = values(case.work.law, case.dtype, rank, case.send_count)

    # Every process knows what all ranks add to the elements that are judged.
    judged: Places = np.arange(0, case.send_count, case.send_count // _JUDGED | 1)
    terms = reduce(or_, platform.team.exchange({rank: array[judged] for rank, array in added.items()}))
    known = Terms(case.dtype, (terms[rank] for rank in range(case.ranks)))
    for name in names:
        heartbeat(name)
        try:
            say = partial(heartbeat, name)
            yield _trial(implementations()[name], case, platform, added, sampling, say, judged, known)
        except Unsupported as reason:
            yield Skipped(case, name, platform.name, str(reason))


class _Way:
    """An implementation that is prepared for a case; `sums` has it add these values."""

    def __init__(self, implementation: Implementation, case: Case, platform: Platform, added: Held) -> None:
        implementation.refuse(case)
        self.case, self.platform, self._added = case, implementation.home(platform, case), added
        with platform.team.agreeing():
            self.prepared = implementation.prepare(case, self.platform)
        self._stall = self.platform.launcher.kernel(compiler.JUDGE, "stall", case.dtype, case.redop)
        self._nothing = np.full(case.receive_count * case.dtype.itemsize, POISON, np.uint8)

    def sums(self, late: Mapping[int, np.generic] = _PROMPT, graph: bool = False) -> Held:
        """*Collective*: add once; what local ranks have of the sum.  Ranks may be late by so many nanoseconds."""
        platform, launcher, case = self.platform, self.platform.launcher, self.case
        home = {rank: buffers(platform.memory, case, rank) for rank in platform.local}
        with platform.team.agreeing(), platform.compute.stepping():
            for rank, (send, receive) in home.items():
                launcher.store(rank, receive, self._nothing)  # or the last call's result might pass for this one's
                launcher.store(rank, send, self._added[rank])
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
    """Return the first element of the part of the sum that a rank has at the end, if it has any."""
    return [sent for _, source, sent in case.pieces(rank) if source == REDUCED]


def _trial(
    implementation: Implementation,
    case: Case,
    platform: Platform,
    added: Held,
    sampling: Sampling,
    say: Callable[[str], None],
    judged: Places,
    known: Terms,
) -> SumBits:
    """*Collective*: have an implementation add in many ways, and return what is known of its sums."""
    way, team = _Way(implementation, case, platform, added), platform.team
    begun = time.perf_counter()
    first = way.sums()
    seconds = max(team.exchange(time.perf_counter() - begun))

    # Of what each rank has of the sum: the first element, a digest, some bits, and those of what is judged.
    by_rank: dict[int, tuple[int, bytes, Array, Array]] = {}
    for rank, mine in first.items():
        (sent,) = _parts(case, rank)
        within = judged[np.searchsorted(judged, sent) : np.searchsorted(judged, sent + case.block)] - sent
        by_rank[rank] = sent, hashlib.blake2b(mine.tobytes()).digest(), mine[rows.places(case.block)], mine[within]
    by_rank = reduce(or_, team.exchange(by_rank))
    parts = {by_rank[rank][0]: by_rank[rank] for rank in sorted(by_rank, reverse=True)}  # the first rank's counts
    _, digests, bits, got = zip(*(parts[sent] for sent in sorted(parts)), strict=True)

    # What changed the bits first, by what was tried.
    found: dict[str, BitDifference | None] = {}
    calls, tries = 1, _tries(implementation, way, added, first, seconds, sampling)
    if len(parts) < len(by_rank):
        common = first
        if len({digest for _, digest, *_ in by_rank.values()}) > 1:
            common = dict.fromkeys(first, next(filter(len, team.exchange(first.get(0, ())))))
        tries = chain([(rows.RANKS, "", common, first)], tries)
    for what, where, before, sums in tries:
        say(what)
        calls += what == rows.CALLS
        found[what] = _agreed(team, case, what, where, before, sums)

        # What differs from call to call differs elsewhere too, and that says nothing of where.
        if found[what] and what not in (rows.RANKS, rows.CALLS):
            found[rows.CALLS] = _agreed(team, case, rows.CALLS, f"call {calls + 1} or later, ", first, way.sums())
            if found[rows.CALLS]:
                del found[what]
        if found.get(rows.CALLS):
            break
    return SumBits(
        case=case,
        implementation=implementation.name,
        platform=platform.name,
        digest=hashlib.blake2b(b"".join(digests), digest_size=8).hexdigest(),
        bits=tuple(bits[0].view(f"i{case.dtype.itemsize}").tolist()),
        calls=calls,
        compared=tuple(found),
        differences=tuple(filter(None, found.values())),
        error=sum_error(case.dtype, known, np.concatenate(got)),
        note=platform.note | way.prepared.note,
        library=way.prepared.library,
    )


def _agreed(team: Team, case: Case, what: str, where: str, before: Held, sums: Held) -> BitDifference | None:
    """*Collective*: return the difference of the first rank that has one."""
    pairs = ((rank, before[rank], sums[rank]) for rank in sums)
    mine = (rows.difference(what, f"{where}rank {rank}", case.dtype, *both) for rank, *both in pairs)
    return next(filter(None, team.exchange(next(filter(None, mine), None))), None)


def _tries(
    implementation: Implementation, way: _Way, added: Held, first: Held, seconds: float, sampling: Sampling
) -> Iterator[tuple[str, str, Held, Held]]:
    """*Collective*: yield what is tried, where that is, the bits that sums should have, and the sums."""
    case, platform = way.case, way.platform

    # Ranks come late by turns, so that an order of arrival is another one.
    plan = StressPlan(MOST, min(max(seconds, _LATE[0]), _LATE[1]), _SEED)
    stalls = {rank: plan.stalls(rank, case.ranks) for rank in platform.local}
    end = time.perf_counter() + sampling.budget
    for call in range(1, MOST):
        late = {rank: nanoseconds[call] for rank, nanoseconds in stalls.items()}
        yield rows.CALLS, f"call {call + 1} of up to {MOST}, ", first, way.sums(late)
        if platform.team.any_of(call + 1 >= LEAST and time.perf_counter() > end):
            break
    if platform.clock.graphs and not way.prepared.host_driven:
        yield rows.GRAPH, "in a graph, ", first, way.sums(graph=True)
    for each in PROPERTIES.values():
        other = replace(case, **{each.name: each.other})
        try:
            sums = _Way(implementation, other, platform, added).sums()
        except Unsupported:  # then this is not compared
            continue
        yield each.subject, f"{each.title(each.other)}, ", first, sums
    by = case.block // 3 + 1
    moved = {rank: _moved(case, array, by) for rank, array in added.items()}
    sums = _Way(implementation, case, platform, moved).sums()
    expected = {rank: _moved(case, array, by) for rank, array in first.items()}
    yield rows.POSITION, f"values moved by {by:,} elements, ", expected, sums


def _moved(case: Case, array: Array, by: int) -> Array:
    """Return an array with the elements of each block moved round."""
    return np.roll(array.reshape(-1, case.block), by, axis=1).reshape(-1)
