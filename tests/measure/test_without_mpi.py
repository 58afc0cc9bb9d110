"""Whole sweeps of ranks that no MPI started: on this machine's cores, and on GPUs that are made up."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collbench.host.launcher import RENDEZVOUS
from collbench.results import Failed, Measurement, Skipped
from collbench.runfile.store import read
from tests.conftest import ROOT, of_a_user
from tools.stand_in.whole_commands import on_gpus

PLAIN = (sys.executable, str(ROOT / "tools" / "ranks" / "plain.py"), "2")
SWEEP = ("sweep", "--no-plot", "--out", "out", "--rendezvous", "meet")


def surroundings(folder: Path) -> dict[str, str]:
    (folder / "mpi4py").mkdir()
    (folder / "mpi4py" / "__init__.py").write_text("raise ImportError('there is no MPI here')")
    return of_a_user() | {"PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}


def test_ranks_of_one_machine_measure_the_hand_written_implementations_without_mpi(tmp_path: Path) -> None:
    words = (*SWEEP, "--on", "cpu", "--impl", "mpi,ring-host,ring-flags,two-shot", "-b", "64", "-e", "64", "-n", "3")
    command = [*PLAIN, sys.executable, "-m", "collbench", *words]
    done = subprocess.run(
        command, cwd=tmp_path, env=surroundings(tmp_path), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    run = read(tmp_path / "out")
    assert run.whole
    library, *hand_written = run.results
    assert isinstance(library, Skipped)
    assert "started without MPI" in library.reason
    for result in hand_written:
        assert isinstance(result, Measurement)
        assert result.right, result.describe()
    assert run.header.processes == 2
    assert "mpi" not in run.header.environment.versions
    assert list((tmp_path / "meet").iterdir()) == []


def test_wherever_the_rendezvous_stands_all_ranks_refuse_in_one_line(tmp_path: Path) -> None:
    environment, wrong = surroundings(tmp_path), ("sweep", "--impl", "nothing")
    for words in (("--rendezvous", "a", *wrong), ("--rendezvous=b", *wrong), (*wrong, "--rendezvous=c")):
        command = [*PLAIN, sys.executable, "-m", "collbench", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("error")) == (2, 1), done.stderr


def test_a_rank_without_mpi_that_is_killed_costs_one_row_and_nobody_waits_for_the_time_out(tmp_path: Path) -> None:
    words = (*SWEEP, "--on", "cpu", "--impl", "ring-flags", "-n", "1000000", "--timeout", "300")
    command = [*PLAIN, sys.executable, "-m", "collbench", *words]
    with subprocess.Popen(
        command, cwd=tmp_path, env=surroundings(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as started:
        victim = other_rank_of(started.pid, tmp_path)
        os.kill(victim, signal.SIGKILL)
        _, errors = started.communicate(timeout=250)
    assert "rank 0: rank 1 is gone; the run ends here; what was measured is in out/run.jsonl" in errors
    run = read(tmp_path / "out")
    assert run.status == 1
    assert isinstance(run.results[-1], Failed)
    assert run.results[-1].reason.startswith("rank 1 is gone")


def other_rank_of(launcher: int, folder: Path) -> int:
    """The process of rank 1, once rank 0 has begun to measure."""
    deadline = time.monotonic() + 250
    while not (folder / "out" / "run.jsonl").exists() or not (folder / "out" / "run.jsonl").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        if b"\0RANK=1\0" in Path(f"/proc/{child}/environ").read_bytes():
            return int(child)
    raise AssertionError("there is no rank 1")


@pytest.mark.full
def test_processes_of_gpus_meet_without_mpi_and_nccl_starts_by_what_they_tell_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RENDEZVOUS, str(tmp_path / "meet"))
    words = ("--impl", "nccl,ring-flags,two-shot", "-b", "64", "-e", "64", "-n", "2", "--no-plot", "--out", "out")
    done = on_gpus(tmp_path, "sweep", *words, launcher=PLAIN, devices=2)
    assert done.returncode == 0, done.stdout + done.stderr
    run = read(tmp_path / "out")
    assert [result.implementation for result in run.results] == ["nccl", "ring-flags", "two-shot"]
    for result in run.results:
        assert isinstance(result, Measurement)
        assert result.right, result.describe()
