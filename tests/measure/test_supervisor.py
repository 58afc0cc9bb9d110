"""How ranks are started and what they are told: environment, cores and orders; nobody else reaches them."""

import os
import sys
import time
from pathlib import Path

import pytest

from collbench.cases import Sampling
from collbench.errors import PlatformError
from collbench.measure import protocol, supervisor
from collbench.measure.supervisor import Supervisor, rank_command, rank_environment
from collbench.platforms import find_platform
from collbench.platforms.cpu.mpi_libraries import own
from collbench.results.collectives import Measurement
from collbench.runfile.schema import changed, variables
from tests.commands.sweep.test_command import alive
from tests.conftest import ROOT, case, mpiexec
from tests.test_cases import sweep


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_real_ranks_live_as_they_were_told_and_run_this_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "collbench").mkdir()
    for name in ("collbench/__init__.py", "numpy.py", "mpi4py.py"):
        (tmp_path / name).write_text("raise SystemExit('ImportError: a copy in the working folder')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep)
    monkeypatch.setenv("XYZZY", "1")
    asked = sweep(1024)
    with Supervisor("cpu", asked, {"XYZZY": "2"}, ("XYZZY",)) as ranks:
        (result,) = ranks.measure(case(), ["mpi"], Sampling(iters=3), {"mpi": 64})
        assert isinstance(result, Measurement)
        assert len(result.seconds) == 3
        assert result.launches >= 64
        greeting = ranks.greeting
        assert os.getsid(0) not in map(os.getsid, greeting.pids), "Ctrl-C is for the supervisor"
    assert len(greeting.pids) == asked.ranks
    assert greeting.variables["XYZZY"] == "2"
    assert greeting.cores == find_platform("cpu").cores(asked.ranks)
    assert result.scheduling
    assert result.scheduling.cores == tuple((core,) for core in greeting.cores), "each rank stayed on its core"
    assert not alive(list(greeting.pids))


@pytest.mark.machine
def test_ranks_without_an_order_sleep() -> None:
    with Supervisor("cpu", sweep(1024)) as ranks:
        for _ in range(2):
            before = [cpu_seconds(pid) for pid in ranks.greeting.pids]
            time.sleep(0.8)
            spent = [cpu_seconds(pid) - start for pid, start in zip(ranks.greeting.pids, before, strict=True)]
            assert max(spent) <= 0.08
            list(ranks.measure(case(), ["mpi"], Sampling(iters=3)))


def test_ranks_are_processes_of_the_launcher_where_each_has_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = [sys.executable, "-P", "-m", protocol.WORKER]
    assert rank_command("gpu", 4) == python
    assert rank_command("cpu", 4) == [*own().command(4), *python]
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(PlatformError, match="pip install mpich mpi4py"):
        mpiexec()
    for folder in (tmp_path / "bin", tmp_path):
        folder.mkdir(exist_ok=True)
        (folder / "mpiexec").touch(0o755)
        assert mpiexec() == str(folder / "mpiexec")


def test_ranks_have_a_thread_each_and_the_users_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.setenv("PMI_RANK", "3")
    given = rank_environment("cpu", tmp_path, {"A": "1"})
    assert (given["A"], given["OMP_NUM_THREADS"]) == ("1", "1")
    assert "PMI_RANK" not in given
    assert rank_environment("cpu", tmp_path, {"OMP_NUM_THREADS": "2"})["OMP_NUM_THREADS"] == "2"
    for mine, kept in (("", []), (os.pathsep, []), (os.pathsep.join(["", "/mine", "", "/too"]), ["/mine", "/too"])):
        monkeypatch.setenv("PYTHONPATH", mine)
        paths = rank_environment("cpu", tmp_path, {})["PYTHONPATH"].split(os.pathsep)
        assert paths == [str(ROOT), *kept], mine


def test_defaults_of_networks_are_for_mpi_and_only_where_the_user_has_said_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in supervisor.LOCAL_ONLY:
        monkeypatch.delenv(name, raising=False)
    assert not {*supervisor.LOCAL_ONLY} & {*rank_environment("gpu", tmp_path, {})}
    monkeypatch.setenv("UCX_NET_DEVICES", "eth1")
    given = rank_environment("cpu", tmp_path, {})
    assert {*supervisor.LOCAL_ONLY} - {"UCX_TLS"} <= {*given}
    assert "UCX_TLS" not in given
    assert (given["UCX_NET_DEVICES"], given["FI_TCP_IFACE"]) == ("eth1", "lo")
    assert rank_environment("gpu", tmp_path, {})["UCX_NET_DEVICES"] == "eth1"


def test_a_setting_sets_empties_and_unsets_and_only_what_matters_or_was_named_is_told() -> None:
    changes = {"NEW": "1", "EMPTY": "", "GONE": None, "NEVER": None}
    assert changed({"EMPTY": "x", "GONE": "y", "KEPT": "z"}, changes) == {"EMPTY": "", "KEPT": "z", "NEW": "1"}
    environment = {"SECRET": "hush", "NCCL_ALGO": "Ring", "MINE": "1"}
    assert variables(environment) == {"NCCL_ALGO": "Ring"}
    assert variables(environment, ["MINE", "NOT_SET"]) == {"MINE": "1", "NCCL_ALGO": "Ring"}


def test_a_supervisor_that_is_gone_before_ranks_connect_is_one_that_has_closed(tmp_path: Path) -> None:
    with pytest.raises(protocol.Closed):
        protocol.connect(tmp_path)
    folder = tmp_path / "/".join(["x" * 60] * 3)  # longer than a socket's name may be
    folder.mkdir(parents=True)
    with protocol.listen(folder) as server:
        channel = protocol.connect(folder)
        ours = protocol.Channel(server.accept()[0])
        ours.send({"a": 1})
        assert channel.receive(60) == {"a": 1}
        channel.close()
        ours.close()
