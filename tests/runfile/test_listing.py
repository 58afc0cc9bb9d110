"""The runs of a folder: found, listed by their headers; the last run to compare another run with."""

import json
import os
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collbench.errors import UsageError
from collbench.results import Failed, Measurement, Mismatch, Prediction, Reported, Result
from collbench.runfile.listing import Entry, last_before, list_runs
from collbench.runfile.schema import Header
from collbench.runfile.store import INTERRUPTED, NAME, Run, Writer, read
from tests.conftest import case, measurement

DAY = "2026-03-{:02}T12:00:00+00:00"
HOSTILE = "a\x1b[31m\u202eb\n\ud800"


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
    model: bool = False,
    **header: Any,
) -> Path:
    facts = {
        "started": DAY.format(day),
        "environment": {"host": "node1.lab"},
        "topology": {"name": topology, "platform": "cpu", "ranks": 2, "model": model},
        "sweep": {"collectives": ["allreduce"], "implementations": ["mpi"]},
    }
    with Writer(folder) as writer:
        writer.header(Header.from_json(facts | header))
        for result in results:
            writer.append(result)
        if complete:
            writer.end(DAY.format(day), status)
    return writer.path


def names(entries: Sequence[Entry], folder: Path) -> list[str]:
    return [str(entry.path.parent.relative_to(folder)) for entry in entries]


def last(new: Path, folder: Path) -> str:
    return last_before(read(new), folder).parent.name


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
    expected = ["pair/as-is", "pair/NCCL_ALGO=Ring", ".", "run3", "run2", "run1"]
    assert names(list_runs(folder), folder) == expected
    assert list_runs(folder / "none") == []
    with pytest.raises(UsageError, match="is a file"):
        list_runs(folder / NAME)


def test_a_run_is_listed_by_what_its_header_and_its_last_line_say(tmp_path: Path) -> None:
    header = {"imported": {"tool": "nccl-tests"}, "interleaved": {"id": "7", "setting": "NCCL_ALGO=Ring"}}
    path = write(tmp_path / "run", 5, status=1, **header)
    (entry,) = list_runs(tmp_path)
    assert entry.notes == ["nccl-tests", "NCCL_ALGO=Ring", "exit status 1"]
    fields = entry.fields()
    assert (fields["path"], fields["started"], fields["host"]) == (str(path), DAY.format(5), "node1.lab")
    assert (fields["topology"], fields["platform"], fields["ranks"]) == ("2 sockets", "cpu", 2)
    assert (fields["collectives"], fields["implementations"]) == (["allreduce"], ["mpi"])
    assert (fields["tool"], fields["setting"]) == ("nccl-tests", "NCCL_ALGO=Ring")
    assert (fields["complete"], fields["status"], fields["broken"]) == (True, 1, "")


def test_a_run_without_a_date_counts_from_its_last_change(tmp_path: Path) -> None:
    for name, started in (("none", ""), ("word", "yesterday")):
        os.utime(write(tmp_path / name, started=started), (1e9, 1e9))
    assert {entry.age for entry in list_runs(tmp_path)} == {(1e9, 1e9)}


def test_no_word_of_a_file_reaches_the_terminal_as_a_command(tmp_path: Path) -> None:
    facts = {"environment": {"host": HOSTILE}, "imported": {"tool": HOSTILE}, "started": HOSTILE}
    write(tmp_path / HOSTILE[:9], topology=HOSTILE * 99, **facts)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / NAME).write_text(json.dumps({"kind": "header", "format": HOSTILE}))
    entries = list_runs(tmp_path)
    assert len(entries) == 2
    for entry in entries:
        texts = [value for value in entry.fields().values() if isinstance(value, str)]
        assert all(map(str.isprintable, (*texts, *entry.notes))), texts


def test_a_broken_file_is_listed_with_its_reason_and_costs_no_other_its_place(folder: Path) -> None:
    broken = {
        "empty": (b"", "first line is no header"),
        "binary": (b"\x80\x81", "not UTF-8"),
        "words": (b"hello\nworld\n", "not JSON"),
        "newer": (b'{"kind": "header", "format": 99}', "upgrade collbench"),
    }
    for name, (content, _) in broken.items():
        (folder / name).mkdir()
        (folder / name / NAME).write_bytes(content)
    entries = list_runs(folder)
    assert sorted(names(entries, folder)) == sorted([*broken, "run1", "run2", "run3"])
    for entry in entries:
        if entry.path.parent.name in broken:
            assert broken[entry.path.parent.name][1] in entry.broken
            assert str(folder) not in entry.broken


