"""Run files: what is written reads back, and what is broken is named."""

import errno
import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from collbench.commands.startup.rows import Init
from collbench.commands.step.rows import LossPoint, Trained
from collbench.commands.step.work import SgdJob, Step
from collbench.commands.verify.rows import Bits
from collbench.errors import RunFileError, StorageError, UsageError
from collbench.results import (
    Explanation,
    Failed,
    Measurement,
    Mismatch,
    Note,
    Prediction,
    Reported,
    Result,
    Skipped,
    Timed,
)
from collbench.results.collectives import MOVED, PHASES, WAITED, Span, Track
from collbench.results.facts import Sharing
from collbench.runfile import store
from collbench.runfile.schema import Header, case_fields, sweep_fields, to_line, to_result, to_sweep
from collbench.runfile.store import FORMAT, NAME, BadRow, Reopened, TornLine, Writer, read
from tests.commands.step.made_up_steps import STEP
from tests.conftest import case, measurement
from tests.test_cases import sweep
from tools import hostile_files

TRACK = Track(
    rank=0,
    block=2,
    start=0.0,
    seconds=1.9e-6,
    spent=dict.fromkeys(PHASES, 1e-7) | {WAITED: 1e-6},
    spans=(Span(WAITED, 0.0, 1e-6), Span(MOVED, 1e-6, 1e-7)),
)
RESULTS: list[Result] = [
    measurement(seconds=(1e-6, 2e-6, 3.3e-7)),
    replace(measurement("mpi@openmpi"), library="Open MPI 5.0.11"),
    Skipped(case("broadcast", root=1), "ring-flags", "cpu", "allreduce only"),
    Failed(case(in_place=True), "mpi", "cpu", "a rank died"),
    Reported(
        case(),
        "nccl",
        "gpu",
        1.29e-5,
        "mean",
        wrong_elements=0,
        samples=(1e-5, 2e-5),
        printed={"time": "12.90"},
        note=Note.of("x"),
    ),
    Prediction(case(), "nccl", 2e-6, 1e-6, 3e-6, "ring", "ll", note=Note.of("NICs at 50%")),
    Prediction(case(), "ring-host", 2e-6, 1e-6, 3e-6, note=Note(bound=True)),
    Trained(
        case(work=SgdJob(seed=3, slow=((1, 4.0),))),
        "asynchronous",
        "cpu",
        (LossPoint(0, 0.0, 4.5), LossPoint(7, 0.25, 0.5)),
        0.3,
        (5, 2),
        (0.125, 0.25),
        1.5,
        note=Note(oversubscribed=True),
    ),
    Explanation(
        case(),
        "ring-flags",
        "cpu",
        2e-6,
        2.1e-6,
        (TRACK, Track(1, 0, 1e-7, 1e-6, TRACK.spent, (), 4)),
        note=Note(spin="busy"),
    ),
]


def written(folder: Path, *results: Result, whole: bool = True) -> Path:
    with Writer(folder) as writer:
        writer.header(Header.from_json({"topology": {"name": "here"}}))
        for result in results:
            writer.append(result)
        if whole:
            writer.end("2026-01-01T00:00:00+00:00", 0)
    return folder / NAME


def through_json(result: Result) -> Result | None:
    return to_result(json.loads(json.dumps(to_line(result), allow_nan=False)))


def test_a_run_shows_itself_as_a_line_and_in_a_notebook_as_a_table(tmp_path: Path) -> None:
    odd = Skipped(case("broadcast", root=1), "ring-flags", "cpu", "<script>alert(1)</script>\n")
    whole, cut = (read(written(tmp_path / name, odd, *RESULTS, whole=name == "a")) for name in ("a", "b"))
    assert repr(whole) == f"<Run {tmp_path / 'a' / NAME}: here, {1 + len(RESULTS)} results, complete>"
    assert repr(cut).endswith("cut off>")
    page = replace(whole, results=whole.results * 10)._repr_html_()
    assert page.count("<tr>") == 1 + 40
    assert f"and {10 * len(whole.results) - 40} more" in page
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<th>floor</th>" not in page, "nothing is known of it"
    assert "<table>" in replace(whole, results=())._repr_html_()


def test_every_fact_of_a_row_survives_the_file_where_there_is_any() -> None:
    shared = Sharing(4, 1, processes=True)
    note = Note(shared, oversubscribed=True, spin="busy", picked="ring-ll", remarks=("a; b", "c"))
    for result in RESULTS:
        if isinstance(result, Timed | Explanation | Trained):
            assert through_json(replace(result, note=note)) == replace(result, note=note), type(result)
    wrong = replace(measurement(seconds=()), mismatch=Mismatch(1, 5, 0, "1.0", "2.0", 7))
    assert to_line(wrong)["mismatch"]["kind"] == "mismatch"
    assert through_json(wrong) == wrong
    expecting = replace(measurement(), estimate=3.5e-5)
    assert through_json(expecting) == expecting
    for note in (Note(), Note() | Note.of("")):
        assert to_line(replace(measurement(), note=note)).keys().isdisjoint({"estimate", "note", "mismatch"})


