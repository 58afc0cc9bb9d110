"""What else a machine did, from files of Linux that a test writes."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.cli.sweeping import noise
from collbench.measure.machine_watch import MachineWatch
from tests.conftest import measurement

QUIET = {
    "proc/loadavg": "0.01 0.02 0.03 1/200 1234\n",
    "proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n",
    "proc/stat": "cpu  100 0 50 1000 0 0 0 0 0 0\ncpu0 1 2 3\n",
}


def machine(root: Path, **files: str) -> Path:
    """A root with these files, and the others quiet; `__` stands for `/` in names."""
    for name, text in (QUIET | {name.replace("__", "/"): text for name, text in files.items()}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1}, raising=False)


def test_a_quiet_machine_gives_no_reason(tmp_path: Path) -> None:
    assert list(MachineWatch(machine(tmp_path)).reasons()) == []
    assert list(MachineWatch(tmp_path / "nothing").reasons()) == []


def test_cores_are_those_of_the_launcher_that_bound_this_process_to_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1} if process == os.getppid() else {0})
    assert len(list(MachineWatch(machine(tmp_path)).reasons(2))) == 1
    for name, value in (("SIZE", "2"), ("RANK", "0")):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    assert list(MachineWatch(machine(tmp_path)).reasons(2)) == []


def test_what_is_seen_is_said_in_one_clause_each(tmp_path: Path) -> None:
    frequency, governor = (
        f"sys__devices__system__cpu__cpu0__cpufreq__scaling_{word}" for word in ("cur_freq", "governor")
    )
    seen: dict[str, tuple[dict[str, str], dict[str, str]]] = {
        "clocks were 2.0 to 3.5 GHz": ({frequency: "2000000\n"}, {frequency: "3500000\n"}),
        "load 64.0": ({"proc__loadavg": "64.0 64.0 64.0 9/200 12\n"}, {}),
        "100% of the time": ({}, {"proc__pressure__cpu": "some avg10=9 avg60=9 avg300=9 total=900000000\n"}),
        "took 20% of the cores' time": ({}, {"proc__stat": "cpu  150 0 60 1100 0 0 0 40 0 0\n"}),
        "`powersave`": ({governor: "powersave\n"}, {}),
    }
    for number, (reason, (before, after)) in enumerate(seen.items()):
        watch = MachineWatch(machine(tmp_path / str(number), **before))
        machine(tmp_path / str(number), **(before | after))
        (told,) = watch.reasons()
        assert reason in told


def test_ranks_that_share_a_core_are_named(tmp_path: Path) -> None:
    siblings = {f"sys__devices__system__cpu__cpu{core}__topology__thread_siblings_list": "0-1\n" for core in (0, 1)}
    watch = MachineWatch(machine(tmp_path, **siblings))
    assert list(watch.reasons(1)) == []
    for ranks, reason in ((2, "2 ranks share 1 cores"), (3, "3 ranks on 2 cores take turns")):
        (told,) = watch.reasons(ranks)
        assert reason in told


def test_cores_are_those_before_a_rank_was_bound_to_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = MachineWatch(machine(tmp_path))
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {1})
    assert list(watch.reasons(2)) == []


def test_noise_is_one_line_with_counts_and_what_helps_where_that_ran(tmp_path: Path) -> None:
    watch = MachineWatch(machine(tmp_path))
    sharp, blurred = measurement("mpi", (1.0,) * 9), measurement("two-shot", (1.0, 1, 1, 1, 1, 2, 2, 2, 2), nbytes=64)
    assert noise([sharp, measurement("ring", ())], watch) == ""
    for platform, helps in {
        "cpu": "end other programs, fewer ranks than cores, --budget 5",
        "gpu": "no other process on the GPUs, clocks that stay (`nvidia-smi -lgc`), persistence mode",
        "elsewhere": "--budget 5",
    }.items():
        told = noise([replace(row, platform=platform) for row in (sharp, blurred)], watch)
        assert told.startswith("noise: 1 of 2 rows uncertain by more than 10 %; ")
        assert f"helps: {helps}" in told
    told = noise([sharp, blurred, measurement("ring", (1.0, 3.0, 9.0) * 5)], watch)
    assert told.startswith("noise: 2 of 3 rows uncertain by more than 10 %, 1 by more than 100 % and left out of ")
    busy = MachineWatch(machine(tmp_path / "busy", proc__loadavg="64.0 64.0 64.0 9/200 12\n"))
    assert "load 64.0" in noise([blurred], busy)
    few = noise([measurement("mpi", (1.0,) * 5)], watch)
    assert few.startswith("noise: 1 of 1 row without an interval: fewer than 6 samples"), "five have no 95 % interval"
