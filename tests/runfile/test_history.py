"""The runs of a folder: found, read once, read again when they change; tags; the run to compare another with."""

import json
import os
import shutil
import sqlite3
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from collbench.runfile.baseline import pick
from collbench.runfile.index import Index
from collbench.runfile.scan_folder import Facts, scan

from collbench.cli._runs_table import lines
from collbench.collectives import COLLECTIVES
from collbench.errors import UsageError
from collbench.results import Failed, Measurement, Mismatch, Prediction, Reported, Result, Skipped
from collbench.runfile import tags
from collbench.runfile.header import Header
from collbench.runfile.listing import Filter, History, first_second, last_second
from collbench.runfile.store import INTERRUPTED, NAME, Run, Writer, read
from tests.conftest import case, measurement

DAY = "2026-03-{:02}T12:00:00+00:00"
HOSTILE = "a\x1b[31m\u202eb\n\ud800"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLLBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for day in (1, 2, 3):
        write(tmp_path / "runs" / f"run{day}", day)
    return tmp_path / "runs"


def timed(micros: float = 1, **changes: Any) -> Measurement:
    return measurement(seconds=(micros * 1e-6,) * 7, **changes)


def write(
    folder: Path,
    day: int = 1,
    results: Sequence[Result] = (timed(),),
    topology: str = "2 sockets",
    complete: bool = True,
    status: int = 0,
    **header: Any,
) -> Path:
    with Writer(folder) as writer:
        facts = {"started": DAY.format(day), "environment": {"host": "node1.lab"}, "topology": {"name": topology}}
        writer.header(Header.from_json(facts | header))
        for result in results:
            writer.append(result)
        if complete:
            writer.end(DAY.format(day), status)
    return writer.path


def names(history: History) -> list[str]:
    return [str(Path(entry.name).parent) for entry in history.entries]


def picked(choice: str, new: Path, folder: Path) -> str:
    return pick(choice, read(new), folder).parent.name


def test_facts_of_a_run_are_those_of_its_file(tmp_path: Path) -> None:
    rows: list[Result] = [
        timed(),
        Measurement(case("broadcast", ranks=4), "mpi", "cpu", 1, (), Mismatch(0, 0, 0, "1", "2", 1)),
        Failed(case(), "ring-ll", "cpu", "hung"),
        Skipped(case(), "nvls", "cpu", "no switch"),
        Reported(case(), "nccl", "gpu", seconds=1e-6, statistic="mean", wrong_elements=3),
    ]
    header = {"imported": {"tool": "nccl-tests"}, "interleaved": {"id": "7", "setting": "NCCL_ALGO=Ring"}}
    assert scan(write(tmp_path / "run", 5, rows, **header)).facts == Facts(
        started=DAY.format(5),
        host="node1.lab",
        topology="2 sockets",
        tool="nccl-tests",
        setting="NCCL_ALGO=Ring",
        platforms=("cpu", "gpu"),
        ranks=(2, 4),
        collectives=("allreduce", "broadcast"),
        dtypes=("float",),
        implementations=("mpi", "ring-ll", "nvls", "nccl"),
        rows=5,
        wrong=2,
        failed=1,
        skipped=1,
        complete=True,
    )


def test_runs_are_listed_newest_first_wherever_they_lie_but_no_deeper_than_one_level(folder: Path) -> None:
    write(folder / "pair" / "as-is", 9)
    write(folder / "pair" / "NCCL_ALGO=Ring", 8)
    write(folder, 7)
    write(folder / "a" / "b" / "c", 6)
    (folder / "latest").symlink_to("run1")
    for name in ("folder", "pipe", "link"):
        (folder / name).mkdir()
    (folder / "folder" / NAME).mkdir()
    os.mkfifo(folder / "pipe" / NAME)
    (folder / "link" / NAME).symlink_to("nowhere")
    assert names(History(folder)) == ["pair/as-is", "pair/NCCL_ALGO=Ring", ".", "run3", "run2", "run1"]
    assert History(folder / "none").entries == []
    with pytest.raises(UsageError, match="is a file"):
        History(folder / NAME)


def test_a_run_without_a_date_counts_from_its_last_change(tmp_path: Path) -> None:
    for name, started in (("none", None), ("number", 7), ("word", "yesterday"), ("early", "0001-01-01T00:00:00")):
        path = write(tmp_path / name, started=started)
        os.utime(path, (1e9, 1e9))
    assert {entry.when for entry in History(tmp_path).entries if entry.name[:5] != "early"} == {1e9}


