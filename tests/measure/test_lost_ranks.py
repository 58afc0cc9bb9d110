"""What the supervisor makes of ranks that die, hang, refuse or leave something out: scripts in place of real ranks."""

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from collbench.cases import Sampling
from collbench.errors import PlatformError
from collbench.measure import protocol, supervisor
from collbench.measure.interleave import Starts
from collbench.measure.supervisor import Supervisor
from collbench.platforms import find_platform, platforms
from collbench.results import Result
from collbench.results.collectives import Skipped
from collbench.runfile.schema import case_fields
from tests.commands.sweep.test_command import alive
from tests.conftest import case
from tests.test_cases import sweep

RANK = """
import json, os, socket, struct, sys, time
from multiprocessing.connection import Connection
settings = json.loads(sys.argv[1])

def send(**message):
    messages.send_bytes(json.dumps(message).encode())

def receive():
    try:
        return json.loads(messages.recv_bytes())
    except EOFError:
        return {}

def beat(count, name):
    with open(os.environ["COLLBENCH_LINK"] + "/heartbeat", "r+b") as page:
        page.write(struct.pack("Q56s", count, name.encode()))

def end(status, words=""):
    print(words, file=sys.stderr, flush=True)
    os._exit(status)

exec(settings.get("start", ""))
channel = socket.socket(socket.AF_UNIX)
channel.connect(os.environ["COLLBENCH_LINK"] + "/socket")
messages = Connection(os.dup(channel.fileno()))
greeting = {"pids": [os.getpid()], "files": [], "cores": []}
greeting |= {"topology": {}, "versions": {}, "variables": {"first": json.dumps(receive())}}
exec(settings.get("greet", ""))
send(**greeting)
while "case" in (order := receive()):
    case = settings["cases"][order["case"]]
    for place, name in enumerate(order["implementations"], 1):
        beat(place, name)
        told = f"{order['launches']} {order['sampling']['iters']} {order['implementations']}"
        result = {"kind": "skipped", **case, "implementation": name, "platform": "cpu", "reason": told}
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

    def begin(timeout: float = 30.0, sizes: tuple[int, ...] = (1024,), **steps: str) -> Supervisor:
        asked = replace(sweep(*sizes), sampling=Sampling(timeout=timeout), both_places=True)
        settings = json.dumps(steps | {"cases": list(map(case_fields, asked.cases()))})
        monkeypatch.setattr(supervisor, "rank_command", lambda *_: [sys.executable, "-S", "-E", "-c", RANK, settings])
        return Supervisor("cpu", asked, named=("A",))

    return begin


def told(results: list[Result]) -> list[tuple[str, str]]:
    return [(result.implementation, "right" if isinstance(result, Skipped) else result.reason) for result in results]  # type: ignore[attr-defined]


def measure(ranks: Supervisor, *names: str) -> list[tuple[str, str]]:
    return told(list(ranks.measure(case(), names, Sampling(iters=5), {"a": 64})))


def run(ranks: Supervisor, *names: str) -> list[tuple[str, str]]:
    with Starts("cpu", replace(ranks.sweep, implementations=names, both_places=False)) as starts:
        return told(list(starts.run()))


def test_ranks_are_told_their_cores_and_the_launches_that_are_known(ranks: Ranks) -> None:
    with ranks() as one:
        cores = json.loads(one.greeting.variables["first"])["cores"]
        assert cores == list(find_platform("cpu").cores(one.sweep.ranks))
        (result,) = one.measure(case(), ["a"], Sampling(iters=5), {"a": 64})
        assert result == Skipped(case(), "a", "cpu", "{'a': 64} 5 ['a']")


@pytest.fixture
def folders(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], list[Path]]]:
    """What lies where the supervisor makes its folders; in the end nothing."""
    place = tmp_path_factory.mktemp("t")  # short: a socket's name has 107 bytes at most
    monkeypatch.setattr("tempfile.tempdir", str(place))
    yield lambda: list(place.iterdir())
    assert list(place.iterdir()) == []


def test_ranks_go_home_in_order_unless_something_broke(
    ranks: Ranks, folders: Callable[[], list[Path]], tmp_path: Path
) -> None:
    left, shared = tmp_path / "left", tmp_path / "shared"
    greet = f"greeting['files'] = [{str(shared)!r}]"
    for error, stop in ((None, f"time.sleep(0.2); open({str(left)!r}, 'w')"), (KeyboardInterrupt, "time.sleep(60)")):
        shared.touch()
        one = ranks(greet=greet, stop=stop).__enter__()
        assert len(folders()) == 1
        one.__exit__(error, None, None)
        assert shared.exists() is (error is None)
        assert left.exists(), "ranks that go home are waited for"
        assert folders() == []
        assert not alive(one.greeting.pids)


def test_a_loss_costs_the_implementation_that_ran_and_fresh_ranks_go_on(
    ranks: Ranks, folders: Callable[[], list[Path]]
) -> None:
    died = "channel.shutdown(2); time.sleep(0.3); end(3, 'ValueError: odd')"
    deaths = {
        died: "a rank ended with status 3: ValueError: odd",
        r"print('--\n  no launch\n--\n'); os._exit(sys.stdout.flush() or 4)": "a rank ended with status 4: no launch",
        "os.fork() or time.sleep(60); os._exit(7)": "a rank ended with status 7",  # a child keeps the socket
        "send(failed='it broke'); time.sleep(60)": "it broke",
        "send(refused='no device'); time.sleep(60)": "no device",
    }
    for death, reason in deaths.items():
        with ranks(b=death) as one:
            first = one.greeting.pids
            before = folders()
            assert measure(one, "a", "b", "c") == [("a", "right"), ("b", reason), ("c", "right")]
            assert not alive(first), death
            assert not set(before) & set(folders()), death
            assert measure(one, "c") == [("c", "right")]


def test_the_heartbeat_says_who_ran_if_it_is_still_awaited_and_results_may_come_in_any_order(ranks: Ranks) -> None:
    with ranks(b="beat(9, 'c'); send(failed='broke'); time.sleep(60)") as one:
        assert measure(one, "a", "b", "c") == [("a", "right"), ("c", "broke"), ("b", "broke")]
    died = "a rank ended with status 3"
    with ranks(b="beat(9, 'c'); end(3)") as one:
        assert measure(one, "a", "b", "c") == [("a", "right"), ("c", died), ("b", died)]
    with ranks(a="send(result=result | {'implementation': 'b'}); beat(9, 'a'); end(3)") as one:
        assert measure(one, "a", "b") == [("b", "right"), ("a", died)]


def test_what_ranks_leave_out_has_failed(ranks: Ranks) -> None:
    with ranks(b="result = None") as one:
        assert measure(one, "a", "b", "c") == [("a", "right"), ("c", "right"), ("b", "the ranks left it out")]


def test_ranks_that_die_after_their_last_result_cost_nothing_but_a_warning(ranks: Ranks) -> None:
    with ranks(done="end(1)") as one:
        for name in ("a", "b"):
            with pytest.warns(UserWarning, match="^after the last result of allreduce, .*; fresh ranks go on$"):
                assert measure(one, name) == [(name, "right")]


def test_ranks_that_cannot_be_replaced_end_the_run_with_the_reason(ranks: Ranks, tmp_path: Path) -> None:
    lived = str(tmp_path / "lived")
    begin = f"os.path.exists({lived!r}) and end(1, 'ImportError: gone'); open({lived!r}, 'w')"
    reason = "the ranks did not start: a rank ended with status 1: ImportError: gone"
    with ranks(start=begin, a="end(2)") as one, pytest.raises(PlatformError, match=f"^{reason}$"):
        measure(one, "a", "b")
    Path(lived).unlink()
    refusing = ranks(start=begin, mpi="send(failed='error 79'); time.sleep(60)")
    assert run(refusing, "mpi", "b") == [("mpi", "error 79"), ("b", f"{reason}; the run ends here")]


def test_a_beat_says_for_which_implementation_and_in_which_phase(tmp_path: Path) -> None:
    ours, theirs = protocol.Heartbeat(tmp_path), protocol.Heartbeat(tmp_path)
    assert theirs.read() == (0, "", "")
    ours.beat("nccl", "first product of rank 1")
    assert theirs.read() == (1, "nccl", "first product of rank 1")
    ours.beat("a" * 100, "b" * 100)
    count, name, phase = theirs.read()
    assert (count, set(name), set(phase)) == (2, {"a"}, {"b"})
    ours.beat("auto")
    assert theirs.read() == (3, "auto", "")


def test_ranks_hang_if_nothing_new_begins_for_the_timeout_and_the_time_that_their_bytes_take(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 s, and 100 MB of two ranks at 50 MB/s; the page turns four times, two seconds apart, then no more.

    The phase that they are in is told as long as it lasts, and named by the reason in the end.
    """
    looks, now, told_of = itertools.count(), 0.0, []

    def look(page: protocol.Heartbeat) -> tuple[int, str, str]:
        nonlocal now
        turns = next(looks)
        now = 2.0 * turns
        return min(turns, 4), "b", "calibration" if turns < 4 else "first product of rank 1"

    with ranks(1.0, (100_000_000,), a="time.sleep(60)") as one, monkeypatch.context() as made_up:
        one.tell = told_of.append
        made_up.setattr(protocol.Heartbeat, "read", look)
        made_up.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: now))
        found = one.measure(case(nbytes=100_000_000), ["a", "b"], Sampling())
        hung = "no progress for 5 s (--timeout) in the phase: first product of rank 1"
        assert told([next(found)]) == [("b", hung)]
    assert told_of == ["b: calibration"] * 3 + ["b: first product of rank 1"] * 4
    assert next(looks) == 8  # once before; four turns; three looks, 6 s in which nothing turned


