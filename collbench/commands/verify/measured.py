"""Makes sums of random values again and again, and tells what changes their bits.

Runs alike on every process of the run, as collbench/measure/sampling.py does.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from collbench import algorithms
from collbench.algorithms import Implementation, implementations
from collbench.cases import Case, Sampling, Sweep
from collbench.collectives import REDUCED
from collbench.commands.verify import rows
from collbench.commands.verify.rows import BitDifference, Places, SumBits
from collbench.commands.verify.sums import ExactSums, values
from collbench.datatypes import Array
from collbench.errors import Unsupported
from collbench.measure.sampling import Heartbeat
from collbench.platforms import compiler
from collbench.platforms.checking import POISON, StressPlan
from collbench.platforms.interface import Platform
from collbench.platforms.layout import LINE, Needs, buffers
from collbench.platforms.processes import Team
from collbench.results import Result, Skipped

MOST = 50  # calls, within the budget
LEAST = 8  # calls, however slow they are
_LATE = 2e-6, 2e-3  # seconds that ranks come late, at least and at most
_SEED = 1
_JUDGED = 2**14  # elements whose error is looked at, about

Held = dict[int, Array]  # by local rank what it adds, or what it has of the sum
_PROMPT: Mapping[int, np.generic] = {}


def needs(sweep: Sweep, platform: str) -> Needs:
    """Return what implementations want of memory, with room for buffers that are misaligned."""
    needed = algorithms.needs(sweep.implementations, sweep.ranks, platform)
    most = max(max(case.send_count, case.receive_count) * case.dtype.itemsize for case in sweep.cases())
    return replace(needed, buffers=max(needed.buffers, most + LINE))


def measure(
    case: Case, names: Sequence[str], platform: Platform, sampling: Sampling, heartbeat: Heartbeat, *_: object
) -> Iterator[Result]:
    """*Collective*: yield a result of each implementation.

    Raises:
        CaseFailed: A kernel gave up waiting; the platform must be opened anew.

    """
    assert isinstance(case.work, rows.Bits)
    added = {}
    for rank in platform.local:
        heartbeat(names[0], f"values of rank {rank}")
        added[rank] = values(case.work.law, case.dtype, rank, case.send_count)

    # Every process knows what all ranks add to the elements that are judged.
    judged: Places = np.arange(0, case.send_count, case.send_count // _JUDGED | 1)
    terms: dict[int, Array] = {}
    for of_process in platform.team.exchange({rank: array[judged] for rank, array in added.items()}):
        terms |= of_process
    exact = ExactSums(case.dtype, np.array([terms[rank] for rank in range(case.ranks)]))
    for name in names:
        heartbeat(name)
        try:
            say = partial(heartbeat, name)
            yield _trial(implementations()[name], case, platform, added, sampling, say, judged, exact)
        except Unsupported as reason:
            yield Skipped(case, name, platform.name, str(reason))


class _Way:
    """An implementation that is prepared for a case; `sums` has it add these values."""

    def __init__(self, implementation: Implementation, case: Case, platform: Platform, added: Held) -> None:
        implementation.refuse(case)
        self.case, self.platform, self._added = case, implementation.home(platform), added
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
    exact: ExactSums,
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
    for of_process in team.exchange(by_rank):
        by_rank |= of_process
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
        error=exact.error(np.concatenate(got)),
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
    for what, where, other in (
        (rows.IN_PLACE, "in place, ", replace(case, in_place=True)),
        (rows.ALIGNMENT, "misaligned by 1 element, ", replace(case, unalign=1)),
    ):
        try:
            sums = _Way(implementation, other, platform, added).sums()
        except Unsupported:  # then this is not compared
            continue
        yield what, where, first, sums
    by = case.block // 3 + 1
    moved = {rank: _moved(case, array, by) for rank, array in added.items()}
    sums = _Way(implementation, case, platform, moved).sums()
    expected = {rank: _moved(case, array, by) for rank, array in first.items()}
    yield rows.POSITION, f"values moved by {by:,} elements, ", expected, sums


def _moved(case: Case, array: Array, by: int) -> Array:
    """Return an array with the elements of each block moved round."""
    return np.roll(array.reshape(-1, case.block), by, axis=1).reshape(-1)
