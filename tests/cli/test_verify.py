"""The conformance run: every combination is in the table, and a broken one is found."""

import shutil
from pathlib import Path

import pytest

from collbench.collectives import COLLECTIVES
from collbench.implementations import choose
from tests.conftest import ROOT, Command


@pytest.mark.timeout(300)  # every type or collective, compiled first where the cache is empty
def test_every_combination_is_in_the_table(here: Command) -> None:
    """Each implementation with each collective, passed or skipped with a reason."""
    done = here("verify", "--on", "cpu", "-d", "float,half")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {
        tuple(line.split()[:2]): line.split()[2:] for line in done.stdout.splitlines() if "allreduce only" not in line
    }
    for name in choose("all", "cpu"):
        for collective in COLLECTIVES:
            assert len(rows[name, collective]) == 2
            assert set(rows[name, collective]) <= {"ok", "skip", "ok/skip"}
    assert "0 wrong, 0 failed" in done.stdout


def test_a_broken_kernel_is_found(here: Command, tmp_path: Path) -> None:
    """Dropping what does not fill a pack is right for most sizes; exit status 1, with the place."""
    shutil.copytree(ROOT / "kernels", tmp_path / "kernels")
    file = tmp_path / "kernels" / "direct.cu"
    right = "add_all<false, T>(rest, count - packs * Pack::LANES);"
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, ""))
    options = ("--impl", "two-shot,one-shot", "--op", "allreduce", "-d", "float", "-o", "sum")
    done = here("verify", "--on", "cpu", *options, COLLBENCH_KERNELS=str(tmp_path / "kernels"))
    assert done.returncode == 1
    assert "WRONG: rank 0, element" in done.stdout
    assert "two-shot         allreduce     WRONG" in done.stdout


def test_many_cases_on_one_set_of_ranks_are_right(here: Command) -> None:
    """What a case takes it gives back: MPI has room for a few user-defined operations, and bfloat16 needs them."""
    options = ("--impl", "mpi", "--op", "allreduce,reduce,reducescatter", "-d", "bfloat16", "-o", "all")
    done = here("verify", "--on", "cpu", *options)
    assert done.returncode == 0, done.stdout
    assert " 0 failed" in done.stdout


def test_what_a_quick_verify_leaves_out_is_said(here: Command) -> None:
    """Types and reductions by name; with --full nothing is, unless the user chose."""
    options = ("--on", "cpu", "--impl", "mpi", "--op", "broadcast")
    quick = here("verify", *options).stdout
    assert "not checked: types double, half" in quick
    assert "reductions prod, max, min, avg (--full" in quick
    full = here("verify", *options, "--full", "-d", "float,int8").stdout
    assert "not checked: types double, half" in full
    assert "reductions prod" not in full
    assert all(count(full, word) == 2 * count(quick, word) > 0 for word in ("right",))


def count(text: str, word: str) -> int:
    """The number in front of a word of the last line but those on what was left out."""
    return int(text.partition(f" {word},")[0].split()[-1])


def test_a_quiet_verify_says_nothing_on_stderr(here: Command) -> None:
    """The table stays."""
    done = here("verify", "--on", "cpu", "--impl", "mpi", "--op", "broadcast", "-q")
    assert not done.stderr
    assert "0 wrong" in done.stdout
