"""Ranks of this machine: nobody on the network can reach them, and what ended one is told apart from what followed."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from collbench.measure import start
from collbench.measure.supervisor import Supervisor
from collbench.runs.environment import UNCHANGED
from tests.test_cases import sweep

LISTENING = "0A"  # a socket's state in /proc/net/tcp
LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")


def heard(pids: set[int]) -> list[str]:
    """Addresses, in hexadecimal, that these processes listen on."""
    sockets = set(re.findall(r"socket:\[(\d+)\]", " ".join(target for pid in pids for target in opened(pid))))
    rows = [row.split() for kind in ("tcp", "tcp6") for row in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    return [row[1].partition(":")[0] for row in rows if row[3] == LISTENING and row[9] in sockets]


def opened(pid: int) -> Iterator[str]:
    """What a process has open; it may be closing some of it."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            yield str(link.readlink())


def family(pid: int) -> set[int]:
    """A process and all that descend from it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {pid}.union(*(family(int(child)) for child in children))


def test_ranks_and_their_launcher_listen_on_loopback_at_most() -> None:
    """No other machine can speak to them, whatever MPI library this is."""
    with Supervisor("cpu", sweep(1024)) as ranks:
        processes = family(os.getpid())
        assert processes > set(ranks.greeting.pids)
        assert set(heard(processes)) <= set(LOOPBACK)


def test_what_the_user_told_the_library_of_networks_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of another library the defaults hold still."""
    monkeypatch.setenv("UCX_NET_DEVICES", "eth1")
    given = start.environment("cpu", tmp_path, UNCHANGED)
    assert "UCX_TLS" not in given
    assert given["UCX_NET_DEVICES"] == "eth1"
    assert given["FI_TCP_IFACE"] == "lo"


def test_a_process_that_starts_no_mpi_is_told_nothing_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That of the GPUs; NCCL's plugins would heed it, and the run file keep it.  What the user has set is there."""
    for name in start.UNHEARD:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UCX_NET_DEVICES", "eth1")
    given = start.environment("gpu", tmp_path, UNCHANGED)
    assert not {*start.UNHEARD} & {*given}
    assert given["UCX_NET_DEVICES"] == "eth1"
    assert {*start.UNHEARD} - {"UCX_TLS"} <= {*start.environment("cpu", tmp_path, UNCHANGED)}


@pytest.mark.parametrize(
    ("printed", "number"),
    [
        ("[0]0:Return code = 0, signaled with Quit\n[0]1:Return code = 0, signaled with Killed\n", 9),
        ("[0]0:Return code = 0, signaled with Segmentation fault\n[0]1:Return code = 0, signaled with Interrupt\n", 11),
        ("[0]0:Return code = 0, signaled with Interrupt\n", 2),
        ("YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n", 9),
        ("[0]0:Return code = 3\n", None),
        ("", None),
    ],
)
def test_the_signal_that_ended_the_first_rank_is_told(printed: str, number: int | None) -> None:
    """The launcher then asks the others to go, which is not what happened."""
    assert start.signal_of(printed) == number
