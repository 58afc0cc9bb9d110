"""The ranks' side where one process holds them all, as on GPUs: served over a real socket, on a made-up platform."""

import socket
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from collbench import link, worker
from collbench.records import case_fields, sweep_fields
from collbench.sweep import Sampling
from collbench.world import OneProcess
from tests.conftest import case
from tests.test_runner import ToyPlatform, constant, ways
from tests.test_sweep import sweep


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
    monkeypatch.setattr(worker, "implementations", lambda: {each.name: each for each in ways(platform)})
    monkeypatch.setattr(worker, "fifo_bytes", lambda *ignored: {})
    monkeypatch.setenv(worker.PLATFORM, "toy")
    monkeypatch.setenv("MINE", "1")
    ours, theirs = socket.socketpair()
    supervisor, ranks = link.Channel(ours), link.Channel(theirs)
    serving = threading.Thread(target=worker._serve, args=(OneProcess(), ranks, link.Page(tmp_path)), daemon=True)
    serving.start()
    supervisor.send({"sweep": sweep_fields(sweep(1024)), "named": ["MINE"], "pinned": True})
    greeting = supervisor.receive(5)
    assert greeting
    assert (greeting["cores"], greeting["variables"]["MINE"], len(greeting["pids"])) == ([], "1", 1)
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
