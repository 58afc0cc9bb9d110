"""`collbench startup`: real ranks on CPUs, made-up GPUs, the order of phases, what fails, and what is read back."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from itertools import chain, repeat
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

import collbench as library
from collbench.cases import Sampling
from collbench.collectives import COLLECTIVES
from collbench.commands.startup import measured
from collbench.commands.startup.command import COLUMNS, lines_of
from collbench.commands.startup.rows import PHASES, Init, InitTimes
from collbench.datatypes import REDUCTIONS
from collbench.errors import CaseFailed, TimedOut
from collbench.platforms.processes import Alone
from collbench.results import Mismatch, Note, Result, Skipped
from collbench.results.facts import Overrun
from collbench.runfile.schema import to_line, to_result
from collbench.runfile.store import read
from tests.commands.conftest import write_run
from tests.conftest import Command, case, mpiexec
from tests.platforms.gpu.opening import Open, nothing_set, opened
from tools.stand_in.clocks import Counted
from tools.stand_in.cuda import Machine
from tools.stand_in.nccl import Communicator, Nccl, NcclError
from tools.stand_in.whole_commands import on_gpus

__all__ = ["nothing_set", "opened"]

QUICK = ("--starts", "2", "--budget", "20ms", "--out", "out")
CASE = case(nbytes=4, work=Init())
LIFE = {"id": 1.0, "communicator": 2.0, "first_collective": 4.0, "destroy": 16.0}


def times(ranks: int, first: float, again: tuple[float, ...]) -> InitTimes:
    """A row whose communicators take so many times as long as LIFE."""
    lives = [{phase: factor * seconds for phase, seconds in LIFE.items()} for factor in (first, *again)]
    return InitTimes(replace(CASE, ranks=ranks), "nccl", "gpu", tuple(lives[:1]), tuple(lives[1:]))


def carried_out(platform: Any, budget: float = 1e-9) -> Result:
    (name,) = set(measured.LIBRARIES) & {"mpi" if platform.name == "cpu" else "nccl"}
    (result,) = measured.measure(CASE, [name], platform, Sampling(budget=budget), lambda *_: None)
    return result


@pytest.fixture
def gpus(opened: Open) -> Callable[..., Any]:
    def on(devices: int = 2, timeout: float = 5.0, **machine: Any) -> Any:
        sweep = {"collectives": (COLLECTIVES["allreduce"],), "sizes": (4,), "implementations": ("nccl",)}
        return opened(Machine(devices, **machine), works=(Init(),), sampling=Sampling(timeout=timeout), **sweep)

    return on


# Real ranks on CPUs.


def test_numbers_of_ranks_have_first_communicators_of_every_start_and_others(here: Command, tmp_path: Path) -> None:
    done = here("startup", "--on", "cpu", *QUICK, "--json", "rows.json")
    assert done.returncode == 0, done.stderr
    run = read(tmp_path / "out")
    assert [row.case.ranks for row in run.results] == [1, 2]
    assert run.header.sweep.starts == 2
    assert not run.header.sweep.sampling.graph
    assert run.header.topology.name.startswith("2 ranks"), "the largest number"
    for row in run.results:
        assert isinstance(row, InitTimes)
        assert (row.right, len(row.first)) == (True, 2)
        assert 2 <= len(row.again) <= 2 * measured.MOST
        assert {tuple(life) for life in (*row.first, *row.again)} == {PHASES[1:]}
        assert row.library.startswith(("MPICH", "Open MPI"))
    assert re.findall(r"^ +(\d+)  (first|again)  +\d", done.stdout, re.MULTILINE) == [
        (ranks, made) for ranks in "12" for made in ("first", "again")
    ]
    assert [to_result(line) for line in json.loads((tmp_path / "rows.json").read_text())] == list(run.results)


def test_the_function_of_the_library_returns_the_run_and_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[Result] = []
    run = library.startup(2, on="cpu", starts=1, budget="10ms", each=seen.append)
    assert list(run.results) == seen
    assert [(type(row), row.case.ranks, len(row.first)) for row in run.results] == [(InitTimes, 2, 1)]
    assert not list(tmp_path.iterdir())


def test_other_commands_read_such_a_run_or_refuse_it_in_a_line(here: Command, tmp_path: Path) -> None:
    write_run(tmp_path / "run", times(1, 1.0, (1.0,)), times(2, 2.0, ()))
    for words in (("report", "run", "--out", "page.html"), ("list", "runs", "."), ("compare", "run", "run")):
        assert here(*words).returncode == 0, words
    page = (tmp_path / "page.html").read_text()
    assert "life of a communicator" in page
    assert "46 s" in page
    for words in (("export", "run", "--to", "csv"), ("plot", "run"), ("predict", "--fit", "run")):
        done = here(*words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), words
        assert "nothing to" in done.stderr


# Made-up GPUs.


def test_phases_follow_each_other_and_each_has_its_time(
    gpus: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, ids = Counted(), list[bytes]()
    identify, start, destroy = Nccl.get_unique_id, Communicator.__init__, Communicator.destroy

    def slow_id(nccl: Nccl) -> bytes:
        clock.sleep(LIFE["id"])
        ids.append(identify(nccl))
        return ids[-1]

    def slow_start(comm: Communicator, *place: Any) -> None:
        clock.sleep(LIFE["communicator"] / 2 * (1 + 9 * (len(ids) == 1)))
        start(comm, *place)

    def slow_end(comm: Communicator) -> None:
        clock.sleep(LIFE["destroy"] / 2)
        destroy(comm)

    monkeypatch.setattr(Nccl, "get_unique_id", slow_id)
    monkeypatch.setattr(Communicator, "__init__", slow_start)
    monkeypatch.setattr(Communicator, "destroy", slow_end)
    monkeypatch.setattr(measured, "time", clock)
    platform = gpus(clock=clock, nccl_seconds=LIFE["first_collective"])
    assert not ids
    row = carried_out(platform, budget=70.0)
    assert isinstance(row, InitTimes)
    assert (row.first, row.again) == (({**LIFE, "communicator": 20.0},), (LIFE, LIFE))
    assert len(set(ids)) == 3
    assert list(row.first[0]) == list(PHASES)


def test_a_wrong_first_collective_is_a_wrong_row_without_times(
    gpus: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reduce, operations = Communicator.allReduce, chain([REDUCTIONS["max"]] * 2, repeat(REDUCTIONS["sum"]))
    monkeypatch.setattr(Communicator, "allReduce", lambda *call: reduce(*call[:-2], next(operations).code, call[-1]))
    row = carried_out(gpus())
    assert isinstance(row.mismatch, Mismatch)
    assert (row.right, row.outcome.value) == (False, "wrong")
    assert not row.times
    assert [line.lives for line in lines_of([row])] == [()]
    platform, written = gpus(), Overrun(0, "receive buffer", 1, 1)
    monkeypatch.setattr(platform.checker, "overrun", lambda _: written)
    assert carried_out(platform).mismatch == written


def test_what_nccl_refuses_fails_with_its_reason(gpus: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise NcclError(2)

    assert isinstance(skipped := carried_out(gpus(has_nccl=False)), Skipped)
    assert "CuPy found no NCCL" in skipped.reason
    platform = gpus()
    for where, method, reason in (
        (Nccl, "get_unique_id", r"NCCL could not start .*NCCL_ERROR_SYSTEM_ERROR"),
        (Communicator, "destroy", r"while NCCL destroyed its communicators: NCCL_ERROR_SYSTEM_ERROR"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, method, refuse)
            with pytest.raises(CaseFailed, match=reason):
                carried_out(platform)
    ids, identify = list[bytes](), Nccl.get_unique_id
    monkeypatch.setattr(Nccl, "get_unique_id", lambda nccl: ids.append(identify(nccl)) or ids[-1])
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "0")
    platform = gpus(devices=1)
    for _ in range(2):
        with pytest.raises(CaseFailed, match=r"NCCL could not start .*NCCL_ERROR_INVALID_USAGE"):
            carried_out(platform)
    assert len(set(ids)) == 2, "an id serves once"


def test_the_first_start_alone_is_logged_and_tells_nccls_own_parts(
    gpus: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    @contextmanager
    def logging(_: object, subsystems: str) -> Iterator[StringIO]:
        asked.append(subsystems)
        yield StringIO("NCCL INFO Init timings - rank 0 nranks 2 total 0.48 (kernels 0.13)")

    monkeypatch.setattr(measured, "logging", logging)
    row = carried_out(gpus())
    assert "total 0.48 (kernels 0.13)" in str(row.note)
    assert (asked, len(row.again)) == (["INIT"], 1)


def test_a_destroy_that_never_ends_fails_within_the_limit_of_time(
    gpus: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    platform, ended = gpus(timeout=0.2), Event()
    monkeypatch.setattr(Communicator, "destroy", lambda comm: ended.wait())
    with pytest.raises(TimedOut, match="NCCL did not destroy its communicators within"):
        carried_out(platform)
    ended.set()


def test_under_a_launcher_the_ranks_that_it_started_are_measured(tmp_path: Path) -> None:
    words = ("startup", "--on", "gpu", "--budget", "10ms", "--out", "out")
    done = on_gpus(tmp_path, *words, launcher=[mpiexec(), "-n", "2"], devices=2)
    assert done.returncode == 0, done.stderr
    (row,) = read(tmp_path / "out").results
    assert isinstance(row, InitTimes)
    assert (row.case.ranks, len(row.first), [*row.first[0]]) == (2, 1, [*PHASES])
    assert done.stdout.count("first collective") == 1


# What is said.


def test_the_slowest_rank_counts_in_every_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, meetings, seeds = Counted(), list[None](), list[int]()

    class Two(Alone):
        def exchange(self, mine: Any) -> list[Any]:
            return [mine, {2.0: 1.0, 4.0: 5.0}[mine]]

        def meet(self) -> None:
            meetings.append(clock.sleep(8.0))

        def any_of(self, mine: bool) -> bool:
            return True  # the other process's budget is spent

    phases = {"communicator": lambda: clock.sleep(2.0), "first_collective": lambda: clock.sleep(4.0)}
    checker = SimpleNamespace(fill=lambda _, seed: seeds.append(seed), check=lambda *_: None, overrun=lambda *_: None)
    launcher = SimpleNamespace(synchronize=lambda: None)
    platform: Any = SimpleNamespace(name="cpu", note=Note(), team=Two(), checker=checker, launcher=launcher)
    monkeypatch.setattr(measured, "time", clock)
    monkeypatch.setattr(measured, "LIBRARIES", {"mpi": lambda *_: (phases, "MPI", [])})
    row = carried_out(platform, budget=1e9)
    assert isinstance(row, InitTimes)
    assert row.first == row.again == ({"communicator": 2.0, "first_collective": 5.0},)
    assert (len(meetings), seeds) == (4, [1, 2]), "other data each time"


def test_a_line_has_medians_and_from_six_communicators_on_an_interval() -> None:
    row = times(8, 3.0, (1.0, 5.0, 2.0, 2.0, 3.0, 4.0))
    cells = [{column.name: column.cell(line) for column in COLUMNS} for line in lines_of([row])]
    assert [(line["made"], line["destroy"], line["sum"]) for line in cells] == [
        ("first", "48 s", "69 s"),
        ("again", "40 s", "57.5 s"),
    ]
    assert [line["95 %"] for line in cells] == ["", "23 s .. 115 s"]
    assert to_result(to_line(row)) == row
    assert row.joined([row, row]).first == 2 * row.first


def test_a_row_with_a_time_that_is_none_is_no_result() -> None:
    for life in ({}, {"communicator": 0.0}, {"communicator": -1.0}):
        with pytest.raises(ValueError, match=r"time that is none|first"):
            to_result({**to_line(times(2, 1.0, ())), "first": [life]})