def test_the_last_error_that_was_printed_says_why_ranks_ended(ranks: Ranks) -> None:
    printed = {
        "": "status 5",
        "one\ntwo": "status 5: two",
        "a.b.OddError: first\nValueError: second\nthird": "status 5: ValueError: second",
        "collbench.errors.OddException: no": "status 5: OddException: no",
        "SystemExit: 4\nand": "status 5: SystemExit: 4",
        "OddError: x\nEXIT STRING: Segmentation fault (signal 11)": "signal 11 (Segmentation fault)",
    }
    for moment in ("start", "greet"):
        for text, words in printed.items():
            with pytest.raises(PlatformError) as lost:
                ranks(**{moment: f"end(5, {text!r})"}).__enter__()
            assert str(lost.value).startswith("the ranks did not start: a rank "), text
            assert str(lost.value).endswith(words), text


def test_the_signal_that_ended_the_first_rank_is_told_and_not_that_of_the_launcher_to_the_others() -> None:
    code = "Return code = 0, signaled with"
    for printed, number in {
        f"[0]0:{code} Quit\n[0]1:{code} Killed\n": 9,
        f"[0]0:{code} Segmentation fault\n[0]1:{code} Interrupt\n": 11,
        f"[0]0:{code} Interrupt\n": 2,
        "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n": 9,
        "[0]0:Return code = 3\n": None,
        "": None,
    }.items():
        assert supervisor.signal_of(printed) == number, printed


