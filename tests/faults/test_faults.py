"""Trials of faults, each on a command of its own: `make faults` carries all of them out, these tests a share."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools.faults.catalogue import every
from tools.faults.runner import Ground, ground, share
from tools.faults.trial import Trial

PARTS = 3 if os.environ.get("CI") else 30
"""A third where that is all that machine does; a few of each kind elsewhere, where `make faults` is at hand."""


def part() -> int:
    """Another one after each commit, the same until then: COLLBENCH_FAULTS, or what the commit's name comes to."""
    if chosen := os.environ.get("COLLBENCH_FAULTS"):
        return int(chosen)
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return int(said[:8] or "0", 16)


@pytest.fixture(scope="module")
def place() -> Iterator[Ground]:
    with ground() as made:
        yield made


@pytest.mark.timeout(300)
@pytest.mark.parametrize("trial", share(every(), part(), PARTS), ids=lambda trial: trial.name)
def test_a_fault_is_survived(place: Ground, trial: Trial) -> None:
    """Right status, one line, whole files, and nothing left: no process, shared memory or temporary file."""
    assert not place.carry_out(trial).complaints


def test_there_are_enough_trials_of_different_names() -> None:
    """And every part of them together is all."""
    trials = every()
    assert len({trial.name for trial in trials}) == len(trials) >= 200
    assert sum(len(share(trials, number, PARTS)) for number in range(PARTS)) == len(trials)


def a_trial(shell: str, folder: Path) -> Trial:
    """One of a program in the command's place."""
    del folder
    return Trial("made up", (), (0,), shell=shell, limit=5)


@pytest.mark.parametrize(
    ("shell", "complaint"),
    [
        ("exit 3", "status 3, not 0"),
        ("sleep 100", "did not end within"),
        ("sleep 100 & exit 0", "is left: sleep 100"),
        ("echo x >/dev/shm/mine", "left in /dev/shm: mine"),
        ("mkdir $TMPDIR/mine", "left in TMPDIR: mine"),
        ("echo >$COLLBENCH_CACHE/tmpmine", "left in the cache: tmpmine"),
        ("echo 'Traceback (most recent call last):' >&2", "a traceback"),
        ("printf 'collbench: error: a\\ncollbench: error: b\\n' >&2", "too many lines of error"),
        ('mkdir out; echo \'{"kind": "hea\' >out/run.jsonl', "the run file is not whole"),
        ("exit 0", ""),
    ],
)
def test_what_is_not_survived_is_seen(place: Ground, tmp_path: Path, shell: str, complaint: str) -> None:
    """The judge of all trials is tried too."""
    verdict = place.carry_out(a_trial(shell, tmp_path))
    assert complaint in verdict.line
    assert bool(verdict.complaints) == bool(complaint)
