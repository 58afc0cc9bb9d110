"""Measurement of all pairs of ranks, in rounds of disjoint pairs and alone.

All processes of the run execute this code alike, as in collbench/measure/sampling.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from collbench.cases import Case, Sampling
from collbench.commands.scan.rows import BOTH_WAYS, LATENCY, LATENCY_BYTES, ONE_WAY, PairMessages, PairTimes
from collbench.errors import Unsupported
from collbench.measure.exchanges import Exchanges, To, together
from collbench.measure.sampling import Heartbeat
from collbench.platforms.interface import Platform
from collbench.results import Result, Skipped
from collbench.results.disturbed import Scheduling
from collbench.units import counted

_REGION, _SAMPLES = 2e-3, 9  # seconds of a sample, and samples of a pair
_WINDOW = 16  # messages in flight when bandwidth is measured
_FEWEST = 3  # undisturbed samples that a pair needs
Pairs = Sequence[tuple[int, int]]


def matchings(ranks: int) -> Iterator[list[tuple[int, int]]]:
    """Yield rounds of disjoint pairs, with each pair once in all rounds, by the circle method (E. Lucas, 1883)."""
    around = [*range(ranks), *([-1] if ranks % 2 else [])]
    half = len(around) // 2
    for _ in around[1:]:
        yield [pair for pair in zip(around[:half], around[: half - 1 : -1], strict=True) if -1 not in pair]
        around[1:] = [around[-1], *around[1:-1]]


def measure(
    case: Case, names: Sequence[str], platform: Platform, sampling: Sampling, heartbeat: Heartbeat, *_: object
) -> Iterator[Result]:
    """*Collective*: yield a result for each pair, pattern and implementation; CaseFailed if a message is lost."""
    work = case.work
    assert isinstance(work, PairMessages)
    patterns = [LATENCY] if case.nbytes <= LATENCY_BYTES else [ONE_WAY, BOTH_WAYS]
    patterns = [pattern for pattern in patterns if pattern in (work.pattern or pattern)]
    for name in names:
        heartbeat(name)
        exchanges = Exchanges(case, name, platform)
        try:
            launches = {}
            for pattern in patterns:
                to, count, answered = _messages(exchanges, [(0, 1)], pattern)
                launches[pattern] = exchanges.calibrate(to, _REGION, count, answered)
        except Unsupported as reason:
            yield Skipped(case, name, platform.name, str(reason))
            continue
        for pairs in matchings(case.ranks):
            apart = [[pair] for pair in pairs] if work.alone or len(pairs) == 1 else []
            for turn, pattern in product([pairs, *apart] if len(pairs) > 1 else apart, patterns):
                heartbeat(name, f"{pattern}, {counted(len(turn), 'pair')} at once")
                messages = replace(work, pattern=pattern, at_once=len(turn) > 1)
                for each in (turn, [pair[::-1] for pair in turn])[: 2 if pattern == ONE_WAY else 1]:
                    yield from _rows(exchanges, messages, each, launches[pattern])


def _messages(exchanges: Exchanges, pairs: Pairs, pattern: str) -> tuple[To, int, bool]:
    """Return the peer that each rank sends to, the number of messages, and whether they are answered."""
    to = dict(pairs) | ({receiver: sender for sender, receiver in pairs} if pattern == BOTH_WAYS else {})
    peers = [to.get(rank) for rank in range(exchanges.case.ranks)]
    return peers, 1 if pattern == LATENCY else _WINDOW, pattern == LATENCY and exchanges.answers


def _rows(exchanges: Exchanges, work: PairMessages, pairs: Pairs, launches: int) -> Iterator[PairTimes]:
    """*Collective*: yield a row for each pair, with the samples of its slower rank."""
    peers, count, answered = _messages(exchanges, pairs, work.pattern)
    active_ranks = [rank for pair in pairs for rank in pair]
    prepared, messages = exchanges.prepared(peers, count, answered), count * (1 + answered)
    seconds = exchanges.seconds(prepared, active_ranks, launches, _SAMPLES, messages)
    platform, note = exchanges.platform.name, exchanges.platform.note | prepared.note
    exchanges.refuse_wrong(peers)
    for pair in pairs:
        every, undisturbed = together(seconds, pair)
        case = replace(exchanges.case, work=replace(work, sender=pair[0], receiver=pair[1]))
        enough = len(undisturbed) >= _FEWEST
        # With more ranks than cores, waiting for a core belongs to the measurement.
        disturbed = None if enough or note.oversubscribed else Scheduling(1 - len(undisturbed) / len(every))
        samples = tuple(undisturbed if enough else every)
        yield PairTimes(case, exchanges.way, platform=platform, note=note, seconds=samples, scheduling=disturbed)
