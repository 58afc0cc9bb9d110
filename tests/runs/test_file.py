"""Run files: what is written reads back, and what is broken is named."""

import errno
import json
import os
import re
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.errors import RunFileError, StorageError, UsageError
from collbench.flaws import Mismatch
from collbench.jobs import Job
from collbench.measurement import Explanation, Failed, Prediction, Reported, Result, Skipped
from collbench.note import Note, Sharing
from collbench.observed import Timed
from collbench.runs import rescue
from collbench.runs.file import FORMAT, NAME, BadRow, TornLine, Writer, read
from collbench.runs.header import Header
from collbench.runs.records import sweep_fields, to_line, to_result, to_sweep
from collbench.step_times import Series, StepTimes
from collbench.steps import Step
from collbench.tracks import MOVED, PHASES, WAITED, Span, Track
from collbench.trained import Point, Trained
from tests.conftest import case, measurement
from tests.test_cases import sweep

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
        case(job=Job(seed=3, slow=((1, 4.0),))),
        "asynchronous",
        "cpu",
        (Point(0, 0.0, 4.5), Point(7, 0.25, 0.5)),
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
        Note(spin="busy"),
    ),
]


def written(folder: Path, *results: Result, whole: bool = True) -> Path:
    """A run file with these results."""
    with Writer(folder) as writer:
        writer.header(Header.from_json({"topology": {"name": "here"}}))
        for result in results:
            writer.append(result)
        if whole:
            writer.end("2026-01-01T00:00:00+00:00", 0)
    return folder / NAME


def test_results_read_back_as_they_were(tmp_path: Path) -> None:
    """Every kind of result, every sample."""
    run = read(written(tmp_path, *RESULTS))
    assert list(run.results) == RESULTS
    assert run.complete
    assert run.header.topology.name == "here"


def test_every_fact_of_a_note_survives_the_file() -> None:
    """In every kind of row that has a note; a note that says nothing takes no room."""
    note = Note(
        Sharing(4, 1, processes=True), oversubscribed=True, spin="busy", picked="ring-ll", remarks=("a; b", "c")
    )
    for result in RESULTS:
        if isinstance(result, Timed | Explanation | Trained):
            noted = replace(result, note=note)
            assert to_result(json.loads(json.dumps(to_line(noted)))) == noted
    assert to_line(measurement()).keys().isdisjoint(vars(note))


def test_a_wrong_result_keeps_where_it_is_wrong() -> None:
    """The mismatch survives the file."""
    wrong = measurement(seconds=())
    wrong = type(wrong)(**{**wrong.__dict__, "mismatch": Mismatch(1, 5, 0, "1.0", "2.0", 7)})
    fields = json.loads(json.dumps(to_line(wrong)))
    assert fields["check"] == "wrong"
    assert to_result(fields) == wrong


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("points", [[0, 0.0, 4.5], [7, -1.0, 0.5]], "go backwards"),
        ("points", [[0.5, 0.0, 4.5]], "counts batches"),
        ("points", [[1, "x", 4.5]], "no number"),
        ("steps", [-1, 2], "none below 0"),
        ("seconds", "1", "no number"),
    ],
)
def test_a_training_run_that_cannot_be_is_left_out(field: str, value: object, reason: str) -> None:
    """With the reason; a loss that was no number is read as infinite."""
    (one,) = [result for result in RESULTS if isinstance(result, Trained)]
    with pytest.raises(ValueError, match=reason):
        to_result(to_line(one) | {field: value})
    lost = replace(one, points=(Point(0, 0.0, float("nan")),))
    again = to_result(json.loads(json.dumps(to_line(lost), allow_nan=False)))
    assert isinstance(again, Trained)
    assert again.points[0].loss == float("inf")
    for job in ({"rate": 0.0}, {"steps": -1}, {"seed": 1.5}, {"slow": [[1, -2.0]]}):
        line = to_line(one)
        with pytest.raises(ValueError, match=r"job|whole number"):
            to_result(line | {"job": line["job"] | job})


