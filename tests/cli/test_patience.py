"""The line that says what takes so long."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from collbench.api import patience as _patience
from collbench.api.patience import RANKS, said_if_long, started


@contextmanager
def slow(seconds: float, ended: list[str]) -> Iterator[None]:
    """A session whose ranks take that long to start."""
    time.sleep(seconds)
    try:
        yield
    except ValueError:
        ended.append("failed")
        raise
    ended.append("good")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_patience, "launched", lambda: None)


def test_ranks_that_start_slowly_are_waited_for_with_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While they start, not while they measure."""
    monkeypatch.setattr(_patience, "SECONDS", 0.2)
    ended: list[str] = []
    with started(slow(1.0, ended)):
        assert capsys.readouterr().err == f"collbench: {RANKS}\n"
    monkeypatch.setattr(_patience, "SECONDS", 5)
    with started(slow(0.0, ended)):
        monkeypatch.setattr(_patience, "SECONDS", 0.0)
    assert capsys.readouterr().err == ""
    assert ended == ["good", "good"]


def test_a_session_hears_of_what_fails_inside() -> None:
    """It must end its ranks at once then."""
    ended: list[str] = []
    with pytest.raises(ValueError, match="inside"), started(slow(0, ended)):
        raise ValueError("inside")
    assert ended == ["failed"]


def test_only_the_first_process_of_a_run_says_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under mpirun all of them wait."""
    for rank in (1, 0):
        monkeypatch.setattr(_patience, "launched", lambda rank=rank: (rank, 2))
        with said_if_long("waiting", 0.05):
            time.sleep(0.5)
        assert bool(capsys.readouterr().err) == (rank == 0)