def test_ranks_that_do_not_greet_in_time_are_ended_with_the_last_line_they_printed(
    ranks: Ranks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(platforms(), "cpu", replace(platforms()["cpu"], startup=0.3))
    printed = tmp_path / "printed"
    words = f"print('compiling\\nstill', flush=True); open({str(printed)!r}, 'w')"
    looks = itertools.count()

    def clock() -> float:
        return 9.0 if next(looks) and printed.exists() else 0.0

    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=clock, time=time.time))
    with pytest.raises(PlatformError, match=r"^the ranks did not start within 0\.3 s: still$"):
        ranks(start=f"{words}; time.sleep(60)").__enter__()
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: 0.0, time=time.time))
    with pytest.raises(PlatformError, match=r"^the ranks were not ready within 0\.3 s: still$"):
        ranks(start=words, greet="time.sleep(60)").__enter__()


def test_ranks_that_refuse_are_ended_with_what_they_shared(ranks: Ranks, tmp_path: Path) -> None:
    shared, number = tmp_path / "shared", tmp_path / "pid"
    shared.touch()
    greet = (
        f"open({str(number)!r}, 'w').write(str(os.getpid())); "
        f"send(pids=[], files=[{str(shared)!r}], refused='no device'); time.sleep(60)"
    )
    with pytest.raises(PlatformError, match=r"^no device$"):
        ranks(greet=greet).__enter__()
    assert not shared.exists()
    assert not alive([int(number.read_text())])


