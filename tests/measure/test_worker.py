"""The ranks' side where one process holds them all, as on GPUs: served over a real socket, on a made-up platform."""

import os
import socket
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from collbench import implementations
from collbench.cases import Sampling
from collbench.errors import PlatformError
from collbench.measure import link, worker
from collbench.measure.installation import UNKNOWN, installation
from collbench.platforms.layout import Needs
from collbench.platforms.processes import Alone
from collbench.runs.records import case_fields, sweep_fields
from tests.conftest import case
from tests.measure.test_runner import ToyPlatform, constant, ways
from tests.test_cases import sweep


@dataclass
class Opened(ToyPlatform):
    """What a worker needs of a platform besides."""

    closed: bool = False

    def topology(self) -> dict[str, Any]:
        return {"name": "toys"}

    def versions(self) -> dict[str, str]:
        return {"toy": "1"}

    def close(self) -> None:
        self.closed = True


def test_one_process_serves_orders_as_they_are_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each order says how to sample it and how long samples last; no core is taken; named variables are told."""
    platform = Opened({"a": constant(1e-3)})
    monkeypatch.setattr(worker, "open_platform", lambda *ignored: platform)
    monkeypatch.setattr(implementations, "implementations", lambda: {way.name: way for way in ways(platform)})
    monkeypatch.setattr(worker, "needs", lambda *ignored: Needs())
    monkeypatch.setenv(worker.PLATFORM, "toy")
    monkeypatch.setenv("MINE", "1")
    ours, theirs = socket.socketpair()
    supervisor, ranks = link.Channel(ours), link.Channel(theirs)
    serving = threading.Thread(target=worker._serve, args=(Alone(), ranks, link.Page(tmp_path)), daemon=True)
    serving.start()
    mine = {"installation": installation(), "named": ["MINE"], "pinned": True}
    supervisor.send({"sweep": sweep_fields(sweep(1024)), **mine})
    greeting = supervisor.receive(5)
    assert greeting
    assert (greeting["cores"], greeting["variables"]["MINE"], greeting["pids"]) == ([], "1", [os.getpid()])
    assert greeting["installation"] == list(installation())
    for iters, launches in ((3, 1), (2, 64)):
        how = {"implementations": ["a"], "sampling": asdict(Sampling(iters=iters)), "launches": {"a": launches}}
        supervisor.send({"case": {**case_fields(case()), **how}})
        answer = supervisor.receive(5)
        assert answer
        assert len(answer["result"]["seconds"]) == iters
        assert answer["result"]["launches"] == launches
        assert supervisor.receive(5) == {"done": True}
    supervisor.send({"stop": True})
    serving.join(5)
    supervisor.close()
    ranks.close()
    assert platform.closed


@pytest.mark.parametrize(
    "theirs",
    [
        {"installation": installation()._replace(code="0" * 64, folder="/other/collbench")},
        {"installation": installation()._replace(version="0.0.1", folder="/other/collbench")},
        {},
    ],
    ids=["other code", "other version", "too old to say"],
)
def test_a_rank_refuses_a_command_of_another_copy(theirs: dict[str, Any], tmp_path: Path) -> None:
    """Before it reads anything else of the order, whose form may be another's; both folders are named."""
    ours, ranks = map(link.Channel, socket.socketpair())
    ours.send(theirs)
    with pytest.raises(PlatformError, match="keep one of them on PYTHONPATH") as error:
        worker._serve(Alone(), ranks, link.Page(tmp_path))
    assert f"a rank runs {installation()}, but its command runs collbench" in str(error.value)
    assert ("/other/collbench" if theirs else UNKNOWN.folder) in str(error.value)
    ours.close()
    ranks.close()


def test_a_supervisor_that_is_gone_before_ranks_connect_is_one_that_has_closed(tmp_path: Path) -> None:
    """So that they wait for the thread that tidies up, and do not end before it."""
    with pytest.raises(link.Closed):
        link.connect(tmp_path)
