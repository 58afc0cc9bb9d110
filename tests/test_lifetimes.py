"""The end of somebody else's process is noticed, on kernels of any age."""

import errno
import os
import subprocess
import sys
import threading
import time

import pytest

from collbench import lifetimes

REFUSALS = (
    OSError(errno.ENOSYS, "no such call"),
    PermissionError(errno.EPERM, "filtered"),
    AttributeError("pidfd_open"),
)


@pytest.fixture(params=(None, *REFUSALS), ids=str)
def handles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels with and without handles of processes."""

    def refuse(pid: int) -> int:
        raise request.param

    if request.param:
        monkeypatch.setattr(os, "pidfd_open", refuse)


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


@pytest.mark.parametrize("reaped", [True, False])
def test_the_end_of_a_process_is_noticed(handles: None, reaped: bool) -> None:
    """Not before it comes, and also of one whose parent has not asked for its status yet."""
    process = sleeper()
    watching = threading.Thread(target=lifetimes.end_of(process.pid, pause=0.01), daemon=True)
    watching.start()
    watching.join(0.3)
    assert watching.is_alive()
    process.kill()
    if reaped:
        process.wait()
    watching.join(10)
    assert not watching.is_alive()
    process.wait()


def test_a_process_that_is_gone_already_is_an_error(handles: None) -> None:
    """The supervisor may have died before its ranks could watch it."""
    process = sleeper()
    process.kill()
    process.wait()
    with pytest.raises(ProcessLookupError):
        lifetimes.end_of(process.pid)


def test_another_process_with_the_same_number_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are used again; times of birth are not."""
    monkeypatch.delattr(os, "pidfd_open")
    births = iter(["1", "1", "2"])
    monkeypatch.setattr(lifetimes, "life", lambda pid: lifetimes.Life(next(births), 1))
    lifetimes.end_of(7, pause=0.0)()
    assert next(births, None) is None


def test_looking_is_cheap() -> None:
    """A rank that measures shares its core with the looks: they must cost less than a thousandth of it."""
    begun = time.thread_time()
    for _ in range(200):
        lifetimes.life(os.getpid())
    assert (time.thread_time() - begun) / 200 < 1e-3 * lifetimes._PAUSE


def test_a_life_has_a_birth_and_a_parent_and_the_dead_have_none() -> None:
    """Also of a process whose status nobody has collected."""
    process = sleeper()
    found = lifetimes.life(process.pid)
    assert found is not None
    assert found.parent == os.getpid()
    assert lifetimes.lives(process.pid, found.birth)
    assert not lifetimes.lives(process.pid, "another")
    process.kill()
    lifetimes.end_of(process.pid)()
    assert not lifetimes.lives(process.pid, found.birth)
    process.wait()
    assert lifetimes.life(process.pid) is None