def test_no_word_of_a_file_reaches_the_terminal_as_a_command(tmp_path: Path) -> None:
    def clean(text: str) -> bool:
        return text.isprintable() and text.encode().decode() == text

    header = {
        "environment": {"host": HOSTILE},
        "imported": {"tool": HOSTILE},
        "interleaved": {"setting": HOSTILE},
        "started": HOSTILE,
    }
    write(tmp_path / HOSTILE[:9], results=[replace(timed(), implementation=HOSTILE)], topology=HOSTILE * 99, **header)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / NAME).write_text(json.dumps({"kind": "header", "format": HOSTILE}))
    history = History(tmp_path)
    assert len(history.entries) == 2
    for facts in (entry.facts for entry in history.entries):
        shown = facts.host, facts.topology, facts.tool, facts.setting, facts.started, facts.broken
        assert all(map(clean, (*shown, *facts.implementations)))
    assert all(map(clean, lines(history.entries)))


def test_a_broken_file_is_listed_with_its_reason_and_costs_no_other_its_place(folder: Path) -> None:
    header = b'{"kind": "header", "format": 1}\n'
    broken = {
        "empty": (b"", "first line is no header"),
        "binary": (b"\x80\x81", "not UTF-8"),
        "words": (b"hello\nworld\n", "not JSON"),
        "newer": (b'{"kind": "header", "format": 99}', "upgrade collbench"),
        "fields": (header + b'{"kind": "failed"}\n', f"{NAME}:2: field 'collective' is missing"),
        "types": (header + b'{"kind": "failed", "collective": 5}\n', f"{NAME}:2: "),
        "size": (header + b'{"kind": "failed", "collective": "allreduce", "nbytes": Infinity}\n', f"{NAME}:2: "),
    }
    for name, (content, _) in broken.items():
        (folder / name).mkdir()
        (folder / name / NAME).write_bytes(content)
    for reads in (3 + len(broken), 0):
        history = History(folder)
        assert history.reads == reads
        assert sorted(names(history)) == sorted([*broken, "run1", "run2", "run3"])
        reasons = {Path(entry.name).parent.name: entry.facts.broken for entry in history.entries if entry.facts.broken}
        assert set(reasons) == set(broken)
        for name, reason in reasons.items():
            assert broken[name][1] in reason
            assert str(folder) not in reason


def test_a_run_that_is_being_written_is_listed_as_far_as_it_is(folder: Path) -> None:
    path = write(folder / "now", 9, complete=False)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[-40:-9])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = History(folder).entries[0].facts
    path.write_bytes(whole + whole.splitlines(keepends=True)[-1] + b'{"kind": "end"}\n')
    second = History(folder).entries[0].facts
    assert (first.rows, first.complete, first.broken) == (1, False, "")
    assert (second.rows, second.complete) == (2, True)


