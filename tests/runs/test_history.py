"""The runs of a folder: found, read once, read again when they change; tags; the run to compare another with."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from collbench.cli._runs_table import lines
from collbench.collectives import COLLECTIVES
from collbench.errors import UsageError
from collbench.flaws import Mismatch
from collbench.measurement import Failed, Measurement, Prediction, Reported, Result, Skipped
from collbench.runs import tags
from collbench.runs.baseline import pick
from collbench.runs.file import INTERRUPTED, NAME, Run, Writer, read
from collbench.runs.header import Header
from collbench.runs.index import Index
from collbench.runs.listing import Filter, History, first_second, last_second
from collbench.runs.scan_folder import Facts, scan
from tests.conftest import ROOT, case, measurement

DAY = "2026-03-{:02}T12:00:00+00:00"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one for each test."""
    monkeypatch.setenv("COLLBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With three runs, a day apart."""
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
    """A run file as a sweep leaves it."""
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


def index(folder: Path) -> Path:
    return Index(folder).path


def clean(text: str) -> bool:
    return text.isprintable() and text.encode().decode() == text


# The list


def test_facts_of_a_run(tmp_path: Path) -> None:
    """What the list tells is in the file."""
    rows: list[Result] = [
        timed(),
        Measurement(case("broadcast", ranks=4), "mpi", "cpu", 1, (), Mismatch(0, 0, 0, "1", "2", 1)),
        Failed(case(), "ring-ll", "cpu", "hung"),
        Skipped(case(), "nvls", "cpu", "no switch"),
        Reported(case(), "nccl", "gpu", seconds=1e-6, statistic="mean", wrong_elements=3),
    ]
    header = {"imported": {"tool": "nccl-tests"}, "interleaved": {"id": "7", "setting": "NCCL_ALGO=Ring"}}
    path = write(tmp_path / "run", 5, rows, **header)
    assert scan(path).facts == Facts(
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


def test_runs_are_listed_newest_first_wherever_they_lie(folder: Path) -> None:
    """In the folder, in it itself, one level further, but no deeper; a link leads to no second one."""
    write(folder / "pair" / "as-is", 9)
    write(folder / "pair" / "NCCL_ALGO=Ring", 8)
    write(folder, 7)
    write(folder / "a" / "b" / "c", 6)
    (folder / "latest").symlink_to("run1")
    assert names(History(folder)) == ["pair/as-is", "pair/NCCL_ALGO=Ring", ".", "run3", "run2", "run1"]


def test_a_run_without_a_date_counts_from_its_last_change(tmp_path: Path) -> None:
    """So does one whose date is none."""
    for name, started in (("none", None), ("number", 7), ("word", "yesterday"), ("early", "0001-01-01T00:00:00")):
        path = write(tmp_path / name, started=started)
        os.utime(path, (1e9, 1e9))
    assert {entry.when for entry in History(tmp_path).entries if entry.name[:5] != "early"} == {1e9}


def test_a_folder_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    """One that is a file is an error."""
    assert History(tmp_path / "none").entries == []
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        History(tmp_path / "file")


HOSTILE = "a\x1b[31m\u202eb\n\ud800"


def test_no_word_of_a_file_reaches_the_terminal_as_a_command(tmp_path: Path) -> None:
    """Control characters, reversed text and half characters are replaced."""
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
    for entry in history.entries:
        facts = entry.facts
        assert all(map(clean, (facts.host, facts.topology, facts.tool, facts.setting, facts.started, facts.broken)))
        assert all(map(clean, facts.implementations))
    assert all(map(clean, lines(history.entries)))


@pytest.mark.parametrize("value", [None, 7, "text", [1, {}], {"host": 7, "name": [], "ranks": "many", "setting": {}}])
def test_a_header_of_other_types_is_listed(tmp_path: Path, value: Any) -> None:
    """With what can be understood."""
    fields = ("started", "environment", "sweep", "imported", "interleaved", "command")
    path = tmp_path / "run" / NAME
    path.parent.mkdir()
    path.write_text(json.dumps({"kind": "header", "format": 1, "topology": value} | dict.fromkeys(fields, value)))
    (entry,) = History(tmp_path).entries
    assert entry.facts.broken == ""
    assert (entry.facts.host, entry.facts.topology, entry.facts.rows) == ("", "", 0)


BROKEN = {
    "empty": (b"", "first line is no header"),
    "binary": (b"\x80\x81", "not UTF-8"),
    "words": (b"hello\nworld\n", "not JSON"),
    "newer": (b'{"kind": "header", "format": 99}', "upgrade collbench"),
    "fields": (b'{"kind": "header", "format": 1}\n{"kind": "failed"}\n', f"{NAME}:2: field 'collective' is missing"),
    "types": (b'{"kind": "header", "format": 1}\n{"kind": "failed", "collective": 5}\n', f"{NAME}:2: "),
    "infinite": (
        b'{"kind": "header", "format": 1}\n{"kind": "failed", "collective": "allreduce", "nbytes": Infinity}\n',
        f"{NAME}:2: ",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_listed_with_its_reason(folder: Path, name: str) -> None:
    """And costs no other run its place; the index knows it too."""
    content, reason = BROKEN[name]
    (folder / "broken").mkdir()
    (folder / "broken" / NAME).write_bytes(content)
    for reads in (4, 0):
        history = History(folder)
        assert history.reads == reads
        assert sorted(names(history)) == ["broken", "run1", "run2", "run3"]
        (entry,) = (entry for entry in history.entries if entry.facts.broken)
        assert reason in entry.facts.broken
        assert str(folder) not in entry.facts.broken


def test_what_is_no_file_is_no_run(folder: Path) -> None:
    """A folder of that name, a pipe that nobody writes to, a link to nowhere."""
    for name in ("folder", "pipe", "link"):
        (folder / name).mkdir()
    (folder / "folder" / NAME).mkdir()
    os.mkfifo(folder / "pipe" / NAME)
    (folder / "link" / NAME).symlink_to("nowhere")
    assert names(History(folder)) == ["run3", "run2", "run1"]


def test_a_run_that_is_being_written_is_listed_as_far_as_it_is(folder: Path) -> None:
    """Without a word about its torn line, and read again when there is more."""
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


# The index


def test_a_file_is_read_once(folder: Path) -> None:
    """And the index says what the file says."""
    first, second = History(folder), History(folder)
    assert (first.reads, second.reads) == (3, 0)
    assert first.entries == second.entries
    assert [medians for _, medians in second.medians(second.entries)] == [
        scan(entry.path).medians for entry in first.entries
    ]


def test_what_changes_is_read_again(folder: Path) -> None:
    """A new file, one that has grown, one of the same size and age with another content; one that is gone is gone."""
    History(folder)
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


def spoil_bytes(path: Path) -> None:
    """All but the head of the file, so that it opens."""
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\x55" * (len(content) - 4096))


def spoil_facts(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE runs SET facts = 'what'")


def spoil_medians(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE runs SET medians = 'what'")


def other_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE runs RENAME TO walks")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "no database": lambda path: path.write_bytes(b"hello" * 999),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:5000]),
    "garbage inside": spoil_bytes,
    "facts": spoil_facts,
    "another table": other_table,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_index_is_made_anew(folder: Path, damage: str) -> None:
    """Without a word, and the files are the truth."""
    before = History(folder).entries
    DAMAGE[damage](index(folder))
    again, then = History(folder), History(folder)
    assert again.entries == then.entries == before
    assert (again.reads, then.reads) == (3, 0)


def test_damaged_medians_are_read_from_the_files(folder: Path) -> None:
    """Whatever the index says of the facts."""
    History(folder)
    spoil_medians(index(folder))
    assert pick("last", read(folder / "run3"), folder) == folder / "run2" / NAME


def test_an_index_that_cannot_take_another_run_is_made_anew(folder: Path) -> None:
    """Even if what is wrong with it is in a part that lists do not need."""
    History(folder)
    with closing(sqlite3.connect(index(folder))) as connection, connection:
        connection.execute("CREATE TRIGGER no BEFORE INSERT ON runs BEGIN SELECT RAISE(ABORT, 'no'); END")
    write(folder / "run4", 4)
    assert names(History(folder)) == ["run4", "run3", "run2", "run1"]
    assert [History(folder).reads, History(folder).reads] == [4, 0]


def test_an_index_of_another_release_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other release meant is not taken over, and it keeps its own."""
    History(folder)
    with monkeypatch.context() as patch:
        patch.setattr("collbench.runs.index.VERSION", 7)
        assert [History(folder).reads, History(folder).reads] == [3, 0]
    assert History(folder).reads == 0


def test_a_lock_on_the_index_is_no_error(folder: Path) -> None:
    """Whoever holds it, and for whatever reason, all runs are listed, and the index is used again afterwards."""
    History(folder)
    with closing(sqlite3.connect(index(folder), isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        write(folder / "run4", 4)
        started = time.monotonic()
        assert names(History(folder)) == ["run4", "run3", "run2", "run1"]
        assert time.monotonic() - started < 20  # who waits for such a lock waits until it is given up
    assert [History(folder).reads, History(folder).reads] == [1, 0]


@pytest.mark.parametrize("where", ["file", "file/below", "/proc/nothing"])
def test_without_a_place_for_an_index_everything_works(
    folder: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine whose home is read-only."""
    (folder.parent / "file").write_text("")
    monkeypatch.setenv("COLLBENCH_CACHE", str(folder.parent / where))
    for _ in range(2):
        history = History(folder)
        assert (names(history), history.reads) == (["run3", "run2", "run1"], 3)
        assert pick("best", read(folder / "run3"), folder) == folder / "run2" / NAME


def test_reading_that_is_interrupted_goes_on_where_it_was(folder: Path) -> None:
    """Ctrl-C on a slow disk costs nothing that was read."""

    def stop(done: int, total: int) -> None:
        if (done, total) == (2, 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        History(folder, stop)
    assert History(folder).reads == 1


def test_a_file_that_could_not_be_opened_is_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in it changes when the disk comes back."""
    original = os.open

    def refuse(path: Any, *rest: Any, **more: Any) -> int:
        if Path(path).parent.name == "run2":
            raise PermissionError(13, "Permission denied")
        return original(path, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        assert [entry.facts.broken for entry in History(folder).entries if entry.facts.broken] == [
            f"cannot read {NAME}: Permission denied"
        ]
    assert not any(entry.facts.broken for entry in History(folder).entries)


def test_names_that_are_no_text_are_kept(folder: Path) -> None:
    """File systems take any bytes."""
    write(Path(os.fsdecode(os.fsencode(folder) + b"/\xff?#%41 x")), 9)
    assert History(folder).entries == History(folder).entries
    assert History(folder).reads == 0
    assert History(folder).entries[0].path.is_file()


def test_several_at_once_see_the_same(folder: Path, cache: Path) -> None:
    """Real processes that all make the index, while files are still being added, and none leaves anything behind."""
    line = (folder / "run1" / NAME).read_text()
    for number in range(200):
        (folder / f"more{number}").mkdir()
        (folder / f"more{number}" / NAME).write_text(line)
    script = (
        "import sys; from pathlib import Path; from collbench.runs.listing import History\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "for turn in range(5):\n"
        "    history = History(Path(sys.argv[1]))\n"
        "    assert not any(each.facts.broken for each in history.entries)\n"
        "    own = Path(sys.argv[1], sys.argv[2] + str(turn)); own.mkdir()\n"
        "    Path(own, 'run.jsonl').write_text(history.entries[0].path.read_text())\n"
        "print(len(history.entries))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(folder), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for name in ("a", "b", "c")
    ]
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    ends = [process.communicate("go\n", timeout=60) for process in processes]
    assert [error for _, error in ends] == [""] * 3
    assert all(207 <= int(count) <= 217 for count, _ in ends)
    assert len(History(folder).entries) == 218
    assert History(folder).reads == 0
    assert [path.suffix for path in (cache / "history").iterdir()] == [".sqlite"]


def test_two_thousand_runs_are_listed_within_half_a_second(tmp_path: Path) -> None:
    """Real files, scanned and compared each time; the index saves reading them. Picking the best is as quick.

    Of this process's own time, whatever else the machine does: ten thousand take two seconds.
    """
    text = write(tmp_path / "one", results=[timed(2)]).read_text()
    new = read(write(tmp_path / "new", 28))
    for number in range(2000):
        run = tmp_path / "runs" / str(number)
        run.mkdir(parents=True)
        (run / NAME).write_text(text)
    seconds = []
    for reads in (2000, 0, 0, 0):
        started = time.process_time()
        history = History(tmp_path / "runs")
        seconds.append(time.process_time() - started)
        assert (len(history.entries), history.reads) == (2000, reads)
    assert min(seconds[1:]) < 0.4
    assert seconds[0] < 6  # there is no haste in it, but a coffee is too long
    started = time.process_time()
    assert pick("best", new, tmp_path / "runs")
    assert time.process_time() - started < 0.8


# Filters


FILTERS = {
    "host": (Filter(host="node1.lab"), ["mine"]),
    "first part of the host": (Filter(host="NODE1"), ["mine"]),
    "no other part of the host": (Filter(host="node"), []),
    "pattern": (Filter(host="node*"), ["other", "mine"]),
    "collective": (Filter(collectives=("allgather", "broadcast")), ["other"]),
    "platform": (Filter(platform="model"), ["expected"]),
    "topology": (Filter(topology="nvs"), ["other"]),
    "since": (Filter(since=first_second("2026-03-03T12:00:00+00:00")), ["expected", "other"]),
    "until": (Filter(until=first_second("2026-03-03T12:00:00+00:00")), ["other", "mine"]),
    "tag": (Filter(tag="good"), ["mine"]),
    "two": (Filter(host="node*", topology="2"), ["mine"]),
    "none": (Filter(), ["expected", "other", "mine"]),
}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_lets_pass_what_it_names(tmp_path: Path, name: str) -> None:
    """And all filters must agree."""
    write(tmp_path / "mine", 2)
    tags.add("good", tmp_path / "mine")
    host = {"environment": {"host": "node10"}}
    write(tmp_path / "other", 3, [timed(collective="broadcast")], "4 x NVSwitch", **host)
    expected = Prediction(case(), "nccl", 1e-6, 1e-6, 2e-6)
    write(tmp_path / "expected", 4, [expected], "DGX", environment={})
    chosen, passing = FILTERS[name]
    assert [Path(entry.name).parent.name for entry in History(tmp_path).entries if chosen(entry)] == passing


def test_dates_may_be_days_moments_or_ages() -> None:
    """Local time unless a zone is named; the end of a day is its last moment."""
    day = datetime(2026, 11, 1)
    assert first_second("2026-11-01") == day.timestamp()
    assert last_second("2026-11-01") == pytest.approx((day + timedelta(days=1)).timestamp())
    assert first_second("2026-11-01T12:30") == last_second("2026-11-01T12:30") == day.timestamp() + 12.5 * 3600
    assert first_second("2026-11-01T00:00+00:00") == 1793491200
    for text, hours in (("12h", 12), ("7d", 7 * 24), ("2w", 14 * 24)):
        expected = (datetime.now() - timedelta(hours=hours)).timestamp()
        assert first_second(text) == pytest.approx(expected, abs=60)


@pytest.mark.parametrize("text", ["", "d", "7", "7y", "-7d", "yesterday", "2026-13-01", "2026-02-30", "999999w"])
def test_other_words_are_no_dates(text: str) -> None:
    """The error says what is."""
    for option, parse in (("--since", first_second), ("--until", last_second)):
        with pytest.raises(UsageError, match=rf"{option}.*7d"):
            parse(text)


# Tags


def test_tags_stand_beside_the_run(folder: Path, cache: Path) -> None:
    """So they survive the index, and go with a copy."""
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


BAD_NAMES = ["", "last", "best", "a b", "a/b", "a\\b", "-x", ".x", "a\nb", "a\x1b[1m", "a\u2028b", "a\u202eb", "x" * 65]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_cannot_be_a_tag(folder: Path, name: str) -> None:
    """It is refused, and passed over where somebody wrote it into the file."""
    with pytest.raises(UsageError, match="cannot be a tag"):
        tags.add(name, folder / "run1")
    assert not (folder / "run1" / tags.FILE).exists()
    (folder / "run1" / tags.FILE).write_bytes(f"good\n{name}\nfine\n".encode() + b"\xff\xfe")
    assert not {"last", "best", name} & set(tags.tags(folder / "run1"))
    assert tags.tags(folder / "run1")[0] == "good"


def test_only_a_run_has_tags(folder: Path) -> None:
    """Of a folder of runs, the error names them."""
    for place in (folder, folder / "none"):
        with pytest.raises(UsageError, match="no run in"):
            tags.add("good", place)
    with pytest.raises(UsageError, match="runs within it: run1, run2, run3"):
        tags.add("good", folder)
    with pytest.raises(UsageError, match="no tag 'good'; its tags: none"):
        tags.remove("good", folder / "run1")
    (folder / "run1" / tags.FILE).mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        tags.add("good", folder / "run1")


# Baselines


def picked(choice: str, new: Path, folder: Path) -> str:
    return pick(choice, read(new), folder).parent.name


def test_last_is_the_newest_before(folder: Path) -> None:
    """Wherever the new run lies, and whatever came later."""
    assert picked("last", folder / "run3", folder) == "run2"
    assert picked("last", folder / "run2", folder) == "run1"
    assert picked("last", write(folder.parent / "elsewhere", 20), folder) == "run3"
    with pytest.raises(UsageError, match=r"no last run for .*run1.*of 2 other runs .* before 2026-03-01"):
        picked("last", folder / "run1", folder)


def test_a_copy_of_the_run_is_not_its_baseline(folder: Path) -> None:
    """It started when the run did."""
    shutil.copytree(folder / "run3", folder / "copy")
    for nanoseconds in range(1_795_000_000_123_456_789, 1_795_000_000_123_458_000, 100):
        for name in ("run3", "copy"):
            os.utime(folder / name / "run.jsonl", ns=(nanoseconds, nanoseconds))
        assert picked("last", folder / "run3", folder) == "run2"
    assert picked("best", folder / "run3", folder) == "run2"


def of_another_kind(folder: Path, kind: str) -> None:
    """A newer run than all others which is as fast as none, and no baseline."""
    fast = timed(0.1)
    prediction = Prediction(case(), "mpi", 1e-7, 1e-7, 1e-7)
    variants: dict[str, tuple[dict[str, Any], Sequence[Result]]] = {
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
    header, results = variants[kind]
    write(folder / "odd", 4, results, **header)


KINDS = [
    "topology",
    "tool",
    "setting",
    "incomplete",
    "interrupted",
    "predicted",
    "platform",
    "ranks",
    "implementation",
    "collective",
]
KINDS += ["size", "in place", "wrong", "no time", "zero", "failed", "empty"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("choice", ["last", "best"])
def test_a_run_of_another_kind_is_no_baseline(folder: Path, kind: str, choice: str) -> None:
    """What cannot be compared is passed over."""
    of_another_kind(folder, kind)
    assert picked(choice, write(folder / "new", 5), folder) == "run3"


def test_like_goes_with_like(folder: Path) -> None:
    """Predictions with predictions, imported with imported, a setting with itself."""
    prediction = Prediction(case(), "mpi", 1e-6, 1e-6, 1e-6)
    reported = Reported(case(), "nccl", "gpu", seconds=1e-6, statistic="mean")
    write(folder / "expected", 4, [prediction])
    write(folder / "imported", 5, [reported], imported={"tool": "osu"})
    write(folder / "tried", 6, interleaved={"setting": "A=1"})
    write(folder / "as-it-was", 7, interleaved={"setting": ""})
    new = folder.parent
    assert picked("last", write(new / "1", 20, [prediction]), folder) == "expected"
    assert picked("last", write(new / "2", 20, [reported], imported={"tool": "osu"}), folder) == "imported"
    assert picked("last", write(new / "3", 20, interleaved={"setting": "A=1"}), folder) == "tried"
    assert picked("last", write(new / "4", 20), folder) == "as-it-was"


def sweep(*micros: float) -> list[Result]:
    return [timed(microseconds, nbytes=1024 * 2**power) for power, microseconds in enumerate(micros) if microseconds]


def test_best_has_the_highest_mean_of_ratios(tmp_path: Path) -> None:
    """Geometric, so that twice as fast at one size makes up for twice as slow at another, however long those take."""
    write(tmp_path / "even", 1, sweep(10, 10, 1000))
    write(tmp_path / "best", 2, sweep(4, 10, 1500))
    write(tmp_path / "lopsided", 2, sweep(3, 30, 1000))
    write(tmp_path / "sum", 3, sweep(11, 11, 900))
    new = write(tmp_path / "new", 4, sweep(10, 10, 1000))
    assert picked("best", new, tmp_path) == "best"
    assert picked("last", new, tmp_path) == "sum"


def test_of_equally_good_ones_the_newest_is_best(tmp_path: Path) -> None:
    """As of a tie at all sizes."""
    for day, name in ((1, "z"), (3, "m"), (2, "a")):
        write(tmp_path / name, day, sweep(5, 5))
    assert picked("best", write(tmp_path / "new", 9, sweep(1, 1)), tmp_path) == "m"


def test_luck_at_one_size_makes_no_baseline(tmp_path: Path) -> None:
    """With half the cases of whoever shares most, a run may be the best."""
    write(tmp_path / "whole", 1, sweep(10, 10, 10, 10))
    write(tmp_path / "lucky", 2, sweep(1))
    new = write(tmp_path / "new", 4, sweep(10, 10, 10, 10))
    assert picked("best", new, tmp_path) == "whole"
    write(tmp_path / "half", 3, sweep(0, 0, 9, 9))
    assert picked("best", new, tmp_path) == "half"


def test_a_tag_is_the_newest_that_can_be_compared(folder: Path) -> None:
    """However old, and later ones too; what cannot be compared only if there is nothing else."""
    write(folder / "odd", 9, topology="3 sockets")
    for name in ("run1", "run2", "odd"):
        tags.add("good", folder / name)
    assert picked("good", folder / "run3", folder) == "run2"
    assert picked("good", folder / "run1", folder) == "run2"
    assert picked("good", folder / "run2", folder) == "run1"
    tags.add("only", folder / "odd")
    assert picked("only", folder / "run3", folder) == "odd"
    with pytest.raises(UsageError, match=r"tag 'god' \(3 other runs looked at\); choose from: last, best, good, only"):
        picked("god", folder / "run3", folder)
    with pytest.raises(UsageError, match="no other run"):
        picked("only", folder / "odd", folder)


def test_a_run_without_times_has_no_baseline(folder: Path) -> None:
    """The error says that it is the run, not the folder."""
    with pytest.raises(UsageError, match="no right result with a time"):
        picked("last", write(folder / "new", 9, []), folder)


def test_a_run_that_is_no_file_yet_comes_after_all(folder: Path) -> None:
    """`new` may be in memory only."""
    new = read(folder / "run1")
    made = Run(Path("nowhere"), replace(new.header, started=""), new.results, True)
    assert pick("last", made, folder).parent.name == "run3"


def test_every_collective_can_have_a_baseline(tmp_path: Path) -> None:
    """Whatever case a sweep may have, its time is found again in the index."""
    for collective in COLLECTIVES:
        write(tmp_path / collective, 1, [timed(collective=collective)])
    History(tmp_path)
    for collective in COLLECTIVES:
        new = write(tmp_path / "new" / collective, 2, [timed(collective=collective)])
        assert picked("best", new, tmp_path) == collective


# Columns


def test_lines_are_aligned_and_paths_whole_at_any_width(folder: Path) -> None:
    """What does not fit shrinks and then goes; no line is longer than it must be."""
    write(folder / "a-rather-long-name-of-a-run", 9, topology="8 x NVIDIA H100 80GB HBM3, NVSwitch", complete=False)
    tags.add("good", folder / "run2")
    entries = History(folder).entries
    widest = len(max(lines(entries), key=len))
    shortest = len("2026-03-09 12:00  ") + len(str(entries[0].path.parent))
    for width in range(10, widest + 20):
        heading, *rows = lines(entries, width)
        assert max(map(len, [heading, *rows])) <= max(width, shortest)
        start = heading.index("  run") + 2
        assert [row[start:] for row in rows] == [str(entry.path.parent) for entry in entries]
    assert lines(entries, widest) == lines(entries)
    assert "cut off" in lines(entries)[1]
    assert "good" in "".join(lines(entries, widest - 30))
