"""The lock that processes share: one at a time is inside, who waits sleeps and is woken, and a death is noticed."""

import mmap
import os
import time
from collections.abc import Callable

import numpy as np
import pytest

from collbench.errors import CaseFailed
from collbench.platforms.cpu.monitor import NBYTES, Monitor

MANY = 4 * (os.cpu_count() or 1)  # processes: more than cores


@pytest.fixture
def memory() -> mmap.mmap:
    """Memory that children share."""
    return mmap.mmap(-1, 4096)


def at(memory: mmap.mmap) -> tuple[Monitor, "np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    """A monitor in it, prepared, and numbers behind that."""
    start = np.frombuffer(memory, np.uint8).ctypes.data
    monitor = Monitor(start)
    monitor.prepare()
    return monitor, np.frombuffer(memory, np.int64, 8, NBYTES)


def in_a_child(act: Callable[[], None]) -> int:
    """Its process id; it ends with status 0 if nothing was raised."""
    if pid := os.fork():
        return pid
    status = 1
    try:
        act()
        status = 0
    finally:
        os._exit(status)


def test_more_processes_than_cores_count_without_losing_one(memory: mmap.mmap) -> None:
    """Reading, pausing and writing back inside the lock."""
    monitor, numbers = at(memory)

    def count() -> None:
        for turn in range(200):
            with monitor.held():
                seen = numbers[0]
                if turn % 50 == 0:
                    time.sleep(1e-4)
                numbers[0] = seen + 1

    children = [in_a_child(count) for _ in range(MANY)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * MANY
    assert numbers[0] == 200 * MANY


def test_processes_take_turns_by_waiting_for_each_other(memory: mmap.mmap) -> None:
    """Each waits for the one before, asleep: together they use less processor time than one would by spinning."""
    monitor, numbers = at(memory)

    def take_turns(own: int) -> None:
        for turn in range(20):
            with monitor.held():
                assert monitor.until(lambda turn=turn: bool(numbers[0] == turn * MANY + own), 60)  # type: ignore[misc]
                numbers[0] += 1
                monitor.wake()

    children = [in_a_child(lambda own=own: take_turns(own)) for own in range(MANY)]  # type: ignore[misc]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * MANY
    assert numbers[0] == 20 * MANY


def test_a_wait_ends_in_time_and_sleeps(memory: mmap.mmap) -> None:
    """Where nothing comes."""
    monitor, _ = at(memory)
    begun, spent = time.monotonic(), time.process_time()
    with monitor.held():
        assert not monitor.until(lambda: False, 0.3)
    assert time.monotonic() - begun >= 0.3
    assert time.process_time() - spent < 0.1


def test_a_process_that_dies_inside_is_noticed(memory: mmap.mmap) -> None:
    """Nobody waits for it for ever."""
    monitor, _ = at(memory)

    def die() -> None:
        with monitor.held():
            os._exit(0)

    os.waitpid(in_a_child(die), 0)
    with pytest.raises(CaseFailed, match="a rank died"), monitor.held():
        pass
