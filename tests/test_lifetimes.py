"""The end of somebody else's process is noticed, on kernels of any age."""

import errno
import os
import subprocess
import sys
import threading

import pytest

from collbench import lifetimes

REFUSALS = (
    None,
    OSError(errno.ENOSYS, "no such call"),
    PermissionError(errno.EPERM, "filtered"),
    AttributeError("pidfd_open"),
)


def without_handles(refusal: Exception | None, patch: pytest.MonkeyPatch) -> None:
    """A kernel that refuses handles of processes, or one that has them."""

    def refuse(pid: int) -> int:
        assert refusal
        raise refusal

    if refusal:
        patch.setattr(os, "pidfd_open", refuse)


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(100)"])


def test_the_end_of_a_process_is_noticed_and_not_before_it_comes() -> None:
    for refusal in REFUSALS:
        with pytest.MonkeyPatch.context() as patch, sleeper() as process:
            without_handles(refusal, patch)
            watching = threading.Thread(target=lifetimes.end_of(process.pid, pause=0.01), daemon=True)
            watching.start()
            watching.join(0.1)
            assert watching.is_alive(), refusal
            process.kill()
            watching.join(60)
            assert not watching.is_alive(), refusal
            process.wait()
            with pytest.raises(ProcessLookupError):
                lifetimes.end_of(process.pid)


def test_another_process_with_the_same_number_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    births = iter(["1", "1", "2"])
    monkeypatch.setattr(lifetimes, "life", lambda pid: lifetimes.Life(next(births), 1))
    lifetimes.end_of(7, pause=0.0)()
    assert next(births, None) is None


def test_a_life_has_a_birth_and_a_parent_and_the_dead_have_none() -> None:
    process = sleeper()
    found = lifetimes.life(process.pid)
    assert found is not None
    assert found.parent == os.getpid()
    assert lifetimes.lives(process.pid, found.birth)
    assert not lifetimes.lives(process.pid, "another")
    process.kill()
    lifetimes.end_of(process.pid)()
    assert not lifetimes.lives(process.pid, found.birth), "its status is not collected yet"
    process.wait()
    assert lifetimes.life(process.pid) is None