def test_what_was_asked_of_a_step_or_a_job_reads_back() -> None:
    """The mode of a scaling and the target of a race, which change no work and stand in no file that has none."""
    for name, made in (("step", Step(3, 64)), ("job", Job())):
        assert to_line(replace(measurement(), case=case(**{name: made})))[name].keys().isdisjoint({"mode", "target"})
    strong, racing = Step(3, 64, mode="strong"), Job(target=0.25)
    step_line, job_line = (to_line(replace(measurement(), case=one)) for one in (case(step=strong), case(job=racing)))
    step_back, job_back = (to_result(json.loads(json.dumps(line))) for line in (step_line, job_line))
    assert step_back
    assert step_back.case.step
    assert step_back.case.step.mode == "strong"
    assert job_back
    assert job_back.case.job
    assert job_back.case.job.target == 0.25
    with pytest.raises(ValueError, match="weak or strong"):
        to_result(step_line | {"step": step_line["step"] | {"mode": "loud"}})
    with pytest.raises(ValueError, match="target"):
        to_result(job_line | {"job": job_line["job"] | {"target": -1.0}})


def test_a_sweep_of_jobs_reads_back() -> None:
    """As it goes to the ranks."""
    jobs = replace(sweep(1024), jobs=(Job(seed=1), Job(seed=2, slow=((0, 2.0),))))
    assert to_sweep(json.loads(json.dumps(sweep_fields(jobs)))) == jobs


def test_what_a_library_expected_survives_the_file_where_there_is_any() -> None:
    """Seconds, an optional field."""
    expecting = replace(measurement(), estimate=3.5e-5)
    fields = json.loads(json.dumps(to_line(expecting)))
    assert fields["estimate"] == 3.5e-5
    assert to_result(fields) == expecting
    assert "estimate" not in to_line(measurement())


def test_a_folder_stands_for_its_run_file(tmp_path: Path) -> None:
    """Users name the folder they were told."""
    written(tmp_path, *RESULTS)
    assert read(tmp_path).results == read(tmp_path / NAME).results


def test_each_result_is_on_disk_before_the_next(tmp_path: Path) -> None:
    """A reader sees it while the run goes on."""
    with Writer(tmp_path) as writer:
        writer.header(Header())
        writer.append(RESULTS[0])
        run = read(tmp_path)
        assert run.results == (RESULTS[0],)
        assert not run.complete


@pytest.mark.parametrize("cut", [2, 20, 200])
def test_a_torn_last_line_is_read_past_with_a_warning(tmp_path: Path, cut: int) -> None:
    """A power cut costs that line only."""
    path = written(tmp_path, *RESULTS, whole=False)
    path.write_text(path.read_text()[:-cut])
    with pytest.warns(TornLine, match=f"{NAME}:{1 + len(RESULTS)}"):
        assert list(read(path).results) == RESULTS[:-1]