def test_what_was_asked_of_a_sweep_a_step_or_a_job_reads_back() -> None:
    jobs = replace(sweep(1024), works=(SgdJob(seed=1), SgdJob(seed=2, slow=((0, 2.0),))))
    steps = replace(sweep(64), works=(STEP, None))
    others = [replace(sweep(8), works=works) for works in ((Init(),), (Bits("normal"), Bits("wide")))]
    for asked in (sweep(8, 64, collective="reduce", ranks=3), steps, jobs, *others):
        assert to_sweep(json.loads(json.dumps(sweep_fields(asked)))) == asked
    for name, plain, asking, field, bad, reason in (
        ("step", Step(3, 64), Step(3, 64, mode="strong"), "mode", "loud", "step.mode"),
        ("job", SgdJob(), SgdJob(target=0.25), "target", -1.0, "job.target"),
    ):
        assert case_fields(case(work=plain))[name].keys().isdisjoint({"mode", "target"})
        row = replace(measurement(), case=case(work=asking))
        back = through_json(row)
        assert back
        assert getattr(back.case.work, field) == getattr(asking, field)
        with pytest.raises(ValueError, match=reason):
            to_result(to_line(row) | {name: to_line(row)[name] | {field: bad}})


def test_a_torn_last_line_is_read_past_with_a_warning(tmp_path: Path) -> None:
    path = written(tmp_path, *RESULTS, whole=False)
    text = path.read_text()
    for cut in (2, 20, 200):
        path.write_text(text[:-cut])
        with pytest.warns(TornLine, match=f"{NAME}:{1 + len(RESULTS)}"):
            assert list(read(path).results) == RESULTS[:-1], cut


ROW, EXPLAINED = to_line(RESULTS[0]), to_line(RESULTS[-1])
BROKEN: list[tuple[str | dict[str, object], str]] = [
    ("{not json", "not JSON"),
    ({"dtype": "float8"}, "unknown dtype 'float8'"),
    ({"seconds": ["x"]}, "field 'seconds[0]': expected float, got str"),
    (EXPLAINED | {"tracks": [{"rank": 0}]}, "missing required field block"),
    ({"nbytes": 2**63 - 1}, "field 'nbytes': expected int <= "),
    ({"nbytes": 8.5}, "field 'nbytes': expected int, got float"),
    ({"ranks": 0}, "field 'ranks': expected int >= 1"),
    ({"ranks": 2**40}, "field 'ranks': expected int <= "),
    ({"root": 2}, "no rank is the root 2; choose from 0 to 1"),
    ({"seconds": [0.0]}, "field 'seconds[0]': expected float > 1e-15"),
    ({"seconds": [1e308]}, "expected float < 1000000000.0"),
    ({"seconds": [1e-6, -1e-6]}, "field 'seconds[1]'"),
    ({"estimate": 1e308}, "field 'estimate'"),
]


def test_a_broken_row_is_named_by_file_and_number_and_costs_itself(tmp_path: Path) -> None:
    lines = written(tmp_path, *RESULTS).read_text().splitlines()
    for change, complaint in BROKEN:
        line = change if isinstance(change, str) else json.dumps(ROW | change)
        (tmp_path / NAME).write_text("\n".join([*lines[:2], line, *lines[2:]]) + "\n")
        with pytest.warns(BadRow, match=rf"run\.jsonl:3: .*{re.escape(complaint)}"):
            run = read(tmp_path)
        assert list(run.results) == RESULTS, complaint
        assert [reason.partition(":")[0] for reason in run.left_out] == ["3"]
    (tmp_path / NAME).write_text("\n".join([lines[0], "", '{"kind": "measurement"}']) + "\n")
    with pytest.raises(RunFileError, match=r"run\.jsonl:3: .*missing required field collective"):
        read(tmp_path)


def test_of_many_broken_rows_the_first_are_named_and_the_others_counted(tmp_path: Path) -> None:
    path = written(tmp_path, *RESULTS)
    path.write_text(path.read_text() + "{}}\n" * 5000)
    with pytest.warns(BadRow) as said:
        assert len(read(path).left_out) == 5000
    assert [str(one.message).rpartition(": ")[2] for one in said][-1] == "and without 4997 more rows"
    assert len(said) == 4


def test_what_is_no_run_file_or_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    newer = json.dumps({"kind": "header", "format": FORMAT + 1}) + "\n"
    for content, reason in (
        *((text, NAME) for text in ("", '{"kind": "end"}\n', "hello\n", "\x00\xff")),
        (newer, f"format {FORMAT + 1}.*upgrade collbench"),
        (
            json.dumps({"kind": "header", "format": FORMAT, "sweep": {"collectives": ["warp"], "dtypes": 5}}),
            "sweep.dtypes",
        ),
    ):
        (tmp_path / NAME).write_bytes(content.encode("latin-1"))
        with pytest.raises(RunFileError, match=reason):
            read(tmp_path)