GPUS = [{"host": "", "bus_id": f"0000:0{number}:00.0"} for number in range(3)]
STAND = (
    "greeting['topology'] = {{'gpus': {first!r} if not os.path.exists({flag!r}) else {then!r}}}; open({flag!r}, 'w')"
)


def test_a_run_goes_on_only_where_fresh_ranks_are_on_the_gpus_that_it_began_on(ranks: Ranks, tmp_path: Path) -> None:
    slower = [gpu | {"pcie": {"generation": 1}} for gpu in GPUS[:2]]  # which changes by itself
    for then, words in (
        (slower, ""),
        *((other, "fresh ranks are on other GPUs than the run began on") for other in (GPUS[:1], GPUS[1:], [])),
    ):
        flag = tmp_path / "flag"
        flag.unlink(missing_ok=True)
        stand = STAND.format(first=GPUS[:2], then=then, flag=str(flag))
        last = f"{words}; the run ends here" if words else "right"
        refusing = ranks(greet=stand, mpi="send(failed='error 719'); time.sleep(60)")
        assert run(refusing, "mpi", "b") == [("mpi", "error 719"), ("b", last)]


def test_a_library_that_does_not_start_is_tried_twice_and_what_fails_otherwise_with_every_case(ranks: Ranks) -> None:
    with ranks(a="send(failed='NCCL did not start', error='StartFailed'); time.sleep(60)") as one:
        rows = [measure(one, "a", "b") for _ in range(3)]
        assert rows[0] == rows[1] == [("a", "NCCL did not start"), ("b", "right")]
        assert [name for name, _ in rows[2]] == ["a", "b"]
        (skipped,) = one.measure(case(), ["a"], Sampling(iters=5))
        assert isinstance(skipped, Skipped)
        assert skipped.reason == "its library did not start, 2 times: tried no more"
    with ranks(a="send(failed='it broke'); time.sleep(60)") as one:
        assert [measure(one, "a") for _ in range(3)] == 3 * [[("a", "it broke")]]


def test_what_hangs_twice_is_tried_no_more_and_the_rest_says_where_it_was_and_who_waits_for_whom(ranks: Ranks) -> None:
    waits = "rank 0 waits for rank 1"
    thread = (
        "import threading\n"
        "def answer():\n"
        "    beside = socket.socket(socket.AF_UNIX)\n"
        "    beside.connect(os.environ['COLLBENCH_LINK'] + '/socket')\n"
        "    beside = Connection(beside.detach())\n"
        "    beside.recv_bytes()\n"
        f"    beside.send_bytes(json.dumps(dict(answer={waits!r})).encode())\n"
        "threading.Thread(target=answer, daemon=True).start()\n"
    )
    cases = [
        case(nbytes=nbytes, in_place=in_place) for nbytes, in_place in ((1024, False), (1024, True), (4096, False))
    ]
    with ranks(1.0, (1024, 4096), greet=thread, a="time.sleep(60)") as one:
        first, second, (skipped,) = (list(one.measure(each, ["a"], Sampling())) for each in cases)
    hung = f"no progress for 1 s (--timeout); {waits}"
    assert told(first + second) == 2 * [("a", hung)]
    assert isinstance(skipped, Skipped)
    for words in ("allreduce of 1 KiB, allreduce of 1 KiB in place", hung):
        assert words in skipped.reason
    with ranks(
        a="send(failed='in vain', error='TimedOut'); time.sleep(60)", b="send(failed='odd'); time.sleep(60)"
    ) as one:
        rows = [list(one.measure(case(), ["a", "b"], Sampling(iters=5))) for _ in range(3)]
    assert [[isinstance(row, Skipped) for row in of_case] for of_case in rows] == [[False, False]] * 2 + [[True, False]]


def test_what_a_compiler_says_of_a_source_is_said_once(ranks: Ranks) -> None:
    refusal = "send(refused='x.cu:7: no such type', error='SourceError'); time.sleep(60)"
    with ranks(a=refusal, b=refusal, c=refusal.replace("x.cu:7", "y.cu:1")) as one:
        reasons = [reason for _, reason in measure(one, "a", "b", "c", "d")]
        assert [("no such type" in reason) for reason in reasons] == [True, False, True, False]
        assert "as for a" in reasons[1]
        again = list(one.measure(case(), ["a", "b", "c"], Sampling(iters=5)))
        assert all(isinstance(row, Skipped) and "no such type" not in row.reason for row in again)
