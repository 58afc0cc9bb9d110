"""Processes that no MPI started: how they find each other, what they tell each other, and how their end is seen."""

import json
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
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
    for name, value in (("WORLD_SIZE", "3"), ("RANK", "0"), ("LOCAL_WORLD_SIZE", "3")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Folder, "settling", 0.05)


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


def met(folder: Path) -> None:
    """Two processes find each other, of which the second one was there before the first."""
    with ThreadPoolExecutor() as pool:
        second = pool.submit(SocketProcesses.at, Folder(folder), 1, 2, SECONDS)
        first = pool.submit(SocketProcesses.at, Folder(folder), 0, 2, SECONDS)
        teams = first.result(), second.result()
        told = pool.submit(teams[1].broadcast, None)
        assert teams[0].broadcast("here") == told.result() == "here"
        hang_up(*teams)


def test_what_an_earlier_start_left_is_not_believed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        closed = socket.create_server(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        closed.close()
        for stale in (port, other.getsockname()[1]):
            left = {"node": node_name(), "hosts": [], "port": stale, "secret": "old"}
            Folder(tmp_path).leave(json.dumps(left))
            hanging_up = ThreadPoolExecutor(1)
            for _ in range(2 * (stale != port)):  # one for each process
                hanging_up.submit(lambda: other.accept()[0].close())
            met(tmp_path)
            hanging_up.shutdown()


WORDS = {
    "nothing": b"",
    "no JSON": b"where",
    "a list": b"[1]",
    "no text": b"\xff\xfe",
    "other types": b'{"secret": 1, "node": [], "port": "x"}',
    "a port that is none": b'{"secret": "", "node": ["", ""], "hosts": ["127.0.0.1"], "port": 99999999}',
    "a host that is none": b'{"secret": "", "node": ["", ""], "hosts": ["\\u0000", "a..b"], "port": 9}',
    "a folder that is none": b'{"secret": "", "node": ["", ""], "folder": "\\u0000"}',
    "deep": b"[" * 50_000,
    "deep beside a word": b'{"secret": "", "node": ["", ""], "more": ' + b"[" * 50_000,
    "huge": b'{"secret": "' + b"x" * 1_000_000,
}


@pytest.mark.parametrize("content", WORDS.values(), ids=WORDS)
def test_a_broken_word_is_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "collbench-first.json").write_bytes(content)
    met(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_or_a_link_in_place_of_the_word_keeps_nobody_waiting(tmp_path: Path) -> None:
    path = tmp_path / "collbench-first.json"
    os.mkfifo(path)
    met(tmp_path)
    path.symlink_to("/dev/zero")
    met(tmp_path)
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)  # who writes nothing
    met(tmp_path)
    os.close(writer)
    path.mkdir()
    with pytest.raises(PlatformError, match=r"cannot write to .*: Is a directory; choose another --rendezvous"):
        SocketProcesses.at(Folder(tmp_path), 0, 2, SECONDS)
    assert list(tmp_path.iterdir()) == [path]


def test_a_word_of_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Folder(tmp_path).leave("theirs")
    monkeypatch.setattr("os.getuid", lambda: 4242)
    with pytest.raises(PlatformError, match=r"collbench-first\.json is another user's; choose another --rendezvous"):
        Folder(tmp_path).leave("mine")
    assert (tmp_path / "collbench-first.json").read_text() == "theirs"


def refusal(folder: Path, rank: int, seconds: float) -> str:
    """What a process is told that one of another job keeps from its own; empty if it finds somebody."""
    try:
        hang_up(SocketProcesses.at(Folder(folder), rank, 2, seconds))
    except PlatformError as error:
        return str(error)
    return ""


JOBS = {  # the order in which the processes of two jobs come to one folder
    "first ranks first": (0, 0, 1, 1),
    "in turn": (0, 1, 0, 1),
    "another's rank before": (0, 1, 1, 0),
    "others before": (1, 1, 0, 0),
}


@pytest.mark.parametrize("ranks", JOBS.values(), ids=JOBS)
def test_two_jobs_that_meet_in_one_folder_are_both_refused(
    ranks: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Folder, "settling", 3.0)
    with ThreadPoolExecutor() as pool:
        reasons = list(pool.map(lambda rank: refusal(tmp_path, rank, 2.0), ranks))
    assert sum("do two jobs meet in" in reason for reason in reasons) >= 2, reasons
    assert all(re.search("do two jobs meet in|no address|no answer|in time", each) for each in reasons), reasons
    assert list(tmp_path.iterdir()) == []


