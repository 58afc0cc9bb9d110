"""What the supervisor makes of ranks that die, hang, refuse or leave something out: scripts in place of real ranks."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from collbench.cases import Sampling
from collbench.errors import PlatformError, RanksLost
from collbench.measure import cleanup, start, worker, workers
from collbench.measure.installation import installation
from collbench.measure.supervisor import Supervisor
from collbench.measurement import Result, Skipped
from collbench.platforms import platforms
from collbench.platforms.cpu.installed import own
from collbench.runs.environment import Setting
from collbench.runs.records import sweep_fields
from tests.cli.test_sweep import alive
from tests.conftest import case
from tests.test_cases import sweep

RANK = """
import json, os, socket, struct, sys, time
settings = json.loads(sys.argv[1])

def send(**message):
    channel.sendall(json.dumps(message).encode() + b"\\n")

def receive():
    return json.loads(lines.readline() or "{}")

def turn(count, name):
    with open(os.environ["COLLBENCH_LINK"] + "/page", "r+b") as page:
        page.write(struct.pack("Q56s", count, name.encode()))

def end(status, words=""):
    print(words, file=sys.stderr, flush=True)
    os._exit(status)

exec(settings.get("start", ""))
channel = socket.socket(socket.AF_UNIX)
channel.connect(os.environ["COLLBENCH_LINK"] + "/socket")
lines = channel.makefile()
greeting = {"pids": [os.getpid()], "files": [], "installation": settings["installation"], "cores": []}
greeting |= {"topology": {}, "versions": {}, "variables": {"first": json.dumps(receive())}}
exec(settings.get("greet", ""))
send(**greeting)
while case := receive().get("case"):
    for place, name in enumerate(case["implementations"], 1):
        turn(place, name)
        told = f"{case['launches']} {case['sampling']['iters']} {case['implementations']}"
        result = case | {"kind": "skipped", "implementation": name, "platform": "cpu", "reason": told}
        exec(settings.get(name, ""))
        if result:
            send(result=result)
    exec(settings.get("done", ""))
    send(done=True)
exec(settings.get("stop", ""))
"""
Ranks = Callable[..., Supervisor]


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    """A supervisor whose one rank runs that script; what it does at each step is given as code."""

    def begin(timeout: float = 30.0, **steps: str) -> Supervisor:
        settings = json.dumps({"installation": list(installation()), **steps})
        monkeypatch.setattr(start, "command", lambda *_: [sys.executable, "-S", "-E", "-c", RANK, settings])
        return Supervisor("cpu", replace(sweep(1024), sampling=Sampling(timeout=timeout)), named=("A",), pinned=True)

    return begin


def told(results: list[Result]) -> list[tuple[str, str]]:
    """Implementations and what became of them, in order."""
    return [(result.implementation, "right" if isinstance(result, Skipped) else result.reason) for result in results]  # type: ignore[attr-defined]


def measure(ranks: Supervisor, *names: str) -> list[tuple[str, str]]:
    return told(list(ranks.measure(case(), names, Sampling(iters=5), {"a": 64})))


def test_an_order_says_all_that_ranks_must_know(ranks: Ranks) -> None:
    """The same ranks carry out one after the other, in a session of their own."""
    with ranks() as one:
        first, (pid,) = json.loads(one.greeting.variables["first"]), one.greeting.pids
        assert first == json.loads(
            json.dumps(
                {"installation": installation(), "sweep": sweep_fields(one.sweep), "named": ["A"], "pinned": True}
            )
        )
        assert os.getsid(pid) == pid
        (result,) = one.measure(case(), ["a"], Sampling(iters=5), {"a": 64})
        assert result == Skipped(case(), "a", "cpu", "{'a': 64} 5 ['a']")
        assert [row.implementation for row in one.run()] == ["mpi"]
        assert alive([pid])
    assert not alive([pid])


@pytest.mark.parametrize("broken", [False, True])
def test_ranks_go_home_in_order_unless_something_broke(
    ranks: Ranks, broken: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Who has gone is not ended by its number, which may be another's by then."""
    ended: list[tuple[set[int], list[str]]] = []
    end = cleanup.end

    def noted(pids: set[int], known: list[str]) -> None:
        ended.append((set(pids), known))
        end(pids, [])

    monkeypatch.setattr(cleanup, "end", noted)
    left, shared = tmp_path / "left", tmp_path / "shared"
    greet = f"greeting['files'] = [{str(shared)!r}]"
    stop = f"time.sleep(0.2); open({str(left)!r}, 'w')" if not broken else "time.sleep(60)"
    one = ranks(greet=greet, stop=stop).__enter__()
    assert one._workers
    folder = one._workers._folder
    assert folder.exists()
    one.__exit__(KeyboardInterrupt if broken else None)
    assert ended == [(set(one.greeting.pids), [str(shared)]) if broken else (set(), [])]
    assert left.exists() is not broken
    assert not folder.exists()
    assert not alive(one.greeting.pids)


