"""Measures every pair of ranks: in rounds of disjoint pairs at once, and each pair alone.

Runs alike on every process of the run, as collbench/measure/sampling.py does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from collbench import algorithms
from collbench.cases import Case, Sampling, Sweep
from collbench.commands.pairs.rows import BOTH_WAYS, LATENCY, ONE_WAY, PairMessages, PairTimes
from collbench.errors import Unsupported
from collbench.measure.exchanges import COPY, KERNEL, Exchanges, together
from collbench.measure.sampling import Heartbeat
from collbench.platforms.interface import Platform
from collbench.platforms.layout import Needs
from collbench.results import Result, Skipped
from collbench.results.facts import Scheduling
from collbench.units import counted

LATENCY_BYTES = 8
_REGION, _SAMPLES = 2e-3, 9
_WINDOW = 16  # messages in flight of a bandwidth
_FEWEST = 3  # samples that stand for a pair
Pairs = Sequence[tuple[int, int]]


def needs(sweep: Sweep, platform: str) -> Needs:
    """Return what the libraries want of memory; copies and kernels need no more."""
    names = tuple(name for name in sweep.implementations if name not in (COPY, KERNEL))
    return algorithms.needs(names, sweep.ranks, platform)


def matchings(ranks: int) -> Iterator[list[tuple[int, int]]]:
    """Yield rounds of disjoint pairs in which every pair comes once: the circle method (E. Lucas, 1883).

    >>> list(matchings(4))
    [[(0, 3), (1, 2)], [(0, 2), (3, 1)], [(0, 1), (2, 3)]]

    """
    around = [*range(ranks), *([-1] if ranks % 2 else [])]
    for _ in range(len(around) - 1):
        half = len(around) // 2
        pairs = zip(around[:half], reversed(around[half:]), strict=True)
        yield [pair for pair in pairs if -1 not in pair]
        around[1:] = [around[-1], *around[1:-1]]


def measure(
    case: Case, names: Sequence[str], platform: Platform, sampling: Sampling, heartbeat: Heartbeat, *_: object
) -> Iterator[Result]:
    """*Collective*: yield a result of each pair, pattern and implementation.

    Raises:
        CaseFailed: Messages failed or did not arrive; the platform must be opened anew.

    """
    work = case.work
    assert isinstance(work, PairMessages)
    patterns = (LATENCY,) if case.nbytes <= LATENCY_BYTES else (ONE_WAY, BOTH_WAYS)
    for name in names:
        heartbeat(name)
        exchanges = Exchanges(case, name, platform)
        try:
            launches = {pattern: _launches(exchanges, pattern) for pattern in patterns}
        except Unsupported as reason:
            yield Skipped(case, name, platform.name, str(reason))
            continue
        for turn, at_once in _turns(case.ranks, work.alone):
            for pattern in patterns:
                heartbeat(name, f"{pattern}, {counted(len(turn), 'pair')} at once")
                of = replace(work, pattern=pattern, at_once=at_once)
                yield from _rows(exchanges, of, turn, launches[pattern])
                if pattern == ONE_WAY:
                    yield from _rows(exchanges, of, [pair[::-1] for pair in turn], launches[pattern])


def _turns(ranks: int, alone: bool) -> Iterator[tuple[Pairs, bool]]:
    """Yield what is measured together, and whether that is several pairs at once."""
    for pairs in matchings(ranks):
        if len(pairs) > 1:
            yield pairs, True
        if alone or len(pairs) == 1:
            yield from (([pair], False) for pair in pairs)


def _rows(exchanges: Exchanges, of: PairMessages, pairs: Pairs, launches: int) -> Iterator[PairTimes]:
    """*Collective*: yield a row of each pair."""
    platform, note, way = exchanges.platform.name, exchanges.platform.note, exchanges.way
    taken = _taken(exchanges, pairs, of.pattern, launches)
    for (sender, receiver), (samples, scheduling) in zip(pairs, taken, strict=True):
        case = replace(exchanges.case, work=replace(of, sender=sender, receiver=receiver))
        yield PairTimes(case, way, platform=platform, note=note, seconds=samples, scheduling=scheduling)


def _taken(
    exchanges: Exchanges, pairs: Pairs, pattern: str, launches: int
) -> list[tuple[tuple[float, ...], Scheduling | None]]:
    """*Collective*: return the samples of each pair, of its slower rank, and whether its ranks had their cores."""
    to: list[int | None] = [None] * exchanges.case.ranks
    for first, second in pairs:
        to[first] = second
        if pattern == BOTH_WAYS:
            to[second] = first
    answered = pattern == LATENCY and exchanges.answers
    count = 1 if pattern == LATENCY else _WINDOW
    busy = [rank for pair in pairs for rank in pair]
    taken = exchanges.seconds(exchanges.prepared(to, count, answered), busy, launches, _SAMPLES, count * (1 + answered))
    exchanges.refuse_wrong(to)
    found: list[tuple[tuple[float, ...], Scheduling | None]] = []
    for pair in pairs:
        every, good = together(taken, pair)
        if len(good) >= _FEWEST:
            found.append((tuple(good), None))
            continue

        # Where ranks outnumber cores, waiting for one is what is measured.
        crowded = exchanges.platform.note.oversubscribed
        found.append((tuple(every), None if crowded else Scheduling(1 - len(good) / len(every))))
    return found


def _launches(exchanges: Exchanges, pattern: str) -> int:
    """*Collective*: return how many operations a sample holds, by the first pair."""
    launches = 1
    for _ in range(3):
        samples, _ = _taken(exchanges, [(0, 1)], pattern, launches)[0]
        launches = max(launches, round(_REGION / min(samples) / (2 if pattern == LATENCY else _WINDOW)))
    return launches
