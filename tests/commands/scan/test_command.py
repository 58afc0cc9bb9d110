"""`collbench scan`: real ranks, made-up GPUs, described systems; its files, statuses, refusals and what goes on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import collbench as library
from collbench.analysis.judgement import EXITS, Word
from collbench.cases import Sampling
from collbench.cli.verdicts import EXIT
from collbench.collectives import COLLECTIVES
from collbench.commands.scan import measured
from collbench.commands.scan.library import ScanRequest, scan_session
from collbench.commands.scan.rows import Members, Round, Scan
from collbench.commands.scan.verdict import judge
from collbench.errors import CaseFailed
from collbench.measure import exchanges
from collbench.runfile.schema import to_line, to_result
from collbench.runfile.store import read
from tests.commands.conftest import write_run
from tests.conftest import Command, case
from tests.platforms.gpu.opening import Open, nothing_set, opened
from tools.stand_in.cuda import Machine

__all__ = ["nothing_set", "opened"]

SYSTEM = ("scan", "--on", "dgx-h100", "--nodes", "128")
CASE = case("sendrecv", 4096, ranks=4, work=Scan())


# Described systems.


def test_the_line_names_who_is_slow_and_the_files_say_it_to_other_programs(here: Command, tmp_path: Path) -> None:
    files = ("--json", "j", "--junit", "x", "--metrics", "m", "--exclude-file", "e")
    done = here(*SYSTEM, "--inject", "node=37:0.8,leaf=1:0.7", "--out", "out", *files)
    assert done.returncode == 3, done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("collbench: SLOW scan: leaf 1 is 1.4")
    assert "node 37 is 1.2" in last
    answer = json.loads((tmp_path / "j").read_text())
    assert (answer["schema"], answer["word"], answer["line"]) == (2, "SLOW", last)
    assert {finding["name"]: finding["kind"] for finding in answer["findings"]} == {
        "leaf 1": "leaf",
        "node 37": "member",
    }
    assert (tmp_path / "e").read_text() == ""  # of a described system there are no hosts
    suite = ElementTree.parse(tmp_path / "x").getroot()
    skipped = {each.get("name"): each[0].get("message", "") for each in suite if each[0].tag == "skipped"}
    assert len(skipped) == len(suite) > 128
    assert all(message.startswith("UNKNOWN: nothing was measured; ") for message in skipped.values())
    assert "node 37 is 1.2" in skipped["node 37"]
    samples = [line for line in (tmp_path / "m").read_text().splitlines() if not line.startswith("#")]
    assert all('measured="false"} ' in sample for sample in samples)
    assert 'collbench_scan_status{measured="false"} 2' in samples
    assert any(sample.startswith('collbench_scan_slower_ratio{name="node 37",') for sample in samples)
    run = read(tmp_path / "out")
    assert last == f"collbench: SLOW scan: {judge(run.results, 0.1).words}"


def test_exit_statuses_are_those_of_check(here: Command) -> None:
    choices = EXIT.type.choices  # type: ignore[attr-defined]
    assert list(choices) == list(EXITS)
    for exits in choices:
        for inject, word in (("", Word.OK), ("node=3:0.5", Word.SLOW)):
            done = here(*SYSTEM, "--inject", inject, "--exit", exits, "--out", f"{exits}{word.value}")
            assert done.returncode == EXITS[exits][word], done.stdout
            if exits != "plain":
                assert done.stdout.count("\n") == 1
                assert "scan: nothing was measured; " in done.stdout


def test_the_function_of_the_library_returns_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[Any] = []
    verdict = library.scan("dgx-h100", nodes=64, inject="node=9:0.7", each=seen.append)
    assert [finding.name for finding in verdict.faulty] == ["node 9"]
    assert [type(row) for row in seen] == [Members, *[Round] * verdict.rounds]
    assert [to_result(to_line(row)) for row in seen] == seen
    assert not list(tmp_path.iterdir())


def test_words_that_do_not_go_together_are_refused_in_a_line(here: Command, tmp_path: Path) -> None:
    write_run(tmp_path / "sweep")
    for words, said in (
        ("--on cpu --inject node=1:0.5", "--inject is for described systems"),
        ("--on dgx-h100 --nodes 8 --slow-rank 1", "use --inject instead"),
        ("--on dgx-h100 --nodes 2", "2 members are too few"),
        ("--on dgx-h100 --ranks 64", "--nodes instead of --ranks"),
        ("--on cpu --ranks 2", "2 members are too few"),
        ("--on cpu --ranks 4 --slow-rank 4", "--slow-rank 4 is no rank of 4"),
        ("--on nowhere", "unknown --on 'nowhere'"),
        ("--resume sweep --ranks 4", "leave --ranks out"),
        ("--resume sweep", "no whole sweep"),
        ("--group 1", "--group 1 is impossible"),
    ):
        done = here("scan", *words.split())
        assert done.returncode == 2, words
        assert said in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


# Real ranks on CPUs.


@pytest.mark.machine
def test_a_rank_that_is_made_slow_is_named_and_the_run_goes_on_where_it_was_cut(here: Command, tmp_path: Path) -> None:
    done = here("scan", "--on", "cpu", "--ranks", "4", "--slow-rank", "2:3", "--out", "out")
    assert done.returncode == 3, done.stdout
    assert "SLOW scan: rank 2 is" in done.stdout
    run = read(tmp_path / "out")
    members, *rounds = run.results
    assert isinstance(members, Members)
    assert members.names == ("rank 0", "rank 1", "rank 2", "rank 3")
    assert [row.number for row in rounds if isinstance(row, Round)] == list(range(len(rounds)))

    # After an interruption: the rows so far stay, and are not measured again.
    lines = (tmp_path / "out" / "run.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "out" / "run.jsonl").write_text("".join(lines[:8]))
    done = here("scan", "--resume", "out")
    assert done.returncode == 3, done.stderr
    again = read(tmp_path / "out")
    assert again.results[:7] == run.results[:7]
    assert [row.number for row in again.results[1:] if isinstance(row, Round)] == list(range(len(again.results) - 1))


# Made-up GPUs.


@pytest.fixture
def gpus(opened: Open) -> Callable[..., Any]:
    """Open four made-up GPUs for the case."""

    def on(**machine: Any) -> Any:
        sweep = {"collectives": (COLLECTIVES["sendrecv"],), "sizes": (4096,), "implementations": ("nccl",), "ranks": 4}
        return opened(Machine(4, **machine), works=(Scan(),), sampling=Sampling(timeout=5.0), **sweep)

    return on


def test_gpus_exchange_by_nccl_and_without_it_by_copies(
    gpus: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "REGION", 1e-5)
    for way, machine in (("nccl", {}), (exchanges.COPY, {"has_nccl": False})):
        results = measured.measure(CASE, ["nccl"], gpus(**machine), Sampling(budget=10.0), lambda *_: None)
        members, first, second = (next(results) for _ in range(3))
        assert isinstance(members, Members)
        assert isinstance(first, Round)
        assert (first.implementation, first.number, len(first.groups)) == (way, 0, 2)
        assert isinstance(second, Round)
        assert second.number == 1


def test_a_message_that_did_not_arrive_ends_the_scan(gpus: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    platform = gpus()
    messages = exchanges.Exchanges(CASE, exchanges.COPY, platform)
    to = [1, 0, 3, 2]
    messages.seconds(messages.prepared(to), range(4), 1, 1, 1)
    messages.refuse_wrong(to)
    with pytest.raises(CaseFailed, match=r"rank 0 did not receive what rank 1 sent, by copy"):
        messages.refuse_wrong(to)  # nobody has sent anything since


def test_members_are_named_after_nodes_switches_and_rails(
    gpus: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = gpus()
    places = [("a", "leaf1", "spine"), ("a", "leaf1", "spine"), ("b", "leaf2", "spine"), ("b", "leaf2", "spine")]
    monkeypatch.setattr(platform.team, "exchange", lambda mine: [dict(enumerate(places))])
    members = measured.members_of(platform, CASE, "nccl")
    assert members.names == ("a:0", "a:1", "b:0", "b:1")
    assert [(level.kind, level.units) for level in members.levels] == [
        ("node", ("a", "a", "b", "b")),
        ("rail", ("rail 0", "rail 1", "rail 0", "rail 1")),
        ("leaf", ("leaf1", "leaf1", "leaf2", "leaf2")),
        ("spine", ("spine",) * 4),
    ]


def test_a_session_of_ranks_starts_them_once_with_a_message_of_the_size() -> None:
    session = scan_session(ScanRequest("cpu", ranks=4, size="64K", slow_rank=("1:3",)), None)
    assert session.sweep.sizes == (65536,)
    assert session.sweep.starts == 1
    assert session.sweep.works == (Scan(2, 0.2, ((1, 3.0),)),)