def test_a_whole_file_gives_no_warning(tmp_path: Path) -> None:
    """Warnings are for what is torn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(written(tmp_path, *RESULTS))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{not json", "run.jsonl:3: not JSON"),
        ("[1, 2]", "run.jsonl:3: not a JSON object"),
        ('{"kind": "measurement"}', "run.jsonl:3: field 'collective' is missing"),
        (json.dumps(to_line(RESULTS[0]) | {"dtype": "float8"}), "run.jsonl:3: unknown dtype 'float8'"),
        (
            json.dumps(to_line(RESULTS[0]) | {"seconds": ["x"]}),
            "run.jsonl:3: field 'seconds' holds 'x', which is no number",
        ),
        (json.dumps(to_line(RESULTS[0]) | {"seconds": 3}), "run.jsonl:3: "),
        (json.dumps(to_line(RESULTS[0]) | {"collective": 5}), "run.jsonl:3: "),
        (json.dumps(to_line(RESULTS[0]) | {"nbytes": float("inf")}), "run.jsonl:3: "),
        (json.dumps(to_line(RESULTS[-1]) | {"tracks": [{"rank": 0}]}), "run.jsonl:3: field 'block' is missing"),
        (json.dumps(to_line(RESULTS[-1]) | {"tracks": [3]}), "run.jsonl:3: "),
        ("[" * 100000, "run.jsonl:3: not JSON"),
    ],
)
def test_a_broken_row_is_named_by_file_and_number_and_costs_itself(tmp_path: Path, line: str, complaint: str) -> None:
    """All others are read; where there is no other, the file is refused."""
    lines = written(tmp_path, *RESULTS).read_text().splitlines()
    (tmp_path / NAME).write_text("\n".join([*lines[:2], line, *lines[2:]]) + "\n")
    with pytest.warns(BadRow, match=re.escape(complaint)):
        run = read(tmp_path)
    assert list(run.results) == RESULTS
    assert [reason.partition(":")[0] for reason in run.left_out] == ["3"]
    (tmp_path / NAME).write_text("\n".join([lines[0], "", line]) + "\n")
    with pytest.raises(RunFileError, match=re.escape(complaint)):
        read(tmp_path)


IMPOSSIBLE = [
    ({"nbytes": 2**63 - 1}, "9223372036854775807 bytes"),
    ({"nbytes": 10**400}, "a number of 400 digits"),
    ({"nbytes": 2**80}, "is larger than 2**63"),
    ({"nbytes": 8.5}, "field 'nbytes' is 8.5, not a whole number"),
    ({"nbytes": True}, "field 'nbytes' is True, not a whole number"),
    ({"nbytes": "8"}, "field 'nbytes' is '8', not a whole number"),
    ({"ranks": 0}, "0 ranks"),
    ({"ranks": 2**40}, "ranks; at most"),
    ({"root": 2}, "no rank to be the root: 2; choose from 0 to 1"),
    ({"launches": None}, "field 'launches' is None"),
    ({"seconds": [0.0]}, "a time that is none"),
    ({"seconds": [5e-324]}, "a time that is none"),
    ({"seconds": [1e308]}, "a time that is none"),
    ({"seconds": [1e-6, -1e-6]}, "a time that is none"),
    ({"seconds": [float("nan")]}, "NaN is no number"),
    ({"seconds": [float("inf")]}, "Infinity is no number"),
    ({"seconds": [True]}, "field 'seconds' holds True, which is no number"),
    ({"estimate": 1e308}, "a time that is none"),
]


@pytest.mark.parametrize(("fields", "complaint"), IMPOSSIBLE, ids=[str(one)[:30] for one, _ in IMPOSSIBLE])
def test_a_row_that_claims_what_cannot_be_costs_itself(
    tmp_path: Path, fields: dict[str, object], complaint: str
) -> None:
    """Whatever JSON can hold; the warning says which row, what and why."""
    path = written(tmp_path, *RESULTS)
    path.write_text(path.read_text() + json.dumps(to_line(measurement()) | fields) + "\n")
    with pytest.warns(BadRow, match=re.escape(complaint)):
        assert list(read(path).results) == RESULTS


def test_of_many_broken_rows_the_first_are_named_and_the_others_counted(tmp_path: Path) -> None:
    """A screen full of one thing helps nobody."""
    path = written(tmp_path, *RESULTS)
    path.write_text(path.read_text() + "{}}\n" * 5000)
    with pytest.warns(BadRow) as said:
        assert len(read(path).left_out) == 5000
    assert [str(one.message).rpartition(": ")[2] for one in said][-1] == "and without 4997 rows more"
    assert len(said) == 4


def test_a_field_that_is_there_twice_is_no_row(tmp_path: Path) -> None:
    """Which of the two was meant, nobody knows."""
    path = written(tmp_path, *RESULTS)
    row = json.dumps(to_line(measurement()))
    path.write_text(path.read_text() + row.replace('"nbytes": 1024', '"nbytes": 1024, "nbytes": 8') + "\n")
    with pytest.warns(BadRow, match="field 'nbytes' is there twice"):
        assert list(read(path).results) == RESULTS


def test_a_newer_format_is_refused_with_the_fix(tmp_path: Path) -> None:
    """Guessing at fields of the future would be worse."""
    (tmp_path / NAME).write_text(json.dumps({"kind": "header", "format": FORMAT + 1}) + "\n")
    with pytest.raises(RunFileError, match=f"format {FORMAT + 1}.*upgrade collbench"):
        read(tmp_path)


@pytest.mark.parametrize("content", ["", '{"kind": "end"}\n', "hello\n", "\x00\xff"])
def test_what_is_no_run_file_is_called_so(tmp_path: Path, content: str) -> None:
    """Empty, headless, text or noise."""
    (tmp_path / NAME).write_bytes(content.encode("latin-1"))
    with pytest.raises(RunFileError, match=NAME):
        read(tmp_path)


def test_unknown_fields_and_kinds_of_a_newer_writer_are_ignored(tmp_path: Path) -> None:
    """Fields may be added without a new format."""
    path = written(tmp_path, RESULTS[0])
    with path.open("a") as file:
        file.write(json.dumps(to_line(RESULTS[1]) | {"weather": "fine"}) + "\n" + '{"kind": "remark"}\n')
    assert list(read(path).results) == RESULTS[:2]


def test_an_earlier_run_is_never_overwritten(tmp_path: Path) -> None:
    """The same folder twice is an error that says so."""
    written(tmp_path, *RESULTS)
    with pytest.raises(UsageError, match="there is a run already; choose another --out"):
        Writer(tmp_path)


def test_a_place_that_cannot_be_written_is_found_at_once(tmp_path: Path) -> None:
    """Before anything is measured."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="choose another --out"):
        Writer(tmp_path / "file" / "below")


