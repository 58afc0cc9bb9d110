"""What `make noisy` counts: each sentence that tells one code from itself, and no other."""

from pathlib import Path

import pytest

from collbench.analysis.crossover import contests, fastest_in_words, in_words, winners
from collbench.measurement import Measurement
from tests import noisy
from tests.conftest import ROOT, case

OWN, TWIN = noisy.NAMES
SIZES = (8, 64, 512)


def summary(library: str, challenger: str, apart: int) -> str:
    """As a sweep prints it, of two that are level at all sizes but so many."""
    rows = []
    for place, size in enumerate(SIZES):
        for name in (library, challenger):
            time = 2e-6 if name == challenger and place < apart else 1e-6
            rows.append(Measurement(case(nbytes=size), name, "cpu", 1, (time,) * 9))
    ((kind, ranges),) = winners(rows)
    lines = [f"  {in_words(contest)}" for contest in contests(rows, [library])]
    return "\n".join(["", fastest_in_words(kind, ranges, expected=False), *lines])


@pytest.mark.parametrize(("apart", "false"), [(0, 0), (1, 2), (3, 2)])
def test_a_winner_and_a_ratio_are_false(apart: int, false: int) -> None:
    """One sentence of who is fastest where, one of by how much; `not told apart at any size` is right."""
    printed = summary("mpi", "two-shot", apart).replace("two-shot", OWN).replace("mpi", TWIN)
    assert len(noisy.false_facts(printed)) == false


def test_the_twin_is_the_same_code(tmp_path: Path) -> None:
    """A file more in a copy, and nothing else."""
    copy = noisy.twins(tmp_path)
    ours = {path.relative_to(ROOT) for name in ("collbench", "kernels") for path in (ROOT / name).rglob("*.py")}
    theirs = {path.relative_to(copy) for path in copy.rglob("*.py")}
    assert theirs - ours == {Path("collbench/implementations/two_shot_b.py")}
    assert noisy.collbench(copy, tmp_path, "list").count(TWIN) >= 1