DEATHS = {
    "b": (
        "channel.shutdown(2); time.sleep(0.3); end(3, 'ValueError: odd')",
        "a rank ended with status 3: ValueError: odd",
    ),
    "a child keeps the socket": ("os.fork() or time.sleep(60); os._exit(7)", "a rank ended with status 7"),
    "failed": ("send(failed='it broke'); time.sleep(60)", "it broke"),
    "refused": ("send(refused='no device'); time.sleep(60)", "no device"),
}


@pytest.mark.parametrize(("death", "reason"), DEATHS.values(), ids=DEATHS)
def test_a_loss_costs_the_implementation_that_ran_and_fresh_ranks_go_on(ranks: Ranks, death: str, reason: str) -> None:
    """With what is left of the case; nothing of the lost ones stays."""
    with ranks(timeout=5, b=death) as one:
        assert one._workers
        folder = one._workers._folder
        assert measure(one, "a", "b", "c") == [("a", "right"), ("b", reason), ("c", "right")]
        assert not alive(one.greeting.pids)
        assert not folder.exists()
        assert measure(one, "c") == [("c", "right")]


def test_the_page_says_who_ran_if_it_is_still_awaited(ranks: Ranks) -> None:
    """Else it was the next."""
    with ranks(b="turn(9, 'c'); send(failed='broke'); time.sleep(60)") as one:
        assert measure(one, "a", "b", "c") == [("a", "right"), ("c", "broke"), ("b", "broke")]
    with ranks(b="turn(9, 'c'); end(3)") as one:
        died = "a rank ended with status 3"
        assert measure(one, "a", "b", "c") == [("a", "right"), ("c", died), ("b", died)]


def test_results_may_come_in_any_order(ranks: Ranks) -> None:
    """What has come is no longer awaited."""
    first = "send(result=result | {'implementation': 'b'}); turn(9, 'a'); end(3)"
    with ranks(a=first) as one:
        assert measure(one, "a", "b") == [("b", "right"), ("a", "a rank ended with status 3")]


def test_what_ranks_leave_out_has_failed(ranks: Ranks) -> None:
    """After what they did not leave out."""
    with ranks(b="result = None") as one:
        assert measure(one, "a", "b", "c") == [("a", "right"), ("c", "right"), ("b", "the ranks left it out")]


def test_ranks_that_die_after_their_last_result_cost_nothing(ranks: Ranks) -> None:
    """Others are started for what comes next, and whoever looks is told."""
    with ranks(done="end(1)") as one:
        for name in ("a", "b"):
            with pytest.warns(UserWarning, match="^after the last result of allreduce, .*; fresh ranks go on$"):
                assert measure(one, name) == [(name, "right")]


def test_ranks_that_cannot_be_replaced_end_the_run(ranks: Ranks, tmp_path: Path) -> None:
    """With the reason of the second ones."""
    lived = str(tmp_path / "lived")
    start = f"os.path.exists({lived!r}) and end(1, 'ImportError: gone'); open({lived!r}, 'w')"
    with (
        ranks(start=start, a="end(2)") as one,
        pytest.raises(PlatformError, match=r"^the ranks did not start: a rank ended with status 1: ImportError: gone$"),
    ):
        measure(one, "a", "b")
    assert one._workers is None


