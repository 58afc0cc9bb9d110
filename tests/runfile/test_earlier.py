"""Run files of earlier formats are read as if written today; headers of any content."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collbench.cases import SizeRange
from collbench.errors import RunFileError
from collbench.results import Measurement, Note, Timed
from collbench.results.facts import Sharing, note_of
from collbench.runfile.schema import KINDS, ForeignTest, Header, ImportedPart, upgraded
from collbench.runfile.store import FORMAT, NAME, Run, Writer, read
from tests.commands.step.made_up_steps import LATER, MEASURED, WRONG
from tests.commands.train.made_up_plans import PLAN
from tests.conftest import ROOT, measurement
from tests.runfile.test_schema import FAILURES
from tests.runfile.test_store import RESULTS

SINCE = {"init", "bits", "members", "round", "pair"}  # kinds of rows that came after the files of earlier formats
OLD, LATER_OLD = (Path(__file__).with_name("data") / f"format_{number}.jsonl" for number in (1, 2))
WHOLE: dict[str, Any] = {
    "collbench": "0.1",
    "command": ["collbench", "sweep"],
    "started": "2026-01-01T00:00:00+00:00",
    "environment": {"host": "vm", "versions": {"mpi": "4.2"}},
    "topology": {"name": "2 GPUs", "ranks": 2, "gpus": [{"name": "H100"}]},
    "sweep": {"collectives": ["allreduce"], "sizes": [8, 16], "ranks": 2, "spin": "auto", "sampling": {"budget": 0.5}},
    "imported": {"tool": "osu", "complete": False, "tests": [{"format": "osu", "layout": {"a": [1]}}]},
    "interleaved": {"id": "7", "cores": [0, 1]},
}
ODD: list[Any] = [5, None, "text", True, [1, [2]], {"a": {"b": 1}}, 1.5, [{"name": 3}]]


def again(run: Run, folder: Path) -> Path:
    with Writer(folder) as writer:
        writer.header(run.header)
        for result in run.results:
            writer.append(result)
        if run.complete and run.status is not None:
            writer.end("2026-01-01T00:00:00+00:00", run.status)
    return folder / NAME


def test_the_facts_of_a_note_of_format_1_become_fields() -> None:
    shared, crowded, wrong, reported, predicted, explained, skipped = read(OLD).results
    assert isinstance(shared, Measurement)
    remark = "one process for all GPUs: NCCL registers no buffers"
    assert shared.note == Note(Sharing(2, 1, processes=True), picked="one-shot-ll", remarks=(remark,))
    assert isinstance(crowded, Timed)
    assert crowded.note == Note(oversubscribed=True, spin="busy", remarks=("sum, then divided",))
    assert wrong.wrong.startswith("rank 1, element 0")
    assert reported.wrong == "3 elements"
    assert isinstance(predicted, Timed)
    assert predicted.note == Note(picked="ring-ll", remarks=("NICs at 50%",))
    outcomes = [result.outcome.value for result in (shared, wrong, reported, predicted, explained, skipped)]
    assert outcomes == ["ok", "wrong", "wrong", "predicted", "ok", "skipped"]
    for text, note in (
        ("", Note()),
        ("4 ranks share 2 GPUs", Note(Sharing(4, 2))),
        ("oversubscribed", Note(oversubscribed=True)),
        ("--spin yield", Note(spin="yield")),
        ("oversubscribed: 4 ranks share 2 cores", Note.of("oversubscribed: 4 ranks share 2 cores")),
        ("some ranks share a secret; picked two-shot", Note(picked="two-shot", remarks=("some ranks share a secret",))),
    ):
        assert note_of(text) == note, text
    for note in (Note(Sharing(4, 1), True, "busy", "ring-ll", ("a", "b"), buffers="c, d"), Note.of("a", "", "b")):
        assert note_of(str(note)) == note, "as a CSV holds it"


def test_a_run_of_an_earlier_format_says_the_same_in_the_format_of_today(tmp_path: Path) -> None:
    for path in (OLD, LATER_OLD):
        old = read(path)
        new_path = again(old, tmp_path / path.stem)
        new = read(new_path)
        for part in ("header", "results", "complete", "status"):
            assert getattr(new, part) == getattr(old, part), path
        assert json.loads(new_path.read_text().splitlines()[0])["format"] == FORMAT


def test_rows_of_format_2_are_the_results_that_were_written_into_it() -> None:
    run = read(LATER_OLD)
    wrong = [replace(measurement(seconds=()), mismatch=failure) for failure in FAILURES.values()]
    assert list(run.results) == [*RESULTS, PLAN, MEASURED, LATER, WRONG, *wrong]
    assert {type(result) for result in run.results} == {kind for name, kind in KINDS.items() if name not in SINCE}
    assert (run.header.topology.sockets[0].cores, run.header.sweep.requested) == (2, SizeRange(8, 8, 2.0))


def test_every_committed_run_is_of_the_format_of_today() -> None:
    for path in ROOT.glob("results/**/run.jsonl"):
        assert path.read_text().startswith(f'{{"kind":"header","format":{FORMAT},'), path


def test_a_header_is_read_by_the_names_of_its_parts_and_written_as_it_was_given() -> None:
    header = Header.from_json(WHOLE)
    assert (header.topology.gpus[0].name, header.interleaved.cores) == ("H100", (0, 1))
    assert header.imported.tests == (ForeignTest(format="osu", layout={"a": [1]}),)
    assert header.to_json() == WHOLE
    earlier = upgraded({"kind": "header", "format": 2, "environment": {"versions": {"nccl": 23007}}, "started": None})
    assert Header.from_json(earlier).environment.versions == {"nccl": "23007"}, "a number for some tools"
    made = Header(imported=ImportedPart(tool="osu", tests=(ForeignTest(complete=False),)))
    assert made.to_json() == {"imported": {"tool": "osu", "tests": [{"complete": False}]}}


def test_a_header_with_a_value_of_another_type_is_refused_in_one_line(tmp_path: Path) -> None:
    refused = r"^[^\n]*run\.jsonl:1: the header cannot be read: field [^\n]*$"
    for number in range(1, FORMAT + 1):
        for value in ODD:
            line = {"kind": "header", "format": number, "topology": {"ranks": [value], "links": value}}
            (tmp_path / NAME).write_text(json.dumps(line) + "\n")
            with pytest.raises(RunFileError, match=refused):
                read(tmp_path)
    assert Header.from_json({"weather": "fine", "topology": {"colour": 3}}) == Header(), "of a newer version"
    named = Header.from_json({"sweep": {"collectives": ["warp", "allreduce"], "dtypes": ["float4"], "ranks": 2}}).sweep
    assert (len(named.collectives), named.dtypes, named.ranks) == (1, (), 2), "also with names that it alone has"
