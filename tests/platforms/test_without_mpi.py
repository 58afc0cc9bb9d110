"""Processes that no MPI started: how they find each other, what they tell each other, and how their end is seen."""

import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collbench.errors import PlatformError, UsageError
from collbench.host.launcher import RENDEZVOUS
from collbench.platforms.processes import node_name
from collbench.platforms.socket_processes import Folder, Rendezvous, SocketProcesses, TorchStore, usual_rendezvous

SECONDS = 60  # for what takes a few milliseconds

STORE = """
import os, pathlib, time
class TCPStore:  # as torch's: a key is set by anybody, and whoever gets it waits
    def __init__(self, host, port, world_size=None, is_master=False, timeout=None, wait_for_workers=True):
        assert (host, type(port), wait_for_workers) == ("first", int, False)
        self.folder, self.seconds = pathlib.Path(os.environ["STORE"]), timeout.total_seconds()
        if is_master:
            (self.folder / "master").write_text("")
        end = time.monotonic() + self.seconds
        while not (self.folder / "master").exists():
            if time.monotonic() > end:
                raise RuntimeError("nobody there\\nand a trace")
            time.sleep(0.01)
    def set(self, key, value):
        (self.folder / "half").write_text(value)
        (self.folder / "half").replace(self.folder / key.replace("/", "%"))  # whole, as soon as it is there
    def get(self, key):
        end = time.monotonic() + self.seconds
        while not (path := self.folder / key.replace("/", "%")).exists():
            if time.monotonic() > end:
                raise RuntimeError("timed out")
            time.sleep(0.01)
        return path.read_bytes()
"""


@pytest.fixture(autouse=True)
def _on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes are here, so that nothing listens to the network."""
    for name, value in (("WORLD_SIZE", "3"), ("RANK", "0"), ("LOCAL_WORLD_SIZE", "3")):
        monkeypatch.setenv(name, value)


def hang_up(*teams: SocketProcesses) -> None:
    for link in (link for team in teams for link in team.links.values()):
        link.close()


def shut_down(link: Connection) -> None:
    """End a connection whoever waits at it, as the kernel does for a process that ends."""
    with socket.socket(fileno=os.dup(link.fileno())) as other:
        other.shutdown(socket.SHUT_RDWR)


def together(place: Callable[[int], Rendezvous], act: Callable[[SocketProcesses], Any], size: int = 3) -> list[Any]:
    """What that returns, or raises, in each of so many processes, which are threads here."""

    def one(rank: int) -> Any:
        team = SocketProcesses.at(place(rank), rank, size, SECONDS)
        try:
            return act(team)
        except (PlatformError, UsageError) as error:
            return error
        finally:
            hang_up(team)

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


def test_processes_find_each_other_in_a_folder_and_leave_nothing_there(tmp_path: Path) -> None:
    def speak(team: SocketProcesses) -> Any:
        assert team.leader == (team.rank == 0)
        assert team.gather({"rank": team.rank}) == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
        assert team.broadcast("said" if team.leader else None) == "said"
        assert team.any_of(team.rank == 2)
        assert not team.any_of(False)
        assert list(team.slowest(np.array([team.rank, -team.rank]))) == [2, 0]
        assert team.neighbours() == [0, 1, 2]
        numbers = np.zeros(2)
        if team.leader:
            for peer in (1, 2):
                team.send(np.array([peer, 0.5]), peer)
                team.receive(numbers, peer)
                assert list(numbers) == [peer, 1.5]
        else:
            team.sleep_until_sent()
            team.receive(numbers, 0)
            assert list(numbers) == [team.rank, 0.5]
            team.send(numbers + np.array([0, 1]), 0)
        return team.exchange(team.rank * 10)

    assert together(lambda rank: Folder(tmp_path / "new"), speak) == [[0, 10, 20]] * 3
    assert list((tmp_path / "new").iterdir()) == []


def test_what_an_earlier_start_left_is_not_believed(tmp_path: Path) -> None:
    """Nobody listens there, or somebody else does who does not know the word: others wait for the first process."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        closed = socket.create_server(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        closed.close()
        for stale in (port, other.getsockname()[1]):
            left = {"node": node_name(), "hosts": [], "port": stale, "word": "old"}
            Folder(tmp_path).leave(json.dumps(left))
            with ThreadPoolExecutor() as pool:
                second = pool.submit(SocketProcesses.at, Folder(tmp_path), 1, 2, SECONDS)
                if stale != port:
                    other.accept()[0].close()
                first = pool.submit(SocketProcesses.at, Folder(tmp_path), 0, 2, SECONDS)
                teams = first.result(), second.result()
                told = pool.submit(teams[1].broadcast, None)
                assert teams[0].broadcast("here") == told.result() == "here"
                hang_up(*teams)


def test_a_file_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Folder(tmp_path).leave("where")
    assert Folder(tmp_path).find() == "where"
    monkeypatch.setattr("os.getuid", lambda: 4242)
    assert Folder(tmp_path).find() == ""


def test_starts_that_launchers_tell_apart_do_not_see_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = []
    for job in ({"SLURM_JOB_ID": "7"}, {"SLURM_STEP_ID": "1"}, {"TORCHELASTIC_RUN_ID": "a/../b"}):
        for name, value in job.items():
            monkeypatch.setenv(name, value)
        places.append(Folder(tmp_path))
        places[-1].leave(str(job))
    assert [place.find() for place in places] == [str({"SLURM_JOB_ID": "7"}), str({"SLURM_STEP_ID": "1"}), str(job)]
    assert {path.parent for path in tmp_path.rglob("*")} == {tmp_path}