def test_ranks_hang_if_nothing_new_begins_for_the_timeout_and_the_time_that_their_bytes_take(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 s, and 100 MB of two ranks at 50 MB/s; the page turns four times, two seconds apart, then no more."""
    looks = itertools.count()
    now = 0.0

    def look() -> tuple[int, str]:
        nonlocal now
        turns = next(looks)
        now = 2.0 * turns
        return min(turns, 4), "b"

    with ranks(timeout=1.0, a="time.sleep(60)") as one:
        assert one._workers
        monkeypatch.setattr(one._workers._page, "look", look)
        monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: now))
        found = one.measure(case(nbytes=100_000_000), ["a", "b"], Sampling())
        assert told([next(found)]) == [("b", "no progress for 5 s (--timeout)")]
    assert next(looks) == 9  # once before; four turns; three looks, 6 s in which nothing turned; who it was


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("", "status 5"),
        ("one\ntwo", "status 5: two"),
        ("a.b.OddError: first\nValueError: second\nthird", "status 5: ValueError: second"),
        ("collbench.errors.OddException: no", "status 5: OddException: no"),
        ("SystemExit: 4\nand", "status 5: SystemExit: 4"),
        ("OddError: x\nEXIT STRING: Segmentation fault (signal 11)", "signal 11 (Segmentation fault)"),
    ],
)
def test_the_last_error_that_was_printed_says_why_ranks_ended(ranks: Ranks, printed: str, words: str) -> None:
    """Before the last line of all; the launcher's word on a signal before both."""
    with pytest.raises(PlatformError) as lost:
        ranks(start=f"end(5, {printed!r})").__enter__()
    assert str(lost.value).startswith("the ranks did not start: a rank ")
    assert str(lost.value).endswith(words)


def test_ranks_that_end_before_they_greet_did_not_start(ranks: Ranks) -> None:
    """Although they had come to the socket."""
    with pytest.raises(PlatformError, match=r"^the ranks did not start: a rank ended with status 6: odd$"):
        ranks(greet="end(6, 'odd')").__enter__()


def test_ranks_that_do_not_greet_in_time_are_not_ready(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the last line they printed."""
    monkeypatch.setitem(platforms(), "cpu", replace(platforms()["cpu"], startup=1.5))
    one = ranks(greet="print('compiling\\nstill', flush=True); time.sleep(60)")
    with pytest.raises(PlatformError, match=r"^the ranks were not ready within 1\.5 s: still$"):
        one.__enter__()
    one = ranks(start="print('asleep', flush=True); time.sleep(60)")
    with pytest.raises(PlatformError, match=r"^the ranks did not start within 1\.5 s: asleep$"):
        one.__enter__()


def test_ranks_that_refuse_are_ended_with_what_they_shared(ranks: Ranks, tmp_path: Path) -> None:
    """They say what that is before they are killed."""
    shared, number = tmp_path / "shared", tmp_path / "pid"
    shared.touch()
    greet = (
        f"open({str(number)!r}, 'w').write(str(os.getpid())); "
        f"send(pids=[], files=[{str(shared)!r}], refused='no device'); time.sleep(60)"
    )
    one = ranks(greet=greet)
    with pytest.raises(PlatformError, match=r"^no device$"):
        one.__enter__()
    assert one._workers is None
    assert not shared.exists()
    assert not alive([int(number.read_text())])


def test_ranks_are_processes_of_the_launcher_where_each_has_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Beside this Python, or else on the path."""
    python = [sys.executable, "-P", "-m", worker.__name__]
    assert start.command("gpu", 4) == python
    assert start.command("cpu", 4) == [*own().command(4), *python]
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(PlatformError, match="pip install mpich mpi4py"):
        start.mpiexec()
    for folder in (tmp_path / "bin", tmp_path):
        folder.mkdir(exist_ok=True)
        (folder / "mpiexec").touch(0o755)
        assert start.mpiexec() == str(folder / "mpiexec")


def test_ranks_know_their_folder_supervisor_and_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One thread each, unless the setting says otherwise; nothing of a launcher that started the command."""
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.setenv("PMI_RANK", "3")
    given = start.environment("cpu", tmp_path, Setting((("A", "1"),)))
    wanted = {
        "A": "1",
        "OMP_NUM_THREADS": "1",
        worker.FOLDER: str(tmp_path),
        worker.SUPERVISOR: str(os.getpid()),
        worker.PLATFORM: "cpu",
    }
    assert wanted.items() <= given.items()
    assert "PMI_RANK" not in given
    assert start.environment("cpu", tmp_path, Setting((("OMP_NUM_THREADS", "2"),)))["OMP_NUM_THREADS"] == "2"


def test_after_a_rank_that_does_not_even_die_no_more_are_started(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits in its driver for a device: the row says what happened, and nobody waits for that process."""
    one = ranks(a="send(failed='it broke'); time.sleep(60)").__enter__()
    assert one._workers
    left, folder = one._workers._process, one._workers._folder
    with monkeypatch.context() as deathless:
        deathless.setattr(cleanup, "end_marked", lambda *marked: None)
        deathless.setattr(workers, "_DYING", 0.1)
        deathless.setattr(subprocess.Popen, "kill", lambda process: None)
        results = one.measure(case(), ["a", "b"], Sampling(iters=5))
        assert told([next(results)]) == [("a", "it broke")]
        with pytest.raises(RanksLost, match=r"process \d+ was killed and does not end.*no more ranks start"):
            next(results)
        one.__exit__(None)
    assert left.poll() is None
    left.kill()
    left.wait()
    assert not folder.exists()


GPUS = [{"host": "", "bus_id": f"0000:0{number}:00.0"} for number in range(3)]
STAND = (
    "greeting['topology'] = {{'gpus': {first!r} if not os.path.exists({flag!r}) else {then!r}}}; open({flag!r}, 'w')"
)


@pytest.mark.parametrize(
    ("then", "words"),
    [
        (GPUS[:1], "fresh ranks have 1 GPU where the run began on 2"),
        (GPUS[1:], "fresh ranks are on other GPUs than the run began on"),
        ([], "fresh ranks have 0 GPUs where the run began on 2"),
    ],
    ids=["one fewer", "others", "none"],
)
def test_a_run_ends_where_fresh_ranks_would_stand_elsewhere(
    then: list[object], words: str, ranks: Ranks, tmp_path: Path
) -> None:
    """A GPU that is lost is not dealt anew: what the header says would be true of the first rows only."""
    stand = STAND.format(first=GPUS[:2], then=then, flag=str(tmp_path / "flag"))
    with ranks(greet=stand, mpi="send(failed='error 719'); time.sleep(60)") as one:
        one.sweep = replace(one.sweep, implementations=("mpi", "b"))
        assert told(list(one.run())) == [("mpi", "error 719"), ("b", f"{words}; the run ends here")]


def test_a_run_goes_on_where_fresh_ranks_stand_where_the_first_ones_did(ranks: Ranks, tmp_path: Path) -> None:
    """Whatever else is said of their GPUs, which changes by itself."""
    slower = [gpu | {"pcie": {"generation": 1}} for gpu in GPUS[:2]]
    stand = STAND.format(first=GPUS[:2], then=slower, flag=str(tmp_path / "flag"))
    with ranks(greet=stand, mpi="send(failed='error 719'); time.sleep(60)") as one:
        one.sweep = replace(one.sweep, implementations=("mpi", "b"))
        assert told(list(one.run())) == [("mpi", "error 719"), ("b", "right")]


def test_a_run_whose_ranks_cannot_be_had_again_ends_with_a_row_that_says_so(ranks: Ranks, tmp_path: Path) -> None:
    flag = str(tmp_path / "flag")
    gone = f"if os.path.exists({flag!r}): end(1, 'no GPU')\nopen({flag!r}, 'w')"
    with ranks(start=gone, mpi="send(failed='error 79'); time.sleep(60)") as one:
        one.sweep = replace(one.sweep, implementations=("mpi", "b"))
        first, last = told(list(one.run()))
    assert first == ("mpi", "error 79")
    assert last[0] == "b"
    assert last[1].startswith("the ranks did not start: ")
    assert last[1].endswith("; the run ends here")


def test_a_library_that_does_not_start_is_tried_twice(ranks: Ranks) -> None:
    """Its start depends on no case, and takes most of the time-out whenever it hangs; others go on."""
    with ranks(a="send(failed='NCCL did not start', start=True); time.sleep(60)", b="result = result") as one:
        rows = [measure(one, "a", "b") for _ in range(3)]
        assert rows[0] == rows[1] == [("a", "NCCL did not start"), ("b", "right")]
        assert [name for name, _ in rows[2]] == ["a", "b"]
        (skipped,) = one.measure(case(), ["a"], Sampling(iters=5))
        assert isinstance(skipped, Skipped)
        assert skipped.reason == "its library did not start, 2 times: tried no more"


def test_what_fails_for_another_reason_is_tried_with_every_case(ranks: Ranks) -> None:
    with ranks(a="send(failed='it broke'); time.sleep(60)") as one:
        assert [measure(one, "a") for _ in range(3)] == 3 * [[("a", "it broke")]]