def test_a_file_is_read_once_and_again_when_it_changes(folder: Path) -> None:
    write(Path(os.fsdecode(os.fsencode(folder) + b"/\xff?#%41 x")), 9)  # file systems take any bytes
    first, second = History(folder), History(folder)
    assert (first.reads, second.reads) == (4, 0)
    assert first.entries == second.entries
    assert second.entries[0].path.is_file()
    medians = [medians for _, medians in second.medians(second.entries)]
    assert medians == [scan(entry.path).medians for entry in first.entries]
    shutil.rmtree(second.entries[0].path.parent)
    write(folder / "run4", 4)
    with (folder / "run2" / NAME).open("a") as file:
        file.write((folder / "run2" / NAME).read_text().splitlines()[1] + "\n")
    path = folder / "run3" / NAME
    before = path.stat()
    path.write_text(path.read_text().replace("2 sockets", "3 sockets"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    shutil.rmtree(folder / "run1")
    history = History(folder)
    assert names(history) == ["run4", "run3", "run2"]
    assert history.reads == 3
    assert [entry.facts.rows for entry in history.entries] == [1, 1, 2]
    assert history.entries[1].facts.topology == "3 sockets"
    assert sorted(Index(folder).load()) == [f"run{day}/{NAME}" for day in (2, 3, 4)]


def change(statement: str) -> Callable[[Path], None]:

    def carry_out(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)

    return carry_out


def test_a_damaged_index_is_made_anew_without_a_word(folder: Path) -> None:
    before = History(folder).entries
    damage: dict[str, Callable[[Path], object]] = {
        "gone": Path.unlink,
        "empty": lambda path: path.write_bytes(b""),
        "no database": lambda path: path.write_bytes(b"hello" * 999),
        "cut off": lambda path: path.write_bytes(path.read_bytes()[:5000]),
        "garbage inside": lambda path: path.write_bytes(path.read_bytes()[:4096].ljust(path.stat().st_size, b"\x55")),
        "facts": change("UPDATE runs SET facts = 'what'"),
        "another table": change("ALTER TABLE runs RENAME TO walks"),
    }
    for name, spoil in damage.items():
        spoil(Index(folder).path)
        again, then = History(folder), History(folder)
        assert again.entries == then.entries == before, name
        assert (again.reads, then.reads) == (3, 0), name
    change("UPDATE runs SET medians = 'what'")(Index(folder).path)
    assert picked("last", folder / "run3", folder) == "run2"
    change("CREATE TRIGGER no BEFORE INSERT ON runs BEGIN SELECT RAISE(ABORT, 'no'); END")(Index(folder).path)
    write(folder / "run4", 4)
    assert names(History(folder)) == ["run4", "run3", "run2", "run1"]
    assert [History(folder).reads, History(folder).reads] == [4, 0]


def test_an_index_that_is_locked_of_another_release_or_without_a_place_is_no_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    History(folder)
    with monkeypatch.context() as patch:
        patch.setattr("collbench.runfile.index.VERSION", 7)
        assert [History(folder).reads, History(folder).reads] == [3, 0]
    assert History(folder).reads == 0
    with closing(sqlite3.connect(Index(folder).path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        assert names(History(folder)) == ["run3", "run2", "run1"]
    assert History(folder).reads == 0
    (folder.parent / "file").write_text("")
    for where in ("file", "file/below", "/proc/nothing"):
        monkeypatch.setenv("COLLBENCH_CACHE", str(folder.parent / where))
        for _ in range(2):
            history = History(folder)
            assert (names(history), history.reads) == (["run3", "run2", "run1"], 3), where
        assert picked("best", folder / "run3", folder) == "run2", where


def test_all_filters_must_agree(tmp_path: Path) -> None:
    write(tmp_path / "mine", 2)
    tags.add("good", tmp_path / "mine")
    host = {"environment": {"host": "node10"}}
    write(tmp_path / "other", 3, [timed(collective="broadcast")], "4 x NVSwitch", **host)
    expected = Prediction(case(), "nccl", 1e-6, 1e-6, 2e-6)
    write(tmp_path / "expected", 4, [expected], "DGX", environment={})
    noon = first_second("2026-03-03T12:00:00+00:00")
    entries = History(tmp_path).entries
    for chosen, passing in (
        (Filter(host="node1.lab"), ["mine"]),
        (Filter(host="NODE1"), ["mine"]),
        (Filter(host="node"), []),
        (Filter(host="node*"), ["other", "mine"]),
        (Filter(collectives=("allgather", "broadcast")), ["other"]),
        (Filter(platform="model"), ["expected"]),
        (Filter(topology="nvs"), ["other"]),
        (Filter(since=noon), ["expected", "other"]),
        (Filter(until=noon), ["other", "mine"]),
        (Filter(tag="good"), ["mine"]),
        (Filter(host="node*", topology="2"), ["mine"]),
        (Filter(), ["expected", "other", "mine"]),
    ):
        assert [Path(entry.name).parent.name for entry in entries if chosen(entry)] == passing, chosen


def test_dates_may_be_days_moments_or_ages_and_nothing_else() -> None:
    day = datetime(2026, 11, 1)
    assert first_second("2026-11-01") == day.timestamp()
    assert last_second("2026-11-01") == pytest.approx((day + timedelta(days=1)).timestamp())
    assert first_second("2026-11-01T12:30") == last_second("2026-11-01T12:30") == day.timestamp() + 12.5 * 3600
    assert first_second("2026-11-01T00:00+00:00") == 1793491200
    for text, hours in (("12h", 12), ("7d", 7 * 24), ("2w", 14 * 24)):
        expected = (datetime.now() - timedelta(hours=hours)).timestamp()
        assert first_second(text) == pytest.approx(expected, abs=600)
    for text in ("", "d", "7", "7y", "-7d", "yesterday", "2026-13-01", "2026-02-30", "999999w"):
        for option, parse in (("--since", first_second), ("--until", last_second)):
            with pytest.raises(UsageError, match=rf"{option}.*7d"):
                parse(text)


def test_tags_stand_beside_the_run_and_go_with_a_copy(folder: Path, cache: Path) -> None:
    assert tags.add("good", folder / "run2") == ("good",)
    assert tags.add("golden", folder / "run2") == tags.add("good", folder / "run2") == ("good", "golden")
    assert (folder / "run2" / tags.FILE).read_text() == "good\ngolden\n"
    shutil.rmtree(cache, ignore_errors=True)
    shutil.copytree(folder, folder.parent / "copy")
    for place in (folder, folder.parent / "copy"):
        assert [entry.tags for entry in History(place).entries] == [(), ("good", "golden"), ()]
    assert tags.remove("good", folder / "run2") == ("golden",)
    assert History(folder).entries[1].tags == ("golden",)
    assert tags.remove("golden", folder / "run2") == ()
    assert [path.name for path in (folder / "run2").iterdir()] == [NAME]


def test_a_name_that_cannot_be_a_tag_is_refused_and_passed_over_in_a_file(folder: Path) -> None:
    bad = ["", "last", "best", "a b", "a/b", "a\\b", "-x", ".x", "a\nb", "a\x1b[1m", "a\u2028b", "a\u202eb", "x" * 65]
    file = folder / "run1" / tags.FILE
    for name in bad:
        with pytest.raises(UsageError, match="cannot be a tag"):
            tags.add(name, folder / "run1")
        assert not file.exists()
        file.write_bytes(f"good\n{name}\nfine\n".encode() + b"\xff\xfe")
        assert not {"last", "best", name} & set(tags.tags(folder / "run1")), name
        assert tags.tags(folder / "run1")[0] == "good"
        file.unlink()
    for place in (folder, folder / "none"):
        with pytest.raises(UsageError, match="no run in"):
            tags.add("good", place)
    with pytest.raises(UsageError, match="runs within it: run1, run2, run3"):
        tags.add("good", folder)
    with pytest.raises(UsageError, match="no tag 'good'; its tags: none"):
        tags.remove("good", folder / "run1")
    file.mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        tags.add("good", folder / "run1")


def test_the_last_run_is_the_newest_before_and_no_copy(folder: Path) -> None:
    assert picked("last", folder / "run3", folder) == "run2"
    assert picked("last", folder / "run2", folder) == "run1"
    assert picked("last", write(folder.parent / "elsewhere", 20), folder) == "run3"
    with pytest.raises(UsageError, match=r"no last run for .*run1.*of 2 other runs .* before 2026-03-01"):
        picked("last", folder / "run1", folder)
    new = read(folder / "run1")
    made = Run(Path("nowhere"), replace(new.header, started=""), new.results, True)
    assert pick("last", made, folder).parent.name == "run3", "what is in memory only comes after all"
    with pytest.raises(UsageError, match="no right result with a time"):
        picked("last", write(folder.parent / "without times", 9, []), folder)
    shutil.copytree(folder / "run3", folder / "copy")
    for nanoseconds in range(1_795_000_000_123_456_789, 1_795_000_000_123_458_000, 300):
        for name in ("run3", "copy"):
            os.utime(folder / name / NAME, ns=(nanoseconds, nanoseconds))
        assert picked("last", folder / "run3", folder) == "run2"
    assert picked("best", folder / "run3", folder) == "run2"


def test_a_run_that_cannot_be_compared_is_no_baseline(folder: Path) -> None:
    fast, prediction = timed(0.1), Prediction(case(), "mpi", 1e-7, 1e-7, 1e-7)
    others: dict[str, tuple[dict[str, Any], Sequence[Result]]] = {
        "topology": ({"topology": "3 sockets"}, [fast]),
        "tool": ({"imported": {"tool": "osu"}}, [fast]),
        "setting": ({"interleaved": {"setting": "A=1"}}, [fast]),
        "incomplete": ({"complete": False}, [fast]),
        "interrupted": ({"status": INTERRUPTED}, [fast]),
        "predicted": ({}, [prediction]),
        "platform": ({}, [replace(fast, platform="gpu")]),
        "ranks": ({}, [timed(0.1, ranks=3)]),
        "implementation": ({}, [timed(0.1, implementation="ring-ll")]),
        "collective": ({}, [timed(0.1, collective="broadcast")]),
        "size": ({}, [timed(0.1, nbytes=64)]),
        "in place": ({}, [timed(0.1, in_place=True)]),
        "wrong": ({}, [replace(fast, mismatch=Mismatch(0, 0, 0, "1", "2", 1))]),
        "no time": ({}, [replace(fast, seconds=())]),
        "zero": ({}, [replace(fast, seconds=(0.0,) * 7)]),
        "failed": ({}, [Failed(case(), "mpi", "cpu", "hung")]),
        "empty": ({}, []),
    }
    new = write(folder.parent / "new", 5)
    for name, (header, results) in others.items():
        write(folder / name, 4, results, **header)
        for choice in ("last", "best"):
            assert picked(choice, new, folder) == "run3", name
        shutil.rmtree(folder / name)


def test_like_goes_with_like(folder: Path) -> None:
    prediction = Prediction(case(), "mpi", 1e-6, 1e-6, 1e-6)
    reported = Reported(case(), "nccl", "gpu", seconds=1e-6, statistic="mean")
    kinds: dict[str, tuple[Sequence[Result], dict[str, Any]]] = {
        "expected": ([prediction], {}),
        "imported": ([reported], {"imported": {"tool": "osu"}}),
        "tried": ([timed()], {"interleaved": {"setting": "A=1"}}),
        "as it was": ([timed()], {"interleaved": {"setting": ""}}),
    }
    for day, (name, (rows, header)) in enumerate(kinds.items(), 4):
        write(folder / name, day, rows, **header)
    for name, (rows, header) in kinds.items():
        new = write(folder.parent / name, 20, rows, **({} if name == "as it was" else header))
        assert picked("last", new, folder) == name
    for name in COLLECTIVES:
        write(folder / name, 1, [timed(collective=name)])
    History(folder)
    for name in ("broadcast", "alltoall", "barrier", "pingpong"):
        new = write(folder.parent / name, 2, [timed(collective=name)])
        assert picked("best", new, folder) == name


def sweep(*micros: float) -> list[Result]:
    return [timed(microseconds, nbytes=1024 * 2**power) for power, microseconds in enumerate(micros) if microseconds]


def test_the_best_run_has_the_highest_geometric_mean_of_ratios(tmp_path: Path) -> None:
    one, tie, luck = (tmp_path / name for name in ("one", "tie", "luck"))
    for name, day, micros in (
        ("even", 1, (10, 10, 1000)),
        ("best", 2, (4, 10, 1500)),
        ("lopsided", 2, (3, 30, 1000)),
        ("sum", 3, (11, 11, 900)),
    ):
        write(one / name, day, sweep(*micros))
    new = write(tmp_path / "new", 4, sweep(10, 10, 1000))
    assert picked("best", new, one) == "best"
    assert picked("last", new, one) == "sum"
    for day, name in ((1, "z"), (3, "m"), (2, "a")):
        write(tie / name, day, sweep(5, 5))
    assert picked("best", write(tmp_path / "again", 9, sweep(1, 1)), tie) == "m", "the newest of equally good ones"
    write(luck / "whole", 1, sweep(10, 10, 10, 10))
    write(luck / "lucky", 2, sweep(1))
    new = write(tmp_path / "four", 4, sweep(10, 10, 10, 10))
    assert picked("best", new, luck) == "whole", "luck at one size makes no baseline"
    write(luck / "half", 3, sweep(0, 0, 9, 9))
    assert picked("best", new, luck) == "half"


def test_a_tag_is_the_newest_that_can_be_compared(folder: Path) -> None:
    write(folder / "odd", 9, topology="3 sockets")
    for name in ("run1", "run2", "odd"):
        tags.add("good", folder / name)
    for new, found in (("run3", "run2"), ("run1", "run2"), ("run2", "run1")):
        assert picked("good", folder / new, folder) == found
    tags.add("only", folder / "odd")
    assert picked("only", folder / "run3", folder) == "odd", "as there is nothing else"
    with pytest.raises(UsageError, match=r"tag 'god' \(3 other runs looked at\); choose from: last, best, good, only"):
        picked("god", folder / "run3", folder)
    with pytest.raises(UsageError, match="no other run"):
        picked("only", folder / "odd", folder)