def storing(folder: Path) -> Writer:
    """A run with a header and a row."""
    writer = Writer(folder)
    writer.header(Header())
    writer.append(RESULTS[0])
    return writer


def kept(error: StorageError) -> Path:
    """Where the message says that everything is."""
    place = Path(str(error).partition("all that was measured is in ")[2])
    assert place.name == NAME
    return place


def test_a_full_disk_leaves_whole_lines_and_all_rows_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write takes half a line and then refuses; what was stored before stays as it was."""
    writer, write = storing(tmp_path / "run"), os.write
    before = writer.path.read_bytes()

    def half(file: int, data: memoryview) -> int:
        if len(data) < 30:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(StorageError, match=r"run\.jsonl: No space left on device; all that was measured is in") as full:
        writer.append(RESULTS[0])
    writer.close()
    assert writer.path.read_bytes() == before
    assert read(kept(full.value)).results == (RESULTS[0], RESULTS[0])


@pytest.mark.parametrize("taken", ["file", "folder", "renamed", "exchanged"])
def test_a_run_file_that_is_taken_away_is_noticed_at_the_next_line(tmp_path: Path, taken: str) -> None:
    """However it goes, all rows are kept in another place, which the error names."""
    writer = storing(tmp_path / "run")
    if taken == "renamed":
        (tmp_path / "run").rename(tmp_path / "gone")
    else:
        writer.path.unlink()
    if taken == "folder":
        (tmp_path / "run").rmdir()
    if taken == "exchanged":
        writer.path.write_text("another's")
    with pytest.raises(
        StorageError, match="something else is there now" if taken == "exchanged" else "was removed"
    ) as gone:
        writer.append(RESULTS[0])
    writer.close()
    assert read(kept(gone.value)).results == (RESULTS[0], RESULTS[0])
    assert taken != "exchanged" or writer.path.read_text() == "another's"


def test_where_no_place_takes_the_rows_the_error_says_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written before."""
    writer = storing(tmp_path / "run")
    monkeypatch.setattr(rescue, "keep", lambda *ignored: None)
    monkeypatch.setattr(Writer, "_failure", lambda *ignored: "No space left on device")
    with pytest.raises(StorageError, match=r"No space left on device; what was measured before is in it$"):
        writer.append(RESULTS[0])
    writer.close()
    assert read(tmp_path / "run").results == (RESULTS[0],)


def test_a_sweep_crosses_the_wire_unchanged() -> None:
    """Workers measure what the supervisor was asked for."""
    asked = sweep(8, 64, collective="reduce", ranks=3)
    assert to_sweep(json.loads(json.dumps(sweep_fields(asked)))) == asked


def test_a_run_that_could_not_start_leaves_nothing(tmp_path: Path) -> None:
    """Neither file nor the folders made for it; what was there before stays."""
    Writer(tmp_path / "results" / "runs" / "one").discard()
    assert list(tmp_path.iterdir()) == []


def test_rounds_of_steps_are_as_many_as_their_series() -> None:
    """Their means would be of nothing."""
    one = Series((0.0, 0.0), ((1.0,), (1.0,)), ((2.0,), (2.0,)))
    line = to_line(StepTimes(case(step=Step(3, 64)), "mpi", "cpu", (one, one), rounds=(1, 1)))
    assert to_result(line)
    for rounds in ([1], [2, 0], [1, 1, 1], [3, -1]):
        with pytest.raises(ValueError, match="rounds"):
            to_result(line | {"rounds": rounds})
