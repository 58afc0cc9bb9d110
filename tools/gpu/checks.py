"""Conditions that hold on a real GPU; run.py carries them out.  They need CuPy and NumPy only.

A check is a function of an open platform.  Unsupported means that this machine cannot do it; refusals.py decides
whether the reason is just.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

from collbench.algorithms import Implementation
from collbench.cases import Case, Sampling
from collbench.collectives import COLLECTIVES
from collbench.datatypes import DATATYPES, NONE, REDUCTIONS
from collbench.errors import CaseFailed, Unsupported
from collbench.measure.tracing import explain
from collbench.platforms.gpu import cuda as gpu_cuda
from collbench.platforms.gpu import launch, nccl
from collbench.platforms.gpu import platform as gpu
from collbench.platforms.interface import Platform
from collbench.results import Explanation, Skipped
from collbench.results.collectives import PHASES
from tools.gpu import refusals
from tools.gpu.places import SCALE

CALLS = SCALE.calls
TRIES = 5  # tries, because a busy machine may spoil one
SMALL, ODD, LARGE = 4, 1_236, SCALE.large  # bytes: one element, no whole packs, several laps
KINDS = [(DATATYPES[dtype], REDUCTIONS[redop]) for dtype in SCALE.dtypes for redop in SCALE.redops]


def case(platform: Platform, collective: str = "allreduce", nbytes: int = ODD, **changes: Any) -> Case:
    """Return a case of whole elements, at least one."""
    chosen = COLLECTIVES[collective]
    fields = {"dtype": DATATYPES["float"], "root": 0, "in_place": False} | changes
    fields["redop"] = fields.get("redop", REDUCTIONS["sum"]) if chosen.reduces else NONE
    rough = Case(chosen, nbytes, ranks=platform.ranks, **fields)
    return Case(chosen, max(rough.block, 1) * rough.granule, ranks=platform.ranks, **fields)


def expect_right(platform: Platform, implementation: Implementation, wanted: Iterable[Case], calls: int = 1) -> None:
    """Carry out each case `calls` times: fill with new data, run once, compare.

    Unsupported if no case can be carried out for just reasons; an unjust refusal is a failure.
    """
    carried_out, reason = 0, Unsupported(f"{implementation.name} carries out nothing of the kind")
    assert isinstance(platform, gpu.GpuPlatform)
    here = refusals.here_of(platform)
    for one in wanted:
        try:
            implementation.refuse(one)
            prepared = implementation.prepare(one, platform)
        except Unsupported as refusal:
            reason, defect = refusal, refusals.unjust(implementation.name, str(refusal), here)
            assert not defect, f"{one.collective.name} {one.nbytes} B: {defect}"
            continue
        carried_out += 1
        for seed in range(calls):
            platform.checker.fill(one, seed, prepared.wire)
            platform.clock.time(prepared, 1)
            mismatch = platform.checker.check(one, seed, prepared.wire)
            assert mismatch is None, f"{one.collective.name} {one.nbytes} B, call {seed}: {mismatch}"
    if not carried_out:
        raise reason


def every_collective_and_size(platform: Platform, implementation: Implementation) -> None:
    names, sizes = implementation.collectives, (SMALL, ODD, LARGE)
    expect_right(platform, implementation, [case(platform, name, nbytes) for name in names for nbytes in sizes])


def every_collective_in_place(platform: Platform, implementation: Implementation) -> None:
    names = implementation.collectives
    expect_right(platform, implementation, [case(platform, name, LARGE, in_place=True) for name in names])


def any_root(platform: Platform, implementation: Implementation) -> None:
    names = [name for name in implementation.collectives if COLLECTIVES[name].rooted]
    expect_right(platform, implementation, [case(platform, name, root=platform.ranks - 1) for name in names])


def every_type_and_reduction(platform: Platform, implementation: Implementation) -> None:
    expect_right(platform, implementation, [case(platform, dtype=dtype, redop=redop) for dtype, redop in KINDS])


def many_calls_with_changing_data(platform: Platform, implementation: Implementation) -> None:
    expect_right(platform, implementation, [case(platform)], CALLS)


def many_large_calls_with_changing_data(platform: Platform, implementation: Implementation) -> None:
    expect_right(platform, implementation, [case(platform, nbytes=LARGE)], -(-CALLS // 10))


def calls_back_to_back(platform: Platform, implementation: Implementation) -> None:
    """Repeat out-of-place calls, which have the same result each time, and check the last one and the time."""
    wanted = case(platform)
    implementation.refuse(wanted)
    prepared = implementation.prepare(wanted, platform)
    platform.checker.fill(wanted, 1, prepared.wire)
    seconds = [platform.clock.time(prepared, SCALE.launches) for _ in range(5)]
    mismatch = platform.checker.check(wanted, 1, prepared.wire)
    assert mismatch is None, f"the last of them: {mismatch}"
    assert 1e-7 < min(seconds) < SCALE.slowest, f"{min(seconds):.3g} s for {wanted.nbytes} B"


def a_log_of_every_rank(platform: Platform, implementation: Implementation, least: float = SCALE.accounted) -> None:
    """Run a kernel with its log: the result is right, and the log accounts for every rank's time.

    Tracks are of the last of several operations, which a busy machine may delay; so a wrong clock fails every try.
    """
    if implementation.library:
        raise Unsupported("a library cannot be looked into")
    longer = []
    for _ in range(TRIES):
        result = _logged(platform, implementation)
        spent = sum(result.spent(phase) for phase in PHASES)
        assert spent > least * result.traced, f"{spent:.3g} s of {result.traced:.3g} s are accounted for"
        longest = max(track.seconds for track in result.tracks)
        if longest < SCALE.longest * result.traced:
            return
        longer.append(f"a track of {longest:.3g} s in an operation of {result.traced:.3g} s")
    raise AssertionError("; ".join(longer))


def _logged(platform: Platform, implementation: Implementation) -> Explanation:
    (result,) = explain(case(platform, nbytes=LARGE // 160), [implementation], platform, Sampling(traced=True))
    if isinstance(result, Skipped):
        raise Unsupported(result.reason)
    assert isinstance(result, Explanation), f"{result}"
    assert {track.rank for track in result.tracks} == set(range(platform.ranks))
    return result


def an_estimate_of_its_own(platform: Platform, implementation: Implementation) -> None:
    """Compare an estimate of the library with the time; the question must not change the result."""
    wanted = case(platform, nbytes=LARGE)
    if wanted.collective.name not in implementation.estimates:
        raise Unsupported(f"{implementation.name} estimates nothing of the kind")
    assert isinstance(platform, gpu.GpuPlatform)
    version = refusals.nccl_version(platform._cuda.nccl)
    if version < nccl.VERSION:
        raise Unsupported(f"NCCL {nccl.in_words(version)} has no estimates, 2.22 has")
    implementation.refuse(wanted)
    prepared = implementation.prepare(wanted, platform)
    assert prepared.estimate is not None, "NCCL says nothing (NCCL_DEBUG=WARN may say why)"
    again = implementation.prepare(wanted, platform)
    assert again.estimate == prepared.estimate, "the same was asked twice"
    platform.checker.fill(wanted, 1)
    seconds = min(platform.clock.time(again, 20) for _ in range(3))
    mismatch = platform.checker.check(wanted, 1)
    assert mismatch is None, f"{mismatch}"
    ratio = prepared.estimate / seconds
    assert 0.01 < ratio < 100, f"NCCL expects {prepared.estimate:.3g} s, and {seconds:.3g} s were measured"
    small = implementation.prepare(case(platform, nbytes=SMALL), platform).estimate
    assert small is not None
    assert 0 < small < prepared.estimate, f"{small:.3g} s for {SMALL} B, {prepared.estimate:.3g} s for {LARGE} B"


class FirstRankOnly:
    """A kernel that launches only the blocks of the first rank."""

    def __init__(self, function: Any, ranks: int) -> None:
        self.ptr, self._function, self._ranks = function.ptr, function, ranks

    def __call__(self, grid: tuple[int], *rest: Any, **options: Any) -> None:
        self._function((grid[0] // self._ranks,), *rest, **options)


def a_wait_in_vain_ends(platform: Platform, implementation: Implementation) -> None:
    """Start a rank without its peers: it gives up after seconds, and its case fails."""
    if implementation.name != "ring-flags" or platform.ranks < 3:
        raise Unsupported("once is enough")
    assert isinstance(platform, gpu.GpuPlatform)
    here, compiled = -(-platform.ranks // len(platform._places.devices)), platform.launcher.kernel
    if here == 1:
        raise Unsupported("needs ranks that share a GPU")
    platform.launcher.kernel = lambda *which: gpu_cuda.GpuKernel(  # type: ignore[method-assign]
        "first rank only", tuple(FirstRankOnly(function, here) for function in compiled(*which).functions)
    )
    launch.SPINS, usual = SCALE.spins, launch.SPINS
    prepared = implementation.prepare(case(platform), platform)
    launch.SPINS = usual
    start, failure = time.monotonic(), ""
    try:
        platform.clock.time(prepared, 1)
    except CaseFailed as error:
        failure = str(error)
    seconds = time.monotonic() - start
    assert "waited in vain" in failure, "a rank that gave up must fail its case"
    assert SCALE.in_vain[0] < seconds < SCALE.in_vain[1], (
        f"gave up after {seconds:.1f} s; gpu_launch.SPINS was chosen for 4 to 8"
    )


CHECKS: list[Callable[[Platform, Implementation], None]] = [
    every_collective_and_size,
    every_collective_in_place,
    any_root,
    every_type_and_reduction,
    many_calls_with_changing_data,
    many_large_calls_with_changing_data,
    calls_back_to_back,
    a_log_of_every_rank,
    an_estimate_of_its_own,
    a_wait_in_vain_ends,  # last, because it changes the platform
]
