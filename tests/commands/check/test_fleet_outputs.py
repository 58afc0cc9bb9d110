"""`collbench check --fleet`: what it prints of a folder of nodes, and the files that it writes."""

import csv
import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.commands.check.test_logs import SLOW
from tests.conftest import Command
from tools.fleet import Fleet, make, name

FLEET = Fleet(nodes=60, slow=2)


@pytest.fixture
def compared(here: Command) -> Command:
    return partial(here, "check", "--fleet")


@pytest.fixture
def slow(tmp_path: Path) -> list[str]:
    """The slow nodes of the folder NIGHT, in which a node is WRONG and the check of another has not ended."""
    found = make(tmp_path / "NIGHT", FLEET)
    fail, gone, *_ = (place for place in sorted((tmp_path / "NIGHT").iterdir()) if place.name not in found)
    check = json.loads((fail / "check.json").read_text()) | {"word": "WRONG", "reason": "it is broken"}
    (fail / "check.json").write_text(json.dumps(check))
    (gone / "check.json").write_text("")
    return [*found, fail.name, gone.name]


def table(lines: list[str]) -> list[str]:
    """The rows between the line of the fleet and the groups of alike nodes."""
    first = lines.index("") + 2
    return lines[first : lines.index("", first)]


def csv_rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "f.csv").read_text().splitlines()))


def test_nodes_that_stand_out_come_first_and_a_summary_last(compared: Command, slow: list[str]) -> None:
    for width in ("60", "100"):
        done = compared("NIGHT", COLUMNS=width)
        lines = done.stdout.splitlines()
        assert done.returncode == 3, done.stderr
        assert {line.split()[0] for line in table(lines) if line[0] != " "} == set(slow)
        assert max(map(len, lines[:-1])) <= int(width)
        assert lines[-1].startswith(f"collbench: WRONG 60 nodes: {slow[2]} WRONG, ")
        assert lines[-1].endswith(" % slower than the others; 1 UNKNOWN, 56 OK; 1 not judged against a system")
        assert " ".join(map(str.strip, lines[: lines.index("")])) == lines[-1].removeprefix("collbench: WRONG ")


def test_verdicts_that_are_missing_or_much_older_than_the_others_are_named(
    compared: Command, slow: list[str], tmp_path: Path
) -> None:
    others = [place for place in sorted((tmp_path / "NIGHT").iterdir()) if place.name not in slow]
    older, never_ended, alone, *_ = others
    check = json.loads((alone / "check.json").read_text())
    (alone / "check.json").write_text(json.dumps(check | {"where": "a machine like no other"}))
    (never_ended / "check.json").write_text(
        json.dumps(check | {"word": "UNKNOWN", "no_verdict": "started at noon, no verdict", "curves": []})
    )
    written = (older / "check.json").stat().st_mtime
    os.utime(older / "check.json", (written - 86400, written - 86400))
    lines = compared("NIGHT").stdout.splitlines()
    named = {line.split()[0]: line for line in table(lines)}
    assert set(named) == {*slow, older.name, never_ended.name}
    assert "OK" in named[older.name]
    assert "24 hours ago, much" in named[older.name]
    assert "started at noon, no verdict" in named[never_ended.name]
    assert any("to 24 hours ago" in line for line in lines)
    (line,) = [line for line in lines if line.startswith("not compared, since fewer than 5 nodes")]
    assert line.endswith(f": 1, {alone.name}")
    assert json.loads(compared("NIGHT", "--json").stdout)["outdated"] == [older.name]


def test_nodes_without_the_largest_size_are_not_counted_there(compared: Command, tmp_path: Path) -> None:
    make(tmp_path / "NIGHT", FLEET)
    torn, *_ = sorted((tmp_path / "NIGHT").iterdir())
    check = json.loads((torn / "check.json").read_text())
    for curve in check["curves"]:
        curve["sizes"] = curve["sizes"][:1]
    (torn / "check.json").write_text(json.dumps(check))
    assert "60 alike, 59 of them at " in compared("NIGHT").stdout


def test_nodes_that_are_too_unlike_are_not_called_alike(compared: Command, tmp_path: Path) -> None:
    make(tmp_path / "NIGHT", FLEET)
    for number, place in enumerate(sorted((tmp_path / "NIGHT").iterdir())):
        check = json.loads((place / "check.json").read_text())
        for size in check["curves"][0]["sizes"]:
            size["seconds"] *= 1 + number % 7
        (place / "check.json").write_text(json.dumps(check))
    done = compared("NIGHT").stdout
    assert "60 too unlike to compare, at " in done
    assert " alike" not in done.replace("unlike", "")


def test_slow_and_failed_nodes_are_excluded_and_those_without_a_result_are_not(
    compared: Command, slow: list[str], tmp_path: Path
) -> None:
    (tmp_path / "NIGHT" / slow[0]).rename(tmp_path / "NIGHT" / "a,b")  # which would exclude two others
    done = compared("NIGHT", "--exclude-file", "exclude.txt")
    assert (tmp_path / "exclude.txt").read_text().split("\n") == [*sorted(slow[1:3]), ""]
    assert "a,b" in done.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_rows_are_the_same_in_csv_and_json(compared: Command, slow: list[str], tmp_path: Path) -> None:
    done = compared("NIGHT", "--csv", "f.csv", "--json", "f.json")
    assert done.returncode == 3, done.stderr
    rows = csv_rows(tmp_path)
    said = json.loads((tmp_path / "f.json").read_text())["rows"]
    assert [list(row) for row in said] == [list(row) for row in rows]
    assert len(rows) == 59 * 9 + 1
    for mine, theirs in zip(rows, said, strict=True):
        assert mine["node"] == theirs["node"]
        if theirs["time_seconds"]:
            assert float(mine["time_seconds"]) == theirs["time_seconds"]
            busbw = 2 * 7 / 8 * theirs["size_bytes"] / theirs["time_seconds"]
            assert theirs["bus_bandwidth_bytes_per_second"] == pytest.approx(busbw)
    assert {row["node"] for row in rows if row["slow_outlier"] == "True"} == set(slow[:2])
    assert [row["node"] for row in rows if not row["size_bytes"]] == [slow[3]]
    document = json.loads((tmp_path / "f.json").read_text())
    assert {outlier["node"] for outlier in document["outliers"]} == set(slow[:2])
    assert all(outlier["low"] < outlier["ratio"] < outlier["high"] for outlier in document["outliers"])
    assert all((outlier["word"], outlier["limit"]) == ("SLOW", 1.05) for outlier in document["outliers"])
    words = {row["node"]: row["word"] for row in document["rows"]}
    assert [words[node] for node in slow] == ["SLOW", "SLOW", "WRONG", "UNKNOWN"]
    assert (document["schema"], document["word"], document["what"]) == (2, "WRONG", "60 nodes")


