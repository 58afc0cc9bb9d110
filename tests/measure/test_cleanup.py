"""Processes of a run are found by what they were started with, and ended together."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collbench.lifetimes import Life
from collbench.measure import cleanup, link
from tests.cli.test_sweep import alive, wait_for

CHAIN = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', sys.argv[1]]); time.sleep({seconds})"
SLEEP = "import time; time.sleep(60)"


def begun(value: str, seconds: float) -> "subprocess.Popen[bytes]":
    """A process with that mark which starts another one in a session of its own."""
    environment = os.environ | {"MARK_OF_A_TEST": value}
    command = [sys.executable, "-c", CHAIN.format(seconds=seconds), SLEEP]
    return subprocess.Popen(command, env=environment, start_new_session=True)


@pytest.mark.parametrize("seconds", [60, 0])
def test_a_mark_finds_children_too_and_orphans(seconds: float) -> None:
    """And nobody else's."""
    with begun("mine", seconds) as process, begun("other", 60):
        try:
            wait_for(lambda: len(cleanup.marked("MARK_OF_A_TEST", "mine") - {process.pid}) == 1)
            wait_for(lambda: len(cleanup.marked("MARK_OF_A_TEST", "other")) == 2)
            if not seconds:
                process.wait()
            pids = list(cleanup.marked("MARK_OF_A_TEST", "mine"))
            cleanup.end_marked("MARK_OF_A_TEST", "mine")
            assert not alive(pids)
            assert len(cleanup.marked("MARK_OF_A_TEST", "other")) == 2
        finally:
            for value in ("mine", "other"):
                cleanup.end_marked("MARK_OF_A_TEST", value)


def test_it_looks_again_until_nobody_new_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may just have started another one when it was stopped; all are stopped before one is killed.

    And it waits until all are dead, which they are some time after their memory is gone.
    """
    looks = iter([{1}, {1, 2}, {1, 2, 3}, {1, 2, 3}, set()])
    lives = iter([True, True, False, True, False, False, False])
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(cleanup, "marked", lambda name, value: next(looks))
    monkeypatch.setattr(cleanup, "_signal", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(cleanup, "life", lambda pid: Life(f"born {pid}", 0))
    monkeypatch.setattr(cleanup, "lives", lambda pid, birth: birth == f"born {pid}" and next(lives))
    monkeypatch.setattr(cleanup, "shared_files", lambda pid: set())
    cleanup.end_marked("A", "b")
    assert [pid for pid, _ in sent[:3]] == [1, 2, 3]
    assert {number for _, number in sent[:-3]} == {signal.SIGSTOP}
    assert sent[-3:] == [(pid, signal.SIGKILL) for pid in (1, 2, 3)]
    assert next(lives, None) is None


@pytest.mark.parametrize(("life", "counts"), [(Life("1", 7), True), (Life("1", 8), False), (None, False)])
def test_a_process_between_two_programs_counts_as_its_parent(
    life: Life | None, counts: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """While it starts one it shows no environment, as kernel threads and the dead never do."""
    for pid, said in {7: b"A=b\0C=d\0", 8: b"A=c\0", 9: b""}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").write_bytes(said)
    monkeypatch.setattr(cleanup, "_PROCESSES", tmp_path)
    monkeypatch.setattr(cleanup, "life", lambda pid: life)
    assert cleanup.marked("A", "b") == ({7, 9} if counts else {7})


def test_shared_memory_of_the_ended_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whether mapped, or only open yet; and what was known of before."""
    name = Path(f"/dev/shm/collbench-test-{os.getpid()}")
    held = f"import mmap, time; f = open({str(name)!r}, 'w+b'); f.truncate(4096); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", held])
    wait_for(name.exists)
    known = tmp_path / "known"
    known.touch()
    assert cleanup.shared_files(process.pid) == {str(name)}
    cleanup.end([process.pid], [str(known)])
    assert process.wait() == -signal.SIGKILL
    assert not name.exists()
    assert not known.exists()


def test_memory_that_mpi_left_is_removed_if_nobody_has_it() -> None:
    """Not what is older, somebody's, or another's name."""
    names = {word: Path(f"/dev/shm/{word}-{os.getpid()}") for word in ("mpich_shm_left", "mpich_shm_used", "mine")}
    for name in names.values():
        name.touch()
    try:
        with names["mpich_shm_used"].open():
            cleanup.unname_orphans(time.time() + 60)
            assert all(name.exists() for name in names.values())
            cleanup.unname_orphans(time.time() - 60)
            assert [word for word, name in names.items() if name.exists()] == ["mpich_shm_used", "mine"]
    finally:
        for name in names.values():
            name.unlink(missing_ok=True)


def test_a_folder_may_have_a_longer_name_than_a_socket(tmp_path: Path) -> None:
    folder = tmp_path / "/".join(["x" * 60] * 3)
    folder.mkdir(parents=True)
    with link.listen(folder) as server:
        channel = link.connect(folder)
        ours = link.Channel(server.accept()[0])
        ours.send({"a": 1})
        assert channel.receive(5) == {"a": 1}
        channel.close()
        ours.close()
