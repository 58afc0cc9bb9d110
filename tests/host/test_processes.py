"""Processes of others: their end is noticed, and a run's are found and ended with the memory they share."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import pytest

from collbench.host import processes
from tests.commands.sweep.test_command import alive, wait_for


def test_the_end_of_a_process_is_noticed_and_not_before_it_comes() -> None:
    for refusal in (None, PermissionError(errno.EPERM, "filtered"), AttributeError("pidfd_open")):
        with pytest.MonkeyPatch.context() as patch:
            if refusal:
                patch.setattr(os, "pidfd_open", mock.Mock(side_effect=refusal))
            process = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(100)"])
            watching = threading.Thread(target=processes.watch_end(process.pid), daemon=True)
            watching.start()
            watching.join(0.1)
            assert watching.is_alive(), refusal
            assert processes.is_alive(process.pid)
            process.kill()
            wait_for(lambda pid=process.pid: not processes.is_alive(pid))  # type: ignore[misc]
            process.wait()
            watching.join(60)
            assert not watching.is_alive(), refusal
            with pytest.raises(ProcessLookupError):
                processes.watch_end(process.pid)


CHAIN = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', sys.argv[1]]); time.sleep({seconds})"
SLEEP = "import time; time.sleep(60)"


def begun(value: str, seconds: float) -> "subprocess.Popen[bytes]":
    """A process with that mark which starts another one in a session of its own."""
    environment = os.environ | {"MARK_OF_A_TEST": value}
    command = [sys.executable, "-c", CHAIN.format(seconds=seconds), SLEEP]
    return subprocess.Popen(command, env=environment, start_new_session=True)


def marked(value: str) -> set[int]:
    return {process.pid for process in processes.marked("MARK_OF_A_TEST", value)}


def test_a_mark_finds_children_and_orphans_too_and_nobody_else_s() -> None:
    for seconds in (60, 0):
        with begun("mine", seconds) as process, begun("other", 60):
            try:
                wait_for(lambda process=process: len(marked("mine") - {process.pid}) == 1)  # type: ignore[misc]
                wait_for(lambda: len(marked("other")) == 2)
                if not seconds:
                    process.wait()
                pids = list(marked("mine"))
                processes.end_marked("MARK_OF_A_TEST", "mine")
                assert not alive(pids)
                assert len(marked("other")) == 2
            finally:
                for value in ("mine", "other"):
                    processes.end_marked("MARK_OF_A_TEST", value)


def test_shared_memory_of_the_ended_is_removed(tmp_path: Path) -> None:
    name = Path(f"/dev/shm/collbench-test-{os.getpid()}")
    held = f"import mmap, time; f = open({str(name)!r}, 'w+b'); f.truncate(4096); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", held])
    wait_for(name.exists)
    known = tmp_path / "known"
    known.touch()
    assert processes.shared_files(process.pid) == {str(name)}
    processes.end([process.pid], [str(known)])
    assert process.wait() == -signal.SIGKILL
    assert not name.exists()
    assert not known.exists()


def test_memory_that_mpi_left_is_removed_if_nobody_has_it() -> None:
    names = {word: Path(f"/dev/shm/{word}-{os.getpid()}") for word in ("mpich_shm_left", "mpich_shm_used", "mine")}
    for name in names.values():
        name.touch()
    try:
        with names["mpich_shm_used"].open():
            processes.unlink_orphans(time.time() + 60)
            assert all(name.exists() for name in names.values())
            processes.unlink_orphans(time.time() - 60)
            assert [word for word, name in names.items() if name.exists()] == ["mpich_shm_used", "mine"]
    finally:
        for name in names.values():
            name.unlink(missing_ok=True)


def test_a_process_that_is_stopped_is_stuck_until_it_goes_on() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(100)"]) as process:
        assert not processes.is_stuck(process.pid)
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: processes.is_stuck(process.pid))
        process.send_signal(signal.SIGCONT)
        wait_for(lambda: not processes.is_stuck(process.pid))
        process.kill()
    assert not processes.is_stuck(process.pid)
