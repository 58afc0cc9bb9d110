"""Run files of format 1 are read as if they had been written today, and their notes read as before."""

import json
from pathlib import Path

import pytest

from collbench.measurement import Measurement
from collbench.note import Note, Sharing
from collbench.observed import Timed
from collbench.outcome import Outcome
from collbench.runs.file import FORMAT, NAME, Run, Writer, read
from collbench.runs.format_1 import note_of
from tests.conftest import ROOT

OLD = Path(__file__).with_name("data") / "format_1.jsonl"
COMMITTED = [path for path in sorted(ROOT.glob("results/**/run.jsonl")) if '"format": 1,' in path.read_text()[:99]]


def again(run: Run, folder: Path) -> Path:
    """The run, written anew."""
    with Writer(folder) as writer:
        writer.header(run.header)
        for result in run.results:
            writer.append(result)
        if run.complete and run.status is not None:
            writer.end("2026-01-01T00:00:00+00:00", run.status)
    return folder / NAME


def texts(path: Path) -> list[str]:
    """The notes that rows of format 1 have."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line.get("note", "") for line in lines if line["kind"] not in ("header", "end", "skipped", "failed")]


def test_the_facts_of_a_note_are_fields() -> None:
    """By their words; the rest are remarks."""
    shared, crowded, wrong, reported, predicted, explained, skipped = read(OLD).results
    assert isinstance(shared, Measurement)
    assert shared.note == Note(
        Sharing(2, 1, processes=True),
        picked="one-shot-ll",
        remarks=("one process for all GPUs: NCCL registers no buffers",),
    )
    assert isinstance(crowded, Timed)
    assert crowded.note == Note(oversubscribed=True, spin="busy", remarks=("sum, then divided",))
    assert wrong.wrong.startswith("rank 1, element 0")
    assert reported.wrong == "3 elements"
    assert isinstance(predicted, Timed)
    assert predicted.note == Note(picked="ring-ll", remarks=("NICs at 50%",))
    outcomes = [result.outcome.value for result in (shared, wrong, reported, predicted, explained, skipped)]
    assert outcomes == ["ok", "wrong", "wrong", "predicted", "ok", "skipped"]
    assert [outcome for outcome in Outcome if outcome.bad] == [Outcome.WRONG, Outcome.FAILED]


@pytest.mark.parametrize("path", [OLD, *COMMITTED], ids=lambda path: path.parent.name)
def test_a_run_says_the_same_in_the_format_of_today(path: Path, tmp_path: Path) -> None:
    """Read and written, it loses nothing: unknown fields of the header, the wording of notes, samples."""
    old = read(path)
    new_path = again(old, tmp_path / "new")
    new = read(new_path)
    assert (new.header, new.results, new.complete, new.status) == (old.header, old.results, old.complete, old.status)
    first = json.loads(new_path.read_text().splitlines()[0])
    assert first == json.loads(path.read_text().splitlines()[0]) | {"format": FORMAT}
    assert [str(result.note) for result in new.results if hasattr(result, "note")] == texts(path)
    assert '"note"' not in new_path.read_text()


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("", Note()),
        ("4 ranks share 2 GPUs", Note(Sharing(4, 2))),
        ("oversubscribed", Note(oversubscribed=True)),
        ("--spin yield", Note(spin="yield")),
        ("oversubscribed: 4 ranks share 2 cores", Note.of("oversubscribed: 4 ranks share 2 cores")),
        ("some ranks share a secret; picked two-shot", Note(picked="two-shot", remarks=("some ranks share a secret",))),
    ],
)
def test_a_text_is_read_back_from_what_it_says(text: str, note: Note) -> None:
    """Only the program's own words are facts."""
    assert note_of(text) == note


@pytest.mark.parametrize(
    "note", [Note(Sharing(4, 1), True, "busy", "ring-ll", ("a", "b")), Note(oversubscribed=True), Note.of("a", "", "b")]
)
def test_a_note_is_the_same_by_way_of_its_text(note: Note) -> None:
    """As a CSV holds it."""
    assert note_of(str(note)) == note
