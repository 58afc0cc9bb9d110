"""Every kernel under ThreadSanitizer, each rank a stream of calls of its own; and bugs that this must catch."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools.kernels import streams
from tools.kernels.streams import ALLREDUCES, BUGS, OTHERS, Bug, Run

RANKS = [2, 3, 4, 8]
WRAP = 2**32 - 40  # counters that pass the end of their range within a few calls


@pytest.fixture(scope="module", autouse=True)
def _sanitizer() -> None:
    """Without ThreadSanitizer there is nothing to see: a reason to skip on a user's machine, a failure in CI."""
    try:
        streams.launcher()
    except streams.NoSanitizer as error:
        if "CI" in os.environ:
            raise
        pytest.skip(str(error))


def assert_clean(run: Run) -> None:
    """All calls made, all results right, and no two accesses without an order."""
    outcome = streams.clean(run)
    assert not outcome.catchers, outcome.summary
    assert outcome.calls == run.ranks * run.calls


def caption(bug: Bug) -> str:
    """The name of a test: which kernels are run, and what is wrong with them."""
    return f"{'+'.join(bug.run.kernels)}: {bug.name}"


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("kernel", [*ALLREDUCES, *OTHERS])
def test_streams_of_one_kernel_are_right(kernel: str, ranks: int) -> None:
    """Grids, sizes and places of the buffers change from call to call; now and then one thread stalls for long."""
    place = streams.RECEIVE if kernel.endswith("-ll") else streams.BARRIER
    assert_clean(Run((kernel,), ranks, calls=24 if ranks < 8 else 12, stall=place))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("start", [0, WRAP], ids=["from zero", "past the wrap"])
def test_kernels_leave_each_other_alone(ranks: int, start: int) -> None:
    """All kernels by turns on the same windows."""
    kernels = (*ALLREDUCES, *OTHERS)
    assert_clean(Run(kernels, ranks, calls=2 * len(kernels), start=start))
    assert_clean(Run(kernels[::-1], ranks, calls=2 * len(kernels), start=start, seed=2, stall=streams.START))


def test_a_rank_alone_copies_with_all_its_blocks() -> None:
    """And nothing twice."""
    assert_clean(Run(("ring-flags", "ring-pipelined", "ring-ll"), 1, calls=12, blocks=(2,)))


@pytest.mark.parametrize("bug", BUGS, ids=caption)
def test_a_bug_is_caught(bug: Bug) -> None:
    """In the way that docs/kernels.md says; and the same run finds nothing where the bug is not."""
    assert_clean(bug.run)
    assert bug.catcher in bug.caught()


def test_a_bug_must_change_something() -> None:
    """When a kernel is rewritten its bugs must be too, or a control would control nothing."""
    for bug in BUGS:
        assert bug.changes or bug.options, bug.name
        streams.changed(bug.changes)
    with pytest.raises(ValueError, match="holds 0 times"):
        streams.changed((("ring.cu", "no such text", ""),))


def test_the_page_has_every_bug_with_its_catcher() -> None:
    """The table in docs/kernels.md is the list of controls."""
    page = (ROOT / "docs" / "kernels.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| `([^|]+)` \| ([^|]+) \|$", page, re.MULTILINE)
    assert rows == [(bug.name, "`, `".join(bug.run.kernels), bug.catcher) for bug in BUGS]
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 14


def test_another_seed_is_another_run() -> None:
    """Seeds make the sizes, grids and stalls, so that trying again is worth something."""
    run = Run(("ring-flags",), 2, calls=1)
    assert run.words() != replace(run, seed=2).words()


def test_one_weakened_word_fails_and_names_the_rung(tmp_path: Path) -> None:
    """A memory order made relaxed in flags.cuh fails these tests by name; a fault must not pass for a skip."""
    folder = tmp_path / "kernels"
    shutil.copytree(ROOT / "kernels", folder)
    flags = folder / "flags.cuh"
    order = "#define PUBLISH_ORDER __ATOMIC_RELEASE"
    assert flags.read_text().count(order) == 1
    flags.write_text(flags.read_text().replace(order, "#define PUBLISH_ORDER __ATOMIC_RELAXED"))
    without = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", __file__, "-k", "streams_of_one_kernel and flags-2"],
        cwd=ROOT,
        env=without | {"COLLBENCH_KERNELS": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert re.search(r"^FAILED .*\[ring-flags-2\]", done.stdout, re.MULTILINE)
    assert "skipped" not in done.stdout
