"""Faults, each on a command of its own: the commonest here, a share in test-all, all of them by `make faults`."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT
from tools.faults.runner import Ground, every, ground, run, share
from tools.faults.trial import Trial

PARTS = 3 if os.environ.get("CI") else 30


@pytest.fixture(scope="module")
def place() -> Iterator[Ground]:
    with ground() as made:
        yield made


COMMONEST = (
    *("INT while sampling", "TERM while sampling", "KILL to the command while compiling"),
    *("a disk of 8 KiB", "a /dev/shm of 1 MiB"),
)


@pytest.mark.parametrize("name", COMMONEST)
def test_the_commonest_faults_are_survived(place: Ground, name: str) -> None:
    (trial,) = [trial for trial in every() if trial.name == name]
    assert not place.carry_out(trial).complaints


@pytest.mark.full
@pytest.mark.machine
@pytest.mark.timeout(900)
def test_a_share_of_all_faults_is_survived() -> None:
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    part = int(os.environ.get("COLLBENCH_FAULTS") or int(said[:8] or "0", 16))
    verdicts = run(share(every(), part, PARTS), lambda verdict: None)
    assert [verdict.line for verdict in verdicts if verdict.complaints] == []


@pytest.mark.full
def test_what_is_not_survived_is_seen(place: Ground) -> None:
    for shell, complaint in {
        "exit 3": "status 3, not 0",
        "sleep 100": "did not end within",
        "sleep 100 & exit 0": "is left: sleep 100",
        "echo x >/dev/shm/mine": "left in /dev/shm: mine",
        "mkdir $TMPDIR/mine": "left in TMPDIR: mine",
        "echo why >$TMPDIR/collbench-traceback-1.txt": "left in TMPDIR: collbench-traceback-1.txt: why",
        "echo >$COLLBENCH_CACHE/tmpmine": "left in the cache: tmpmine",
        "echo 'Traceback (most recent call last):' >&2": "a traceback",
        "printf 'collbench: error: a\\ncollbench: error: b\\n' >&2": "too many lines of error",
        'mkdir out; echo \'{"kind": "hea\' >out/run.jsonl': "the run file is not whole",
        "exit 0": "",
    }.items():
        verdict = place.carry_out(Trial("made up", (), (0,), shell=shell, limit=5))
        assert complaint in verdict.line, shell
        assert bool(verdict.complaints) == bool(complaint), shell
