"""Folders of nodes: checks and runs are read, and a file that cannot be costs its node alone."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.analysis.judgement import Word
from collbench.commands.check.inputs import FleetNode, read_fleet
from collbench.commands.check.judge import CheckResult
from collbench.commands.check.library import check
from collbench.commands.check.outputs import document
from collbench.errors import UsageError
from collbench.results import Mismatch
from collbench.results.disturbed import Scheduling
from collbench.runfile.store import NAME
from tests.commands.conftest import write_run
from tests.conftest import ROOT, measurement
from tools.fleet import CURVE, Fleet, make, medians, name

SMALL = Fleet(nodes=6, slow=1)


def by_name(folder: Path) -> dict[str, FleetNode]:
    return {node.name: node for node in read_fleet(folder)}


def test_checks_and_runs_of_the_same_samples_read_alike(tmp_path: Path) -> None:
    samples, _ = SMALL.draw(1)
    for runs in (False, True):
        folder = tmp_path / str(runs)
        make(folder, SMALL, 1, runs)
        read = read_fleet(folder)
        assert [node.name for node in read] == [name(number) for number in range(6)]
        assert {node.word for node in read} == {Word.UNKNOWN if runs else Word.OK}
        for node, row in zip(read, medians(samples).tolist(), strict=True):
            ((curve, times),) = node.curves.items()
            assert (curve.title, tuple(times)) == (CURVE.title, tuple(SMALL.bytes))
            assert list(times.values()) == pytest.approx(row)
            assert node.modified > 0


def test_what_a_check_writes_is_read_back(tmp_path: Path) -> None:
    run = ROOT / "results" / "cpu-2-ranks"
    result = check(run=run, reference=run, slower=0.3)
    assert result
    (tmp_path / "checked").mkdir()
    (tmp_path / "checked" / "check.json").write_text(json.dumps(document(result)))
    (tmp_path / "ran").mkdir()
    (tmp_path / "ran" / NAME).write_bytes((run / NAME).read_bytes())
    (tmp_path / "started").mkdir()
    started = CheckResult("", "", (), (), no_verdict="started at noon, no verdict")
    (tmp_path / "started" / "check.json").write_text(json.dumps(document(started)))
    checked, ran, unended = by_name(tmp_path).values()
    assert (unended.word, unended.reason, unended.curves) == (Word.UNKNOWN, started.no_verdict, {})
    assert (checked.word, ran.word) == (result.word, Word.UNKNOWN)
    assert len(checked.curves) > 5
    assert checked.curves.keys() <= ran.curves.keys()
    for curve, times in checked.curves.items():
        for size, seconds in times.items():
            assert seconds == pytest.approx(ran.curves[curve][size]), (curve.title, size)


def test_a_file_that_cannot_be_read_costs_its_node_alone_which_says_why(tmp_path: Path) -> None:
    make(tmp_path, Fleet(nodes=14, slow=0))
    good = json.loads((tmp_path / name(0) / "check.json").read_text())
    size = good["curves"][0]["sizes"][0]

    def with_size(**changes: object) -> str:
        return json.dumps(good | {"curves": [{"sizes": [size | changes]}]})

    broken: list[str | bytes] = [
        *("", "{", "[]", "null", "[" * 100_000, b"\xff\xfe", json.dumps(good | {"word": "FINE"})),
        *(with_size(seconds=0), with_size(seconds="1"), with_size(seconds=1e300), with_size(nbytes=-1)),
        *(with_size(collective="allred\x1b[31muce"), with_size(ranks=8, root=8)),
    ]
    for number, content in enumerate(broken, 1):
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name(number) / "check.json").write_bytes(data)
    read = by_name(tmp_path)
    assert read[name(0)].word == Word.OK
    for number, content in enumerate(broken, 1):
        node = read[name(number)]
        assert (node.word, node.curves) == (Word.UNKNOWN, {}), content
        assert "check.json" in node.reason, content
        assert node.reason.isprintable(), content


def test_pipes_folders_and_links_to_nothing_are_no_results(tmp_path: Path) -> None:
    for number, make_it in enumerate((os.mkfifo, os.mkdir, lambda path: path.symlink_to("nowhere"))):
        (tmp_path / name(number)).mkdir()
        make_it(tmp_path / name(number) / "check.json")
    (tmp_path / name(3)).mkdir()  # which is no node, since nothing is in it
    (tmp_path / "a-file").touch()
    (tmp_path / ".hidden").mkdir()
    read = by_name(tmp_path)
    assert list(read) == [name(number) for number in range(3)]
    assert all(node.word == Word.UNKNOWN and node.reason for node in read.values())


def test_a_check_says_why_it_is_bad_and_one_without_a_word_is_refused(tmp_path: Path) -> None:
    make(tmp_path, SMALL)
    place, why = tmp_path / name(2) / "check.json", "2 wrong\x1b[0m"
    check = json.loads(place.read_text())
    slow = {"word": "SLOW", "reason": why}
    for word, more in (("SLOW", slow), ("WRONG", slow | {"wrong_or_failed": [{}]})):
        place.write_text(json.dumps(check | more))
        node = by_name(tmp_path)[name(2)]
        assert (node.word.value, node.reason) == (word, "2 wrong\N{REPLACEMENT CHARACTER}[0m")
    del check["word"]
    place.write_text(json.dumps(check | {"status": "FAIL"}))
    node = by_name(tmp_path)[name(2)]
    assert node.word is Word.UNKNOWN
    assert "word" in node.reason


def test_a_run_with_a_wrong_row_fails_and_disturbed_rows_do_not_count(tmp_path: Path) -> None:
    wrong = replace(measurement(seconds=(), nbytes=64), mismatch=Mismatch(0, 0, 0, "1", "2", 1))
    disturbed = replace(measurement(seconds=(1.0,) * 7, nbytes=8), scheduling=Scheduling(off_core=0.9))
    rows = wrong, disturbed, measurement(seconds=(1e-6,) * 7, nbytes=8)
    write_run(tmp_path / "n1", *rows, status=1, topology={"name": "here", "platform": "cpu", "ranks": 2})
    (node,) = read_fleet(tmp_path)
    ((_, times),) = node.curves.items()
    assert (node.word, list(times)) == (Word.WRONG, [8])
    assert times[8] == pytest.approx(1e-6)
    assert "WRONG" in node.reason
    assert (tmp_path / "n1" / NAME).exists()


def test_buffers_that_lie_otherwise_are_a_curve_of_their_own(tmp_path: Path) -> None:
    rows = [measurement(seconds=(each * 1e-6,) * 7, unalign=each - 1) for each in (1, 2)]
    run = write_run(tmp_path / "ran", *rows, topology={"name": "here", "platform": "cpu", "ranks": 2})
    result = check(run=run, reference=run)
    assert result
    (tmp_path / "checked").mkdir()
    (tmp_path / "checked" / "check.json").write_text(json.dumps(document(result)))
    for node in read_fleet(tmp_path):
        found = {curve.unalign: times[1024] for curve, times in node.curves.items()}
        assert found == {0: pytest.approx(1e-6), 1: pytest.approx(2e-6)}, node.name


@pytest.mark.parametrize("log", [True, False])
def test_a_run_that_stops_before_its_end_is_named(tmp_path: Path, log: bool) -> None:
    write_run(tmp_path / "n1", measurement(), status=0 if log else None, imported={"complete": not log})
    (node,) = read_fleet(tmp_path)
    assert (node.word, len(node.curves)) == (Word.UNKNOWN, 1)
    assert ("stops before its end" if log else "was cut off") in node.reason
    assert "1 row" in node.reason


def test_a_node_is_a_folder_with_a_name_of_its_own_or_the_host_of_a_run(tmp_path: Path) -> None:
    made, later, numbered = "20260101-010203-allreduce-h1", "20260102-010203-allreduce-h1-2", "1-allreduce"
    for number, (runs, nodes) in enumerate(
        (
            ({"n1": "pod-a", "n2": "pod-b"}, {"n1", "n2"}),
            ({"n1/results/runs/x": "pod-a"}, {"n1"}),
            ({"n1/a": "h1", "n1/b": "h2", "n1/c": "h1"}, {"h1", "h2"}),
            ({"n1/a": "", "n1/b": "unknown"}, {"n1"}),
            ({made: "h1", later: "h1", "20260103-010203-reduce-h2": "h2"}, {"h1", "h2"}),
            ({numbered: "h1", "2-reduce": "", "3-others": "h3"}, {"h1", "2-reduce", "3-others"}),
            ({"none/x": None, "n1": "h1"}, {"n1"}),
        )
    ):
        for place, host in runs.items():
            (tmp_path / str(number) / place).mkdir(parents=True)
            if host is not None:
                write_run(tmp_path / str(number) / place, measurement(), environment={"host": host})
        assert by_name(tmp_path / str(number)).keys() == nodes, runs
    (tmp_path / "0" / "n2" / "check.json").write_text("{")
    assert by_name(tmp_path / "0")["n2"].reason.startswith("check.json: ")
    (tmp_path / "4" / later / NAME).write_text("{")
    assert by_name(tmp_path / "4")[later].reason.startswith(f"{NAME}:")


def test_several_runs_of_a_host_have_all_their_curves_and_the_newest_times(tmp_path: Path) -> None:
    for age, seconds, nbytes in ((2, 2e-6, 8), (1, 3e-6, 8), (3, 4e-6, 64)):
        folder = write_run(tmp_path / "n1" / f"{age}", measurement(seconds=(seconds,) * 7, nbytes=nbytes))
        os.utime(folder / NAME, (1e9 - age, 1e9 - age))
    (node,) = read_fleet(tmp_path)
    ((_, times),) = node.curves.items()
    assert (times, node.modified) == ({8: pytest.approx(3e-6), 64: pytest.approx(4e-6)}, 1e9 - 1)


def test_a_folder_without_folders_is_no_fleet(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(UsageError, match=folder.name):
            read_fleet(folder)