def test_a_run_that_is_being_written_is_listed_as_cut_off(folder: Path) -> None:
    path = write(folder / "now", 9, complete=False)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[-40:-9])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        newest = list_runs(folder)[0]
    assert (newest.notes, newest.broken) == (["cut off"], "")
    path.write_bytes(whole + b'{"kind": "end", "status": 143}\n')
    assert list_runs(folder)[0].notes == ["exit status 143", "cut off"]
    path.write_bytes(whole + b'{"kind": "end"}\n')
    assert list_runs(folder)[0].notes == []


def test_the_last_run_is_the_newest_before_and_no_copy(folder: Path) -> None:
    assert last(folder / "run3" / NAME, folder) == "run2"
    assert last(folder / "run2" / NAME, folder) == "run1"
    assert last(write(folder.parent / "elsewhere", 20), folder) == "run3"
    with pytest.raises(UsageError, match=r"no last run for .*run1.*of 2 other runs"):
        last(folder / "run1" / NAME, folder)
    new = read(folder / "run1")
    made = Run(Path("nowhere"), replace(new.header, started=""), new.results, True)
    assert last_before(made, folder).parent.name == "run3", "what is in memory only comes after all"
    with pytest.raises(UsageError, match="no right result with a time"):
        last(write(folder.parent / "without times", 9, []), folder)
    shutil.copytree(folder / "run3", folder / "copy")
    for name in ("run3", "copy"):
        os.utime(folder / name / NAME, (1.8e9, 1.8e9))
    assert last(folder / "run3" / NAME, folder) == "run2"


def test_a_run_that_cannot_be_compared_is_not_the_last(folder: Path) -> None:
    fast, prediction = timed(0.1), Prediction(case(), "mpi", 1e-7, 1e-7, 1e-7)
    others: dict[str, tuple[dict[str, Any], Sequence[Result]]] = {
        "topology": ({"topology": "3 sockets"}, [fast]),
        "tool": ({"imported": {"tool": "osu"}}, [fast]),
        "setting": ({"interleaved": {"setting": "A=1"}}, [fast]),
        "incomplete": ({"complete": False}, [fast]),
        "interrupted": ({"status": INTERRUPTED}, [fast]),
        "predicted": ({}, [prediction]),
        "platform": ({}, [replace(fast, platform="gpu")]),
        "implementation": ({}, [timed(0.1, implementation="ring-ll")]),
        "size": ({}, [timed(0.1, nbytes=64)]),
        "wrong": ({}, [replace(fast, mismatch=Mismatch(0, 0, 0, "1", "2", 1))]),
        "no time": ({}, [replace(fast, seconds=())]),
        "zero": ({}, [replace(fast, seconds=(0.0,) * 7)]),
        "failed": ({}, [Failed(case(), "mpi", "cpu", "hung")]),
    }
    new = write(folder.parent / "new", 5)
    for name, (header, results) in others.items():
        write(folder / name, 4, results, **header)
        assert last(new, folder) == "run3", name
        shutil.rmtree(folder / name)


def test_like_goes_with_like(folder: Path) -> None:
    prediction = Prediction(case(), "mpi", 1e-6, 1e-6, 1e-6)
    reported = Reported(case(), "nccl", "gpu", seconds=1e-6, statistic="mean")
    kinds: dict[str, tuple[Sequence[Result], dict[str, Any]]] = {
        "expected": ([prediction], {}),
        "imported": ([reported], {"imported": {"tool": "osu"}}),
        "tried": ([timed()], {"interleaved": {"setting": "A=1"}}),
    }
    for day, (name, (rows, header)) in enumerate(kinds.items(), 4):
        write(folder / name, day, rows, **header)
    for name, (rows, header) in kinds.items():
        assert last(write(folder.parent / name, 20, rows, **header), folder) == name
