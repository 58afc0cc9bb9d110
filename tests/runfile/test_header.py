"""Headers of any content, the notes of rows as text, and the format of the runs that are committed."""

import json
from pathlib import Path
from typing import Any

import pytest

from collbench.errors import RunFileError
from collbench.results import Note
from collbench.results.facts import Sharing, note_of
from collbench.runfile.header import ForeignTest, Header, ImportedPart
from collbench.runfile.store import FORMAT, NAME, read
from tests.conftest import ROOT

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


def test_the_facts_of_a_note_are_read_from_its_text() -> None:
    for text, note in (
        ("", Note()),
        ("4 ranks share 2 GPUs", Note(Sharing(4, 2))),
        ("oversubscribed", Note(oversubscribed=True)),
        ("--spin yield", Note(spin="yield")),
        ("oversubscribed: 4 ranks share 2 cores", Note.of("oversubscribed: 4 ranks share 2 cores")),
        ("some ranks share a secret; picked two-shot", Note(picked="two-shot", remarks=("some ranks share a secret",))),
    ):
        assert note_of(text) == note, text
    for note in (Note(Sharing(4, 1), True, "busy", "ring-ll", ("a", "b")), Note.of("a", "", "b")):
        assert note_of(str(note)) == note, "as a CSV holds it"


def test_every_committed_run_is_of_the_format_of_today() -> None:
    for path in ROOT.glob("results/**/run.jsonl"):
        assert path.read_text().startswith(f'{{"kind":"header","format":{FORMAT},'), path


def test_a_header_is_read_by_the_names_of_its_parts_and_written_as_it_was_given() -> None:
    header = Header.from_json(WHOLE)
    assert (header.topology.gpus[0].name, header.interleaved.cores) == ("H100", (0, 1))
    assert header.imported.tests == (ForeignTest(format="osu", layout={"a": [1]}),)
    assert header.to_json() == WHOLE
    made = Header(imported=ImportedPart(tool="osu", tests=(ForeignTest(complete=False),)))
    assert made.to_json() == {"imported": {"tool": "osu", "tests": [{"complete": False}]}}


def test_a_header_with_a_value_of_another_type_is_refused_in_one_line(tmp_path: Path) -> None:
    refused = r"^[^\n]*run\.jsonl:1: the header cannot be read: field [^\n]*$"
    for value in ODD:
        line = {"kind": "header", "format": FORMAT, "topology": {"ranks": [value], "links": value}}
        (tmp_path / NAME).write_text(json.dumps(line) + "\n")
        with pytest.raises(RunFileError, match=refused):
            read(tmp_path)
    assert Header.from_json({"weather": "fine", "topology": {"colour": 3}}) == Header(), "of a newer version"
