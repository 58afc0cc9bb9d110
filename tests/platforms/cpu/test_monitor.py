"""The lock that processes share: one at a time is inside, who waits sleeps and is woken, and a death is noticed."""

import mmap
import os
import time
from collections.abc import Callable

import numpy as np
import pytest

from collbench.errors import CaseFailed
from collbench.platforms.cpu.window import NBYTES, Monitor

MANY = 4 * (os.cpu_count() or 1)  # processes: more than cores
Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]


@pytest.fixture
def shared() -> tuple[Monitor, Numbers]:
    memory = mmap.mmap(-1, 4096)
    monitor = Monitor(np.frombuffer(memory, np.uint8).ctypes.data)
    monitor.prepare()
    return monitor, np.frombuffer(memory, np.int64, 8, NBYTES)


def in_children(count: int, act: Callable[[int], None]) -> list[int]:
    children = []
    for number in range(count):
        if pid := os.fork():
            children.append(pid)
            continue
        status = 1
        try:
            act(number)
            status = 0
        finally:
            os._exit(status)
    return [os.waitpid(child, 0)[1] for child in children]


def test_more_processes_than_cores_count_without_losing_one_and_take_turns(shared: tuple[Monitor, Numbers]) -> None:
    monitor, numbers = shared

    def count(own: int) -> None:
        for turn in range(200):
            with monitor.held():
                seen = numbers[0]
                if turn % 50 == 0:
                    time.sleep(1e-4)
                numbers[0] = seen + 1
        for turn in range(20):
            with monitor.held():
                assert monitor.until(lambda turn=turn: bool(numbers[1] == turn * MANY + own), 60)  # type: ignore[misc]
                numbers[1] += 1
                monitor.wake()

    assert in_children(MANY, count) == [0] * MANY
    assert numbers[:2].tolist() == [200 * MANY, 20 * MANY]


def test_a_wait_for_what_never_comes_ends_in_time_and_sleeps(shared: tuple[Monitor, Numbers]) -> None:
    begun, spent = time.monotonic(), time.process_time()
    with shared[0].held():
        assert not shared[0].until(lambda: False, 0.3)
    assert time.monotonic() - begun >= 0.3
    assert time.process_time() - spent < 0.2


def test_a_process_that_dies_inside_is_noticed(shared: tuple[Monitor, Numbers]) -> None:
    def die(_: int) -> None:
        with shared[0].held():
            os._exit(0)

    in_children(1, die)
    with pytest.raises(CaseFailed, match="a rank died"), shared[0].held():
        pass