def test_unknown_fields_and_kinds_of_a_newer_writer_are_ignored(tmp_path: Path) -> None:
    path = written(tmp_path, RESULTS[0])
    with path.open("a") as file:
        file.write(json.dumps(to_line(RESULTS[1]) | {"weather": "fine"}) + "\n" + '{"kind": "remark"}\n')
    assert list(read(path).results) == RESULTS[:2]


def test_an_earlier_run_is_never_overwritten_and_a_failed_start_leaves_nothing(tmp_path: Path) -> None:
    Writer(tmp_path / "results" / "runs" / "one").discard()
    assert list(tmp_path.iterdir()) == []
    written(tmp_path, *RESULTS)
    with pytest.raises(UsageError, match="there is a run already; choose another --out"):
        Writer(tmp_path)
    with pytest.raises(UsageError, match="choose another --out"):
        Writer(tmp_path / NAME / "below")


def storing(folder: Path) -> Writer:
    writer = Writer(folder)
    writer.header(Header())
    writer.append(RESULTS[0])
    return writer


def kept(error: StorageError) -> tuple[Result, ...]:
    place = Path(str(error).partition("all rows are in ")[2])
    assert place.name == NAME
    return read(place).results


def test_a_full_disk_leaves_whole_lines_and_all_rows_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, write = storing(tmp_path / "run"), os.write
    before = writer.path.read_bytes()

    def half(file: int, data: memoryview) -> int:
        if len(data) < 30:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[: len(data) // 2])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(StorageError, match=r"run\.jsonl: No space left on device; all rows are in") as full:
            writer.append(RESULTS[0])
        writer.close()
    assert writer.path.read_bytes() == before
    assert kept(full.value) == (RESULTS[0], RESULTS[0])


def test_a_run_file_that_is_taken_away_is_noticed_at_the_next_line_and_all_rows_are_kept(tmp_path: Path) -> None:
    for taken in ("file", "folder", "renamed", "exchanged"):
        folder = tmp_path / taken
        writer = storing(folder)
        if taken == "renamed":
            folder.rename(tmp_path / "gone")
        else:
            writer.path.unlink()
        if taken == "folder":
            folder.rmdir()
        if taken == "exchanged":
            writer.path.write_text("another's")
        reason = "something else is there now" if taken == "exchanged" else "was removed"
        with pytest.raises(StorageError, match=reason) as gone:
            writer.append(RESULTS[0])
        writer.close()
        assert kept(gone.value) == (RESULTS[0], RESULTS[0]), taken
        assert taken != "exchanged" or writer.path.read_text() == "another's"


def killed_before(step: int, work: Callable[[], None]) -> bool:
    """Work in a child that gets kill -9 before its call of that number to the system; whether it came there."""
    if not (child := os.fork()):
        calls = count()

        def dies(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*words: Any, **more: Any) -> Any:
                if next(calls) == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*words, **more)

            return call

        for name in ("open", "write", "fsync", "close", "fdopen", "lseek"):
            setattr(os, name, dies(getattr(os, name)))
        Path.replace = dies(Path.replace)  # type: ignore[method-assign]
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


def test_a_file_that_is_gone_on_with_holds_what_is_kept_whenever_that_ends(tmp_path: Path) -> None:
    first, second, third = (measurement(nbytes=size) for size in (8, 16, 32))
    path = written(tmp_path, first, third, whole=False)
    header, *lines = path.read_bytes().splitlines(keepends=True)

    def go_on() -> None:
        with Reopened(path, lines) as writer:
            writer.header(Header(resumed=("now",)))
            writer.append(second)
            writer.end("2026-01-01", 0)

    for step in count():
        path.write_bytes(b"".join((header, *lines)))
        died = killed_before(step, go_on)
        assert set(lines) <= set(path.read_bytes().splitlines(keepends=True)), step
        run = read(path)
        assert [row for row in run.results if row != second] == [first, third], step
        if not died:
            break
    assert step > 10
    assert (run.results, run.whole) == ((first, third, second), True)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_where_no_second_file_fits_the_first_stays_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path, measurement(), whole=False)
    before = path.read_bytes()
    (path.parent / f"{path.name}.new").mkdir()
    with Reopened(path, []) as writer, pytest.raises(StorageError, match="the file is unchanged"):
        writer.header(Header())
    assert path.read_bytes() == before


def test_rows_and_samples_beyond_the_most_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = hostile_files.ROW | {"nbytes": 4096, "seconds": [1e-6] * 200_000}
    others = [hostile_files.ROW | {"implementation": "end"}] * 3  # a word of the line that ends a run
    (tmp_path / "run.jsonl").write_text(hostile_files.run_text({}, row, *others))
    with pytest.warns(store.BadRow, match="1 row thinned evenly, to at most 65,536 of a row"):
        rows = store.read(tmp_path).results
    assert 32_768 <= max(len(row.times) for row in rows if isinstance(row, Measurement)) <= 65_536
    monkeypatch.setattr(store, "MOST_ROWS", 5)
    with pytest.warns(store.BadRow, match="and without 7 more rows"):
        run = store.read(tmp_path)
    assert run.whole
    assert len(run.results) == 5
