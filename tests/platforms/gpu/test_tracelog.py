"""The logs of traced kernels: what they say, and that every hand-written implementation keeps them."""

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest

from collbench.algorithms import direct, implementations
from collbench.cases import PACK, Sampling
from collbench.host.cache import cache_folder
from collbench.measure.tracing import explain
from collbench.platforms import compiler, tracelog
from collbench.platforms.layout import grid
from collbench.results import Explanation
from collbench.results.collectives import ADDED, MOVED, PHASES, PUBLISHED, WAITED
from tests.conftest import case
from tests.platforms.gpu.opening import Open
from tools.stand_in.cases import EXACT
from tools.stand_in.cuda import Machine
from tools.stand_in.logs import log_of, skew

TRACED = Sampling(traced=True, region=1e-6)


def test_the_log_has_the_layout_of_the_kernels() -> None:
    text = compiler.source("flags.cuh") + (
        '#include <cstddef>\nextern "C" unsigned long places[] = {offsetof(Log, nanoseconds), offsetof(Log, ticks), '
        "offsetof(Log, spent), offsetof(Log, stamps), offsetof(Log, stamp), sizeof(Log), STAMPS, MAX_BLOCKS};\n"
    )
    target = cache_folder() / "layout-of-log.so"
    compiler._compile((*compiler.compiler(), *compiler._FLAGS), text, target, "flags.cuh")
    found = list((ctypes.c_ulong * 8).in_dll(ctypes.CDLL(str(target)), "places"))
    assert found[:5] == [tracelog.LOG.fields[name][1] for name in tracelog.LOG.names]
    assert found[5:] == [tracelog.LOG.itemsize, tracelog._STAMPS, tracelog._BLOCKS]


def test_ticks_become_seconds_by_the_rate_of_all_logs_together() -> None:
    coarse = [log_of((WAITED, 1500), nanoseconds=(0, 0)), log_of((WAITED, 2000), nanoseconds=(0, 200))]
    for log in coarse:
        log["ticks"] = 1000, 2000
    first, second = tracelog.tracks(dict(enumerate(coarse)))
    assert first.seconds == second.seconds == pytest.approx(100e-9)
    assert first.spans[0].seconds == pytest.approx(50e-9)


def test_phases_follow_one_another_without_gaps() -> None:
    (track,) = tracelog.tracks({3: log_of((WAITED, 1100), (MOVED, 1300), (PUBLISHED, 1400))})
    assert (track.rank, track.block) == (3, 0)
    assert [span.phase for span in track.spans] == [WAITED, MOVED, PUBLISHED]
    assert [span.seconds for span in track.spans] == pytest.approx([10e-9, 20e-9, 10e-9])
    assert [span.start for span in track.spans] == pytest.approx([0, 10e-9, 30e-9])


def test_work_between_waits_is_what_the_next_stamp_of_work_says() -> None:
    (track,) = tracelog.tracks(
        {0: log_of(("worked", 1100), (WAITED, 1200), (MOVED, 1300), ("worked", 1400), (WAITED, 1500), (ADDED, 1600))}
    )
    assert [span.phase for span in track.spans] == [MOVED, WAITED, MOVED, ADDED, WAITED, ADDED]


def test_a_full_log_says_how_much_it_lost_and_blocks_that_did_nothing_have_no_track() -> None:
    (track,) = tracelog.tracks({0: log_of(*[(WAITED, 1000 + place) for place in range(tracelog._STAMPS + 5)])})
    assert (len(track.spans), track.lost) == (tracelog._STAMPS, 5)
    assert tracelog.tracks({0: np.zeros(4, tracelog.LOG)}) == []


def explained(opened: Open, names: Sequence[str], nbytes: int) -> list[Explanation]:
    """Results of two ranks that share a GPU, one for each implementation."""
    platform = opened(Machine(1), ranks=2, sizes=(nbytes,), implementations=names, sampling=TRACED)
    results = []
    for result in explain(case(nbytes=nbytes), [implementations()[name] for name in names], platform, TRACED):
        assert isinstance(result, Explanation), result
        results.append(result)
    return results


@pytest.mark.parametrize(
    "names",
    [
        ("ring-host", "ring-events", "ring-flags", "ring-ll", "two-shot"),
        pytest.param(EXACT[1:], marks=pytest.mark.full),
    ],
    ids=str,
)
def test_every_rung_says_where_its_time_goes(names: tuple[str, ...], opened: Open) -> None:
    for name, result in zip(names, explained(opened, names, 20000), strict=True):
        assert {track.rank for track in result.tracks} == {0, 1}, name
        for track in result.tracks:
            for phase in PHASES:
                total = sum(span.seconds for span in track.spans if span.phase == phase)
                assert total == pytest.approx(track.spent[phase], abs=1e-10 * len(track.spans)), (name, phase)
            ends = [span.start + span.seconds for span in track.spans]
            assert ends == sorted(ends), name
            assert ends[-1] <= track.seconds * 1.001, name
        assert result.spent(ADDED) > 0, name
        assert result.spent(WAITED) > 0 or name in ("ring-ll", "one-shot-ll", "auto"), name  # packets may be there


def test_a_ring_publishes_once_a_hop(opened: Open) -> None:
    ranks = 2
    (result,) = explained(opened, ["ring-flags"], 4096)
    for track in result.tracks:
        words = [span.phase for span in track.spans]
        assert words.count(PUBLISHED) == 2 * ranks - 1
        assert words.count(ADDED) == ranks - 1
        assert words.count(MOVED) == ranks


def test_logs_of_one_implementation_are_not_taken_for_anothers(opened: Open) -> None:
    nbytes = 400000
    many, few = explained(opened, ["ring-pipelined", "two-shot"], nbytes)
    assert len(few.tracks) == 2 * grid(-(-nbytes // 2 // PACK), direct.THREADS, direct.BLOCKS)[1]
    assert len(many.tracks) > len(few.tracks)


def test_clocks_that_gpus_do_not_share_are_held_against_the_hosts(opened: Open) -> None:
    platform = opened(Machine(2), sampling=TRACED, implementations=("ring-flags",))
    skew(platform.streams[1], 10**9, faster=3)
    (row,) = explain(case(nbytes=4096), [implementations()["ring-flags"]], platform, TRACED)
    assert isinstance(row, Explanation)
    ends = [max(track.start + track.seconds for track in row.tracks if track.rank == rank) for rank in (0, 1)]
    starts = [min(track.start for track in row.tracks if track.rank == rank) for rank in (0, 1)]
    assert max(starts) < min(ends), "the two were at work at the same time"
    assert max(ends) < 0.9, "a second ahead would show"