def test_a_first_process_whose_word_was_replaced_gives_up(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        first = pool.submit(SocketProcesses.at, Folder(tmp_path), 0, 2, SECONDS)
        while not (text := Folder(tmp_path).find()):
            time.sleep(0.01)
        other = json.dumps(json.loads(text) | {"hosts": ["other"]})  # its rank 1 still comes here
        (tmp_path / "collbench-first.json").write_text(other)
        second = pool.submit(SocketProcesses.at, Folder(tmp_path), 1, 2, SECONDS)
        for each in (first, second):
            assert "there is a rank 0 already; do two jobs meet in" in str(each.exception())
    assert Folder(tmp_path).find() == other


def test_a_socket_that_others_may_open_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with ThreadPoolExecutor() as pool:
        first = pool.submit(SocketProcesses.at, Folder(tmp_path), 0, 2, 1.0)
        while not (text := Folder(tmp_path).find()):
            time.sleep(0.01)
        folder = Path(json.loads(text)["folder"])
        assert folder.stat().st_mode & 0o777 == 0o700
        folder.chmod(0o711)
        with pytest.raises(PlatformError, match="no answer at rank 0's address"):
            SocketProcesses.at(Folder(tmp_path), 1, 2, 0.3)
        assert isinstance(first.exception(), PlatformError)
    assert not folder.exists()


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


def drip(stranger: socket.socket) -> bool:
    """Say a byte now and then; whether the other side heard all of the message."""
    with suppress(OSError):
        for byte in struct.pack("!i", 200) + bytes(200):
            stranger.send(bytes([byte]))
            time.sleep(0.05)
        return True
    return False


def test_strangers_are_sent_away_and_the_others_still_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")  # so that it listens to the network
    place = Folder(tmp_path)
    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        first = pool.submit(SocketProcesses.at, place, 0, 2, SECONDS)
        while not (text := Folder(tmp_path).find()):
            time.sleep(0.01)
        where = json.loads(text)
        address = "127.0.0.1", where["port"]
        for said in (b"GET / HTTP/1.1\r\n\r\n", struct.pack("!i", 3) + b"\x80\x04.", b"\xff" * 8, b""):
            with socket.create_connection(address, SECONDS) as stranger, suppress(OSError):
                stranger.sendall(said)
                stranger.shutdown(socket.SHUT_WR)
                assert b"WELCOME" not in stranger.makefile("rb").read(), said
        with pytest.raises(AuthenticationError):
            Client(address, authkey=b"guessed")
        silent = [stack.enter_context(socket.create_connection(address, SECONDS)) for _ in range(50)]
        dripping = pool.submit(drip, silent[0])
        assert not first.done()
        second = SocketProcesses.at(Folder(tmp_path), 1, 2, SECONDS)
        assert first.result().size == 2
        assert not dripping.done()
        hang_up(first.result(), second)


def test_who_takes_long_to_say_who_he_is_is_hung_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collbench.platforms.socket_processes.HANDSHAKE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as stranger, ThreadPoolExecutor() as pool:
        left = {"node": node_name(), "hosts": [], "port": stranger.getsockname()[1], "secret": "old"}
        Folder(tmp_path).leave(json.dumps(left))
        second = pool.submit(SocketProcesses.at, Folder(tmp_path), 1, 2, 0.1)
        connection, _ = stranger.accept()
        dripping = pool.submit(drip, connection)
        assert "no answer at rank 0's address" in str(second.exception())
        assert not dripping.result()
        connection.close()


def test_ranks_of_starts_that_differ_in_size_are_refused(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        every = [
            pool.submit(SocketProcesses.at, Folder(tmp_path), rank, size, SECONDS) for rank, size in ((0, 2), (1, 3))
        ]
        for each in every:
            assert "rank 1 was started as one of 3 processes, rank 0 as one of 2; do two jobs" in str(each.exception())


def test_a_process_that_is_gone_is_named_at_once(tmp_path: Path) -> None:
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
        PlatformError, match=r"rank 1, 2 of 3 did not reach \S+ in time: start all ranks, or raise --timeout"
    ):
        SocketProcesses.at(Folder(tmp_path), 0, 3, 0.05)
    assert list(tmp_path.iterdir()) == [], "the next start would try in vain what is left"
    with pytest.raises(PlatformError, match="no address of rank 0 in"):
        SocketProcesses.at(Folder(tmp_path), 1, 3, 0.05)


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A torch that has only a store, in this folder; a real one takes gigabytes."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    (tmp_path / "torch" / "distributed.py").write_text(STORE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("STORE", str(tmp_path))
    return tmp_path


def test_processes_find_each_other_by_the_store_of_torch(torch: Path) -> None:
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
