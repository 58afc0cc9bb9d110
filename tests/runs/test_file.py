"""Run files: what is written reads back, and what is broken is named."""

import json
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from collbench.errors import RunFileError, StorageError, UsageError
from collbench.measurement import Explanation, Failed, Mismatch, Prediction, Reported, Result, Skipped, Timed
from collbench.note import Note, Sharing
from collbench.runs.file import FORMAT, NAME, TornLine, Writer, read
from collbench.runs.header import Header
from collbench.runs.records import sweep_fields, to_line, to_result, to_sweep
from collbench.tracks import MOVED, PHASES, WAITED, Span, Track
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
        if isinstance(result, Timed | Explanation):
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
        (json.dumps(to_line(RESULTS[0]) | {"seconds": ["x"]}), "run.jsonl:3: could not convert"),
        (json.dumps(to_line(RESULTS[0]) | {"seconds": 3}), "run.jsonl:3: "),
        (json.dumps(to_line(RESULTS[0]) | {"collective": 5}), "run.jsonl:3: "),
        (json.dumps(to_line(RESULTS[0]) | {"nbytes": float("inf")}), "run.jsonl:3: "),
        (json.dumps(to_line(RESULTS[-1]) | {"tracks": [{"rank": 0}]}), "run.jsonl:3: field 'block' is missing"),
        (json.dumps(to_line(RESULTS[-1]) | {"tracks": [3]}), "run.jsonl:3: "),
        ("[" * 100000, "run.jsonl:3: not JSON"),
    ],
)
def test_a_broken_line_is_named_by_file_and_number(tmp_path: Path, line: str, complaint: str) -> None:
    """In the middle of a file nothing is read past."""
    lines = written(tmp_path, *RESULTS).read_text().splitlines()
    (tmp_path / NAME).write_text("\n".join([*lines[:2], line, *lines[2:]]) + "\n")
    with pytest.raises(RunFileError, match=complaint.replace("[", r"\[").replace("(", r"\(")):
        read(tmp_path)


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


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    """/dev/full refuses every write; what was stored before stays."""
    folder = tmp_path / "run"
    folder.mkdir()
    writer = Writer(folder)
    writer._file.close()
    writer._file = Path("/dev/full").open("w")  # noqa: SIM115 - closed below
    with pytest.raises(StorageError, match="No space left on device; what was measured before is in it"):
        writer.append(RESULTS[0])
    with writer:
        pass


def test_a_sweep_crosses_the_wire_unchanged() -> None:
    """Workers measure what the supervisor was asked for."""
    asked = sweep(8, 64, collective="reduce", ranks=3)
    assert to_sweep(json.loads(json.dumps(sweep_fields(asked)))) == asked


def test_a_run_that_could_not_start_leaves_nothing(tmp_path: Path) -> None:
    """Neither file nor the folders made for it; what was there before stays."""
    Writer(tmp_path / "results" / "runs" / "one").discard()
    assert list(tmp_path.iterdir()) == []