@pytest.mark.parametrize("name", ["csv", "exclude-file"])
def test_a_dash_prints_what_else_goes_into_a_file_and_nothing_else(
    compared: Command, slow: list[str], tmp_path: Path, name: str
) -> None:
    compared("NIGHT", f"--{name}", "f")
    assert compared("NIGHT", f"--{name}", "-").stdout == (tmp_path / "f").read_text()
    assert not (tmp_path / "-").exists()


def test_two_nights_are_compared(compared: Command, tmp_path: Path) -> None:
    old, new = (set(make(tmp_path / night, FLEET, seed)) for night, seed in (("ONE", 1), ("TWO", 2)))
    others = [name(node) for node in range(60) if name(node) not in old | new]
    (tmp_path / "ONE" / others[0] / "check.json").unlink()
    (tmp_path / "TWO" / others[1] / "check.json").unlink()
    document = json.loads(compared("TWO", "--against", "ONE", "--json").stdout)
    changed = {change["node"]: change["ratio"] > 1 for change in document["changes"]}
    assert changed == dict.fromkeys(old - new, False) | dict.fromkeys(new - old, True)
    printed = compared("TWO", "--against", "ONE").stdout
    assert f"came: 1, {others[0]}" in printed
    assert f"went: 1, {others[1]}" in printed


def test_nodes_that_no_check_judged_are_unknown_where_they_are_alike(here: Command, tmp_path: Path) -> None:
    for number, (word, status, says) in enumerate(
        (("SLOW", 3, " % slower than the others; "), ("UNKNOWN", 4, " alike; "))
    ):
        slow = make(tmp_path / word, replace(FLEET, slow=1 - number, by=0.2), runs=True)
        done = here("check", "--fleet", word, "--junit", "f.xml", "--exclude-file", "f")
        first, *_, last = done.stdout.splitlines()
        assert (done.returncode, last) == (status, f"collbench: {word} {first}")
        assert first.startswith(f"60 nodes: {''.join(slow)}")
        assert first.endswith(f"{says}none judged against a system")
        assert (tmp_path / "f").read_text().split() == slow
        suite = ElementTree.parse(tmp_path / "f.xml").getroot()
        assert (suite.get("failures"), suite.get("skipped")) == (str(len(slow)), str(60 - len(slow)))
    for exits, status in (("plain", 4), ("nagios", 3), ("npd", 2)):
        done = here("check", "--fleet", "UNKNOWN", "-q", "--exit", exits)
        assert (done.returncode, done.stdout.count("\n")) == (status, 1), exits


def test_logs_are_nodes_and_are_judged_against_the_system_of_on_alone(here: Command, tmp_path: Path) -> None:
    for node in range(6):
        (tmp_path / f"{node}.log").write_text(SLOW.replace("node1", f"n{node}"))
    for words, line in (
        ((), "UNKNOWN 6 nodes: alike; none judged against a system"),
        (("--on", "dgx-h100"), "SLOW 6 nodes: all 6 SLOW, alike: a setting, or the wrong --on"),
    ):
        document = json.loads(here("check", "--fleet", ".", *words, "--json").stdout)
        assert document["line"] == f"collbench: {line}"
        assert {row["node"] for row in document["rows"]} == {f"n{node}" for node in range(6)}
        assert all(("91.3 of 47" in row["reason"]) is bool(words) for row in document["rows"])
        printed = here("check", "--fleet", ".", *words).stdout
        assert ("\nn0 and 5 more " in printed, "\nn1 " in printed) == (bool(words), False)


def test_options_of_a_measurement_and_of_a_fleet_do_not_mix(here: Command, slow: list[str]) -> None:
    for words, message in {
        "--fleet NIGHT --op allreduce": "--op does not go with --fleet; leave one of them out",
        "--fleet NIGHT --nodes 2": "--nodes is for --on SYSTEM",
        "--fleet NIGHT NIGHT": "--fleet takes one folder, not NIGHT too",
        "--csv f.csv": "--csv is for --fleet; add --fleet",
        "--against NIGHT": "--against is for --fleet; add --fleet",
    }.items():
        done = here("check", *words.split())
        assert (done.returncode, done.stderr) == (2, f"collbench: error: {message}\n"), words


def test_a_file_that_cannot_be_written_is_an_error_of_one_line(compared: Command, slow: list[str]) -> None:
    for option in ("--csv", "--exclude-file"):
        done = compared("NIGHT", option, "/proc/none/f.png")
        assert done.returncode == 3, "the verdict is not lost with it"
        assert "collbench: WRONG 60 nodes" in done.stdout
        assert done.stderr.count("collbench: error:") == 1, option
