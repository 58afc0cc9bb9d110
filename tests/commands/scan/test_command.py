"""`collbench scan`: real ranks, made-up GPUs, described systems, tables; its files, statuses, refusals, resuming."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import permutations, product
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
from collbench.commands.scan.measured import Scanner
from collbench.commands.scan.rows import MemberLevel, Members, Round, Scan
from collbench.commands.scan.simulated import Cluster
from collbench.errors import CaseFailed
from collbench.measure import exchanges
from collbench.requests.sweeps import find_system
from collbench.runfile.schema import to_line, to_result
from collbench.runfile.store import read
from tests.commands.conftest import write_run
from tests.conftest import ROOT, Command, case
from tests.platforms.gpu.opening import Open, nothing_set, opened
from tools.stand_in.cuda import Machine

__all__ = ["nothing_set", "opened"]

CASE = case("sendrecv", 4096, ranks=4, work=Scan())
Gpus, PAIRS = Callable[..., Any], str(ROOT / "results" / "cpu-4-ranks-pairs")


def stored(folder: Path, inject: str, nodes: int) -> None:
    """A run of a scan of hosts whose times are made up, as it was when all messages were of a size."""
    cluster = Cluster(find_system("dgx-h100").of(nodes), work := Scan(2, 0.1, (2**20,)), [inject], 0)
    hosts = MemberLevel("node", tuple(f"host{node}" for node in range(nodes)))
    members = replace(cluster.members, platform="gpu", levels=(hosts, *cluster.members.levels))
    rows = [members, *cluster.rounds(Scanner(cluster.members, work))]
    write_run(folder, *(replace(row, case=replace(row.case, work=Scan())) for row in rows))


def table(path: Path, names: str, slow: Mapping[str, float], head: str = "") -> None:
    """Rates of pairs, of which some are other ones, by their ends or by one of them or its host."""
    for ends in permutations(names.split(), 2):
        known = [slow[key] for key in (" ".join(ends), *ends, *(end.partition(":")[0] for end in ends)) if key in slow]
        head += f"{', '.join(ends)}, {[*known, 25][0]}\n"
    path.write_text(head)


def outcomes(path: Path) -> dict[str, str]:
    return {each.get("name", ""): each[0].tag for each in ElementTree.parse(path).getroot()}


def test_the_line_names_who_is_slow_and_the_files_say_it_to_other_programs(here: Command, tmp_path: Path) -> None:
    files = "--json j --junit x --metrics m --exclude-file e"
    words = f"scan --on dgx-h100 --nodes 128 --inject node=3:0.8 --inject leaf=1:0.7 --out out {files}"
    done = here(*words.split())
    assert done.returncode == 3, done.stderr
    last = done.stdout.splitlines()[-1]
    assert re.match(r"collbench: SLOW scan: leaf 1 is 1\.4.*node 3 is 1\.2", last)
    answer = json.loads((tmp_path / "j").read_text())
    assert (answer["schema"], answer["word"], answer["line"]) == (2, "SLOW", last)
    assert {each["name"]: each["kind"] for each in answer["findings"]} == {"leaf 1": "leaf", "node 3": "member"}
    assert (answer["sight"]["sizes"], answer["sight"]["links"], answer["not_cleared"]) == ([8192, 2**20], False, [])
    assert (tmp_path / "e").read_text() == ""  # of a described system there are no hosts
    assert {*outcomes(tmp_path / "x").values()} == {"skipped"}  # nothing was measured
    samples = [line for line in (tmp_path / "m").read_text().splitlines() if not line.startswith("#")]
    assert all('measured="false"} ' in sample for sample in samples)
    assert 'collbench_scan_status{measured="false"} 2' in samples
    assert any(sample.startswith('collbench_scan_slower_ratio{name="node 3",') for sample in samples)
    again = here("scan", "out")
    assert (again.returncode, again.stdout.splitlines()[-1]) == (3, last)
    assert "leaf 1 is" in here("scan", "out", "--slower", "80%").stdout.partition("note: ")[2].partition("\n")[0]


def test_exit_statuses_are_those_of_check(here: Command) -> None:
    assert list(EXIT.type.choices) == list(EXITS)  # type: ignore[attr-defined]
    faults = {"node=3:0.95": Word.OK, "node=3:0.5": Word.SLOW, "leaf=1:0.7": Word.UNKNOWN}
    for number, (exits, (inject, word)) in enumerate(product(EXITS, faults.items())):
        words = f"--on dgx-h100 --nodes 64 --inject {inject} --exit {exits} --out {number}"
        done = here("scan", *words.split())
        assert done.returncode == EXITS[exits][word], done.stdout
        assert ("note: node 3 is 1.05x" in done.stdout) == (word is Word.OK and exits == "plain")
        assert exits == "plain" or ("scan: nothing was measured; " in done.stdout and done.stdout.count("\n") == 1)


def test_the_function_of_the_library_returns_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[Any] = []
    verdict = library.scan("dgx-h100", nodes=64, inject=["node=9:0.7", "node=5:0.8"], each=seen.append)
    assert [finding.name for finding in verdict.faulty] == ["node 9", "node 5"]
    assert [type(row) for row in seen] == [Members, *[Round] * verdict.rounds]
    assert [to_result(to_line(row)) for row in seen] == seen
    assert not list(tmp_path.iterdir())
    assert library.scan(file=PAIRS).word is Word.OK


def test_tables_and_runs_are_judged_as_a_scan_is(here: Command, tmp_path: Path) -> None:
    stored(tmp_path / "old", "node=7:0.8", 64)
    hosts = "h0:0 h0:1 h1:0 h1:1 h2:0 h2:1 h3:0 h3:1"
    for names, slow, words, said in (
        ("a b c d e f", {"c": 10}, "", "SLOW scan: c is 2.50x"), ("", {}, PAIRS, "OK scan: none of 4 members is"),
        ("a b c d e f", {"c e": 18}, "", "SLOW scan: c > e is 1.39x"), ("", {}, "old", "SLOW scan: node 7 is 1.2"),
        ("a b c d e f", {"c e": 9, "e c": 10}, "", "SLOW scan: c - e is "), (hosts, {"h1": 9}, "", "NodeName=h1 "),
        ("a b c d e f", {"e c": 10}, "", "SLOW scan: e > c is 2.50x"), (hosts, {"h1": 10}, "", "SLOW scan: node h1 is"),
        ("a b c d e f", {"c": 23.7}, "", "OK scan: none of 6 members is slow; would have seen 1.1"),
        ("a b c d e f", {"c": 23.7}, "--slower 3%", "SLOW scan: c is 1.05x"),
    ):  # fmt: skip
        for head in ("", "from,to,GB/s\n") if names else [""]:
            table(tmp_path / "table", names, slow, head)
            done = here("scan", *["table"][: len(names)], *words.split())
            assert (done.returncode, said in done.stdout) == (0 if said.startswith("OK") else 3, True), done.stdout


def test_members_pass_only_where_the_verdict_clears_them(here: Command, tmp_path: Path) -> None:
    table(tmp_path / "one", "a b c d e f", {"c": 10})
    stored(tmp_path / "leaf", "leaf=1:0.7,node=3:0.8", 128)
    stored(tmp_path / "two", "leaf=1:0.7", 64)
    of_leaf, every = {f"node {node}" for node in range(32, 64)}, {f"node {node}" for node in range(64)}
    for name, bad, skipped, excluded in (
        ("one", {"verdict", "c"}, set(), ""), ("two", set(), {"verdict", *every}, ""),
        ("leaf", {"verdict", "leaf 1", "node 3"}, of_leaf, "host3\n"),
    ):  # fmt: skip
        done = here("scan", name, "--junit", "x", "--exclude-file", "e", "--metrics", "m")
        assert done.returncode == (3 if bad else 4), done.stderr
        tests = outcomes(tmp_path / "x")
        assert [{test for test in tests if tests[test] == tag} for tag in ("failure", "skipped")] == [bad, skipped]
        assert (tmp_path / "e").read_text() == excluded
        assert f"\ncollbench_scan_status {2 if bad else 3}\n" in (tmp_path / "m").read_text()


def test_words_that_do_not_go_together_are_refused_in_a_line(here: Command, tmp_path: Path) -> None:
    write_run(tmp_path / "sweep")
    table(tmp_path / "table", "a b c", {})
    for name, text in (("word", "a,b,2\na,c,x\n"), ("less", "a,b,2\n\nb,a,-1\n"), ("few", "a,b,2\nb,a,2\n")):
        (tmp_path / name).write_text(text)
    for words, said in (
        ("--on cpu --inject node=1:0.5", "--inject is for described systems"), ("--alone 3", "--alone needs --pairs"),
        ("--on dgx-h100 --nodes 8 --slow-rank 1", "use --inject instead"), ("--size 0", "--size 0 is impossible"),
        ("--on dgx-h100 --nodes 8 --inject leaf=0:0.5", "all nodes are on one leaf"), ("few", "2 members"),
        ("--on dgx-h100 --nodes 2", "2 members"), ("--on cpu --ranks 2 --pairs", "2 members"),
        ("--on cpu --ranks 4 --slow-rank 4", "--slow-rank 4 is no rank of 4"), ("table --on cpu", "leave out --on"),
        ("--resume sweep --ranks 4", "leave out --ranks"), ("--resume sweep", "no whole sweep"),
        ("--pairs --budget 3s", "--budget does not"), ("--pairs --inject node=1:0.5", "--inject does not"),
        ("--pairs table", "TABLE|RUN does not"), ("sweep", "is not a run of a scan or of pairs"),
        ("word", "word, line 2: expected"), ("less", "less, line 3: expected"),
    ):  # fmt: skip
        done = here("scan", *words.split())
        assert (done.returncode, said in done.stderr, done.stderr.count("\n")) == (2, True, 1), done.stderr


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
    path = tmp_path / "out" / "run.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:8]))
    done = here("scan", "--resume", "out")
    assert done.returncode == 3, done.stderr
    again = read(tmp_path / "out").results
    assert again[:7] == run.results[:7]
    assert [row.number for row in again[1:] if isinstance(row, Round)] == list(range(len(again) - 1))


@pytest.fixture
def gpus(opened: Open) -> Gpus:
    sweep = {"collectives": (COLLECTIVES["sendrecv"],), "sizes": (4096,), "implementations": ("nccl",), "ranks": 4}
    quick = Sampling(timeout=5.0)
    return lambda **machine: opened(Machine(4, **machine), works=(Scan(),), sampling=quick, **sweep)


def test_gpus_exchange_by_nccl_or_by_copies_that_must_arrive(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "REGION", 1e-5)
    for way, machine in (("nccl", {}), (exchanges.COPY, {"has_nccl": False})):
        results = measured.measure(CASE, ["nccl"], gpus(**machine), Sampling(budget=10.0), lambda *_: None)
        members, *rounds = (next(results) for _ in range(3))
        assert isinstance(members, Members)
        assert [(row.implementation, row.number, len(row.groups)) for row in rounds] == [(way, 0, 2), (way, 1, 2)]
    messages, to = exchanges.Exchanges(CASE, exchanges.COPY, gpus()), [1, 0, 3, 2]
    messages.seconds(messages.prepared(to), range(4), 1, 1, 1)
    messages.refuse_wrong(to)
    with pytest.raises(CaseFailed, match=r"rank 0 did not receive what rank 1 sent, by copy"):
        messages.refuse_wrong(to)  # nobody has sent anything since


def test_members_are_named_after_nodes_switches_and_rails(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    places = dict(enumerate([("a", "leaf1", "spine")] * 2 + [("b", "leaf2", "spine")] * 2))
    monkeypatch.setattr((platform := gpus()).team, "exchange", lambda mine: [places])
    members = measured.members_of(platform, CASE, "nccl")
    assert members.names == ("a:0", "a:1", "b:0", "b:1")
    units = [(level.kind, " ".join(level.units)) for level in members.levels]
    assert units[:2] == [("node", "a a b b"), ("rail", "rail 0 rail 1 rail 0 rail 1")]
    assert units[2:] == [("leaf", "leaf1 leaf1 leaf2 leaf2"), ("spine", "spine spine spine spine")]