def test_strangers_are_sent_away_and_the_others_still_come(tmp_path: Path) -> None:
    """Whoever does not know the word is sent away before anything that it sends is unpickled."""
    place = Folder(tmp_path)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(SocketProcesses.at, place, 0, 2, SECONDS)
        while not place.find():
            time.sleep(0.01)
        where = json.loads(place.find())
        address = "127.0.0.1", where["port"]
        for said in (b"GET / HTTP/1.1\r\n\r\n", struct.pack("!i", 3) + b"\x80\x04.", b"\xff" * 8, b""):
            with socket.create_connection(address, SECONDS) as stranger, suppress(OSError):
                stranger.sendall(said)
                stranger.shutdown(socket.SHUT_WR)
                assert b"WELCOME" not in stranger.makefile("rb").read(), said
        with pytest.raises(AuthenticationError):
            Client(address, authkey=b"guessed")
        for rank, size, answer in (1, 3, "rank 1 was started as one of 3 processes"), (0, 2, "there is a rank 0"):
            with Client(address, authkey=where["word"].encode()) as known:
                known.send((rank, size))
                assert known.recv().startswith(answer)
        assert not first.done()
        second = SocketProcesses.at(place, 1, 2, SECONDS)
        assert first.result().size == 2
        hang_up(first.result(), second)


def test_a_process_that_is_gone_is_named_at_once(tmp_path: Path) -> None:
    """By the thread that watches, and by whoever waits for a message."""
    place, gone = Folder(tmp_path), threading.Event()
    lost: list[int] = []
    with ThreadPoolExecutor() as pool:
        first = pool.submit(SocketProcesses.at, place, 0, 3, SECONDS)
        others = [pool.submit(SocketProcesses.at, place, rank, 3, SECONDS) for rank in (1, 2)]
        team = first.result()
        team.watch(lambda rank: (lost.append(rank), gone.set()))  # type: ignore[func-returns-value]
        for link in others[1].result().links.values():
            shut_down(link)  # as the kernel does for a process that it ends
        assert gone.wait(SECONDS)
        assert lost == [2]
        answered = pool.submit(others[0].result().gather, "here")
        with pytest.raises(PlatformError, match="rank 2 is gone"):
            team.gather("all")
        shut_down(team.links[1])
        with pytest.raises(PlatformError, match="rank 0 is gone"):
            answered.result(SECONDS)
        hang_up(team, *(other.result() for other in others))


def test_who_does_not_come_is_named_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(
        PlatformError, match=r"rank 1, 2 of 3 did not come to \S+ in time: start all, or raise --timeout"
    ):
        SocketProcesses.at(Folder(tmp_path), 0, 3, 0.05)
    assert list(tmp_path.iterdir()) == [], "the next start would try in vain what is left"
    with pytest.raises(PlatformError, match="no word of rank 0 in"):
        SocketProcesses.at(Folder(tmp_path), 1, 3, 0.05)


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A torch that has only a store, in this folder; a real one takes gigabytes (tests/deploy has it)."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    (tmp_path / "torch" / "distributed.py").write_text(STORE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("STORE", str(tmp_path))
    return tmp_path


def test_processes_find_each_other_by_the_store_of_torch(torch: Path) -> None:
    """The first process has a store where torchrun has none."""
    surroundings = {"MASTER_ADDR": "first", "MASTER_PORT": "29500", "WORLD_SIZE": "3"}
    for agent in ("True", "False"):
        (torch / "master").unlink(missing_ok=True)
        if agent == "True":
            (torch / "master").write_text("torchrun's")

        def place(rank: int, agent: str = agent) -> Rendezvous:
            own = {"RANK": str(rank), "TORCHELASTIC_USE_AGENT_STORE": agent, "TORCHELASTIC_RUN_ID": agent}
            found = usual_rendezvous(SECONDS, surroundings | own)
            assert isinstance(found, TorchStore)
            return found

        assert together(place, lambda team: team.gather(team.rank)) == [[0, 1, 2]] * 3
        assert (torch / "master").read_text() == ("torchrun's" if agent == "True" else "")


def test_where_processes_meet_is_a_folder_then_torch_and_else_an_error_with_the_fix(
    torch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = {"MASTER_ADDR": "first", "MASTER_PORT": "29500", "RANK": "1", "WORLD_SIZE": "2"}
    assert isinstance(usual_rendezvous(1, address | {RENDEZVOUS: "here"}), Folder)
    for ask in (lambda place: place.find(), lambda place: place.leave("text")):
        with pytest.raises(PlatformError, match=r"torch's store at first:29500 cannot be reached: nobody there$"):
            ask(usual_rendezvous(1, address | {"TORCHELASTIC_USE_AGENT_STORE": "True"}))
    for given, why in (
        ({}, "MASTER_ADDR and MASTER_PORT are not set"),
        ({"MASTER_ADDR": "a"}, "MASTER_PORT is not set"),
    ):
        with pytest.raises(PlatformError, match=why):
            usual_rendezvous(1, given)
    monkeypatch.setattr("collbench.platforms.socket_processes.find_spec", lambda name: None)
    with pytest.raises(PlatformError, match="torch, whose store they would use, is not installed; fix: --rendezvous"):
        usual_rendezvous(1, address)
