"""Every kernel under ThreadSanitizer, each rank a stream of calls of its own; and bugs that this must catch."""

import pytest

from collbench.measure import races
from collbench.measure.races import BARRIER, RACE, RECEIVE, START, Run
from tools.kernels import streams
from tools.kernels.streams import ALLREDUCES, BUGS, OTHERS

RANKS = [2, 3, 4, 8]
WRAP = 2**32 - 40  # counters that pass the end of their range within a few calls
FAMILIES = sorted({bug.run.kernels[0] for bug in BUGS})


def assert_clean(run: Run) -> None:
    """All calls made, all results right, and no two accesses without an order."""
    outcome = streams.clean(run)
    assert not outcome.catchers, (run, outcome.summary)
    assert outcome.calls == run.ranks * run.calls, run


@pytest.mark.usefixtures("sanitizer")
def test_a_ring_is_clean_and_a_relaxed_order_of_its_flags_is_caught() -> None:
    run = Run(("ring-flags",), 2, calls=12, stall=BARRIER)
    outcome = races.outcome(races.build(run.parts()), run)
    assert not outcome.catchers, outcome.summary
    assert outcome.calls == run.ranks * run.calls
    relaxed = next(bug for bug in BUGS if bug.name == "relaxed publish")
    assert relaxed.catcher == RACE
    assert RACE in relaxed.caught()


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("sanitizer")
@pytest.mark.parametrize("ranks", RANKS)
def test_streams_of_one_kernel_and_of_all_by_turns_are_right(ranks: int) -> None:
    kernels = (*ALLREDUCES, *OTHERS)
    assert_clean(Run(("ring-flags", "ring-pipelined", "ring-ll"), 1, calls=12, blocks=(2,)))  # it copies alone
    for kernel in kernels:
        place = RECEIVE if kernel.endswith("-ll") else BARRIER
        assert_clean(Run((kernel,), ranks, calls=24 if ranks < 8 else 12, stall=place))
    for start in (0, WRAP):
        assert_clean(Run(kernels, ranks, calls=2 * len(kernels), start=start))
        assert_clean(Run(kernels[::-1], ranks, calls=2 * len(kernels), start=start, seed=2, stall=START))


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("sanitizer")
@pytest.mark.parametrize("kernel", FAMILIES)
def test_bugs_are_caught_as_the_page_says(kernel: str) -> None:
    for bug in BUGS:
        if bug.run.kernels[0] == kernel:
            assert_clean(bug.run)
            assert bug.catcher in bug.caught(tries=8), bug.name


def test_the_page_has_every_bug_with_its_catcher_and_each_changes_something() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 14
    for bug in BUGS:
        assert bug.changes or bug.options, bug.name
        races.changed(bug.changes)
    with pytest.raises(ValueError, match="to change 0 times"):
        races.changed((("ring.cu", "no such text", ""),))
